/** Segment reductions: segmentSum etc. Segment arguments are parsed in segment-arguments.ts. */
import { operation, type StreamOptions } from "../graph/args"
import { ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import type { RowRuns, SegmentIdOptions } from "../graph/option-types"
import { sizeOf } from "../graph/shape"
import { floatOperand, toDtype, wide } from "./constant"
import { full } from "./creation"
import { scatter } from "./gather"
import { sumDtype } from "./reduce"
import { idsOf, lengthsOf, readSegments, type Segments } from "./segment-arguments"
import { emptyValue, type SegmentReduction, segmentReduce } from "./segments"
import { take } from "./take"
import { stopGradient } from "./view"

const modes = { sum: "add", max: "maximum", min: "minimum" } as const

function reduceSegments(data: Array, segments: Segments, reduction: SegmentReduction): Array {
  const rest = data.shape.slice(1)
  const shape = [segments.count, ...rest]
  if (segments.kind === "runs") {
    const rows = data.reshape([1, data.shape[0], sizeOf(rest)])
    return segmentReduce([rows, segments.offsets.expandDims(0)], { reduction }).reshape(shape)
  }
  const dtype = reduction === "sum" ? sumDtype(data.dtype) : data.dtype
  // Scatter may round 16-bit floats at every update; a sum is rounded once, as for contiguous segments.
  const values = toDtype(data, reduction === "sum" ? wide(dtype) : dtype)
  const empty = full(shape, emptyValue(reduction, values.dtype) as number, values.dtype)
  const reduced = scatter([empty, values.expandDims(1), segments.ids], {
    axes: [0],
    mode: modes[reduction],
  })
  return toDtype(reduced, dtype)
}

/** Aligns one number per segment with the reduced rows. */
const besideRows = (x: Array, ndim: number): Array =>
  x.reshape([x.shape[0], ...new globalThis.Array<number>(ndim - 1).fill(1)])

const bodies = {
  segmentSum: (data: Array, segments: Segments): Array => reduceSegments(data, segments, "sum"),
  segmentMax: (data: Array, segments: Segments): Array => reduceSegments(data, segments, "max"),
  segmentMin: (data: Array, segments: Segments): Array => reduceSegments(data, segments, "min"),
  segmentMean: (data: Array, segments: Segments): Array => {
    const x = floatOperand("segmentMean", data)
    const sums = reduceSegments(toDtype(x, wide(x.dtype)), segments, "sum")
    const counts = toDtype(lengthsOf(segments).maximum(1), sums.dtype)
    return toDtype(sums.divide(besideRows(counts, data.ndim)), x.dtype)
  },
  segmentSoftmax: (data: Array, segments: Segments): Array => {
    const given = floatOperand("segmentSoftmax", data)
    const x = toDtype(given, wide(given.dtype))
    const ids = idsOf(segments, x.shape[0])
    const most = stopGradient(reduceSegments(x, segments, "max"))
    const e = x.subtract(take(most, ids, 0)).exp()
    return toDtype(e.divide(take(reduceSegments(e, segments, "sum"), ids, 0)), given.dtype)
  },
}

function segmentFunction(name: keyof typeof bodies): (args: readonly unknown[]) => Array {
  return operation(
    name,
    {
      data: "array",
      segmentIds: "indices?",
      numSegments: "size?",
      sorted: "bool?",
      lengths: "indices?",
      offsets: "indices?",
    },
    (
      data: Array,
      segmentIds?: unknown,
      numSegments?: number | null,
      sorted?: boolean,
      lengths?: unknown,
      offsets?: unknown,
    ): Array => {
      if (data.ndim === 0) throw new ShapeError(name, "data must have rows, received a 0-d array")
      const given = { segmentIds, numSegments, sorted, lengths, offsets }
      return bodies[name](data, readSegments(name, data.shape[0], given))
    },
  )
}
const [sumArgs, meanArgs, maxArgs, minArgs, softmaxArgs] = (
  ["segmentSum", "segmentMean", "segmentMax", "segmentMin", "segmentSoftmax"] as const
).map(segmentFunction)

/**
 * Sums over segments of the rows (first axis) of `data`: [N, …] becomes [segments, …]. Segments are given by an id for each row or, if
 * contiguous, by `lengths` (which sum to N) or `offsets` (the start of each segment, and N). An empty segment is 0. bool and integers below
 * 32 bits sum to int32, unsigned ones to uint32. `numSegments` must be given inside vmap and compile. `sorted: true` asserts ascending ids
 * (unchecked): each segment is then summed contiguously, in the same order on every device. Not in MLX; as JAX's `segment_sum`.
 * @throws IndexError for ids out of bounds or descending offsets: immediately for lists, at evaluation for arrays. (GPU backends drop rows
 * with such ids.)
 * @throws ShapeError unless there is an id for each row, or a list of lengths sums to the number of rows
 * @example
 * mx.segmentSum(mx.array([1, 2, 3, 4]), [1, 0, 1, 3]).tolist() // => [2, 4, 0, 4]
 * mx.segmentSum(mx.array([1, 2, 3, 4]), { lengths: [1, 0, 3] }).tolist() // => [1, 0, 9]
 * mx.segmentSum(mx.array([1, 2, 3, 4]), { offsets: [0, 2, 4] }).tolist() // => [3, 7]
 */
export function segmentSum(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentSum(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids, lengths or offsets.
export function segmentSum(...args: unknown[]): Array {
  return sumArgs(args)
}

/**
 * Means over segments of rows, in floating point; see {@link segmentSum} for the arguments. An empty segment is 0.
 * @throws IndexError for ids out of bounds or descending offsets
 * @example
 * mx.segmentMean(mx.array([[1, 2], [3, 4], [5, 6]]), [0, 0, 2]).tolist() // => [[2, 3], [0, 0], [5, 6]]
 */
export function segmentMean(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentMean(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids, lengths or offsets.
export function segmentMean(...args: unknown[]): Array {
  return meanArgs(args)
}

/**
 * Elementwise maxima over segments of rows; see {@link segmentSum} for the arguments. NaN propagates. An empty segment is -Infinity, or the
 * smallest integer of the dtype. Equal elements share the gradient.
 * @throws IndexError for ids out of bounds or descending offsets
 * @example
 * mx.segmentMax(mx.array([5, 1, 7]), { lengths: [2, 1, 0] }).tolist() // => [5, 7, -Infinity]
 */
export function segmentMax(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentMax(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids, lengths or offsets.
export function segmentMax(...args: unknown[]): Array {
  return maxArgs(args)
}

/**
 * Elementwise minima over segments of rows; see {@link segmentSum} for the arguments. NaN propagates. An empty segment is Infinity, or the
 * largest integer of the dtype. Equal elements share the gradient.
 * @throws IndexError for ids out of bounds or descending offsets
 * @example
 * mx.segmentMin(mx.array([5, 1, 7]), [0, 0, 1]).tolist() // => [1, 7]
 */
export function segmentMin(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentMin(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids, lengths or offsets.
export function segmentMin(...args: unknown[]): Array {
  return minArgs(args)
}

/**
 * The elementwise softmax over segments of rows, of the shape of `data`: exp(x) divided by the sum of exp(x) over the row's segment. See
 * {@link segmentSum} for the arguments.
 * @throws IndexError for ids out of bounds or descending offsets
 * @example
 * mx.segmentSoftmax(mx.array([1, 1, 7]), [0, 0, 1]).tolist() // => [0.5, 0.5, 1]
 */
export function segmentSoftmax(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentSoftmax(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids, lengths or offsets.
export function segmentSoftmax(...args: unknown[]): Array {
  return softmaxArgs(args)
}
