/** Adafactor: Adam with factored second moments. */
import * as mx from "@lazuli/core"
import { ArgumentError, isList, type Kind } from "@lazuli/core/engine"
import { belowOne, named, optional } from "../arguments"
import { aLearningRate, type LearningRate, Optimizer, type ParameterState } from "./optimizer"

/** Options of {@link Adafactor} other than the learning rate. */
export interface AdafactorOptions {
  /** Added to squared gradients, and the smallest scale of a parameter; [1e-30, 1e-3] by default. */
  eps?: readonly [number, number]
  /** The largest root mean square of an update; 1 by default. */
  clipThreshold?: number
  /** The running mean of squares keeps 1 − stepᵈᵉᶜᵃʸᴿᵃᵗᵉ; −0.8 by default. */
  decayRate?: number
  /** Decay of the running mean of updates; none by default. */
  beta1?: number | null
  /** Decoupled weight decay, times the step size; 0 by default. */
  weightDecay?: number
  /** Scale steps by the root mean square of the parameter; true by default. */
  scaleParameter?: boolean
  /** Derive the step size from the step count instead of the learning rate; true by default. */
  relativeStep?: boolean
  /** Start with small relative steps. */
  warmupInit?: boolean
}

const isEps = (value: unknown): boolean => typeof value === "number" && value >= 0
const bothEps: Kind = {
  expected: "a list of two non-negative numbers",
  accepts: (value: unknown) => isList(value) && value.length === 2 && value.every(isEps),
  element: isEps,
}

/** √ mean(x²) */
const rootMeanSquare = (x: mx.Array): mx.Array => x.square().mean().sqrt()

/**
 * Adam with little state and steps relative to the parameter's size. https://arxiv.org/abs/1804.04235
 * @example
 * const optimizer = new optim.Adafactor()
 * optimizer.init({ w: mx.zeros([2, 3]) })
 * optimizer.state.w.exp_avg_sq_row.shape // => [2]
 */
export class Adafactor extends Optimizer {
  readonly eps: readonly [number, number]
  readonly clipThreshold: number
  readonly decayRate: number
  readonly beta1: number | null
  readonly weightDecay: number
  readonly scaleParameter: boolean
  readonly relativeStep: boolean
  readonly warmupInit: boolean

  constructor(
    learningRate?: LearningRate | null,
    eps?: readonly [number, number],
    clipThreshold?: number,
    decayRate?: number,
    beta1?: number | null,
    weightDecay?: number,
    scaleParameter?: boolean,
    relativeStep?: boolean,
    warmupInit?: boolean,
  )
  constructor(learningRate: LearningRate | null, options: AdafactorOptions)
  constructor(options: { learningRate?: LearningRate | null } & AdafactorOptions)
  constructor(...args: unknown[]) {
    super()
    const [
      learningRate,
      eps = [1e-30, 1e-3],
      clipThreshold = 1,
      decayRate = -0.8,
      beta1,
      weightDecay = 0,
      scaleParameter = true,
      relativeStep = true,
      warmupInit = false,
    ] = named<
      [
        (LearningRate | null)?,
        (readonly [number, number])?,
        number?,
        number?,
        (number | null)?,
        number?,
        boolean?,
        boolean?,
        boolean?,
      ]
    >(
      "Adafactor",
      {
        learningRate: optional(aLearningRate),
        eps: optional(bothEps),
        clipThreshold: "positive?",
        decayRate: "finite?",
        beta1: optional(belowOne),
        weightDecay: "nonNegative?",
        scaleParameter: "bool?",
        relativeStep: "bool?",
        warmupInit: "bool?",
      },
      args,
    )
    if (learningRate !== undefined) this.setting("learning_rate", learningRate)
    else if (!relativeStep)
      throw new ArgumentError("Adafactor", "needs learningRate if relativeStep is false, received none")
    this.eps = eps
    this.clipThreshold = clipThreshold
    this.decayRate = decayRate
    this.beta1 = beta1 ?? null
    this.weightDecay = weightDecay
    this.scaleParameter = scaleParameter
    this.relativeStep = relativeStep
    this.warmupInit = warmupInit
  }

  override initSingle(parameter: mx.Array, state: ParameterState): void {
    const { shape, ndim, dtype } = parameter
    if (ndim >= 2) {
      state.exp_avg_sq_row = mx.zeros(shape.slice(0, -1), { dtype })
      state.exp_avg_sq_col = mx.zeros([...shape.slice(0, -2), shape[ndim - 1]], { dtype })
    } else state.exp_avg_sq = mx.zerosLike(parameter)
    if (this.beta1 !== null) state.exp_avg = mx.zerosLike(parameter)
  }

  /** The step size, in the dtype of the parameter. */
  private stepSize(scale: mx.Array): mx.Array {
    const size = this.relativeStep ? this.relativeSize() : this.learningRate
    const own = size.astype(scale.dtype)
    return this.scaleParameter ? mx.maximum(this.eps[1], scale).multiply(own) : own
  }

  private relativeSize(): mx.Array {
    const step = this.step.astype(mx.float32)
    return mx.minimum(this.warmupInit ? step.multiply(1e-6) : 1e-2, step.rsqrt())
  }

  /** The gradient over the root of its running mean of squares. */
  private normalized(gradient: mx.Array, state: ParameterState, dtype: mx.Dtype): mx.Array {
    const beta = mx.subtract(1, this.step.astype(mx.float32).power(this.decayRate).astype(dtype))
    const rest = mx.subtract(1, beta)
    const running = (name: string, value: mx.Array): mx.Array =>
      (state[name] = beta.multiply(state[name]).add(rest.multiply(value)))
    const squares = gradient.square().add(this.eps[0])
    if (gradient.ndim < 2) return running("exp_avg_sq", squares).rsqrt().multiply(gradient)
    const rows = running("exp_avg_sq_row", squares.mean(-1))
    const columns = running("exp_avg_sq_col", squares.mean(-2))
    const byRow = rows.divide(rows.mean(-1, true)).rsqrt()
    return mx.matmul(byRow.expandDims(-1), columns.rsqrt().expandDims(-2)).multiply(gradient)
  }

  protected override needsWhole(): boolean {
    return true
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const scale = rootMeanSquare(parameter)
    const size = this.stepSize(scale)
    const raw = this.normalized(gradient, state, scale.dtype)
    const clipped = raw.divide(mx.maximum(1, rootMeanSquare(raw).divide(this.clipThreshold)))
    let update = size.multiply(clipped)
    if (this.beta1 !== null) {
      update = state.exp_avg.multiply(this.beta1).add(update.multiply(1 - this.beta1))
      state.exp_avg = update
    }
    const { weightDecay } = this
    const decayed =
      weightDecay === 0 ? parameter : parameter.add(parameter.multiply(size.multiply(-weightDecay)))
    return decayed.subtract(update)
  }
}
