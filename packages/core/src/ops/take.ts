/** take, takeAlongAxis, putAlongAxis, and slices with dynamic starts. */
import { asArrayArgument, composition, isList, operation, type StreamOptions } from "../graph/args"
import { IndexError, ShapeError } from "../graph/errors"
import { type Array, composed } from "../graph/graph"
import { broadcastShapes, format, normalizeAxis, SCALAR, type Shape, sameShape, sizeOf } from "../graph/shape"
import { toDtype } from "./constant"
import { array, zeros } from "./creation"
import { gather, scatter } from "./gather"
import { gatherAlong, scatterAlong } from "./gather-along"
import { asIndices, position, staticIndex } from "./positions"
import { broadcastTo } from "./reduce"
import { type Range, sliceRange, updateRange } from "./slice"
import { reshapeLike } from "./view"

const takeArgs = operation(
  "take",
  { a: "array", indices: "indices", axis: "axis?" },
  (given: Array, indices: Array | readonly number[] | number, axis?: number | null): Array => {
    const flat = axis === undefined || axis === null
    const x = flat ? given.flatten() : given
    const along = flat ? 0 : normalizeAxis("take", axis, x.ndim)
    const n = x.shape[along]
    if (typeof indices === "number") {
      const at = staticIndex("take", indices, along, n)
      const start = x.shape.map((_, i) => (i === along ? at : 0))
      const stop = x.shape.map((size, i) => (i === along ? at + 1 : size))
      return sliceRange(x, start, stop).squeeze(along)
    }
    const index = asIndices("take", indices)
    if (n === 0 && index.size > 0)
      throw new IndexError("take", `cannot take from axis ${along} with size 0 of shape ${format(x.shape)}`)
    const sliceSizes = x.shape.map((size, i) => (i === along ? 1 : size))
    if (n === 0)
      return zeros([...x.shape.slice(0, along), ...index.shape, ...x.shape.slice(along + 1)], x.dtype)
    return composed(() => {
      const out = gather([x, index], { axes: [along], sliceSizes }).squeeze(index.ndim + along)
      if (along === 0 || index.ndim === 0) return out
      const order = [
        ...globalThis.Array.from({ length: along }, (_, i) => index.ndim + i),
        ...index.shape.map((_, i) => i),
        ...globalThis.Array.from({ length: x.ndim - 1 - along }, (_, i) => index.ndim + along + i),
      ]
      return out.transpose(order)
    })
  },
)
/**
 * Takes elements by index along an axis, or from the flattened array; the axes of the indices replace the axis. Negative indices count from
 * the end.
 * @throws IndexError for an index out of bounds: immediately for a number, at evaluation for an array
 * @example
 * mx.take(mx.array([10, 20, 30]), [2, 0]).tolist() // => [30, 10]
 */
export function take(
  a: Array,
  indices: Array | readonly number[] | number,
  axis?: number | null,
  options?: StreamOptions,
): Array
export function take(
  a: Array,
  indices: Array | readonly number[] | number,
  options: { axis?: number | null } & StreamOptions,
): Array
export function take(...args: unknown[]): Array {
  return takeArgs(args)
}

/** Broadcasts an array and its indices except along the axis, or flattens both. */
function alignAlong(
  op: string,
  a: unknown,
  indices: unknown,
  axis: number | null | undefined,
): { x: Array; index: Array; along: number } {
  const x = asArrayArgument(op, "a", a)
  const index = asIndices(op, indices)
  if (axis === undefined || axis === null) return { x: x.flatten(), index: index.flatten(), along: 0 }
  const along = normalizeAxis(op, axis, x.ndim)
  if (index.ndim !== x.ndim)
    throw new ShapeError(
      op,
      `indices must have ${x.ndim} dimension${x.ndim === 1 ? "" : "s"} like the array, received shape ${format(index.shape)}`,
    )
  const one = (shape: Shape): number[] => shape.map((n, i) => (i === along ? 1 : n))
  const common = broadcastShapes(op, one(x.shape), one(index.shape))
  const withAxis = (n: number): number[] => common.map((m, i) => (i === along ? n : m))
  return {
    x: broadcastTo(x, withAxis(x.shape[along])),
    index: broadcastTo(index, withAxis(index.shape[along])),
    along,
  }
}

const takeAlongAxisArgs = operation(
  "takeAlongAxis",
  { a: "array", indices: "indices", axis: "axis?" },
  (a: Array, indices: Array | readonly number[], axis?: number | null): Array => {
    const { x, index, along } = alignAlong("takeAlongAxis", a, indices, axis)
    return gatherAlong([x, index], { axis: along })
  },
)
/**
 * Takes elements along an axis, with separate indices for each position of the other axes, such as those of argsort. Without an axis both
 * are flattened.
 * @throws IndexError, at evaluation, for an index out of bounds; ShapeError if other sizes do not broadcast
 * @example
 * mx.takeAlongAxis(mx.array([[1, 2], [3, 4]]), mx.array([[1], [0]], mx.int32), 1).tolist() // => [[2], [3]]
 */
export function takeAlongAxis(
  a: Array,
  indices: Array | readonly number[],
  axis?: number | null,
  options?: StreamOptions,
): Array
export function takeAlongAxis(
  a: Array,
  indices: Array | readonly number[],
  options: { axis?: number | null } & StreamOptions,
): Array
export function takeAlongAxis(...args: unknown[]): Array {
  return takeAlongAxisArgs(args)
}

const putAlongAxisArgs = operation(
  "putAlongAxis",
  { a: "array", indices: "indices", values: "any", axis: "axis?" },
  (x: Array, indices: Array | readonly number[], values: Array | number, axis?: number | null): Array => {
    const index = asIndices("putAlongAxis", indices)
    const given = typeof values === "number" ? array(values, x.dtype) : values
    const value = toDtype(asArrayArgument("putAlongAxis", "values", given), x.dtype)
    if (axis === undefined || axis === null) {
      const flat = broadcastTo(value, index.shape).flatten()
      return scatterAlong([x.flatten(), index.flatten(), flat], { axis: 0, mode: "set" }).reshape(x.shape)
    }
    const along = normalizeAxis("putAlongAxis", axis, x.ndim)
    if (index.ndim !== x.ndim)
      throw new ShapeError(
        "putAlongAxis",
        `indices must have ${x.ndim} dimension${x.ndim === 1 ? "" : "s"} like the array, received shape ${format(index.shape)}`,
      )
    const positions = broadcastTo(
      index,
      x.shape.map((n, i) => (i === along ? index.shape[i] : n)),
    )
    return scatterAlong([x, positions, broadcastTo(value, positions.shape)], { axis: along, mode: "set" })
  },
)
/**
 * A copy of `a` with `values` written at `indices` along an axis, or into the flattened array. For repeated indices the last value wins.
 * @throws IndexError, at evaluation, for an index out of bounds
 * @example
 * mx.putAlongAxis(mx.array([1, 2, 3]), [0], mx.array([9]), 0).tolist() // => [9, 2, 3]
 */
export function putAlongAxis(
  a: Array,
  indices: Array | readonly number[],
  values: Array | number,
  axis?: number | null,
  options?: StreamOptions,
): Array
export function putAlongAxis(
  a: Array,
  indices: Array | readonly number[],
  values: Array | number,
  options: { axis?: number | null } & StreamOptions,
): Array
export function putAlongAxis(...args: unknown[]): Array {
  return putAlongAxisArgs(args)
}

/** The axes along which a slice has a start, counted from the front. */
function axesOf(op: string, axes: readonly number[], ndim: number): number[] {
  const normal: number[] = []
  for (let i = 0; i < axes.length; i++) {
    const axis = normalizeAxis(op, axes[i], ndim)
    if (normal.includes(axis)) throw new ShapeError(op, `axes ${format(axes)} repeat an axis`)
    normal.push(axis)
  }
  return normal
}

/** The start of a slice along each of `axes`, as 0-d index arrays. */
function startsOf(op: string, start: unknown, axes: readonly number[]): Array[] {
  const index = asIndices(op, start)
  const { shape } = index.node
  if (shape.length > 1 || sizeOf(shape) !== axes.length)
    throw new ShapeError(
      op,
      `needs one start index for each of ${axes.length} axes, received indices of shape ${format(shape)}`,
    )
  return axes.length === 1 ? [reshapeLike(index, SCALAR)] : axes.map((_, i) => take(index, i, 0))
}

/** The range of a block whose starts are a list of integers; null where they are values. @throws IndexError for one out of bounds */
function knownStart(
  op: string,
  start: unknown,
  axes: readonly number[],
  shape: Shape,
  block: Shape,
): Range | null {
  if (!isList(start) || start.length !== axes.length) return null
  const first = block.map(() => 0)
  for (let i = 0; i < axes.length; i++) {
    const [axis, at] = [axes[i], start[i]]
    if (!Number.isInteger(at)) return null
    first[axis] = position(op, at as number, axis, shape[axis], block[axis])
  }
  return { start: first, stop: first.map((at, axis) => at + block[axis]), strides: block.map(() => 1) }
}

const sliceArgs = composition(
  "slice",
  { a: "array", startIndices: "indices", axes: "integerList", sliceSize: "integerList" },
  (
    x: Array,
    start: Array | readonly number[],
    axes: readonly number[],
    sliceSize: readonly number[],
  ): Array => {
    const normal = axesOf("slice", axes, x.ndim)
    if (sliceSize.length !== x.ndim || sliceSize.some((n, i) => n > x.shape[i]))
      throw new ShapeError(
        "slice",
        `a slice of size ${format(sliceSize)} does not fit an array of shape ${format(x.shape)}`,
      )
    const starts = startsOf("slice", start, normal)
    return gather([x, ...starts], { axes: normal, sliceSizes: sliceSize.slice() })
  },
)
/**
 * A slice with dynamic start: it has the shape `sliceSize` and starts at `startIndices` along `axes`, and at 0 along the others. For static
 * slices see {@link Array.index}.
 * @throws ShapeError if the slice is larger than the array; IndexError, at evaluation, if it is out of bounds
 * @example
 * mx.slice(mx.array([1, 2, 3, 4]), [1], [0], [2]).tolist() // => [2, 3]
 */
export function slice(
  a: Array,
  startIndices: Array | readonly number[],
  axes: readonly number[],
  sliceSize: readonly number[],
  options?: StreamOptions,
): Array
export function slice(...args: unknown[]): Array {
  return sliceArgs(args)
}

const sliceUpdateArgs = composition(
  "sliceUpdate",
  { a: "array", update: "array", startIndices: "indices", axes: "integerList" },
  (x: Array, update: Array, start: Array | readonly number[], axes: readonly number[]): Array => {
    const { shape: whole, dtype } = x.node
    let values = toDtype(update, dtype)
    const { shape: given } = values.node
    const normal = axesOf("sliceUpdate", axes, whole.length)
    const leading = whole.length - given.length
    // Axes without a start are replaced completely; the update broadcasts along them.
    const shape = whole.slice()
    for (let i = 0; i < normal.length; i++) shape[normal[i]] = given[normal[i] - leading] ?? 1
    if (!sameShape(given, shape)) values = broadcastTo(values, shape)
    for (let i = 0; i < shape.length; i++)
      if (shape[i] > whole[i])
        throw new ShapeError(
          "sliceUpdate",
          `an update of shape ${format(shape)} does not fit an array of shape ${format(whole)}`,
        )
    const known = knownStart("sliceUpdate", start, normal, whole, shape)
    if (known !== null) return updateRange(x, values, known, "set")
    const starts = startsOf("sliceUpdate", start, normal)
    return scatter([x, values, ...starts], { axes: normal, mode: "set" })
  },
)
/**
 * A copy of `a` with a slice replaced by `update`, which starts at `startIndices` along `axes`, and at 0 along the others.
 * @throws ShapeError if the update is larger than the array; IndexError if it is out of bounds: immediately for a list, at evaluation for
 * an array
 * @example
 * mx.sliceUpdate(mx.array([1, 2, 3]), mx.array([9]), [1], [0]).tolist() // => [1, 9, 3]
 */
export function sliceUpdate(
  a: Array,
  update: Array,
  startIndices: Array | readonly number[],
  axes: readonly number[],
  options?: StreamOptions,
): Array
export function sliceUpdate(...args: unknown[]): Array {
  return sliceUpdateArgs(args)
}
