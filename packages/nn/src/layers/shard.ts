/**
 * Shards: how a parameter is split over the members of a group, and each member's part of it. The layers are in other files.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  describe,
  format,
  isListOf,
  type Kind,
  ShapeError,
  withOwnHandles,
} from "@lazuli/core/engine"
import { check } from "../arguments"
import type { Module } from "../module"

type Group = mx.distributed.Group

/** Describes the part of a parameter that each member of a group has: a share of each segment of an axis. */
export interface Shard {
  readonly axis: number
  /** The segments' lengths in the whole parameter. */
  readonly segments: readonly number[]
}

/** The kind of group arguments. */
export const aGroup: Kind = {
  expected: "a group that mx.distributed.init() gives",
  accepts: (value: unknown) => value instanceof mx.distributed.Group,
}

/** The given group, or all processes. */
export function groupOf(op: string, group: unknown): Group {
  if (group === undefined || group === null) return mx.distributed.init()
  if (group instanceof mx.distributed.Group) return group
  throw new ArgumentError(op, `group must come from mx.distributed.init(), received ${describe(group)}`)
}

/** The ranks of a group's members in the job. */
const membersOf = (group: Group): number[] =>
  mx.distributed.allGather(mx.array([mx.distributed.init().rank()], mx.int32), { group }).tolist() as number[]

/**
 * True if two groups of this rank have other members in common. All members of both must call it.
 * @example
 * nn.groupsOverlap(mx.distributed.init(), mx.distributed.init()) // => false
 */
export function groupsOverlap(a: Group, b: Group): boolean {
  check("groupsOverlap", { a: aGroup, b: aGroup }, a, b)
  if (a.size() === 1 || b.size() === 1) return false
  if (a === b) return true
  const [these, those] = [membersOf(a), membersOf(b)]
  return these.filter((rank) => those.includes(rank)).length > 1
}

/** Modules of whose parameters a module around them holds a part, and gathers them only for its own calls. */
const split = new WeakSet<Module>()
export const markSplit = (module: Module): unknown => split.add(module)
export const isSplit = (module: Module): boolean => split.has(module)

const isLength = (n: unknown): boolean => Number.isSafeInteger(n) && (n as number) >= 0

/** @throws ArgumentError unless a value describes a shard */
function checkShard(op: string, shard: Shard): void {
  check(op, { shard: "record" }, shard)
  const { axis, segments } = shard
  if (!isLength(axis) || !isListOf(segments, isLength))
    throw new ArgumentError(op, `shard must be { axis, segments }, received ${describe(shard)}`)
}

/**
 * The length of each member's part along the axis.
 * @example
 * nn.lengthOfPart({ axis: 0, segments: [5, 2] }, 2) // => 4
 */
export function lengthOfPart(shard: Shard, members: number): number {
  checkShard("lengthOfPart", shard)
  check("lengthOfPart", { members: "count" }, members)
  return shard.segments.reduce((sum, segment) => sum + share(segment, members), 0)
}
const share = (segment: number, members: number): number => Math.ceil(segment / members)

/**
 * This member's part of an array: of each segment of an axis, as many elements as each other member has, filled up with zeros at the end of
 * the last ones. A copy: a view would keep all of the array in memory.
 * @throws ShapeError if the segments are not those of the axis
 * @example
 * nn.partOf(mx.array([1, 2, 3]), { axis: 0, segments: [2, 1] }).tolist() // => [1, 2, 3]
 */
export function partOf(x: mx.Array, shard: Shard, group: Group | null = null): mx.Array {
  check("partOf", { x: "array" }, x)
  checkShard("partOf", shard)
  const whole = shard.segments.reduce((sum, n) => sum + n, 0)
  if (x.shape[shard.axis] !== whole)
    throw new ShapeError(
      "partOf",
      `segments of ${whole} elements along axis ${shard.axis} are not those of an array of shape ${format(x.shape)}`,
    )
  return withOwnHandles(part(x, shard, groupOf("partOf", group)), [x])
}

/** The same, of arguments that fit. */
export function part(x: mx.Array, { axis, segments }: Shard, group: Group): mx.Array {
  const [rank, size] = [group.rank(), group.size()]
  if (size === 1) return x
  let at = 0
  const pieces = segments.flatMap((segment) => {
    const each = share(segment, size)
    const [from, to] = [rank, rank + 1].map((r) => at + Math.min(r * each, segment))
    at += segment
    const missing = each - (to - from)
    const mine = mx.take(x, mx.arange(from, to, 1, mx.int32), axis)
    return missing === 0 ? [mine] : [mine, mx.zeros(x.shape.with(axis, missing), x.dtype)]
  })
  return pieces.length === 1 ? pieces[0] : mx.concatenate(pieces, axis)
}
