/**
 * Diagonals and triangles of matrices.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import { asDtype, type Dtype } from "../graph/dtype"
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { format, normalizeAxis } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { toDtype } from "./constant"
import { zeros } from "./creation"
import { scatter } from "./gather"
import { sum } from "./reduce"
import { take } from "./take"

/** The diagonal along two axes, as the last axis of the result. */
function diagonalOf(op: string, x: Array, offset: number, axis1: number, axis2: number): Array {
  if (!Number.isInteger(offset))
    throw new ArgumentError(op, `the offset must be an integer, received ${describe(offset)}`)
  if (x.ndim < 2) throw new ShapeError(op, `needs at least 2 dimensions, received shape ${format(x.shape)}`)
  const [row, column] = [normalizeAxis(op, axis1, x.ndim), normalizeAxis(op, axis2, x.ndim)]
  if (row === column) throw new ShapeError(op, `axis1 and axis2 are both ${row}`)
  const others = x.shape.map((_, i) => i).filter((i) => i !== row && i !== column)
  const [rows, columns] = [x.shape[row], x.shape[column]]
  const top = Math.max(-offset, 0)
  const left = Math.max(offset, 0)
  const count = Math.max(0, Math.min(rows - top, columns - left))
  const flat = x.transpose([...others, row, column]).flatten(-2)
  const positions = arange(count)
    .multiply(columns + 1)
    .add(count > 0 ? top * columns + left : 0)
  return take(flat, positions, -1)
}

const diagonalArgs = operation(
  "diagonal",
  { a: "array", offset: "integer?", axis1: "axis?", axis2: "axis?" },
  (a: Array, offset: number = 0, axis1: number = 0, axis2: number = 1): Array =>
    diagonalOf("diagonal", a, offset, axis1, axis2),
)
/**
 * The diagonal of the matrices along two axes (the first two by default), `offset` columns right of the main one, as the last axis of the
 * result.
 * @throws ShapeError for fewer than two dimensions
 * @example
 * mx.diagonal(mx.array([[1, 2], [3, 4]])).tolist() // => [1, 4]
 */
export function diagonal(
  a: Array,
  offset?: number,
  axis1?: number,
  axis2?: number,
  options?: StreamOptions,
): Array
export function diagonal(
  a: Array,
  offset: number,
  options: { axis1?: number; axis2?: number } & StreamOptions,
): Array
export function diagonal(
  a: Array,
  options: { offset?: number; axis1?: number; axis2?: number } & StreamOptions,
): Array
export function diagonal(...args: unknown[]): Array {
  return diagonalArgs(args)
}

const diagArgs = operation("diag", { a: "array", k: "integer?" }, (x: Array, k: number = 0): Array => {
  if (x.ndim === 2) return diagonalOf("diag", x, k, 0, 1)
  if (x.ndim !== 1) throw new ShapeError("diag", `needs 1 or 2 dimensions, received shape ${format(x.shape)}`)
  if (!Number.isInteger(k)) throw new ArgumentError("diag", `k must be an integer, received ${describe(k)}`)
  const n = x.shape[0]
  const size = n + Math.abs(k)
  const target = zeros([size, size], x.dtype)
  if (n === 0) return target
  const positions = arange(n)
  return scatter(
    [target, x.reshape([n, 1, 1]), positions.add(Math.max(-k, 0)), positions.add(Math.max(k, 0))],
    {
      axes: [0, 1],
      mode: "add",
    },
  )
})
/**
 * The k-th diagonal of a matrix, or a matrix with a vector as its k-th diagonal and zeros elsewhere.
 * @throws ShapeError for more than two dimensions
 * @example
 * mx.diag(mx.array([1, 2])).tolist() // => [[1, 0], [0, 2]]
 */
export function diag(a: Array, k?: number, options?: StreamOptions): Array
export function diag(a: Array, options: { k?: number } & StreamOptions): Array
export function diag(...args: unknown[]): Array {
  return diagArgs(args)
}

const traceArgs = operation(
  "trace",
  { a: "array", offset: "integer?", axis1: "axis?", axis2: "axis?", dtype: "dtype?" },
  (a: Array, offset: number = 0, axis1: number = 0, axis2: number = 1, dtype?: Dtype | null): Array => {
    const line = diagonalOf("trace", a, offset, axis1, axis2)
    return sum(dtype ? toDtype(line, asDtype("trace", dtype)) : line, -1)
  },
)
/**
 * The sum of a diagonal of the matrices along two axes (the first two by default); `dtype` converts before the sum.
 * @throws ShapeError for fewer than two dimensions
 * @example
 * mx.trace(mx.array([[1, 2], [3, 4]])).item() // => 5
 */
export function trace(
  a: Array,
  offset?: number,
  axis1?: number,
  axis2?: number,
  dtype?: Dtype | null,
  options?: StreamOptions,
): Array
export function trace(
  a: Array,
  offset: number,
  options: { axis1?: number; axis2?: number; dtype?: Dtype | null } & StreamOptions,
): Array
export function trace(
  a: Array,
  options: { offset?: number; axis1?: number; axis2?: number; dtype?: Dtype | null } & StreamOptions,
): Array
export function trace(...args: unknown[]): Array {
  return traceArgs(args)
}

/** Keeps the elements selected by column − row; zeros elsewhere. */
function triangle(op: string, a: unknown, k: number, keep: (difference: Array) => Array): Array {
  const x = asArrayArgument(op, "x", a)
  if (x.ndim < 2) throw new ShapeError(op, `needs at least 2 dimensions, received shape ${format(x.shape)}`)
  if (!Number.isInteger(k)) throw new ArgumentError(op, `k must be an integer, received ${describe(k)}`)
  const [rows, columns] = x.shape.slice(-2)
  const difference = arange(columns).subtract(arange(rows).reshape([rows, 1]))
  return where(keep(difference), x, zeros([], x.dtype))
}

const trilArgs = operation("tril", { x: "array", k: "integer?" }, (x: Array, k: number = 0) =>
  triangle("tril", x, k, (difference) => difference.lessEqual(k)),
)
/**
 * The lower triangle of the matrices over the last two axes: zeros above the k-th diagonal.
 * @throws ShapeError for fewer than two dimensions
 * @example
 * mx.tril(mx.ones([2, 2])).tolist() // => [[1, 0], [1, 1]]
 */
export function tril(x: Array, k?: number, options?: StreamOptions): Array
export function tril(x: Array, options: { k?: number } & StreamOptions): Array
export function tril(...args: unknown[]): Array {
  return trilArgs(args)
}

const triuArgs = operation("triu", { x: "array", k: "integer?" }, (x: Array, k: number = 0) =>
  triangle("triu", x, k, (difference) => difference.greaterEqual(k)),
)
/**
 * The upper triangle of the matrices over the last two axes: zeros below the k-th diagonal.
 * @throws ShapeError for fewer than two dimensions
 * @example
 * mx.triu(mx.ones([2, 2])).tolist() // => [[1, 1], [0, 1]]
 */
export function triu(x: Array, k?: number, options?: StreamOptions): Array
export function triu(x: Array, options: { k?: number } & StreamOptions): Array
export function triu(...args: unknown[]): Array {
  return triuArgs(args)
}
