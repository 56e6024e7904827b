/** A combination of optimizers, each for a part of the parameters. */
import type * as mx from "@lazuli/core"
import {
  ArgumentError,
  describe,
  forEachLeaf,
  isList,
  isListOf,
  isPlainObject,
  type Kind,
  ofTrees,
  ofUser,
  setOwn,
} from "@lazuli/core/engine"
import { aTree, check, named, optional } from "../arguments"
import type { Module } from "../module"
import type { ParametersOf } from "../parameter-tree"
import { Optimizer, type OptimizerState, plainTree, rateArguments, stepArguments } from "./optimizer"

/** Selects the parameters of an optimizer by dotted path and gradient. */
export type ParameterFilter = (path: string, gradient: mx.Array) => boolean

type Tree = Record<string, unknown>

const listOf = (expected: string, accepts: (value: unknown) => boolean, least: number): Kind => ({
  expected,
  accepts: (value: unknown) => isListOf(value, accepts) && (value as unknown[]).length >= least,
  element: accepts,
})
const listOfOptimizers = listOf("a list of optimizers", (value) => value instanceof Optimizer, 1)
const listOfFunctions = listOf("a list of functions", (value) => typeof value === "function", 0)

/**
 * Updates each parameter with the first optimizer whose filter accepts it; the last optimizer, without a filter, updates the rest.
 * @throws ArgumentError unless there is one filter fewer than optimizers
 * @example
 * const optimizer = new optim.MultiOptimizer([new optim.SGD(1), new optim.SGD(2)], [(path) => path === 'a'])
 * const g = { a: mx.array([1]), b: mx.array([1]) }
 * optimizer.applyGradients(g, { a: mx.array([5]), b: mx.array([5]) }).b.tolist() // => [3]
 */
export class MultiOptimizer extends Optimizer {
  readonly optimizers: readonly Optimizer[]
  private readonly filters: readonly ParameterFilter[]

  constructor(optimizers: readonly Optimizer[], filters?: readonly ParameterFilter[])
  constructor(optimizers: readonly Optimizer[], options: { filters?: readonly ParameterFilter[] })
  constructor(options: { optimizers: readonly Optimizer[]; filters?: readonly ParameterFilter[] })
  constructor(...args: unknown[]) {
    super()
    const [optimizers, filters = []] = named<[readonly Optimizer[], (readonly ParameterFilter[])?]>(
      "MultiOptimizer",
      { optimizers: listOfOptimizers, filters: optional(listOfFunctions) },
      args,
    )
    if (filters.length !== optimizers.length - 1)
      throw new ArgumentError(
        "MultiOptimizer",
        `expected ${optimizers.length - 1} filters for ${optimizers.length} optimizers, received ${filters.length}`,
      )
    this.optimizers = optimizers
    this.filters = [...filters, () => true]
  }

  /** The states of the optimizers, under `states`. */
  override get state(): OptimizerState {
    return { states: this.optimizers.map((optimizer) => optimizer.state) }
  }
  override set state(state: OptimizerState) {
    check("MultiOptimizer", { state: "record" }, state)
    const { states } = state
    if (!isList(states) || states.length !== this.optimizers.length)
      throw new ArgumentError(
        "MultiOptimizer",
        `the state must have ${this.optimizers.length} states, received ${describe(states)}`,
      )
    this.optimizers.forEach((optimizer, i) => {
      optimizer.state = states[i] as OptimizerState
    })
  }

  /** The learning rate of the first optimizer; setting it sets all. */
  override get learningRate(): mx.Array {
    return this.optimizers[0].learningRate
  }
  override set learningRate(value: number | mx.Array) {
    check("learningRate", rateArguments, value)
    for (const optimizer of this.optimizers) optimizer.learningRate = value
  }

  override init(parameters: object): void {
    check("init", { parameters: aTree }, parameters)
    const parts = this.split(plainTree(parameters))
    this.optimizers.forEach((optimizer, i) => optimizer.init(parts[i]))
  }

  override applyGradients<M extends Module>(gradients: M, parameters: object): ParametersOf<M>
  override applyGradients<G extends object>(gradients: G, parameters: object): G
  override applyGradients(gradients: object, parameters: object): object {
    check("applyGradients", stepArguments, gradients, parameters)
    const parts = this.split(plainTree(gradients))
    // None advances where another refuses.
    this.checkParts(parts, parameters)
    return this.optimizers.reduce<unknown>(
      (merged, optimizer, i) => merge(merged, optimizer.applyGradients(parts[i], parameters)),
      {},
    ) as object
  }

  /** @internal */
  override checkStep(gradients: object, parameters: object): void {
    this.checkParts(this.split(plainTree(gradients)), parameters)
  }
  private checkParts(parts: readonly Tree[], parameters: object): void {
    this.optimizers.forEach((optimizer, i) => optimizer.checkStep(parts[i], parameters))
  }

  override applySingle(): mx.Array {
    throw new ArgumentError("MultiOptimizer", "has no arithmetic of its own; use applyGradients")
  }

  /** The gradients of each optimizer, as trees of the same structure, with {} for list elements of other optimizers. */
  private split(tree: object): Tree[] {
    const taker = new Map<string, number>()
    ofTrees("MultiOptimizer", () =>
      forEachLeaf(tree, (leaf, path) =>
        taker.set(
          path,
          ofUser(() => this.filters.findIndex((filter) => filter(path, leaf as mx.Array))),
        ),
      ),
    )
    return this.optimizers.map((_, which) => (part(tree, which) ?? {}) as Tree)

    function part(value: unknown, which: number, path = ""): unknown {
      const inside = (key: string | number, child: unknown): unknown =>
        part(child, which, path === "" ? String(key) : `${path}.${key}`)
      if (isList(value)) {
        const items = value.map((child, i) => inside(i, child))
        return items.some((item) => item !== undefined) ? items.map((item) => item ?? {}) : undefined
      }
      if (isPlainObject(value)) {
        const entries = Object.keys(value).map((key) => [key, inside(key, value[key])] as const)
        const held = entries.filter(([, child]) => child !== undefined)
        return held.length > 0 ? Object.fromEntries(held) : undefined
      }
      return taker.get(path) === which ? value : undefined
    }
  }
}

/** Merges two trees with disjoint leaves. */
function merge(a: unknown, b: unknown): unknown {
  if (isList(a) && isList(b))
    return Array.from({ length: Math.max(a.length, b.length) }, (_, i) => merge(a[i] ?? {}, b[i] ?? {}))
  if (isPlainObject(a) && isPlainObject(b)) {
    const out: Tree = { ...a }
    for (const key of Object.keys(b))
      setOwn(out, key, Object.hasOwn(out, key) ? merge(out[key], b[key]) : b[key])
    return out
  }
  return isPlainObject(a) && Object.keys(a).length === 0 ? b : a
}
