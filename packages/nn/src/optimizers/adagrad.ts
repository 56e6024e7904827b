/** Adagrad. */
import * as mx from "@lazuli/core"
import { named } from "../arguments"
import { aLearningRate, type LearningRate, Optimizer, type ParameterState } from "./optimizer"

/**
 * v ← v + g² and w ← w − learningRate · g / (√v + eps). https://jmlr.org/papers/v12/duchi11a.html
 * @throws ArgumentError unless eps is positive
 * @example
 * new optim.Adagrad({ learningRate: 0.1 }).learningRate.shape // => []
 */
export class Adagrad extends Optimizer {
  readonly eps: number

  constructor(learningRate: LearningRate, eps?: number)
  constructor(learningRate: LearningRate, options: { eps?: number })
  constructor(options: { learningRate: LearningRate; eps?: number })
  constructor(...args: unknown[]) {
    super()
    const [learningRate, eps = 1e-8] = named<[LearningRate, number?]>(
      "Adagrad",
      { learningRate: aLearningRate, eps: "positive?" },
      args,
    )
    this.setting("learning_rate", learningRate)
    this.eps = eps
  }

  override initSingle(parameter: mx.Array, state: ParameterState): void {
    state.v = mx.zerosLike(parameter)
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const v = state.v.add(gradient.square())
    state.v = v
    return parameter.subtract(this.rateFor(gradient).multiply(gradient).divide(v.sqrt().add(this.eps)))
  }
}
