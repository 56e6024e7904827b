/** AdaDelta. */
import * as mx from "@lazuli/core"
import { named } from "../arguments"
import { aLearningRate, type LearningRate, Optimizer, type ParameterState } from "./optimizer"

/** Options of {@link AdaDelta} other than the learning rate. */
export interface AdaDeltaOptions {
  /** Decay of the running mean of squares; 0.9 by default. */
  rho?: number
  /** Added under the square roots; 1e-6 by default. */
  eps?: number
}

/**
 * v ← rho · v + (1 − rho) · g², d = g · √(u + eps) / √(v + eps), u ← rho · u + (1 − rho) · d² and w ← w − learningRate · d.
 * https://arxiv.org/abs/1212.5701
 * @throws ArgumentError for a rho outside [0, 1], or an eps that is not positive
 * @example
 * new optim.AdaDelta({ learningRate: 0.1 }).learningRate.shape // => []
 */
export class AdaDelta extends Optimizer {
  readonly rho: number
  readonly eps: number

  constructor(learningRate: LearningRate, rho?: number, eps?: number)
  constructor(learningRate: LearningRate, options: AdaDeltaOptions)
  constructor(options: { learningRate: LearningRate } & AdaDeltaOptions)
  constructor(...args: unknown[]) {
    super()
    const [learningRate, rho = 0.9, eps = 1e-6] = named<[LearningRate, number?, number?]>(
      "AdaDelta",
      { learningRate: aLearningRate, rho: "probability?", eps: "positive?" },
      args,
    )
    this.setting("learning_rate", learningRate)
    this.rho = rho
    this.eps = eps
  }

  override initSingle(parameter: mx.Array, state: ParameterState): void {
    state.v = mx.zerosLike(parameter)
    state.u = mx.zerosLike(parameter)
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const { rho, eps } = this
    const v = state.v.multiply(rho).add(gradient.square().multiply(1 - rho))
    const d = state.u.add(eps).sqrt().divide(v.add(eps).sqrt()).multiply(gradient)
    state.v = v
    state.u = state.u.multiply(rho).add(d.square().multiply(1 - rho))
    return parameter.subtract(this.rateFor(gradient).multiply(d))
  }
}
