/**
 * Conversion between concatenated rows of segments of different lengths and padded segments. Segment arguments are parsed in
 * segment-arguments.ts.
 */
import { operation, type Scalar, type StreamOptions } from "../graph/args"
import { ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import type { RowRuns } from "../graph/option-types"
import { format } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { full, zeros } from "./creation"
import { gather, scatter } from "./gather"
import { lengthsOfRuns, readRuns, valuesOf } from "./segment-arguments"
import { segmentIds } from "./segments"
import { take } from "./take"

/** The segment of each of n rows, and its position within the segment. */
function positionsOf(offsets: Array, n: number): [runs: Array, positions: Array] {
  const runs = segmentIds([offsets.expandDims(0)], { size: n }).squeeze(0)
  return [runs, arange(n, { dtype: offsets.dtype }).subtract(take(offsets, runs, 0))]
}

const padArgs = operation(
  "padSegments",
  { data: "array", lengths: "indices?", offsets: "indices?", maxLength: "size?", value: "operand?" },
  (
    data: Array,
    lengths?: unknown,
    offsets?: unknown,
    maxLength?: number | null,
    value: Scalar | Array = 0,
  ): Array => {
    const op = "padSegments"
    if (data.ndim === 0) throw new ShapeError(op, "data must have rows, received a 0-d array")
    const bounds = readRuns(op, data.shape[0], { lengths, offsets })
    const each = lengthsOfRuns(bounds)
    const longest =
      maxLength ?? valuesOf(op, each, "the result's size", "maxLength").reduce((a, b) => Math.max(a, b), 0)
    const shape = [each.shape[0], longest, ...data.shape.slice(1)]
    const [runs, positions] = positionsOf(bounds, data.shape[0])
    const updates = data.expandDims([1, 2])
    // Each position is written once, so adding is the same as setting, and its gradient is a plain gather.
    const rows = scatter([zeros(shape, data.dtype), updates, runs, positions], { axes: [0, 1], mode: "add" })
    if (value === 0) return rows
    const real = arange(longest, { dtype: each.dtype }).less(each.expandDims(1))
    const beside = real.reshape([...real.shape, ...data.shape.slice(1).map(() => 1)])
    return where(beside, rows, full([], value, data.dtype))
  },
)
/**
 * Pads contiguous segments of rows to equal length: [N, …] becomes [segments, maxLength, …], filled with `value` (0). Segments are given by
 * `lengths`, which sum to N, or by `offsets`: the start of each, and N. `maxLength` is the largest length by default; inside vmap and
 * compile it must be given. The inverse is {@link unpadSegments}.
 * @throws IndexError for invalid offsets (immediately for lists, otherwise at evaluation), and at evaluation for a segment longer than
 * `maxLength`. (GPU backends drop such rows.)
 * @throws ShapeError if a list of lengths does not sum to the number of rows
 * @example
 * mx.padSegments(mx.array([1, 2, 3]), { lengths: [1, 2] }).tolist() // => [[1, 0], [2, 3]]
 */
export function padSegments(
  data: Array,
  options: RowRuns<Array> & { maxLength?: number | null; value?: Scalar | Array } & StreamOptions,
): Array
// By hand: segments are given by lengths or by offsets.
export function padSegments(...args: unknown[]): Array {
  return padArgs(args)
}

const unpadArgs = operation(
  "unpadSegments",
  { data: "array", lengths: "indices?", offsets: "indices?", totalLength: "size?" },
  (data: Array, lengths?: unknown, offsets?: unknown, totalLength?: number | null): Array => {
    const op = "unpadSegments"
    if (data.ndim < 2)
      throw new ShapeError(op, `data must have runs and their rows, received shape ${format(data.shape)}`)
    const bounds = readRuns(op, totalLength ?? null, { lengths, offsets })
    if (bounds.shape[0] !== data.shape[0] + 1)
      throw new ShapeError(op, `expected ${data.shape[0]} runs, received ${bounds.shape[0] - 1}`)
    const n = totalLength ?? totalOf(op, bounds)
    const [runs, positions] = positionsOf(bounds, n)
    const sliceSizes = data.shape.map((size, axis) => (axis < 2 ? 1 : size))
    return gather([data, runs, positions], { axes: [0, 1], sliceSizes }).squeeze([1, 2])
  },
)
const totalOf = (op: string, offsets: Array): number =>
  valuesOf(op, take(offsets, offsets.shape[0] - 1, 0), "the result's size", "totalLength")[0]

/**
 * Removes the padding of segments: [segments, maxLength, …] becomes [N, …], where `lengths` sum to N. The inverse of {@link padSegments}.
 * `totalLength` is N; it must be given inside vmap and compile.
 * @throws IndexError for invalid offsets (immediately for lists, otherwise at evaluation), and at evaluation for a segment longer than the
 * padded length. (GPU backends clip it.)
 * @example
 * mx.unpadSegments(mx.array([[1, 0], [2, 3]]), { lengths: [1, 2] }).tolist() // => [1, 2, 3]
 */
export function unpadSegments(
  data: Array,
  options: RowRuns<Array> & { totalLength?: number | null } & StreamOptions,
): Array
// By hand: segments are given by lengths or by offsets.
export function unpadSegments(...args: unknown[]): Array {
  return unpadArgs(args)
}
