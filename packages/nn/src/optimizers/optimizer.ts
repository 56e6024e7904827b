/**
 * The base of optimizers: state, traversal of gradients and parameters, and scheduled hyperparameters.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  checkLevel,
  describe,
  format,
  getOwn,
  isList,
  isPlainObject,
  type Kind,
  LazuliError,
  parametersOf,
  renamed,
  replaceTree,
  ShapeError,
  sameShape,
  setOwn,
} from "@lazuli/core/engine"
import { about, aModule, aTree, check } from "../arguments"
import { shardedPaths } from "../layers/sharded-modules"
import { Module } from "../module"
import type { ParametersOf } from "../parameter-tree"
import type { Schedule } from "./schedulers"

/** The state of an optimizer for one parameter. */
export type ParameterState = Record<string, mx.Array>
/** The state of an optimizer: the step, the hyperparameters that may change, and the states of parameters by name. */
export interface OptimizerState {
  [name: string]: mx.Array | OptimizerState | OptimizerState[]
}
/** A learning rate: a number, an array, or a function of the step. */
export type LearningRate = number | mx.Array | Schedule

/** A valid learning rate: not NaN or negative. @internal */
export const aLearningRate: Kind = {
  expected: "a non-negative number, an array of one element or a schedule",
  accepts: (value: unknown) =>
    typeof value === "number"
      ? value >= 0 && value < Number.POSITIVE_INFINITY
      : typeof value === "function" || (value instanceof mx.Array && value.size === 1),
}

/** A learning rate without a schedule. */
const aRate: Kind = {
  expected: "a non-negative number or an array of one element",
  accepts: (value: unknown) =>
    typeof value !== "function" && (aLearningRate.accepts as (v: unknown) => boolean)(value),
}

/** @internal */
export const stepArguments = parametersOf({ gradients: aTree, parameters: aTree })
/** @internal */
export const rateArguments = parametersOf({ value: aRate })
const updateArguments = parametersOf({ model: aModule, gradients: aTree })

type Tree = Record<string, unknown>

/** A tree as nested objects and lists: a module as its parameters. */
export const plainTree = (tree: object): object => (tree instanceof Module ? tree.parameters() : tree)

/**
 * The base of all optimizers. A subclass initializes the state of a parameter (`initSingle`) and applies a gradient to it (`applySingle`).
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
    check("Optimizer", { schedulers: "record?" }, schedulers)
    for (const [name, schedule] of Object.entries(schedulers ?? {})) {
      check("Optimizer", { [name]: "function" }, schedule)
      this.schedules.push([name, schedule])
    }
  }

  /** The optimizer's state: a mutable tree, to pass to `compile` as `inputs` and `outputs`. Assign it to resume training. */
  get state(): OptimizerState {
    return this.values
  }
  set state(state: OptimizerState) {
    const op = this.constructor.name
    check(op, { state: "record" }, state)
    for (const name of Object.keys(this.values))
      if (this.values[name] instanceof mx.Array && !(state[name] instanceof mx.Array))
        throw new ArgumentError(
          op,
          `state must contain the array "${name}", received ${describe(state[name])}`,
        )
    replaceTree(this.values, state)
    this.values = state
    this.initialized = false
  }

  /** The number of updates so far, as uint64. */
  get step(): mx.Array {
    return this.values.step as mx.Array
  }

  /** The learning rate of the last update, or before that, of the first one. */
  get learningRate(): mx.Array {
    return this.values.learning_rate as mx.Array
  }
  set learningRate(value: number | mx.Array) {
    check("learningRate", rateArguments, value)
    this.values.learning_rate = asArray(value)
  }

  /** Sets a hyperparameter to a value, or to the value of a schedule before each update. */
  protected setting(name: string, value: LearningRate): void {
    if (typeof value === "function") this.schedules.push([name, value])
    this.values[name] = typeof value === "function" ? this.scheduled(name, value) : asArray(value)
  }

  /** The value of a schedule at the step. */
  private scheduled(name: string, schedule: Schedule): mx.Array {
    const value: unknown = schedule(this.step)
    if (typeof value === "number" || value instanceof mx.Array) return asArray(value)
    throw new ArgumentError(
      this.constructor.name,
      `the schedule of ${name} must return an array or a number, received ${describe(value)}`,
    )
  }

  /**
   * Initializes the state of parameters without one. The first update does so automatically; `compile` needs it before.
   * @param parameters - a tree of arrays, or a module
   * @example
   * const optimizer = new optim.Adam(0.1)
   * optimizer.init({ w: mx.zeros([2]) })
   * Object.keys(optimizer.state.w) // => ['m', 'v']
   */
  init(parameters: object): void {
    const prepare = (value: unknown, state: unknown, path: string, level: number): unknown => {
      if (value instanceof mx.Array) {
        if (state !== undefined && !isPlainObject(state))
          throw new ArgumentError(
            "init",
            `the state of "${path}" must be a plain object, received ${describe(state)}`,
            {
              hint: "The state also contains step and learning_rate, which cannot be names of parameters",
            },
          )
        const own = (state ?? {}) as ParameterState
        if (Object.keys(own).length === 0) this.initSingle(value, own)
        else this.checkState(value, own, path)
        return own
      }
      const at = (key: string | number): string => (path === "" ? String(key) : `${path}.${key}`)
      checkLevel(level, "init")
      if (isList(value)) {
        const list = (isList(state) ? state : []) as unknown[]
        value.forEach((child, i) => (list[i] = prepare(child, list[i], at(i), level + 1)))
        return list
      }
      if (!isPlainObject(value)) return state ?? {}
      const tree = (isPlainObject(state) ? state : {}) as Tree
      for (const key of Object.keys(value))
        setOwn(tree, key, prepare(value[key], getOwn(tree, key), at(key), level + 1))
      return tree
    }
    const tree = plainTree(parameters)
    if (!isPlainObject(tree))
      throw new ArgumentError(
        "init",
        `expected an object of parameters or a module, received ${describe(parameters)}`,
      )
    prepare(tree, this.values, "", 0)
    this.initialized = true
  }

  /** Validates an existing state of a parameter. @throws ArgumentError, ShapeError */
  private checkState(parameter: mx.Array, state: ParameterState, path: string): void {
    const fresh: ParameterState = {}
    this.initSingle(parameter, fresh)
    const hint = {
      hint: `The state belongs to an optimizer other than this ${this.constructor.name}, or to another model`,
    }
    for (const name of Object.keys(fresh)) {
      const held: unknown = state[name]
      if (!(held instanceof mx.Array))
        throw new ArgumentError("init", `the state of "${path}" has no array "${name}"`, hint)
      const [expected, { shape }] = [fresh[name].node.shape, held.node]
      if (!sameShape(expected, shape))
        throw new ShapeError(
          "init",
          `the state "${name}" of "${path}" must have shape ${format(expected)}, received ${format(shape)}`,
          hint,
        )
    }
  }

  /**
   * One step: returns the updated parameters. There may be more parameters than gradients.
   * @returns a tree like `gradients`
   * @throws ArgumentError for a gradient without a parameter or a state, ShapeError for one of another shape
   * @example
   * const w = new optim.SGD(0.5).applyGradients({ w: mx.array([1]) }, { w: mx.array([3]) }).w
   * w.tolist() // => [2.5]
   */
  applyGradients<M extends Module>(gradients: M, parameters: object): ParametersOf<M>
  applyGradients<G extends object>(gradients: G, parameters: object): G
  applyGradients(gradients: object, parameters: object): object {
    check("applyGradients", stepArguments, gradients, parameters)
    this.checkStep(gradients, parameters)
    const rates = this.schedules.map(([name, schedule]) => [name, this.scheduled(name, schedule)] as const)
    for (const [name, rate] of rates) this.values[name] = rate
    this.values.step = this.step.add(1)
    return this.eachGradient(gradients, parameters, (gradient, parameter, state, path) => {
      try {
        return this.applySingle(gradient, parameter as mx.Array, state as ParameterState)
      } catch (error) {
        throw error instanceof LazuliError ? about(error, "applyGradients", `"${path}"`) : error
      }
    })
  }

  /** Refuses what {@link applyGradients} would, and initializes the state of parameters; nothing advances. @internal */
  checkStep(gradients: object, parameters: object): void {
    let sharded: Set<string> | null = null
    this.eachGradient(gradients, parameters, (gradient, parameter, state, path) => {
      if (parameters instanceof Module && this.needsWhole(gradient)) {
        sharded ??= shardedPaths(parameters)
        if (sharded.has(path)) throw wholeNeeded(this, path)
      }
      checkShape(gradient, parameter, path)
      if (this.initialized) checkState(state, path)
    })
    try {
      // Gradients have the shapes and dtypes of their parameters.
      if (!this.initialized) this.init(gradients)
    } catch (error) {
      throw renamed(error, "applyGradients")
    }
  }

  /** A tree like that of the gradients, of what `take` gives for each. */
  private eachGradient(
    gradients: object,
    parameters: object,
    take: (gradient: mx.Array, parameter: unknown, state: unknown, path: string) => unknown,
  ): object {
    const apply = (gradient: unknown, parameter: unknown, state: unknown, path: string): unknown => {
      if (gradient instanceof mx.Array) return take(gradient, parameter, state, path)
      const [of, states] = [parameter as Tree | undefined, state as Tree]
      const at = (key: string | number): string => (path === "" ? String(key) : `${path}.${key}`)
      if (isList(gradient)) return gradient.map((child, i) => apply(child, of?.[i], states?.[i], at(i)))
      if (!isPlainObject(gradient)) return gradient
      const out: Tree = {}
      for (const key of Object.keys(gradient))
        setOwn(out, key, apply(gradient[key], getOwn(of, key), getOwn(states, key), at(key)))
      return out
    }
    return apply(plainTree(gradients), parameters, this.values, "") as object
  }

  /**
   * One step of training: applies the gradients to the model's parameters.
   * @example
   * const model = new nn.Linear(1, 1)
   * const [loss, grads] = nn.valueAndGrad(model, (x) => model.forward(x).sum())(mx.ones([1, 1]))
   * new optim.SGD(0.1).update(model, grads)
   */
  update(model: Module, gradients: object): void {
    check("update", updateArguments, model, gradients)
    try {
      model.update(this.applyGradients(gradients, model))
    } catch (error) {
      throw renamed(error, "update")
    }
  }

  /** True if an update of a parameter like this depends on all of it, so that no process can compute its part alone. */
  protected needsWhole(_parameter: mx.Array): boolean {
    return false
  }

  /** Initializes the state of a parameter. */
  initSingle(_parameter: mx.Array, _state: ParameterState): void {}

  /** The parameter after one step; updates `state`. */
  abstract applySingle(gradient: mx.Array, parameter: mx.Array, state: ParameterState): mx.Array

  /** The learning rate in the dtype of an array. */
  protected rateFor(a: mx.Array): mx.Array {
    return this.learningRate.astype(a.dtype)
  }
}

const asArray = (value: number | mx.Array): mx.Array => (value instanceof mx.Array ? value : mx.array(value))

function checkShape(gradient: mx.Array, parameter: unknown, path: string): void {
  const op = "applyGradients"
  if (!(parameter instanceof mx.Array))
    throw new ArgumentError(
      op,
      `there is a gradient for "${path}", but the parameter is ${describe(parameter)}`,
    )
  if (!sameShape(gradient.node.shape, parameter.node.shape))
    throw new ShapeError(
      op,
      `the gradient for "${path}" has shape ${format(gradient.node.shape)}, but the parameter has shape ${format(parameter.node.shape)}`,
    )
}

function checkState(state: unknown, path: string): void {
  if (!isPlainObject(state))
    throw new ArgumentError("applyGradients", `the optimizer has no state for "${path}"`, {
      hint: "optimizer.init(parameters) adds it for new parameters",
    })
}

const wholeNeeded = (optimizer: Optimizer, path: string): ArgumentError =>
  new ArgumentError(
    "applyGradients",
    `${optimizer.constructor.name} needs all of "${path}", of which each process has a part`,
    { hint: "Use an optimizer that works on every element alike, such as AdamW, or a MultiOptimizer" },
  )
