/** Reductions of rows that belong together, chosen by name. The kernels are core's. */
import * as mx from "@lazuli/core"
import { operation } from "@lazuli/core/plugin"
import type { Integers } from "./positions"

const functions = {
  sum: mx.segmentSum,
  mean: mx.segmentMean,
  max: mx.segmentMax,
  min: mx.segmentMin,
} as const

/** A reduction over rows. */
export type SegmentReduction = keyof typeof functions
/** All of them. */
export const reductions = Object.keys(functions) as SegmentReduction[]

const segmentArgs = operation(
  "@lazuli/ext-pointcloud/segmentReduce",
  {
    data: "array",
    segmentIds: "indices?",
    numSegments: "size?",
    sorted: "bool?",
    lengths: "indices?",
    offsets: "indices?",
    reduction: reductions,
  },
  (
    data: mx.Array,
    segmentIds?: Integers | null,
    numSegments?: number | null,
    sorted?: boolean,
    lengths?: Integers | null,
    offsets?: Integers | null,
    reduction: SegmentReduction = "sum",
  ): mx.Array => {
    const given = { segmentIds, numSegments, sorted, lengths, offsets }
    return functions[reduction](data, given as unknown as mx.RowRuns<mx.Array>)
  },
)
/**
 * Rows (first axis) that belong together, reduced: [N, …] gives [segments, …]. Rows belong together by an id each, or as runs by `lengths`
 * or `offsets`, as in `mx.segmentSum`, which is the default; `reduction` may be `'mean'`, `'max'` or `'min'` too.
 * @throws IndexError for an id outside the segments or offsets that descend
 * @example
 * segmentReduce(mx.array([1, 2, 3]), [1, 0, 1], { reduction: 'max' }).tolist() // => [2, 3]
 * segmentReduce(mx.array([1, 2, 6]), { offsets: [0, 1, 3], reduction: 'mean' }).tolist() // => [1, 4]
 */
export function segmentReduce(
  data: mx.Array,
  segmentIds: Integers,
  options?: mx.SegmentIdOptions & { reduction?: SegmentReduction } & mx.StreamOptions,
): mx.Array
export function segmentReduce(
  data: mx.Array,
  options: mx.RowRuns<mx.Array> & { reduction?: SegmentReduction } & mx.StreamOptions,
): mx.Array
// By hand: segments are given by ids or by runs of rows.
export function segmentReduce(...args: unknown[]): mx.Array {
  return segmentArgs(args)
}
