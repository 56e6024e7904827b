/** Stochastic gradient descent, with momentum. */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { named } from "../arguments"
import { aLearningRate, type LearningRate, Optimizer, type ParameterState } from "./optimizer"

/** Settings of {@link SGD} beside the learning rate. */
export interface SGDOptions {
  /** Momentum: the share of the last update that goes into the next; 0 by default. */
  momentum?: number
  /** L2 penalty (weight decay); 0 by default. */
  weightDecay?: number
  /** Dampening of the momentum; 0 by default. */
  dampening?: number
  /** Use Nesterov momentum. */
  nesterov?: boolean
}

/**
 * v ← momentum · v + (1 − dampening) · g and w ← w − learningRate · v.
 * @throws ArgumentError for Nesterov momentum without a momentum or with dampening
 * @example
 * new optim.SGD(0.5).applyGradients({ w: mx.array([1]) }, { w: mx.array([3]) }).w.tolist() // => [2.5]
 */
export class SGD extends Optimizer {
  readonly momentum: number
  readonly weightDecay: number
  readonly dampening: number
  readonly nesterov: boolean

  constructor(
    learningRate: LearningRate,
    momentum?: number,
    weightDecay?: number,
    dampening?: number,
    nesterov?: boolean,
  )
  constructor(learningRate: LearningRate, options: SGDOptions)
  constructor(options: { learningRate: LearningRate } & SGDOptions)
  constructor(...args: unknown[]) {
    super()
    const [learningRate, momentum = 0, weightDecay = 0, dampening = 0, nesterov = false] = named<
      [LearningRate, number?, number?, number?, boolean?]
    >(
      "SGD",
      {
        learningRate: aLearningRate,
        momentum: "probability?",
        weightDecay: "nonNegative?",
        dampening: "probability?",
        nesterov: "bool?",
      },
      args,
    )
    if (nesterov && (momentum <= 0 || dampening !== 0))
      throw new ArgumentError("SGD", "Nesterov momentum needs a momentum and no dampening")
    this.setting("learning_rate", learningRate)
    this.momentum = momentum
    this.weightDecay = weightDecay
    this.dampening = dampening
    this.nesterov = nesterov
  }

  override initSingle(parameter: mx.Array, state: ParameterState): void {
    state.v = mx.zerosLike(parameter)
  }

  override applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array {
    const { momentum, weightDecay, dampening, nesterov } = this
    const g = weightDecay === 0 ? gradient : gradient.add(parameter.multiply(weightDecay))
    const rate = this.rateFor(g)
    if (momentum <= 0) return parameter.subtract(rate.multiply(g))
    const v = state.v.multiply(momentum).add(dampening > 0 ? g.multiply(1 - dampening) : g)
    state.v = v
    return parameter.subtract(rate.multiply(nesterov ? g.add(v.multiply(momentum)) : v))
  }
}
