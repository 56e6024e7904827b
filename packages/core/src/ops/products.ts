/**
 * inner, outer, tensordot, vecdot and kron, in terms of matmul and multiply.
 */
import { isList, operation, type StreamOptions } from "../graph/args"
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { format, normalizeAxis, sizeOf } from "../graph/shape"
import { matmul } from "./matmul"
import { sum } from "./reduce"

/** Contracts pairs of axes; the result has the other axes of x, then those of y. */
function contract(op: string, x: Array, y: Array, axesX: readonly number[], axesY: readonly number[]): Array {
  const left = axesX.map((axis) => normalizeAxis(op, axis, x.ndim))
  const right = axesY.map((axis) => normalizeAxis(op, axis, y.ndim))
  if (left.length !== right.length)
    throw new ShapeError(op, `${left.length} axes of a for ${right.length} of b`)
  if (new Set(left).size < left.length || new Set(right).size < right.length)
    throw new ShapeError(op, "an axis is given twice")
  left.forEach((axis, i) => {
    if (x.shape[axis] !== y.shape[right[i]])
      throw new ShapeError(
        op,
        `axis ${axis} of a has size ${x.shape[axis]} and axis ${right[i]} of b has size ${y.shape[right[i]]}: shapes ${format(x.shape)} and ${format(y.shape)}`,
      )
  })
  const keptX = x.shape.map((_, i) => i).filter((i) => !left.includes(i))
  const keptY = y.shape.map((_, i) => i).filter((i) => !right.includes(i))
  const inner = sizeOf(left.map((axis) => x.shape[axis]))
  const shapeX = keptX.map((i) => x.shape[i])
  const shapeY = keptY.map((i) => y.shape[i])
  const a = x.transpose([...keptX, ...left]).reshape([sizeOf(shapeX), inner])
  const b = y.transpose([...right, ...keptY]).reshape([inner, sizeOf(shapeY)])
  return matmul(a, b).reshape([...shapeX, ...shapeY])
}

const innerArgs = operation("inner", { a: "array", b: "array" }, (a: Array, b: Array): Array => {
  const [x, y] = [a, b]
  if (x.ndim === 0 || y.ndim === 0) return x.multiply(y)
  return contract("inner", x, y, [-1], [-1])
})
/**
 * * The inner product over the last axes of both.
 * @throws ShapeError if the last axes differ
 * @example
 * mx.inner(mx.array([1, 2]), mx.array([3, 4])).item() // => 11
 */
export function inner(a: Array, b: Array, options?: StreamOptions): Array
export function inner(...args: unknown[]): Array {
  return innerArgs(args)
}

const outerArgs = operation("outer", { a: "array", b: "array" }, (a: Array, b: Array): Array => {
  const [x, y] = [a, b]
  return x.flatten().reshape([-1, 1]).multiply(y.flatten())
})
/**
 * The outer product of the flattened arrays: shape [a.size, b.size].
 * @example
 * mx.outer(mx.array([1, 2]), mx.array([3, 4])).tolist() // => [[3, 4], [6, 8]]
 */
export function outer(a: Array, b: Array, options?: StreamOptions): Array
export function outer(...args: unknown[]): Array {
  return outerArgs(args)
}

const tensordotArgs = operation(
  "tensordot",
  { a: "array", b: "array", axes: "any?" },
  (a: Array, b: Array, axes: number | readonly (number | readonly number[])[] = 2): Array => {
    const [x, y] = [a, b]
    if (typeof axes === "number") {
      if (!Number.isInteger(axes) || axes < 0 || axes > Math.min(x.ndim, y.ndim))
        throw new ShapeError(
          "tensordot",
          `cannot sum over ${axes} axes of shapes ${format(x.shape)} and ${format(y.shape)}`,
        )
      const count = globalThis.Array.from({ length: axes }, (_, i) => i)
      return contract(
        "tensordot",
        x,
        y,
        count.map((i) => x.ndim - axes + i),
        count,
      )
    }
    if (!isList(axes) || axes.length !== 2)
      throw new ArgumentError(
        "tensordot",
        `axes must be a number or a pair of lists, received ${describe(axes)}`,
      )
    const [left, right] = axes.map((list) => (typeof list === "number" ? [list] : list))
    for (const list of [left, right])
      if (!isList(list))
        throw new ArgumentError("tensordot", `axes must be a pair of lists, received ${describe(list)} in it`)
    return contract("tensordot", x, y, left, right)
  },
)
/**
 * Contracts several axes: the last `axes` axes of a with the first ones of b, or the pairs of two lists of axes.
 * @throws ShapeError if sizes differ
 * @example
 * mx.tensordot(mx.ones([2, 3]), mx.ones([3, 4]), 1).shape // => [2, 4]
 */
export function tensordot(
  a: Array,
  b: Array,
  axes?: number | readonly (number | readonly number[])[],
  options?: StreamOptions,
): Array
export function tensordot(
  a: Array,
  b: Array,
  options: { axes?: number | readonly (number | readonly number[])[] } & StreamOptions,
): Array
export function tensordot(...args: unknown[]): Array {
  return tensordotArgs(args)
}

const vecdotArgs = operation(
  "vecdot",
  { a: "array", b: "array", axis: "axis?" },
  (a: Array, b: Array, axis: number = -1): Array => {
    const [x, y] = [a, b]
    const [i, j] = [normalizeAxis("vecdot", axis, x.ndim), normalizeAxis("vecdot", axis, y.ndim)]
    if (x.shape[i] !== y.shape[j])
      throw new ShapeError(
        "vecdot",
        `axis ${axis} has sizes ${x.shape[i]} and ${y.shape[j]}: shapes ${format(x.shape)} and ${format(y.shape)}`,
      )
    return sum(x.moveaxis(i, -1).conjugate().multiply(y.moveaxis(j, -1)), -1)
  },
)
/**
 * The dot product along one axis (the last by default); the others broadcast. Complex numbers in a are conjugated. Small integers are
 * summed as by {@link sum}.
 * @named axis
 * @throws ShapeError if the sizes of the axis differ
 * @example
 * mx.vecdot(mx.array([[1, 2], [3, 4]]), mx.array([1, 1])).tolist() // => [3, 7]
 */
export function vecdot(a: Array, b: Array, options?: { axis?: number } & StreamOptions): Array
export function vecdot(...args: unknown[]): Array {
  return vecdotArgs(args)
}

const kronArgs = operation("kron", { a: "array", b: "array" }, (a: Array, b: Array): Array => {
  const [x, y] = [a, b]
  const rank = Math.max(x.ndim, y.ndim)
  const pad = (shape: readonly number[]): number[] => [
    ...new globalThis.Array<number>(rank - shape.length).fill(1),
    ...shape,
  ]
  const [left, right] = [pad(x.shape), pad(y.shape)]
  return x
    .reshape(left.flatMap((n) => [n, 1]))
    .multiply(y.reshape(right.flatMap((n) => [1, n])))
    .reshape(left.map((n, i) => n * right[i]))
})
/**
 * The Kronecker product: blocks of each element of a times b.
 * @example
 * mx.kron(mx.array([1, 2]), mx.array([1, 10])).tolist() // => [1, 10, 2, 20]
 */
export function kron(a: Array, b: Array, options?: StreamOptions): Array
export function kron(...args: unknown[]): Array {
  return kronArgs(args)
}
