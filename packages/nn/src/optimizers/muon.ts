/** Muon: momentum with orthogonalized updates. */
import * as mx from "@lazuli/core"
import { asCall } from "@lazuli/core/engine"
import { named } from "../arguments"
import { aLearningRate, type LearningRate, Optimizer, type ParameterState } from "./optimizer"

/** Options of {@link Muon} other than the learning rate. */
export interface MuonOptions {
  /** Momentum: the decay of the running mean of gradients; 0.95 by default. */
  momentum?: number
  /** L2 penalty (weight decay); 0.01 by default. */
  weightDecay?: number
  /** Use Nesterov momentum; true by default. */
  nesterov?: boolean
  /** Steps of the orthogonalizing iteration; 5 by default. */
  nsSteps?: number
}

/** Newton–Schulz iteration of degree 5: moves the singular values of a matrix near 1. */
function orthogonalized(matrix: mx.Array, steps: number): mx.Array {
  const [a, b, c] = [3.4445, -4.775, 2.0315]
  const tall = matrix.shape[0] > matrix.shape[1]
  let x = tall ? matrix.T : matrix
  x = x.divide(x.square().sum(null, true).sqrt().add(1e-7))
  for (let i = 0; i < steps; i++) {
    const square = mx.matmul(x, x.T)
    const factor = mx.addmm(square.multiply(b), square, square, { alpha: c })
    x = mx.addmm(x.multiply(a), factor, x)
  }
  return tall ? x.T : x
}

/** The step along a parameter's momentum, by its singular values near 1; the sizes are looked at anew where they change. */
const stepOf = asCall(
  "@lazuli/nn/muonStep",
  (update: mx.Array, rate: mx.Array, nsSteps: number): mx.Array => {
    const { shape } = update
    const matrix = orthogonalized(update.ndim > 2 ? update.reshape([shape[0], -1]) : update, nsSteps)
    const [rows, columns] = shape.slice(-2)
    return rate.multiply(Math.sqrt(Math.max(1, rows / columns))).multiply(matrix.reshape(shape))
  },
)

/**
 * v ← momentum · v + (1 − momentum) · g, and w moves along v with its singular values near 1, where w has two or more axes (the others
 * are merged into the second). https://kellerjordan.github.io/posts/muon/
 * @example
 * new optim.Muon({ learningRate: 0.02 }).nesterov // => true
 */
export class Muon extends Optimizer {
  readonly momentum: number
  readonly weightDecay: number
  readonly nesterov: boolean
  readonly nsSteps: number

  constructor(
    learningRate: LearningRate,
    momentum?: number,
    weightDecay?: number,
    nesterov?: boolean,
    nsSteps?: number,
  )
  constructor(learningRate: LearningRate, options: MuonOptions)
  constructor(options: { learningRate: LearningRate } & MuonOptions)
  constructor(...args: unknown[]) {
    super()
    const [learningRate, momentum = 0.95, weightDecay = 0.01, nesterov = true, nsSteps = 5] = named<
      [LearningRate, number?, number?, boolean?, number?]
    >(
      "Muon",
      {
        learningRate: aLearningRate,
        momentum: "probability?",
        weightDecay: "nonNegative?",
        nesterov: "bool?",
        nsSteps: "size?",
      },
      args,
    )
    this.setting("learning_rate", learningRate)
    this.momentum = momentum
    this.weightDecay = weightDecay
    this.nesterov = nesterov
    this.nsSteps = nsSteps
  }

  override initSingle(parameter: mx.Array, state: ParameterState): void {
    state.v = mx.zerosLike(parameter)
  }

  protected override needsWhole({ ndim }: mx.Array): boolean {
    return ndim >= 2
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const { momentum, weightDecay, nesterov, nsSteps } = this
    const g = weightDecay === 0 ? gradient : gradient.add(parameter.multiply(weightDecay))
    const v = state.v.multiply(momentum).add(g.multiply(1 - momentum))
    state.v = v
    const update = nesterov ? g.multiply(1 - momentum).add(v.multiply(momentum)) : v
    const rate = this.rateFor(g)
    if (update.ndim < 2) return parameter.subtract(rate.multiply(update))
    return parameter.subtract(stepOf(update, rate, nsSteps))
  }
}
