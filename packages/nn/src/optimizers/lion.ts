/** Lion. */
import * as mx from "@lazuli/core"
import { named, optional } from "../arguments"
import { type Betas, bothBetas } from "./adam"
import { aLearningRate, type LearningRate, Optimizer, type ParameterState } from "./optimizer"

/** Options of {@link Lion} other than the learning rate. */
export interface LionOptions {
  /** The weight of the running mean in an update, and its decay; [0.9, 0.99] by default. */
  betas?: Betas
  /** Decoupled weight decay, times the learning rate; 0 by default. */
  weightDecay?: number
}

/**
 * c = β₁ m + (1 − β₁) g, m ← β₂ m + (1 − β₂) g and w ← w · (1 − learningRate · weightDecay) − learningRate · sign(c).
 * https://arxiv.org/abs/2302.06675
 * @throws ArgumentError for betas outside [0, 1)
 * @example
 * const w = new optim.Lion(0.5).applyGradients({ w: mx.array([9]) }, { w: mx.array([3]) }).w
 * w.tolist() // => [2.5]
 */
export class Lion extends Optimizer {
  readonly betas: Betas
  readonly weightDecay: number

  constructor(learningRate: LearningRate, betas?: Betas, weightDecay?: number)
  constructor(learningRate: LearningRate, options: LionOptions)
  constructor(options: { learningRate: LearningRate } & LionOptions)
  constructor(...args: unknown[]) {
    super()
    const [learningRate, betas = [0.9, 0.99], weightDecay = 0] = named<[LearningRate, Betas?, number?]>(
      "Lion",
      { learningRate: aLearningRate, betas: optional(bothBetas), weightDecay: "nonNegative?" },
      args,
    )
    this.setting("learning_rate", learningRate)
    this.betas = betas
    this.weightDecay = weightDecay
  }

  override initSingle(parameter: mx.Array, state: ParameterState): void {
    state.m = mx.zerosLike(parameter)
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const [b1, b2] = this.betas
    const rate = this.rateFor(gradient)
    const c = state.m.multiply(b1).add(gradient.multiply(1 - b1))
    state.m = state.m.multiply(b2).add(gradient.multiply(1 - b2))
    const decayed =
      this.weightDecay > 0 ? mx.subtract(1, rate.multiply(this.weightDecay)).multiply(parameter) : parameter
    return decayed.subtract(rate.multiply(c.sign()))
  }
}
