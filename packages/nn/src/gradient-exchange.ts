/**
 * Distributed gradients: averaging, and clipping by their global norm. See `mx.distributed`.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  describe,
  forEachLeaf,
  isPlainObject,
  mapLeaves,
  ofTrees,
  withOwnArrays,
} from "@lazuli/core/engine"
import { aTree, check } from "./arguments"
import { clipTo } from "./optimizers/clip"

/** Options of {@link averageGradients}. */
export interface AverageGradientsOptions {
  /** The processes; all by default. */
  group?: mx.distributed.Group | null
  /** The bucket size in bytes; 0 reduces each array separately. */
  allReduceSize?: number
  /** The stream of the communication. */
  communicationStream?: mx.StreamLike
}

function checkGroup(op: string, group: unknown): void {
  if (group !== undefined && group !== null && !(group instanceof mx.distributed.Group))
    throw new ArgumentError(op, `group must come from mx.distributed.init(), received ${describe(group)}`)
}

/** Groups arrays of one dtype into buckets of at most `most` bytes. */
function bucketsOf(arrays: readonly mx.Array[], most: number): mx.Array[][] {
  const buckets: mx.Array[][] = []
  const open = new Map<string, { bucket: mx.Array[]; bytes: number }>()
  for (const array of arrays) {
    const { name } = array.dtype
    const { nbytes } = array.node
    const now = open.get(name)
    if (now && now.bytes + nbytes <= most) {
      now.bucket.push(array)
      now.bytes += nbytes
    } else {
      const bucket = [array]
      open.set(name, { bucket, bytes: nbytes })
      buckets.push(bucket)
    }
  }
  return buckets
}

/** A bucket's averages over the members, by one all-reduce. */
function averageTogether(
  arrays: readonly mx.Array[],
  group: mx.distributed.Group,
  structure: number,
): mx.Array[] {
  const { dtype } = arrays[0]
  // Where float16 holds an average, it need not hold the sum.
  const isNarrow = dtype === mx.float16
  const flat = arrays.map((x) => (isNarrow ? x.astype(mx.float32) : x).flatten())
  const sum = group.exchange(flat.length === 1 ? flat[0] : mx.concatenate(flat), { op: "allSum", structure })
  let at = 0
  // Compiled, each quotient is part of the update that reads it.
  return arrays.map((x) => {
    const own = sum.index(mx.s(at, (at += x.node.size))).reshape(x.node.shape as number[])
    const average = own.divide(group.size())
    return isNarrow ? average.astype(dtype) : average
  })
}

/** A number that is equal for equal texts, and not 0. */
function digest(texts: readonly string[]): number {
  let hash = 2166136261
  for (const text of texts)
    for (let i = 0; i <= text.length; i++)
      // The end of a text counts too.
      hash = Math.imul(hash ^ (i < text.length ? text.charCodeAt(i) : 0x10000), 16777619)
  return hash >>> 0 || 1
}

function averaged<T>(gradients: T, group: mx.distributed.Group, most: number): T {
  const averages = new Map<mx.Array, mx.Array>()
  const arrays: mx.Array[] = []
  const described = [`${most}`]
  forEachLeaf(gradients, (leaf, path) => {
    if (!(leaf instanceof mx.Array)) return
    described.push(path)
    // One that comes twice is exchanged once.
    if (averages.has(leaf)) return
    described.push(leaf.dtype.name, `${leaf.node.shape}`)
    averages.set(leaf, leaf)
    arrays.push(leaf)
  })
  const structure = digest(described)
  // The last layers' gradients are available first, and exchanges run in the order of their calls.
  for (const bucket of bucketsOf(arrays, most).reverse())
    averageTogether(bucket, group, structure).forEach((average, i) => averages.set(bucket[i], average))
  return mapLeaves(gradients, (leaf) => (leaf instanceof mx.Array ? averages.get(leaf) : leaf)) as T
}

/** Calls `body` with the given stream, if any, as the current one. */
const onStream = <T>(stream: mx.StreamLike | undefined, body: () => T): T =>
  stream === undefined || stream === null ? body() : mx.stream(stream, body)

const BUCKET = 32 * 1024 * 1024

/**
 * Averages gradients over the members of the group, as a tree of the same structure. Arrays of one dtype are reduced in buckets of up to
 * `allReduceSize` bytes. A reduction starts as soon as its arrays are available; on a `communicationStream` it overlaps with the rest of
 * the backward pass. Sums of float16 are float32: they may be too large for float16 where the averages are not.
 * @throws DistributedError that names a member whose gradients have other names, shapes or dtypes, once the averages are evaluated
 * @example
 * nn.averageGradients({ w: mx.array([1, 2]) }).w.tolist() // => [1, 2]
 */
export function averageGradients<T>(gradients: T, options?: AverageGradientsOptions): T
export function averageGradients<T>(
  gradients: T,
  group?: mx.distributed.Group | null,
  allReduceSize?: number,
  communicationStream?: mx.StreamLike,
): T
export function averageGradients<T>(
  gradients: T,
  options: AverageGradientsOptions | mx.distributed.Group | null = null,
  allReduceSize: number = BUCKET,
  communicationStream?: mx.StreamLike,
): T {
  let given: AverageGradientsOptions = { allReduceSize, communicationStream }
  if (isPlainObject(options)) {
    for (const key of Object.keys(options))
      if (!["group", "allReduceSize", "communicationStream"].includes(key))
        throw new ArgumentError(
          "averageGradients",
          `has no parameter "${key}"; it takes gradients, group, allReduceSize, communicationStream`,
        )
    given = { ...given, ...options }
  } else given.group = options as mx.distributed.Group | null
  checkGroup("averageGradients", given.group)
  const group = given.group ?? mx.distributed.init()
  return ofTrees("averageGradients", () =>
    group.size() === 1
      ? withOwnArrays(gradients, gradients)
      : onStream(given.communicationStream, () => averaged(gradients, group, given.allReduceSize ?? BUCKET)),
  )
}

/**
 * Clips sharded gradients by their global norm over all members: scales them down if it exceeds `maxNorm`. Also returns the norm.
 * @example
 * const [, norm] = nn.utils.clipGradNormSharded({ w: mx.array([3, 4]) }, 1)
 * norm.item() // => 5
 */
export function clipGradNormSharded<T>(
  gradients: T,
  maxNorm: number,
  group: mx.distributed.Group | null = null,
): [gradients: T, norm: mx.Array] {
  check("clipGradNormSharded", { gradients: aTree, maxNorm: "nonNegative" }, gradients, maxNorm)
  checkGroup("clipGradNormSharded", group)
  return ofTrees("clipGradNormSharded", () =>
    clipTo(gradients, maxNorm, (squares) => mx.distributed.allSum(squares, { group })),
  )
}
