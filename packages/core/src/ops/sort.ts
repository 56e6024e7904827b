/** sort, argsort, what is derived from them (partition, topk, median), and searchsorted. */
import { type Axes, asArrayArgument, operation, type StreamOptions } from "../graph/args"
import { bool_, complex64, int32, promote, uint32 } from "../graph/dtype"
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, normalizeAxes, normalizeAxis, sizeOf } from "../graph/shape"
import { argsortAlong, eachSorted } from "./argsort"
import { where } from "./binary"
import { floatOperand, toDtype } from "./constant"
import { full, zeros } from "./creation"
import { gatherAlong, scatterAlong } from "./gather-along"
import { broadcastTo } from "./reduce"
import { sliceRange } from "./slice"
import { take } from "./take"
import { moveToFront } from "./view"

const sortAlong: Apply<{ axis: number }> = definePrimitive({
  name: "sort",
  params: { axis: "i64" },
  infer: ([x]) => x,
  reference: ([x], [out], { axis }) => {
    const width = x.dtype === complex64 ? 2 : 1
    eachSorted(x, axis, (_k, position, source) => {
      for (let part = 0; part < width; part++)
        out.data[width * position + part] = x.data[width * source + part]
    })
  },
  // Each cotangent returns to the source of its element.
  vjp: ({ inputs: [x], cotangents: [g], params }) => [
    scatterAlong([zeros(x.shape, x.dtype), argsortAlong([x], params), g], { ...params, mode: "set" }),
  ],
  jvp: ({ inputs: [x], tangents: [t], params }) => [t && gatherAlong([t, argsortAlong([x], params)], params)],
  vmap: ({ inputs: [x], axes: [batch], params: { axis } }) => ({
    outputs: [sortAlong([moveToFront(x, batch as number)], { axis: axis + 1 })],
    axes: [0],
  }),
})

/** The array and its normalized axis; flattened if the axis is null. */
function lineUp(op: string, a: unknown, axis: number | null): { x: Array; along: number } {
  const x = asArrayArgument(op, "a", a)
  if (axis === null) return { x: x.flatten(), along: 0 }
  return { x, along: normalizeAxis(op, axis, x.ndim) }
}

const sortArgs = operation(
  "sort",
  { a: "operand", axis: "axisOrNone?" },
  (a: Array, axis: number | null = -1) => {
    const { x, along } = lineUp("sort", a, axis)
    return sortAlong([x], { axis: along })
  },
)
/**
 * Sorts the elements in ascending order along an axis (the last by default), with NaN last; null flattens first. Complex numbers are
 * ordered lexicographically by real and imaginary part.
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.sort(mx.array([3, 1, 2])).tolist() // => [1, 2, 3]
 */
export function sort(a: Array, axis?: number | null, options?: StreamOptions): Array
export function sort(a: Array, options: { axis?: number | null } & StreamOptions): Array
export function sort(...args: unknown[]): Array {
  return sortArgs(args)
}

const argsortArgs = operation(
  "argsort",
  { a: "operand", axis: "axisOrNone?" },
  (a: Array, axis: number | null = -1) => {
    const { x, along } = lineUp("argsort", a, axis)
    return argsortAlong([x], { axis: along })
  },
)
/**
 * The indices (uint32) that sort the array along an axis (the last by default); null flattens first. Equal elements keep their order.
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.argsort(mx.array([3, 1, 2])).tolist() // => [1, 2, 0]
 */
export function argsort(a: Array, axis?: number | null, options?: StreamOptions): Array
export function argsort(a: Array, options: { axis?: number | null } & StreamOptions): Array
export function argsort(...args: unknown[]): Array {
  return argsortArgs(args)
}

function checkKth(op: string, kth: number, n: number): void {
  if (!Number.isInteger(kth)) throw new ArgumentError(op, `kth must be an integer, received ${describe(kth)}`)
  if (kth < -n || kth >= n) throw new ShapeError(op, `kth ${kth} is out of bounds for an axis of size ${n}`)
}

const partitionArgs = operation(
  "partition",
  { a: "operand", kth: "integer", axis: "axisOrNone?" },
  (a: Array, kth: number, axis: number | null = -1) => {
    const { x, along } = lineUp("partition", a, axis)
    checkKth("partition", kth, x.shape[along])
    return sortAlong([x], { axis: along })
  },
)
/**
 * Partitions the elements along an axis (the last by default): the kth is in its sorted position, with no larger ones before and no smaller
 * ones after it.
 * @throws ShapeError if kth is out of bounds
 * @example
 * mx.partition(mx.array([3, 1, 2]), 1).index(1).item() // => 2
 */
export function partition(a: Array, kth: number, axis?: number | null, options?: StreamOptions): Array
export function partition(a: Array, kth: number, options: { axis?: number | null } & StreamOptions): Array
export function partition(...args: unknown[]): Array {
  return partitionArgs(args)
}

const argpartitionArgs = operation(
  "argpartition",
  { a: "operand", kth: "integer", axis: "axisOrNone?" },
  (a: Array, kth: number, axis: number | null = -1) => {
    const { x, along } = lineUp("argpartition", a, axis)
    checkKth("argpartition", kth, x.shape[along])
    return argsortAlong([x], { axis: along })
  },
)
/**
 * The indices (uint32) that partition the array as in {@link partition}.
 * @throws ShapeError if kth is out of bounds
 * @example
 * mx.argpartition(mx.array([3, 1, 2]), 1).index(1).item() // => 2
 */
export function argpartition(a: Array, kth: number, axis?: number | null, options?: StreamOptions): Array
export function argpartition(a: Array, kth: number, options: { axis?: number | null } & StreamOptions): Array
export function argpartition(...args: unknown[]): Array {
  return argpartitionArgs(args)
}

const topkArgs = operation(
  "topk",
  { a: "operand", k: "integer", axis: "axisOrNone?", returnIndices: "bool?" },
  (
    a: Array,
    k: number,
    axis: number | null = -1,
    returnIndices: boolean = false,
  ): Array | [values: Array, indices: Array] => {
    const { x, along } = lineUp("topk", a, axis)
    const n = x.shape[along]
    if (!Number.isInteger(k) || k < 0 || k > n)
      throw new ShapeError("topk", `k must be from 0 to ${n}, the size of the axis, received ${describe(k)}`)
    const start = x.shape.map((_, i) => (i === along ? n - k : 0))
    if (!returnIndices) return sliceRange(sortAlong([x], { axis: along }), start, x.shape)
    const indices = sliceRange(argsortAlong([x], { axis: along }), start, x.shape)
    return [gatherAlong([x, indices], { axis: along }), indices]
  },
)
/**
 * The k largest elements along an axis (the last by default), in ascending order; with `returnIndices: true`, a pair with their indices
 * (uint32). Of equal elements, those at higher indices are selected. NaN counts as the largest value.
 * @throws ShapeError if the axis has fewer elements
 * @example
 * mx.topk(mx.array([3, 1, 2]), 2).tolist() // => [2, 3]
 * mx.topk(mx.array([3, 1, 2]), 2, { returnIndices: true })[1].tolist() // => [2, 0]
 */
export function topk(a: Array, k: number, axis?: number | null, options?: StreamOptions): Array
export function topk(
  a: Array,
  k: number,
  options: { axis?: number | null; returnIndices: true } & StreamOptions,
): [values: Array, indices: Array]
export function topk(
  a: Array,
  k: number,
  options: { axis?: number | null; returnIndices?: false } & StreamOptions,
): Array
// By hand: the number of results depends on `returnIndices`.
export function topk(...args: unknown[]): Array | [values: Array, indices: Array] {
  return topkArgs(args)
}

const medianArgs = operation(
  "median",
  { a: "operand", axis: "axes?", keepdims: "bool?" },
  (a: Array, axis?: Axes, keepdims: boolean = false): Array => {
    const x = floatOperand("median", a)
    const axes = normalizeAxes("median", axis, x.ndim)
    if (axes.length === 0) return x
    const others = x.shape.map((_, i) => i).filter((i) => !axes.includes(i))
    const n = sizeOf(axes.map((i) => x.shape[i]))
    if (n === 0)
      throw new ShapeError("median", `has no value over an empty axis, received shape ${format(x.shape)}`)
    const lines = x.transpose([...others, ...axes]).reshape([...others.map((i) => x.shape[i]), n])
    const sorted = sortAlong([lines], { axis: others.length })
    const middle = take(sorted, Math.floor(n / 2), -1)
    const y =
      n % 2 === 1
        ? middle
        : take(sorted, n / 2 - 1, -1)
            .add(middle)
            .multiply(0.5)
    // NaN is sorted last and makes the median NaN.
    const last = take(sorted, n - 1, -1)
    const out = where(last.equal(last), y, last)
    return keepdims ? out.reshape(x.shape.map((size, i) => (axes.includes(i) ? 1 : size))) : out
  },
)
/**
 * The middle element over the axes (all by default), or the mean of the two in the middle, in floating point.
 * @throws ShapeError over an empty axis
 * @example
 * mx.median(mx.array([5, 1, 2])).item() // => 2
 */
export function median(a: Array, axis?: Axes, keepdims?: boolean, options?: StreamOptions): Array
export function median(a: Array, axis: Axes, options: { keepdims?: boolean } & StreamOptions): Array
export function median(a: Array, options: { axis?: Axes; keepdims?: boolean } & StreamOptions): Array
export function median(...args: unknown[]): Array {
  return medianArgs(args)
}

/** True if a comes before b in sorted order; NaN comes last. */
const before = (a: Array, b: Array): Array => a.less(b).logicalOr(a.equal(a).logicalAnd(b.notEqual(b)))

/** Binary search: the number of n sorted elements before each value. `at` returns the elements at given positions. */
function bisect(n: number, values: Array, right: boolean, at: (position: Array) => Array): Array {
  let low = full(values.shape, 0, int32)
  let high = full(values.shape, n, int32)
  for (let width = n; width > 0; width = Math.floor(width / 2)) {
    const open = low.less(high)
    const middle = low.add(high).floorDivide(2)
    const element = at(middle.minimum(n - 1))
    const below = right ? before(values, element).logicalNot() : before(element, values)
    low = where(open.logicalAnd(below), middle.add(1), low)
    high = where(open.logicalAnd(below.logicalNot()), middle, high)
  }
  return toDtype(low, uint32)
}

/** sorted [n], values of any shape → the number of elements of `sorted` before each value. */
const searchSortedPrimitive: Apply<{ side: "left" | "right" }> = definePrimitive({
  name: "searchsorted",
  params: { side: ["left", "right"] },
  infer: ([, values]) => ({ shape: values.shape, dtype: uint32 }),
  decompose: ([sorted, values], { side }) =>
    bisect(sorted.shape[0], values, side === "right", (position) => take(sorted, position, 0)),
  vjp: () => [null, null],
  jvp: () => [null],
  vmap: ({ inputs: [sorted, values], axes, params, size }) => {
    const queries =
      axes[1] === null ? broadcastTo(values, [size, ...values.shape]) : moveToFront(values, axes[1])
    if (axes[0] === null) return { outputs: [searchSortedPrimitive([sorted, queries], params)], axes: [0] }
    const lines = moveToFront(sorted, axes[0])
    const flat = queries.reshape([size, -1])
    const found = bisect(lines.shape[1], flat, params.side === "right", (position) =>
      gatherAlong([lines, position], { axis: 1 }),
    )
    return { outputs: [found.reshape(queries.shape)], axes: [0] }
  },
})
const searchsortedArgs = operation(
  "searchsorted",
  { sortedSequence: "array", values: "any", side: ["left", "right"] },
  (s: Array, values: Array, side: "left" | "right" = "left") => {
    const v = asArrayArgument("searchsorted", "values", values)
    if (side !== "left" && side !== "right")
      throw new ArgumentError("searchsorted", `side must be "left" or "right", received ${describe(side)}`)
    if (s.ndim !== 1)
      throw new ShapeError(
        "searchsorted",
        `the sorted sequence must have 1 dimension, received shape ${format(s.shape)}`,
      )
    const met = promote(s.dtype, v.dtype)
    const dtype = met === bool_ ? int32 : met
    if (s.size === 0) return full(v.shape, 0, uint32)
    return searchSortedPrimitive([toDtype(s, dtype), toDtype(v, dtype)], { side })
  },
)
/**
 * The indices (uint32) at which to insert values to keep a sorted 1-d sequence sorted: before equal elements, or after them for `'right'`.
 * @throws ShapeError unless the sequence is 1-d
 * @example
 * mx.searchsorted(mx.array([1, 3, 5]), mx.array([3, 4])).tolist() // => [1, 2]
 */
export function searchsorted(
  sortedSequence: Array,
  values: Array,
  side?: "left" | "right",
  options?: StreamOptions,
): Array
export function searchsorted(
  sortedSequence: Array,
  values: Array,
  options: { side?: "left" | "right" } & StreamOptions,
): Array
export function searchsorted(...args: unknown[]): Array {
  return searchsortedArgs(args)
}
