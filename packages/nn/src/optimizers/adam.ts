/** Adam and its variants: AdamW, with decoupled weight decay, and Adamax, with the infinity norm. */
import * as mx from "@lazuli/core"
import { isListOf, type Kind } from "@lazuli/core/engine"
import { belowOne, named, optional } from "../arguments"
import { aLearningRate, type LearningRate, Optimizer, type ParameterState } from "./optimizer"

/** Decay of the running means of gradients and of their squares. */
export type Betas = readonly [number, number]

/** Options of {@link Adamax} other than the learning rate. */
export interface AdamaxOptions {
  /** Decay of the running means; [0.9, 0.999] by default. */
  betas?: Betas
  /** Added to the denominator; 1e-8 by default. */
  eps?: number
}
/** Options of {@link Adam} other than the learning rate. */
export interface AdamOptions extends AdamaxOptions {
  /** Correct the bias of running means that start at 0; false by default. */
  biasCorrection?: boolean
}
/** Options of {@link AdamW} other than the learning rate. */
export interface AdamWOptions extends AdamOptions {
  /** Decoupled weight decay, times the learning rate; 0.01 by default. */
  weightDecay?: number
}

const isBeta = belowOne.accepts as (value: unknown) => boolean
/** Two numbers in [0, 1). @internal */
export const bothBetas: Kind = {
  expected: "a list of two numbers in [0, 1)",
  accepts: (value: unknown) => isListOf(value, isBeta) && (value as unknown[]).length === 2,
  element: isBeta,
}

const MOMENTS = {
  learningRate: aLearningRate,
  betas: optional(bothBetas),
  eps: "nonNegative?",
} as const

/** The base of {@link Adam} and its variants. */
abstract class Moments extends Optimizer {
  readonly betas: Betas
  readonly eps: number

  constructor(learningRate: LearningRate, betas: Betas = [0.9, 0.999], eps: number = 1e-8) {
    super()
    this.setting("learning_rate", learningRate)
    this.betas = betas
    this.eps = eps
  }

  override initSingle(parameter: mx.Array, state: ParameterState): void {
    state.m = mx.zerosLike(parameter)
    state.v = mx.zerosLike(parameter)
  }
}

/** One step of Adam from a parameter that may have decayed. */
function adamStep(
  { betas: [b1, b2], eps, step }: Moments,
  rate: mx.Array,
  gradient: mx.Array,
  parameter: mx.Array,
  state: ParameterState,
  biasCorrection: boolean,
): mx.Array {
  const m = state.m.multiply(b1).add(gradient.multiply(1 - b1))
  const v = state.v.multiply(b2).add(gradient.square().multiply(1 - b2))
  state.m = m
  state.v = v
  if (!biasCorrection) return parameter.subtract(rate.multiply(m).divide(v.sqrt().add(eps)))
  const count = step.astype(mx.float32)
  const left = (beta: number): mx.Array => mx.subtract(1, mx.power(beta, count))
  const c1 = rate.divide(left(b1)).astype(gradient.dtype)
  const c2 = left(b2).rsqrt().astype(gradient.dtype)
  return parameter.subtract(c1.multiply(m).divide(v.sqrt().multiply(c2).add(eps)))
}

/**
 * m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g² and w ← w − learningRate · m / (√v + eps). https://arxiv.org/abs/1412.6980
 * @throws ArgumentError for betas outside [0, 1) or a negative eps
 * @example
 * new optim.Adam({ learningRate: 0.5, biasCorrection: true }).biasCorrection // => true
 */
export class Adam extends Moments {
  readonly biasCorrection: boolean

  constructor(learningRate: LearningRate, betas?: Betas, eps?: number, biasCorrection?: boolean)
  constructor(learningRate: LearningRate, options: AdamOptions)
  constructor(options: { learningRate: LearningRate } & AdamOptions)
  constructor(...args: unknown[]) {
    const [learningRate, betas, eps, biasCorrection = false] = named<
      [LearningRate, Betas?, number?, boolean?]
    >("Adam", { ...MOMENTS, biasCorrection: "bool?" }, args)
    super(learningRate, betas, eps)
    this.biasCorrection = biasCorrection
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    return adamStep(this, this.rateFor(gradient), gradient, parameter, state, this.biasCorrection)
  }
}

/**
 * Adam on w · (1 − learningRate · weightDecay): the decay does not go through the running means. https://arxiv.org/abs/1711.05101
 * @throws ArgumentError for betas outside [0, 1) or a negative eps
 * @example
 * new optim.AdamW({ learningRate: 1e-3 }).weightDecay // => 0.01
 */
export class AdamW extends Moments {
  readonly weightDecay: number
  readonly biasCorrection: boolean

  constructor(
    learningRate: LearningRate,
    betas?: Betas,
    eps?: number,
    weightDecay?: number,
    biasCorrection?: boolean,
  )
  constructor(learningRate: LearningRate, options: AdamWOptions)
  constructor(options: { learningRate: LearningRate } & AdamWOptions)
  constructor(...args: unknown[]) {
    const [learningRate, betas, eps, weightDecay = 0.01, biasCorrection = false] = named<
      [LearningRate, Betas?, number?, number?, boolean?]
    >("AdamW", { ...MOMENTS, weightDecay: "nonNegative?", biasCorrection: "bool?" }, args)
    super(learningRate, betas, eps)
    this.weightDecay = weightDecay
    this.biasCorrection = biasCorrection
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const rate = this.rateFor(gradient)
    const decayed = parameter.multiply(mx.subtract(1, rate.multiply(this.weightDecay)))
    return adamStep(this, rate, gradient, decayed, state, this.biasCorrection)
  }
}

/**
 * m ← β₁ m + (1 − β₁) g, v ← max(β₂ v, |g|) and w ← w − learningRate · m / (v + eps). https://arxiv.org/abs/1412.6980
 * @throws ArgumentError for betas outside [0, 1) or a negative eps
 * @example
 * new optim.Adamax({ learningRate: 1e-3 }).betas // => [0.9, 0.999]
 */
export class Adamax extends Moments {
  constructor(learningRate: LearningRate, betas?: Betas, eps?: number)
  constructor(learningRate: LearningRate, options: AdamaxOptions)
  constructor(options: { learningRate: LearningRate } & AdamaxOptions)
  constructor(...args: unknown[]) {
    const [learningRate, betas, eps] = named<[LearningRate, Betas?, number?]>("Adamax", MOMENTS, args)
    super(learningRate, betas, eps)
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const [b1, b2] = this.betas
    const m = state.m.multiply(b1).add(gradient.multiply(1 - b1))
    const v = mx.maximum(state.v.multiply(b2), gradient.abs())
    state.m = m
    state.v = v
    return parameter.subtract(this.rateFor(gradient).multiply(m).divide(v.add(this.eps)))
  }
}
