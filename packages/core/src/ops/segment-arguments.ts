/**
 * Segment arguments: ids, lengths or offsets. Converts these to ids or offsets and validates known values; kernels validate the rest.
 */
import { copyOut } from "../engine/readback"
import { isList } from "../graph/args"
import { int32, isInteger, uint32, uint64 } from "../graph/dtype"
import { ArgumentError, DTypeError, IndexError, ShapeError, TransformError } from "../graph/errors"
import { type Array, Array as ArrayClass } from "../graph/graph"
import { format } from "../graph/shape"
import { toDtype } from "./constant"
import { array, ones, zeros } from "./creation"
import { scatter } from "./gather"
import { concatenate } from "./join"
import { asIndices } from "./positions"
import { cumsum } from "./scan"
import { checkBounds, segmentIds } from "./segments"
import { sliceRange } from "./slice"

/** Segments: unsigned ids (negative ones become large), or offsets of contiguous segments. */
export type Segments =
  | { readonly kind: "ids"; readonly ids: Array; readonly count: number }
  | { readonly kind: "runs"; readonly offsets: Array; readonly count: number }

/** The arguments of segment functions, after the data. */
export interface SegmentArguments {
  readonly segmentIds?: unknown
  readonly numSegments?: number | null | undefined
  readonly sorted?: boolean | undefined
  readonly lengths?: unknown
  readonly offsets?: unknown
}

/** The values of an array, on which `what` depends; `parameter` avoids reading them. @throws TransformError */
export function valuesOf(op: string, x: Array, what: string, parameter: string): number[] {
  try {
    return globalThis.Array.from(copyOut(x) as Iterable<number>, Number)
  } catch (error) {
    if (!(error instanceof TransformError)) throw error
    throw new TransformError(op, `${what} depends on values that vmap or compile traces`, {
      hint: `Pass ${parameter}`,
    })
  }
}

/** Converts an argument to an integer array. */
function asIntegers(op: string, name: string, value: unknown): Array {
  if (value instanceof ArrayClass && !isInteger(value.dtype))
    throw new DTypeError(op, `${name} must be integers, received ${value.dtype.name}`)
  return asIndices(op, value)
}

/** A 1-d integer argument, of at least 32 bits, so that sums do not overflow. */
export function asLine(op: string, name: string, value: unknown): Array {
  const x = asIntegers(op, name, value)
  if (x.ndim !== 1)
    throw new ShapeError(op, `${name} must have one dimension, received shape ${format(x.shape)}`)
  return x.dtype.size < 4 ? toDtype(x, int32) : x
}

/** Offsets of segments with the given lengths. The sum of a list must be `total`, if known. */
export function offsetsOfLengths(
  op: string,
  lengths: unknown,
  total: number | null,
  name = "lengths",
): Array {
  if (isList(lengths) && !lengths.some(isList)) {
    const line = asLine(op, name, lengths)
    const offsets = [0]
    for (const [i, length] of (lengths as number[]).entries()) {
      if (length < 0)
        throw new ArgumentError(op, `${name} must not be negative, received ${length} at position ${i}`)
      offsets.push(offsets[i] + length)
    }
    const sum = offsets[line.shape[0]]
    if (total !== null && sum !== total)
      throw new ShapeError(op, `${name} must add up to the ${total} rows, received a sum of ${sum}`)
    return array(offsets, int32)
  }
  const line = asLine(op, name, lengths)
  return concatenate([zeros([1], line.dtype), cumsum(line, 0)], 0)
}

/** Ids and the number of segments. Ids become unsigned, so that negative ones are out of bounds. */
function readIds(
  op: string,
  given: unknown,
  count: number | null | undefined,
): { ids: Array; count: number } {
  const signed = asIntegers(op, "segmentIds", given)
  const known = isList(given) || count === null || count === undefined
  const values = known ? valuesOf(op, signed, "the number of segments", "numSegments") : []
  let most = -1
  for (const id of values) {
    if (id < 0) throw new IndexError(op, `segmentIds must not be negative, received ${id}`)
    if (id > most) most = id
  }
  if (typeof count === "number" && most >= count)
    throw new IndexError(op, `segmentIds must be below the ${count} segments, received ${most}`)
  const wide = signed.dtype.size === 8 ? uint64 : uint32
  const ids = signed.dtype.kind === "unsigned" ? signed : toDtype(signed, wide)
  return { ids, count: count ?? most + 1 }
}

/** Offsets of segments from ascending ids. */
function offsetsOfIds(ids: Array, count: number): Array {
  const each = ones([ids.shape[0], 1], int32)
  const lengths = scatter([zeros([count], int32), each, ids], { axes: [0], mode: "add" })
  return concatenate([zeros([1], int32), cumsum(lengths, 0)], 0)
}

/** The name of the only given argument. @throws ArgumentError */
function theOneGiven<K extends string>(
  op: string,
  given: { readonly [key in K]?: unknown },
  ways: readonly K[],
): K {
  const named = ways.filter((name) => given[name] !== undefined && given[name] !== null)
  if (named.length === 1) return named[0]
  throw new ArgumentError(
    op,
    `expected ${ways.slice(0, -1).join(", ")} or ${ways[ways.length - 1]}, received ${named.length === 0 ? "none of them" : named.join(" and ")}`,
  )
}

/** The offsets of segments of `total` rows (any number if null). Validates lists. @throws ArgumentError, ShapeError, IndexError */
export function readRuns(op: string, total: number | null, given: SegmentArguments): Array {
  const way = theOneGiven(op, given, ["lengths", "offsets"])
  if (way === "lengths") return offsetsOfLengths(op, given.lengths, total)
  const offsets = asLine(op, way, given.offsets)
  if (offsets.shape[0] === 0)
    throw new ShapeError(op, "offsets must have at least one element, received none")
  if (isList(given.offsets)) checkBounds(op, given.offsets as number[], total)
  return offsets
}

/** Parses the segments of n rows. @throws ArgumentError, ShapeError, IndexError */
export function readSegments(op: string, n: number, given: SegmentArguments): Segments {
  const way = theOneGiven(op, given, ["segmentIds", "lengths", "offsets"])
  if (way !== "segmentIds") {
    for (const name of ["numSegments", "sorted"] as const)
      if (given[name] !== undefined && given[name] !== null)
        throw new ArgumentError(op, `${name} goes with segmentIds, received ${way}`)
    const offsets = readRuns(op, n, given)
    return { kind: "runs", offsets, count: offsets.shape[0] - 1 }
  }
  const { ids, count } = readIds(op, given.segmentIds, given.numSegments)
  if (ids.ndim !== 1 || ids.shape[0] !== n)
    throw new ShapeError(
      op,
      `expected one segment id for each of ${n} rows, received shape ${format(ids.shape)}`,
    )
  return given.sorted
    ? { kind: "runs", offsets: offsetsOfIds(ids, count), count }
    : { kind: "ids", ids, count }
}

/** The lengths of contiguous segments. */
export function lengthsOfRuns(offsets: Array): Array {
  const count = offsets.shape[0] - 1
  const part = (from: number): Array => sliceRange(offsets, [from], [from + count])
  return part(1).subtract(part(0))
}

/** The number of rows of each segment. */
export function lengthsOf(segments: Segments): Array {
  if (segments.kind === "runs") return lengthsOfRuns(segments.offsets)
  const { ids, count } = segments
  return scatter([zeros([count], int32), ones([ids.shape[0], 1], int32), ids], { axes: [0], mode: "add" })
}

/** The segment id of each row. */
export function idsOf(segments: Segments, n: number): Array {
  return segments.kind === "ids"
    ? segments.ids
    : segmentIds([segments.offsets.expandDims(0)], { size: n }).squeeze(0)
}
