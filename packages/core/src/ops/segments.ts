/**
 * The primitives of contiguous segments ("runs"): reductions, and the segment of each row. Runs are given by offsets: the start of each,
 * and the number of rows. Public arguments are parsed in segment-arguments.ts.
 */
import { type Dtype, float32, float64, int32, isInteger, storeWidth } from "../graph/dtype"
import { DTypeError, IndexError, ShapeError } from "../graph/errors"
import type { Array, HostArray, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format } from "../graph/shape"
import { arange } from "./arange"
import { toDtype } from "./constant"
import { broadcastTo, highest, lowest, sumDtype } from "./reduce"
import { combineAt } from "./slice"
import { take } from "./take"
import { moveToFront } from "./view"

function checkOffsets(op: string, offsets: Meta): void {
  if (!isInteger(offsets.dtype))
    throw new DTypeError(op, `offsets must be integers, received ${offsets.dtype.name}`)
  if (offsets.shape.length !== 2 || offsets.shape[1] === 0)
    throw new ShapeError(op, `offsets must have shape [batch, runs + 1], received ${format(offsets.shape)}`)
}

/** Checks that offsets ascend from 0 to n (any number if null). @throws IndexError */
export function checkBounds(op: string, bounds: readonly number[], n: number | null): void {
  const [first] = bounds
  const last = bounds[bounds.length - 1]
  if (first !== 0) throw new IndexError(op, `offsets must begin with 0, received ${first}`)
  for (let s = 1; s < bounds.length; s++)
    if (bounds[s] < bounds[s - 1])
      throw new IndexError(op, `offsets must not descend, received ${bounds[s]} after ${bounds[s - 1]}`)
  if (n !== null && last !== n)
    throw new IndexError(op, `offsets must end with the ${n} rows, received ${last}`)
}

/** The offsets of one example. @throws IndexError */
function boundsOf(op: string, offsets: HostArray, example: number, n: number): number[] {
  const count = offsets.shape[1]
  const at = example * count
  const bounds = globalThis.Array.from({ length: count }, (_, s) => Number(offsets.data[at + s]))
  checkBounds(op, bounds, n)
  return bounds
}

/** Offsets with the vmap batch folded into their first axis, of `batch` rows per example. */
function foldOffsets(offsets: Array, axis: number | null, size: number, batch: number): Array {
  if (axis === null && offsets.shape[0] === 1) return offsets
  const front = axis === null ? offsets.expandDims(0) : moveToFront(offsets, axis)
  return broadcastTo(front, [size, batch, front.shape[2]]).flatten(0, 1)
}

/** offsets [B, S + 1] → int32 [B, N]: the run of each of N = size rows. */
export const segmentIds: Apply<{ size: number }> = definePrimitive({
  name: "segmentIds",
  params: { size: "i64" },
  infer: ([offsets], { size }) => {
    checkOffsets("segmentIds", offsets)
    return { shape: [offsets.shape[0], size], dtype: int32 }
  },
  reference: ([offsets], [out], { size }) => {
    for (let b = 0; b < offsets.shape[0]; b++) {
      const bounds = boundsOf("segmentIds", offsets, b, size)
      for (let s = 0; s + 1 < bounds.length; s++)
        for (let i = bounds[s]; i < bounds[s + 1]; i++) out.data[b * size + i] = s
    }
  },
  vjp: () => [null],
  jvp: () => [null],
  vmap: ({ inputs: [offsets], axes: [axis], params, size }) => {
    const folded = moveToFront(offsets, axis as number)
    const [, batch, count] = folded.shape
    const ids = segmentIds([folded.reshape([size * batch, count])], params)
    return { outputs: [ids.reshape([size, batch, params.size])], axes: [0] }
  },
})

/** y [B, S, D] at the run of each row: [B, N, D]. */
function atRows(y: Array, ids: Array): Array {
  const [batch, runs, width] = y.shape
  if (ids.shape[0] < batch) return take(y, ids.flatten(), 1)
  const shift = arange(batch, { dtype: int32 }).multiply(runs).expandDims(1)
  const rows = take(y.reshape([batch * runs, width]), ids.add(shift).flatten(), 0)
  return rows.reshape([batch, ids.shape[1], width])
}

const reductions = ["sum", "max", "min"] as const
/** The reductions of the rows of a run. */
export type SegmentReduction = (typeof reductions)[number]

/** The result of an empty run. */
export const emptyValue = (reduction: SegmentReduction, dtype: Dtype): number | bigint =>
  reduction === "max" ? lowest(dtype) : reduction === "min" ? highest(dtype) : 0

/** The share of each element of a run among those that equal its extreme. */
function sharesOf(x: Array, offsets: Array, y: Array, ids: Array): Array {
  const hit = toDtype(x.equal(atRows(y, ids)), x.dtype === float64 ? float64 : float32)
  const share = hit.divide(atRows(segmentReduce([hit, offsets], { reduction: "sum" }), ids).maximum(1))
  return toDtype(share, x.dtype)
}

/** x [B, N, D], offsets [B or 1, S + 1] → [B, S, D]: every run of rows reduced. */
export const segmentReduce: Apply<{ reduction: SegmentReduction }> = definePrimitive({
  name: "segmentReduce",
  params: { reduction: reductions },
  infer: ([x, offsets], { reduction }) => {
    const op = "segmentReduce"
    checkOffsets(op, offsets)
    const [batch, runs] = offsets.shape
    if (x.shape.length !== 3 || (batch !== 1 && batch !== x.shape[0]))
      throw new ShapeError(
        op,
        `needs rows of shape [batch, rows, width] and offsets for 1 or all of the batch, received shapes ${format(x.shape)} and ${format(offsets.shape)}`,
      )
    const dtype = reduction === "sum" ? sumDtype(x.dtype) : x.dtype
    return { shape: [x.shape[0], runs - 1, x.shape[2]], dtype }
  },
  reference: ([x, offsets], [out], { reduction }) => {
    const [batch, n, columns] = x.shape
    const runs = offsets.shape[1] - 1
    const sums = reduction === "sum"
    // Sums treat the parts of complex numbers separately; comparisons do not.
    const width = sums ? columns * storeWidth(x.dtype) : columns
    if (!sums) for (let i = 0; i < out.data.length; i++) out.data[i] = emptyValue(reduction, x.dtype) as never
    for (let b = 0; b < batch; b++) {
      const bounds = boundsOf("segmentReduce", offsets, offsets.shape[0] === 1 ? 0 : b, n)
      for (let s = 0; s < runs; s++)
        for (let j = 0; j < width; j++) {
          const to = (b * runs + s) * width + j
          let sum = (x.dtype.size === 8 && isInteger(x.dtype) ? 0n : 0) as number
          for (let i = bounds[s]; i < bounds[s + 1]; i++) {
            const from = (b * n + i) * width + j
            if (sums) sum += x.data[from]
            else combineAt(out, to, x, from, reduction === "max" ? "maximum" : "minimum")
          }
          if (sums) out.data[to] = sum
        }
    }
  },
  vjp: ({ inputs: [x, offsets], outputs: [y], cotangents: [g], params: { reduction } }) => {
    const ids = segmentIds([offsets], { size: x.shape[1] })
    const spread = atRows(g, ids)
    return [reduction === "sum" ? spread : spread.multiply(sharesOf(x, offsets, y, ids)), null]
  },
  jvp: ({ inputs: [x, offsets], outputs: [y], tangents: [t], params: { reduction } }) => {
    if (!t) return [null]
    if (reduction === "sum") return [segmentReduce([t, offsets], { reduction })]
    const ids = segmentIds([offsets], { size: x.shape[1] })
    return [segmentReduce([t.multiply(sharesOf(x, offsets, y, ids)), offsets], { reduction: "sum" })]
  },
  vmap: ({ inputs: [x, offsets], axes: [xAxis, offsetsAxis], params, size }) => {
    const rows = xAxis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, xAxis)
    const [, batch, n, width] = rows.shape
    const bounds = foldOffsets(offsets, offsetsAxis, size, batch)
    const out = segmentReduce([rows.reshape([size * batch, n, width]), bounds], params)
    return { outputs: [out.reshape([size, batch, out.shape[1], width])], axes: [0] }
  },
})
