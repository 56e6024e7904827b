/**
 * `customFunction`: a function with derivatives and batching rules of its own. The primitive that carries the rules through the graph
 * is in custom-primitive.ts; here they are turned from trees, as users write them, to flat lists.
 */
import { type Array, TransformError, zerosLike } from "@lazuli/core"
import {
  Array as ArrayClass,
  arraysOf,
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
import { checkFunction, checkSynchronous } from "./argument"
import type { Axis } from "./batch"
import { type CallRules, customCall } from "./custom-primitive"
import { type Axes, vmap } from "./vmap"

/** The arguments as rules see them: one argument comes bare, several as a list. */
export type Packed<A extends readonly unknown[]> = A extends readonly [infer X] ? X : A

/** The result of a vjp rule: the cotangents of the arguments in their form; null where there is none. */
export type Cotangents<A extends readonly unknown[]> = A extends readonly [infer X]
  ? X | readonly [X] | null
  : { readonly [K in keyof A]: A[K] | null }

/** The batch axes of the arguments, in their form. */
type PackedAxes<A extends readonly unknown[]> = A extends readonly [unknown] ? Axes : { [K in keyof A]: Axes }

/** A vector–Jacobian product in two halves. */
export interface ResidualRules<A extends readonly unknown[], R, S> {
  /** The function once more, with what its derivative needs: a tree of arrays. Runs in place of the function. */
  readonly forward: (...args: A) => readonly [outputs: R, residuals: S]
  /** The product, from the residuals. */
  readonly backward: (residuals: S, cotangents: R) => Cotangents<A>
}

/** A function with rules of its own; calling it calls the function. */
export interface CustomFunction<A extends readonly unknown[], R> {
  (...args: A): R
  /** States the vector–Jacobian product. Arrays that the function captures get no gradient from it. */
  vjp(rule: (primals: Packed<A>, cotangents: R, outputs: R) => Cotangents<A>): CustomFunction<A, R>
  /** States it with residuals: what `forward` computes on the way, and gives beside the outputs, `backward` gets. */
  vjp<S>(rules: ResidualRules<A, R, S>): CustomFunction<A, R>
  /** States the Jacobian–vector product. */
  jvp(rule: (primals: Packed<A>, tangents: Packed<A>) => R): CustomFunction<A, R>
  /** States what the function is for a batch: the outputs and their batch axes. */
  vmap(
    rule: (inputs: Packed<A>, axes: PackedAxes<A>) => readonly [outputs: R, axes: Axes],
  ): CustomFunction<A, R>
}

type Rules = {
  vjp?: (primals: never, cotangents: never, outputs: never) => unknown
  jvp?: (primals: never, tangents: never) => unknown
  vmap?: (inputs: never, axes: never) => unknown
  /** With `backward`, in place of `vjp`. */
  forward?: (...args: never[]) => unknown
  backward?: (residuals: never, cotangents: never) => unknown
}

const packed = (args: readonly unknown[]): unknown => (args.length === 1 ? args[0] : args)

/**
 * Gives a function derivatives and batching rules of its own, where the derived ones are not wanted. What has no rule is derived from the
 * function as always.
 *
 * With one argument, `primals`, `tangents` and the cotangents to return are bare; with several they are lists.
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
      // No transform looks at constants.
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

/** The outputs and residuals that a forward half gives. */
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

/** The rules of one call, with its trees folded in. The primals that they get are the arguments' arrays, and then the residuals'. */
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

/** Refuses a batch whose examples are not like the outputs of the function. @throws TransformError */
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

/** The arrays of `given` at the paths where `template` has arrays; null where `given` has none. */
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

/** The rules of a call over a batch, where no rule says what the batch does: the given rules, batched. */
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
