/**
 * Full Jacobians and Hessians, by vmap of vjp over the rows of an identity matrix, or of jvp over its columns.
 */
import { type Array, eye, TransformError } from "@lazuli/core"
import {
  Array as ArrayClass,
  arraysOf,
  asCall,
  checkFunction,
  isInexact,
  mapLeaves,
  ofTrees,
  sizeOf,
  withArrays,
  withFreshHandles,
} from "@lazuli/core/engine"
import { checkDifferentiable, checkSynchronous } from "./argument"
import { jvp } from "./jvp"
import { isArray, stored } from "./stored-calls"
import { vjp } from "./vjp"
import { vmap } from "./vmap"

/** Jacobians of a result `R` with respect to an argument `X`: a tree like the argument for every array of the result. */
export type Jacobian<R, X> = R extends Array
  ? X
  : R extends readonly unknown[] | Record<string, unknown>
    ? { [K in keyof R]: Jacobian<R[K], X> }
    : R

type Nth<A extends readonly unknown[], N extends number> = number extends N ? A[0] : A[N]

function argument(op: string, f: unknown, args: readonly unknown[], argnum: number): unknown {
  checkFunction(op, f)
  if (!Number.isInteger(argnum) || argnum < 0 || argnum >= args.length)
    throw new TransformError(
      op,
      `argnum ${argnum} is out of range: the function was called with ${args.length} arguments`,
    )
  const arrays = ofTrees(op, () => arraysOf(args[argnum]))
  if (arrays.length === 0) throw new TransformError(op, `argument ${argnum} contains no array`)
  checkDifferentiable(op, args[argnum], arrays, `argument ${argnum}`)
  return args[argnum]
}

/** `f` as a function of one argument and its arrays. */
function alone<A extends readonly unknown[], R>(op: string, f: (...args: A) => R, args: A, argnum: number) {
  return (arrays: readonly Array[]): R => {
    const owner = withArrays(args[argnum], withFreshHandles(arrays))
    const given = args.map((arg, i) => (i === argnum ? owner : ofTrees(op, () => withFreshHandles(arg))))
    const result = f(...(given as unknown as A))
    checkSynchronous(op, result)
    ofTrees(op, () => arraysOf(result))
    return result
  }
}

const areArrays = (...values: readonly unknown[]): boolean => values.every(isArray)

// Calls of their own, as sizes in them follow those of the arrays in shapeless programs.

/** The standard basis of arrays like `like`, along the first axis. */
const basis = asCall("@lazuli/transforms/basis", basisOf, stored("basis", isArray, basisOf))

function basisOf(like: Array): Array {
  return eye(like.size, { dtype: like.dtype }).reshape([like.size, ...like.shape])
}

/** Rows of the Jacobian of an output like `y` with respect to an argument like `x`, in its shape. */
const ofRows = asCall("@lazuli/transforms/ofRows", shapedRows, stored("ofRows", areArrays, shapedRows))

function shapedRows(rows: Array, y: Array, x: Array): Array {
  return rows.reshape([...y.shape, ...x.shape])
}

/** The same for its columns, along the last axis. */
const ofColumns = asCall(
  "@lazuli/transforms/ofColumns",
  shapedColumns,
  stored("ofColumns", areArrays, shapedColumns),
)

function shapedColumns(columns: Array, x: Array): Array {
  return columns.reshape([...columns.shape.slice(0, -1), ...x.shape])
}

/**
 * The Jacobian of `f` with respect to one argument, in reverse mode: row by row with {@link vjp}. Cheaper than {@link jacfwd} if there are
 * fewer outputs than inputs. Its shape is the output's followed by the argument's; trees on either side give trees of such arrays.
 *
 * @example
 * jacrev((x) => x.square())(mx.array([1, 2])).tolist() // => [[2, 0], [0, 4]]
 */
export function jacrev<A extends readonly unknown[], R, const N extends number = 0>(
  f: (...args: A) => R,
  argnum?: N,
): (...args: A) => Jacobian<R, Nth<A, N>> {
  return byRows("jacrev", f, argnum ?? 0) as (...args: A) => Jacobian<R, Nth<A, N>>
}

function byRows<A extends readonly unknown[], R>(op: string, f: (...args: A) => R, position: number) {
  return (...args: A): unknown => {
    const owner = argument(op, f, args, position)
    const xs = arraysOf(owner)
    const g = alone(op, f, args, position)
    const result = g(xs)
    const outputs = arraysOf(result)
    checkOutputs(op, outputs)
    const rows = outputs.map((y, k) => {
      const row = (seed: Array): Array[] =>
        vjp((inputs: readonly Array[]) => [arraysOf(g(inputs))[k]], [xs], [seed])[1][0]
      const jacobians = vmap(row)(basis(y))
      return withArrays(
        owner,
        jacobians.map((j, i) => ofRows(j, y, xs[i])),
      )
    })
    return placed(result, rows)
  }
}

/**
 * The Jacobian of `f` with respect to one argument, in forward mode: column by column with {@link jvp}. Cheaper than {@link jacrev} if
 * there are fewer inputs than outputs. Its shape is the output's followed by the argument's; trees on either side give trees of such
 * arrays.
 *
 * @example
 * jacfwd((x) => x.square())(mx.array([1, 2])).tolist() // => [[2, 0], [0, 4]]
 */
export function jacfwd<A extends readonly unknown[], R, const N extends number = 0>(
  f: (...args: A) => R,
  argnum?: N,
): (...args: A) => Jacobian<R, Nth<A, N>> {
  return byColumns("jacfwd", f, argnum ?? 0) as (...args: A) => Jacobian<R, Nth<A, N>>
}

function byColumns<A extends readonly unknown[], R>(op: string, f: (...args: A) => R, position: number) {
  return (...args: A): unknown => {
    const owner = argument(op, f, args, position)
    const xs = arraysOf(owner)
    const g = alone(op, f, args, position)
    let result: unknown
    const columns = xs.map((x, i) => {
      const column = (t: Array): Array[] => {
        const [outputs, tangents] = jvp(
          (input: Array) => {
            result = g(xs.map((other, k) => (k === i ? input : other)))
            return arraysOf(result)
          },
          [x],
          [t],
        )
        checkOutputs(op, outputs)
        return tangents
      }
      return vmap(column, { outAxes: -1 })(basis(x)).map((j) => ofColumns(j, x))
    })
    const count = columns[0].length
    const rows = globalThis.Array.from({ length: count }, (_, k) =>
      withArrays(
        owner,
        columns.map((column) => column[k]),
      ),
    )
    return placed(result, rows)
  }
}

/**
 * The Hessian of a function with respect to one argument, as jacfwd of jacrev. For a scalar function of an array of shape s, it has shape
 * [...s, ...s].
 *
 * @example
 * hessian((x) => x.power(3).sum())(mx.array([1, 2])).tolist() // => [[6, 0], [0, 12]]
 */
export function hessian<A extends readonly unknown[], R, const N extends number = 0>(
  f: (...args: A) => R,
  argnum?: N,
): (...args: A) => Jacobian<Jacobian<R, Nth<A, N>>, Nth<A, N>> {
  checkFunction("hessian", f)
  const position: number = argnum ?? 0
  const run = byColumns("hessian", byRows("hessian", f, position), position)
  return run as (...args: A) => Jacobian<Jacobian<R, Nth<A, N>>, Nth<A, N>>
}

/** The tree with its arrays replaced by trees, in order. */
function placed(tree: unknown, rows: readonly unknown[]): unknown {
  let next = 0
  return mapLeaves(tree, (leaf) => (leaf instanceof ArrayClass ? rows[next++] : leaf))
}

function checkOutputs(op: string, outputs: readonly Array[]): void {
  if (outputs.length === 0) throw new TransformError(op, "the function returned no array")
  for (const y of outputs)
    if (!isInexact(y.dtype))
      throw new TransformError(op, `the function returned ${y.dtype.name}, which has no derivative`)
  if (outputs.some((y) => sizeOf(y.node.shape) === 0))
    throw new TransformError(op, "the function returned an empty array")
}
