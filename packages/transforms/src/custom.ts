/**
 * `customFunction`: functions with custom derivatives and batching rules. Converts rules on trees to rules on flat lists for the primitive
 * in custom-primitive.ts.
 */
import { type Array, TransformError, zerosLike } from "@lazuli/core"
import {
  Array as ArrayClass,
  arraysOf,
  checkFunction,
  checkOptions,
  childrenOf,
  describe,
  format,
  isList,
  isPlainObject,
  Mark,
  mapLeaves,
  ofTrees,
  type Shape,
  sameShape,
  withArrays,
  withFreshHandles,
  withOwnArrays,
} from "@lazuli/core/engine"
import { checkSynchronous } from "./argument"
import type { Axis } from "./batch"
import { type CallRules, customCall } from "./custom-primitive"
import { type Axes, vmap } from "./vmap"

/** The arguments of rules: a single argument itself, several as a list. */
export type Packed<A extends readonly unknown[]> = A extends readonly [infer X] ? X : A

/** The result of a vjp rule: the cotangents of the arguments, with null for zero. */
export type Cotangents<A extends readonly unknown[]> = A extends readonly [infer X]
  ? X | readonly [X] | null
  : { readonly [K in keyof A]: A[K] | null }

/** The batch axes of the arguments. */
type PackedAxes<A extends readonly unknown[]> = A extends readonly [unknown] ? Axes : { [K in keyof A]: Axes }

/** A vector–Jacobian product with residuals. */
export interface ResidualRules<A extends readonly unknown[], R, S> {
  /** Returns the outputs and the residuals, a tree of arrays. Runs instead of the function. */
  readonly forward: (...args: A) => readonly [outputs: R, residuals: S]
  /** Computes the product from the residuals. */
  readonly backward: (residuals: S, cotangents: R) => Cotangents<A>
}

/** A function with custom rules. */
export interface CustomFunction<A extends readonly unknown[], R> {
  (...args: A): R
  /** Defines the vector–Jacobian product. Captured arrays get no gradient. */
  vjp(rule: (primals: Packed<A>, cotangents: R, outputs: R) => Cotangents<A>): CustomFunction<A, R>
  /** Defines it with residuals, which `forward` returns with the outputs and `backward` receives. */
  vjp<S>(rules: ResidualRules<A, R, S>): CustomFunction<A, R>
  /** Defines the Jacobian–vector product. */
  jvp(rule: (primals: Packed<A>, tangents: Packed<A>) => R): CustomFunction<A, R>
  /** Defines the batched function, which returns the outputs and their batch axes. */
  vmap(
    rule: (inputs: Packed<A>, axes: PackedAxes<A>) => readonly [outputs: R, axes: Axes],
  ): CustomFunction<A, R>
}

type Rules = {
  vjp?: (primals: never, cotangents: never, outputs: never) => unknown
  jvp?: (primals: never, tangents: never) => unknown
  vmap?: (inputs: never, axes: never) => unknown
  /** With `backward`, instead of `vjp`. */
  forward?: (...args: never[]) => unknown
  backward?: (residuals: never, cotangents: never) => unknown
}

const packed = (args: readonly unknown[]): unknown => (args.length === 1 ? args[0] : args)

/**
 * Defines custom derivatives and batching rules of a function. Without a rule, these are derived from the function as usual.
 *
 * For a single argument, `primals`, `tangents` and returned cotangents are not wrapped in lists.
 *
 * @example
 * const clipped = customFunction((x) => x.exp()).vjp((x, g, y) => g.multiply(y.minimum(10)))
 * grad((x) => clipped(x).sum())(mx.array([0, 100])).tolist() // => [1, 10]
 * @example
 * const forward = (x) => { const y = x.exp(); return [y.log1p(), y] }
 * const softplus = customFunction((x) => x.exp().log1p()).vjp({ forward, backward: (y, g) => g.multiply(y).divide(y.add(1)) })
 * grad(softplus)(mx.array(0)).item() // => 0.5
 */
export function customFunction<A extends readonly unknown[], R>(f: (...args: A) => R): CustomFunction<A, R> {
  checkFunction("customFunction", f)
  const rules: Rules = {}
  const call = (...args: A): R => {
    const own = ofTrees("customFunction", () => withFreshHandles(args))
    const [result, residuals] = rules.forward ? forwardOf(rules.forward, own) : [f(...own), []]
    checkSynchronous("customFunction", result)
    return ofTrees("customFunction", () => {
      if (!rules.vjp && !rules.jvp && !rules.vmap && !rules.backward) return withOwnArrays(result, args) as R
      const given = arraysOf(args)
      const kept = arraysOf(residuals)
      const inner = arraysOf(result)
      // Constants are not transformed.
      if (![...given, ...kept, ...inner].some((x) => x.node.mark !== Mark.None))
        return withOwnArrays(result, args) as R
      const outputs = customCall(
        [...given, ...kept, ...inner],
        given.length + kept.length,
        flatRules(f.name, rules, args, result, residuals),
      )
      return withArrays(result, outputs) as R
    })
  }
  const chain = call as CustomFunction<A, R>
  const state = <K extends "vjp" | "jvp" | "vmap">(kind: K) => ({
    value: (rule: Rules[K] | Partial<Pick<Rules, "forward" | "backward">>): CustomFunction<A, R> => {
      const op = `customFunction.${kind}`
      const halves = kind === "vjp" && isPlainObject(rule) ? rule : {}
      if (kind === "vjp") for (const half of ["forward", "backward"] as const) delete rules[half]
      delete rules[kind]
      if (Object.keys(halves).length === 0) {
        checkFunction(op, rule)
        rules[kind] = rule as Rules[K]
        return chain
      }
      checkOptions(op, halves, ["forward", "backward"])
      for (const half of ["forward", "backward"] as const) checkFunction(`${op}: ${half}`, halves[half])
      return Object.assign(rules, halves) && chain
    },
  })
  return Object.defineProperties(chain, { vjp: state("vjp"), jvp: state("jvp"), vmap: state("vmap") })
}

/** Validates the outputs and residuals that `forward` returns. */
function forwardOf(forward: (...args: never[]) => unknown, args: readonly unknown[]): [unknown, unknown] {
  const answer = forward(...(args as never[]))
  checkSynchronous("customFunction", answer)
  if (!isList(answer) || answer.length !== 2)
    throw new TransformError(
      "customFunction",
      `forward must return [outputs, residuals], it returned ${describe(answer)}`,
    )
  return [answer[0], answer[1]]
}

/** The rules of a call on flat lists. Their primals are the arrays of the arguments, then those of the residuals. */
function flatRules(
  name: string,
  rules: Rules,
  args: readonly unknown[],
  result: unknown,
  residuals: unknown,
): CallRules {
  const count = arraysOf(args).length
  const argsOf = (arrays: readonly Array[]): never =>
    packed(withArrays(args, arrays) as readonly unknown[]) as never
  const resultOf = (arrays: readonly Array[]): never => withArrays(result, arrays) as never
  const flat: CallRules = { name, batched: (axes, outAxes) => batchedRules(flat, axes, outAxes) }
  const { vjp, jvp, vmap: batch, backward } = rules
  if (vjp || backward)
    flat.vjp = ({ primals, cotangents, outputs }) => {
      const kept = primals.slice(count)
      const given = backward
        ? backward(withArrays(residuals, kept) as never, resultOf(cotangents))
        : vjp?.(argsOf(primals), resultOf(cotangents), resultOf(outputs))
      const list = args.length === 1 && !(isList(given) && !isList(args[0])) ? [given] : given
      const owners = withArrays(args, primals)
      return [...flattenLike(`${name || "customFunction"}.vjp`, owners, list), ...kept.map(() => null)]
    }
  if (jvp)
    flat.jvp = ({ primals, tangents, outputs }) => {
      const filled = tangents.map((t, i) => t ?? zerosLike(primals[i]))
      return flattenLike(
        `${name || "customFunction"}.jvp`,
        resultOf(outputs),
        jvp(argsOf(primals), argsOf(filled)),
      )
    }
  if (batch)
    flat.vmap = ({ primals, axes, size, shapes }) => {
      const answer = batch(argsOf(primals), packed(withAxes(args, axes) as readonly unknown[]) as never)
      if (!isList(answer) || answer.length !== 2)
        throw new TransformError(
          `${name || "customFunction"}.vmap`,
          `must return [outputs, axes], it returned ${describe(answer)}`,
        )
      const outputs = arraysOf(answer[0])
      const outAxes = flatAxes(answer[1], answer[0])
      checkBatch(`${name || "customFunction"}.vmap`, outputs, outAxes, shapes, size)
      return { outputs, axes: outAxes }
    }
  return flat
}

/** Checks that the examples of a batch match the outputs of the function. @throws TransformError */
function checkBatch(
  op: string,
  batch: readonly Array[],
  axes: readonly Axis[],
  shapes: readonly Shape[],
  size: number,
): void {
  if (batch.length !== shapes.length)
    throw new TransformError(
      op,
      `must return as many arrays as the function, ${shapes.length}, it returned ${batch.length}`,
    )
  batch.forEach((y, i) => {
    const axis = axes[i]
    const { shape } = y.node
    const expected = shapes[i].slice()
    if (axis !== null) expected.splice(axis, 0, size)
    if (axis !== null && !(Number.isInteger(axis) && axis >= 0 && axis <= shapes[i].length))
      throw new TransformError(op, `returned the axis ${axis} for a batch of shape ${format(shape)}`)
    if (!sameShape(shape, expected))
      throw new TransformError(
        op,
        `must return shape ${format(expected)} for a batch with axis ${axis}, it returned ${format(shape)}`,
      )
  })
}

/** The tree with its arrays replaced by axes. */
function withAxes(tree: unknown, axes: readonly Axis[]): unknown {
  let next = 0
  return mapLeaves(tree, (leaf) => (leaf instanceof ArrayClass ? axes[next++] : leaf))
}

/** The axis of every array of a tree, from a prefix of it. */
function flatAxes(prefix: unknown, tree: unknown): Axis[] {
  if (prefix === null || typeof prefix === "number") return arraysOf(tree).map(() => prefix)
  const children = childrenOf(tree) as Record<string, unknown> | null
  const axes = childrenOf(prefix) as Record<string, unknown> | null
  if (!children || !axes)
    throw new TransformError("vmap", `expected an axis or null, received ${describe(prefix)}`)
  return Object.keys(children).flatMap((key) => flatAxes(axes[key] ?? null, children[key]))
}

/** The arrays of `given` at the paths of arrays in `template`, or null. */
function flattenLike(op: string, template: unknown, given: unknown): (Array | null)[] {
  if (template instanceof ArrayClass) {
    if (given === null || given === undefined) return [null]
    if (!(given instanceof ArrayClass))
      throw new TransformError(op, `must return an array or null here, it returned ${describe(given)}`)
    if (!sameShape(given.shape, template.shape))
      throw new TransformError(
        op,
        `must return shape [${template.shape}] for this array, it returned [${given.shape}]`,
      )
    return [given]
  }
  const children = childrenOf(template) as Record<string, unknown> | null
  if (children === null) return []
  const own =
    given === null || given === undefined ? {} : (childrenOf(given) as Record<string, unknown> | null)
  if (own === null || (isList(template) && isList(given) && given.length !== template.length))
    throw new TransformError(op, `must return ${describe(template)}, it returned ${describe(given)}`)
  return Object.keys(children).flatMap((key) => flattenLike(op, children[key], own[key]))
}

/** The rules of a batched call without a vmap rule: the given rules, batched. */
export function batchedRules(rules: CallRules, axes: readonly Axis[], outAxes: readonly number[]): CallRules {
  const batched: CallRules = {
    name: rules.name,
    batched: (inner, outer) => batchedRules(batched, inner, outer),
  }
  const { vjp, jvp } = rules
  if (vjp)
    batched.vjp = ({ primals, cotangents, outputs, inner }) => {
      const each = vmap(
        (xs: readonly Array[], gs: readonly Array[], ys: readonly Array[], zs: readonly Array[]) =>
          vjp({ primals: xs, cotangents: gs, outputs: ys, inner: zs }).map((g, i) => g ?? zerosLike(xs[i])),
        { inAxes: [axes, outAxes, outAxes, outAxes], outAxes: axes.map((axis) => axis ?? 0) },
      )
      return each(primals, cotangents, outputs, inner).map((g, i) => (axes[i] === null ? g.sum(0) : g))
    }
  if (jvp)
    batched.jvp = ({ primals, tangents, outputs }) => {
      const filled = tangents.map((t, i) => t ?? zerosLike(primals[i]))
      const each = vmap(
        (xs: readonly Array[], ts: readonly Array[], ys: readonly Array[]) =>
          jvp({ primals: xs, tangents: ts, outputs: ys }).map((t, i) => t ?? zerosLike(ys[i])),
        { inAxes: [axes, axes, outAxes], outAxes },
      )
      return each(primals, filled, outputs)
    }
  return batched
}
