/** Reductions of rows that belong together: segmentSum and its kin. How segments are given is read in segment-arguments.ts. */
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
  // Scatter may round 16-bit floats at every update; a sum is rounded once, as that of a run.
  const values = toDtype(data, reduction === "sum" ? wide(dtype) : dtype)
  const empty = full(shape, emptyValue(reduction, values.dtype) as number, values.dtype)
  const reduced = scatter([empty, values.expandDims(1), segments.ids], {
    axes: [0],
    mode: modes[reduction],
  })
  return toDtype(reduced, dtype)
}

/** A number for each segment, shaped to stand beside its reduced rows. */
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
 * Sums of the rows (first axis) of `data` that belong together: [N, …] gives [segments, …]. Rows belong together by an id each, or as
 * runs, by `lengths` (which add up to N) or by `offsets` (where each run begins, and N at the end). A segment without rows is 0. bool
 * and integers below 32 bits sum to int32, unsigned ones to uint32. `numSegments` must be given inside vmap and compile. `sorted: true`
 * promises ascending ids, which is not checked: each segment is then summed as one run, in the same order on every device. MLX has no such
 * function; it is JAX's `segment_sum`.
 * @throws IndexError for an id outside the segments or offsets that descend: at once where lists are given, when computed for arrays.
 *   (GPU backends leave rows with such ids out.)
 * @throws ShapeError unless there is an id for each row, or lengths in a list add up to the rows
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
// By hand: segments are given by ids or by runs of rows.
export function segmentSum(...args: unknown[]): Array {
  return sumArgs(args)
}

/**
 * Means of the rows that belong together, in floating point; see {@link segmentSum} for how segments are given. A segment without rows is
 * 0.
 * @throws IndexError for an id outside the segments or offsets that descend
 * @example
 * mx.segmentMean(mx.array([[1, 2], [3, 4], [5, 6]]), [0, 0, 2]).tolist() // => [[2, 3], [0, 0], [5, 6]]
 */
export function segmentMean(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentMean(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids or by runs of rows.
export function segmentMean(...args: unknown[]): Array {
  return meanArgs(args)
}

/**
 * The largest of the rows that belong together, element by element; see {@link segmentSum} for how segments are given. NaN wins. A segment
 * without rows is -Infinity, or the smallest integer of the dtype. The derivative is shared among equal elements.
 * @throws IndexError for an id outside the segments or offsets that descend
 * @example
 * mx.segmentMax(mx.array([5, 1, 7]), { lengths: [2, 1, 0] }).tolist() // => [5, 7, -Infinity]
 */
export function segmentMax(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentMax(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids or by runs of rows.
export function segmentMax(...args: unknown[]): Array {
  return maxArgs(args)
}

/**
 * The smallest of the rows that belong together, element by element; see {@link segmentSum} for how segments are given. NaN wins. A segment
 * without rows is Infinity, or the largest integer of the dtype. The derivative is shared among equal elements.
 * @throws IndexError for an id outside the segments or offsets that descend
 * @example
 * mx.segmentMin(mx.array([5, 1, 7]), [0, 0, 1]).tolist() // => [1, 7]
 */
export function segmentMin(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentMin(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids or by runs of rows.
export function segmentMin(...args: unknown[]): Array {
  return minArgs(args)
}

/**
 * The softmax over the rows that belong together, element by element: exp(x) over the sum of exp(x) in the row's segment, in the shape of
 * `data`. See {@link segmentSum} for how segments are given.
 * @throws IndexError for an id outside the segments or offsets that descend
 * @example
 * mx.segmentSoftmax(mx.array([1, 1, 7]), [0, 0, 1]).tolist() // => [0.5, 0.5, 1]
 */
export function segmentSoftmax(
  data: Array,
  segmentIds: Array | readonly number[],
  options?: SegmentIdOptions & StreamOptions,
): Array
export function segmentSoftmax(data: Array, options: RowRuns<Array> & StreamOptions): Array
// By hand: segments are given by ids or by runs of rows.
export function segmentSoftmax(...args: unknown[]): Array {
  return softmaxArgs(args)
}
