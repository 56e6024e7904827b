/**
 * What all optimizers share: the state, the walk over trees of gradients and parameters, and settings that follow a schedule. The
 * arithmetic of each optimizer is in the file of its name.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  describe,
  getOwn,
  isList,
  isPlainObject,
  replaceTree,
  setOwn,
} from "@lazuli/core/engine"
import { Module } from "../module"
import type { Schedule } from "./schedulers"

/** The state that an optimizer keeps for one parameter. */
export type ParameterState = Record<string, mx.Array>
/** The state of an optimizer: the step, the settings that may change, and under the parameters' names their states. */
export interface OptimizerState {
  [name: string]: mx.Array | OptimizerState | OptimizerState[]
}
/** A learning rate: a number, an array, or a function of the step. */
export type LearningRate = number | mx.Array | Schedule

type Tree = Record<string, unknown>

/** A tree as nested objects and lists: a module as its parameters. */
export const plainTree = (tree: object): object => (tree instanceof Module ? tree.parameters() : tree)

/**
 * The base of all optimizers. A subclass says what it keeps for a parameter (`initSingle`) and how a gradient changes it
 * (`applySingle`); both are plain arithmetic on arrays, so that `compile` fuses it.
 *
 * @example
 * class SignDescent extends optim.Optimizer {
 *   applySingle(gradient, parameter) { return parameter.subtract(gradient.sign().multiply(0.1)) }
 * }
 * new SignDescent().applyGradients({ w: mx.array([5]) }, { w: mx.array([1]) }).w.shape // => [1]
 */
export abstract class Optimizer {
  private initialized = false
  private values: OptimizerState = { step: mx.array(0, mx.uint64) }
  private readonly schedules: [name: string, schedule: Schedule][] = []

  constructor(schedulers: Readonly<Record<string, Schedule>> | null = null) {
    for (const name of Object.keys(schedulers ?? {}))
      this.schedules.push([name, (schedulers as Record<string, Schedule>)[name]])
  }

  /** What the optimizer keeps: a mutable tree, which `compile` takes as `inputs` and `outputs`. Setting it continues from there. */
  get state(): OptimizerState {
    return this.values
  }
  set state(state: OptimizerState) {
    replaceTree(this.values, state)
    this.values = state
    this.initialized = false
  }

  /** How many updates there were, as uint64. */
  get step(): mx.Array {
    return this.values.step as mx.Array
  }

  /** The learning rate of the last update, or of the first one before it. */
  get learningRate(): mx.Array {
    return this.values.learning_rate as mx.Array
  }
  set learningRate(value: number | mx.Array) {
    this.values.learning_rate = asArray(value)
  }

  /** Sets a setting of the state to a value, or to what a schedule gives for the step, before each update. */
  protected setting(name: string, value: LearningRate): void {
    if (typeof value === "function") this.schedules.push([name, value])
    this.values[name] = asArray(typeof value === "function" ? value(this.step) : value)
  }

  /**
   * Makes the state of these parameters, where there is none yet. The first update does it by itself; `compile` needs it before.
   * @param parameters - a tree of arrays, or a module
   * @example
   * const optimizer = new optim.Adam(0.1)
   * optimizer.init({ w: mx.zeros([2]) })
   * Object.keys(optimizer.state.w) // => ['m', 'v']
   */
  init(parameters: object): void {
    const prepare = (value: unknown, state: unknown): unknown => {
      if (value instanceof mx.Array) {
        const own = (state ?? {}) as ParameterState
        if (Object.keys(own).length === 0) this.initSingle(value, own)
        return own
      }
      if (isList(value)) {
        const list = (isList(state) ? state : []) as unknown[]
        value.forEach((child, i) => (list[i] = prepare(child, list[i])))
        return list
      }
      return isPlainObject(value) ? prepareAll(value, (state ?? {}) as Tree) : (state ?? {})
    }
    const prepareAll = (tree: Tree, state: Tree): Tree => {
      for (const key of Object.keys(tree)) setOwn(state, key, prepare(tree[key], getOwn(state, key)))
      return state
    }
    const tree = plainTree(parameters)
    if (!isPlainObject(tree))
      throw new ArgumentError(
        "init",
        `expected an object of parameters or a module, received ${describe(parameters)}`,
      )
    prepareAll(tree, this.values)
    this.initialized = true
  }

  /**
   * One step: the parameters that follow from the gradients. The parameters may hold more than the gradients do.
   * @returns a tree like `gradients`
   * @example
   * const w = new optim.SGD(0.5).applyGradients({ w: mx.array([1]) }, { w: mx.array([3]) }).w
   * w.tolist() // => [2.5]
   */
  applyGradients<G extends object>(gradients: G, parameters: object): G {
    if (!this.initialized) this.init(gradients)
    for (const [name, schedule] of this.schedules) this.values[name] = asArray(schedule(this.step))
    this.values.step = this.step.add(1)
    const apply = (gradient: unknown, parameter: unknown, state: unknown, path: string): unknown => {
      if (gradient instanceof mx.Array) {
        if (!(parameter instanceof mx.Array))
          throw new ArgumentError(
            "applyGradients",
            `there is a gradient for "${path}", but the parameter is ${describe(parameter)}`,
          )
        return this.applySingle(gradient, parameter, state as ParameterState)
      }
      const [of, states] = [parameter as Tree | undefined, state as Tree]
      const at = (key: string | number): string => (path === "" ? String(key) : `${path}.${key}`)
      if (isList(gradient)) return gradient.map((child, i) => apply(child, of?.[i], states?.[i], at(i)))
      if (!isPlainObject(gradient)) return gradient
      const out: Tree = {}
      for (const key of Object.keys(gradient))
        setOwn(out, key, apply(gradient[key], getOwn(of, key), getOwn(states, key), at(key)))
      return out
    }
    return apply(plainTree(gradients), parameters, this.values, "") as G
  }

  /**
   * One step of training: applies the gradients to the model's parameters.
   * @example
   * const model = new nn.Linear(1, 1)
   * const [loss, grads] = nn.valueAndGrad(model, (x) => model.forward(x).sum())(mx.ones([1, 1]))
   * new optim.SGD(0.1).update(model, grads)
   */
  update(model: Module, gradients: object): void {
    model.update(this.applyGradients(gradients, model))
  }

  /** Puts into `state` what the optimizer keeps for a parameter. */
  initSingle(_parameter: mx.Array, _state: ParameterState): void {}

  /** The parameter after one step by its gradient; updates `state`. */
  abstract applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array

  /** The learning rate in the dtype of an array. */
  protected rateFor(a: mx.Array): mx.Array {
    return this.learningRate.astype(a.dtype)
  }
}

const asArray = (value: number | mx.Array): mx.Array => (value instanceof mx.Array ? value : mx.array(value))
