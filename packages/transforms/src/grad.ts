/**
 * `grad` and `valueAndGrad`: gradients of functions that return a loss, with respect to whole trees of arrays.
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
  isInexact,
  isList,
  isPlainObject,
  mapArrays,
  type Node,
  setOwn,
  withArrays,
  withFreshHandles,
} from "@lazuli/core/engine"
import { checkDifferentiable, checkSynchronous } from "./argument"
import { onesAs, pullback } from "./pullback"
import { trace, traced } from "./trace"
import { freshHandles } from "./vjp"

/** The arguments to differentiate with respect to, and the form of the function's result. */
export interface GradOptions {
  /** The positions of the arguments; 0 by default. A list gives a list of gradients. */
  readonly argnums?: number | readonly number[] | null
  /** Names of properties of the last argument, an options object. */
  readonly argnames?: string | readonly string[]
  /** True if the function returns `[loss, aux]`. */
  readonly hasAux?: boolean
}

/** The last argument of a function, which contains its named ones. */
type Last<A extends readonly unknown[]> = A extends readonly [...unknown[], infer L] ? L : Required<A>[0]

/** The gradients for positions `N` of arguments `A`: a list for several. */
type ByPosition<A extends readonly unknown[], N> = N extends number
  ? A[N]
  : N extends readonly [infer M extends number]
    ? A[M]
    : N extends readonly number[]
      ? { -readonly [K in keyof N]: A[N[K] & number] }
      : A[0]

type ByName<A extends readonly unknown[], S> = {
  [K in S extends readonly string[] ? S[number] : S & string]: K extends keyof Last<A> ? Last<A>[K] : never
}

/** The gradients for arguments `A`; `[by position, by name]` if names are given. */
export type Gradients<A extends readonly unknown[], O> = O extends {
  argnames: infer S extends string | readonly string[]
}
  ? [
      O extends { argnums: infer N extends number | readonly number[] } ? ByPosition<A, N> : null,
      ByName<A, S>,
    ]
  : O extends { argnums: infer N extends number | readonly number[] }
    ? ByPosition<A, N>
    : A[0]

type Aux<R> = R extends readonly [Array, infer X] ? X : R extends readonly [Array, ...infer X] ? X : never
type GradResult<A extends readonly unknown[], R, O> = O extends { hasAux: true }
  ? [grads: Gradients<A, O>, aux: Aux<R>]
  : Gradients<A, O>

type Selection = {
  readonly argnums: readonly number[]
  readonly argnames: readonly string[]
  readonly named: boolean
}

function select(op: string, options: GradOptions): Selection {
  checkOptions(op, options, ["argnums", "argnames", "hasAux"])
  const { argnums, argnames } = options
  const names = argnames === undefined ? [] : typeof argnames === "string" ? [argnames] : argnames
  const numbers = argnums ?? (names.length > 0 ? [] : [0])
  const list = isList(numbers) ? (numbers as readonly number[]) : [numbers as number]
  for (const n of list)
    if (!Number.isInteger(n) || n < 0)
      throw new TransformError(
        op,
        `argnums must be positions of arguments, counted from 0, received ${describe(n)}`,
      )
  if (new Set(list).size < list.length) throw new TransformError(op, "argnums names an argument twice")
  if (list.length === 0 && names.length === 0)
    throw new TransformError(
      op,
      "argnums and argnames are empty: there is nothing to differentiate with respect to",
    )
  return { argnums: list, argnames: names, named: names.length > 0 }
}

/** The loss in the result of a function. */
function lossOf(op: string, result: unknown, hasAux: boolean | undefined): Array {
  checkSynchronous(op, result)
  if (hasAux && (!isList(result) || result.length < 2))
    throw new TransformError(
      op,
      `with hasAux the function must return [loss, aux], it returned ${describe(result)}`,
    )
  const loss = isList(result) ? result[0] : result
  if (!(loss instanceof ArrayClass))
    throw new TransformError(
      op,
      `the function must return a scalar array, the loss, it returned ${describe(loss)}`,
    )
  if (loss.ndim !== 0)
    throw new TransformError(op, `the loss must be a scalar, it has shape ${format(loss.shape)}`, {
      hint: "Reduce it with sum or mean, or use vjp with a cotangent of its shape",
    })
  if (!isInexact(loss.dtype))
    throw new TransformError(op, `the loss is ${loss.dtype.name}, which has no gradient`, {
      hint: "Compute it in a floating dtype",
    })
  return loss
}

function differentiate(op: string, f: (...args: unknown[]) => unknown, options: GradOptions) {
  checkFunction(op, f)
  const { argnums, argnames, named } = select(op, options)
  return (args: readonly unknown[]): { result: unknown; grads: unknown } =>
    trace(op, (epoch) => {
      // Differentiated arguments are copied below.
      const passed = args.map((arg, n) => (argnums.includes(n) ? arg : withFreshHandles(arg)))
      const owners: Array[] = []
      const copies: Array[] = []
      const swap = (tree: unknown, name: string): unknown => {
        const arrays = arraysOf(tree)
        if (arrays.length === 0 && childrenOf(tree) === null)
          throw new TransformError(
            op,
            `${name} contains no array to differentiate with respect to, received ${describe(tree)}`,
            { hint: "mx.array(value) makes one" },
          )
        checkDifferentiable(op, tree, arrays, name)
        const fresh: Array[] = []
        for (const x of arrays) {
          const copy = traced(x)
          owners.push(x)
          copies.push(copy)
          fresh.push(copy)
        }
        return withArrays(tree, fresh)
      }
      for (const n of argnums) {
        if (n >= args.length)
          throw new TransformError(
            op,
            `argnums names argument ${n}, but the function was called with ${args.length}`,
          )
        passed[n] = swap(args[n], `argument ${n}`)
      }
      if (named) {
        const last = args[args.length - 1]
        for (const name of argnames)
          if (!isPlainObject(last) || !Object.hasOwn(last, name))
            throw new TransformError(
              op,
              `argnames names "${name}", but the last argument has no such property`,
            )
        const replaced: Record<string, unknown> = { ...(passed[args.length - 1] as Record<string, unknown>) }
        for (const name of argnames)
          setOwn(replaced, name, swap((last as Record<string, unknown>)[name], `argument "${name}"`))
        passed[args.length - 1] = replaced
      }
      // Filled by push; see evalTrees.
      const nodes: Node[] = []
      for (const copy of copies) nodes.push(copy.node)
      const result = f(...passed)
      const loss = lossOf(op, result, options.hasAux)
      const sums = pullback(nodes, [loss.node], [onesAs(loss.node)], epoch)
      const grads: Array[] = []
      for (let i = 0; i < sums.length; i++) grads.push(sums[i] ?? zerosLike(owners[i]))
      let next = 0
      const takeLike = (tree: unknown): unknown => mapArrays(tree, () => grads[next++])
      const positional = argnums.map((n) => takeLike(args[n]))
      const byPosition = positional.length === 0 ? null : positional.length === 1 ? positional[0] : positional
      if (!named) return { result: freshHandles(result), grads: byPosition }
      const last = args[args.length - 1] as Record<string, unknown>
      const byName = Object.fromEntries(argnames.map((name) => [name, takeLike(last[name])]))
      return { result: freshHandles(result), grads: [byPosition, byName] }
    })
}

const asOptions = (
  argnums: number | readonly number[] | GradOptions | null | undefined,
  argnames: string | readonly string[] | undefined,
): GradOptions =>
  isPlainObject(argnums) ? (argnums as GradOptions) : { argnums: argnums as number, argnames }

/**
 * A function that returns the value of `f` and its gradient: the derivative of the loss with respect to every array in the selected
 * arguments, as trees of their structure. `f` returns a scalar array, or a list that starts with one; the value is its whole result.
 *
 * @throws TransformError if the loss is not a scalar, or an argument has no floating arrays
 * @example
 * const [loss, grad] = valueAndGrad((w) => w.square().sum())(mx.array([1, 2]))
 * loss.item() // => 5
 * grad.tolist() // => [2, 4]
 */
export function valueAndGrad<A extends unknown[], R, const O extends GradOptions>(
  f: (...args: A) => R,
  options: O,
): (...args: A) => [value: R, grads: Gradients<A, O>]
export function valueAndGrad<A extends unknown[], R, const N extends number | readonly number[]>(
  f: (...args: A) => R,
  argnums: N,
): (...args: A) => [value: R, grads: Gradients<A, { argnums: N }>]
export function valueAndGrad<
  A extends unknown[],
  R,
  const N extends number | readonly number[] | null,
  const S extends string | readonly string[],
>(
  f: (...args: A) => R,
  argnums: N,
  argnames: S,
): (...args: A) => [value: R, grads: Gradients<A, { argnums: N; argnames: S }>]
export function valueAndGrad<A extends unknown[], R>(
  f: (...args: A) => R,
): (...args: A) => [value: R, grads: A[0]]
export function valueAndGrad(
  f: (...args: never[]) => unknown,
  argnums?: number | readonly number[] | GradOptions | null,
  argnames?: string | readonly string[],
): (...args: never[]) => unknown {
  const run = differentiate(
    "valueAndGrad",
    f as (...args: unknown[]) => unknown,
    asOptions(argnums, argnames),
  )
  return (...args) => {
    const { result, grads } = run(args)
    return [result, grads]
  }
}

/**
 * A function that returns the gradient of `f`: the derivative of the loss with respect to every array in the selected arguments, as trees
 * of their structure. With `hasAux`, `f` returns `[loss, aux]` and the result is `[gradient, aux]`.
 *
 * @throws TransformError if the loss is not a scalar, or an argument has no floating arrays
 * @example
 * grad((x) => x.square())(mx.array(3)).item() // => 6
 * grad(grad((x) => x.power(3)))(mx.array(2)).item() // => 12
 */
export function grad<A extends unknown[], R, const O extends GradOptions>(
  f: (...args: A) => R,
  options: O,
): (...args: A) => GradResult<A, R, O>
export function grad<A extends unknown[], R, const N extends number | readonly number[]>(
  f: (...args: A) => R,
  argnums: N,
): (...args: A) => Gradients<A, { argnums: N }>
export function grad<
  A extends unknown[],
  R,
  const N extends number | readonly number[] | null,
  const S extends string | readonly string[],
>(f: (...args: A) => R, argnums: N, argnames: S): (...args: A) => Gradients<A, { argnums: N; argnames: S }>
export function grad<A extends unknown[], R>(f: (...args: A) => R): (...args: A) => A[0]
export function grad(
  f: (...args: never[]) => unknown,
  argnums?: number | readonly number[] | GradOptions | null,
  argnames?: string | readonly string[],
): (...args: never[]) => unknown {
  const options = asOptions(argnums, argnames)
  const run = differentiate("grad", f as (...args: unknown[]) => unknown, options)
  return (...args) => {
    const { result, grads } = run(args)
    if (options.hasAux) {
      const [, ...aux] = result as unknown[]
      return [grads, aux.length === 1 ? aux[0] : aux]
    }
    if (isList(result))
      throw new TransformError(
        "grad",
        `the function must return only the loss, it returned ${describe(result)}`,
        {
          hint: "Pass hasAux: true, or use valueAndGrad",
        },
      )
    return grads
  }
}
