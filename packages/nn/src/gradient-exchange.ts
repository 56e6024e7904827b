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
function averageTogether(arrays: readonly mx.Array[], group: mx.distributed.Group): mx.Array[] {
  const flat = arrays.map((x) => x.flatten())
  const sum = mx.distributed.allSum(flat.length === 1 ? flat[0] : mx.concatenate(flat), { group })
  let at = 0
  // Compiled, each quotient is part of the update that reads it.
  return arrays.map((x) =>
    sum
      .index(mx.s(at, (at += x.node.size)))
      .reshape(x.node.shape as number[])
      .divide(group.size()),
  )
}

function averaged<T>(gradients: T, group: mx.distributed.Group, most: number): T {
  const averages = new Map<mx.Array, mx.Array>()
  const arrays: mx.Array[] = []
  forEachLeaf(gradients, (leaf) => {
    if (leaf instanceof mx.Array && !averages.has(leaf)) {
      averages.set(leaf, leaf)
      arrays.push(leaf)
    }
  })
  // The last layers' gradients are available first, and exchanges run in the order of their calls.
  for (const bucket of bucketsOf(arrays, most).reverse())
    averageTogether(bucket, group).forEach((average, i) => averages.set(bucket[i], average))
  return mapLeaves(gradients, (leaf) => (leaf instanceof mx.Array ? averages.get(leaf) : leaf)) as T
}

/** Calls `body` with the given stream, if any, as the current one. */
const onStream = <T>(stream: mx.StreamLike | undefined, body: () => T): T =>
  stream === undefined || stream === null ? body() : mx.stream(stream, body)

const BUCKET = 32 * 1024 * 1024

/**
 * Averages gradients over the members of the group, as a tree of the same structure. Arrays of one dtype are reduced in buckets of up to
 * `allReduceSize` bytes. A reduction starts as soon as its arrays are available; on a `communicationStream` it overlaps with the rest of
 * the backward pass.
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
