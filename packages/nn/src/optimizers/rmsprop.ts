/** RMSprop. */
import * as mx from "@lazuli/core"
import { named } from "../arguments"
import { aLearningRate, type LearningRate, Optimizer, type ParameterState } from "./optimizer"

/** Options of {@link RMSprop} other than the learning rate. */
export interface RMSpropOptions {
  /** Decay of the running mean of squares; 0.99 by default. */
  alpha?: number
  /** Added to the denominator; 1e-8 by default. */
  eps?: number
}

/**
 * v ← alpha · v + (1 − alpha) · g² and w ← w − learningRate · g / (√v + eps).
 * https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf
 * @throws ArgumentError for an alpha outside [0, 1], or an eps that is not positive
 * @example
 * new optim.RMSprop({ learningRate: 0.1 }).learningRate.shape // => []
 */
export class RMSprop extends Optimizer {
  readonly alpha: number
  readonly eps: number

  constructor(learningRate: LearningRate, alpha?: number, eps?: number)
  constructor(learningRate: LearningRate, options: RMSpropOptions)
  constructor(options: { learningRate: LearningRate } & RMSpropOptions)
  constructor(...args: unknown[]) {
    super()
    const [learningRate, alpha = 0.99, eps = 1e-8] = named<[LearningRate, number?, number?]>(
      "RMSprop",
      { learningRate: aLearningRate, alpha: "probability?", eps: "positive?" },
      args,
    )
    this.setting("learning_rate", learningRate)
    this.alpha = alpha
    this.eps = eps
  }

  override initSingle(parameter: mx.Array, state: ParameterState): void {
    state.v = mx.zerosLike(parameter)
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const { alpha, eps } = this
    const v = state.v.multiply(alpha).add(gradient.square().multiply(1 - alpha))
    state.v = v
    return parameter.subtract(this.rateFor(gradient).multiply(gradient).divide(v.sqrt().add(eps)))
  }
}
