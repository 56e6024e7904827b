/**
 * `mx.distributed`: talking to other processes. Where no package connects this process with others, the group has one member, and what
 * combines the members' arrays gives the array itself, as MLX does without a backend.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import type { Dtype } from "../graph/dtype"
import { ArgumentError, DeviceError, describe } from "../graph/errors"
import type { Array } from "../graph/graph"
import { zeros } from "../ops/creation"
import { connectorNow, everybody, ProcessGroup } from "./process-group"

export { ProcessGroup as Group }

/** The trailing options of the functions of groups. */
export interface GroupOptions extends StreamOptions {
  /** The members that take part; all processes by default. */
  group?: ProcessGroup | null
}
/** The trailing options of functions in which one member is the source. */
export interface RootOptions extends GroupOptions {
  /** The rank whose array it is; 0 by default. */
  root?: number
}

const BACKENDS = ["any", "ring", "shm", "mpi", "nccl", "jaccl"]

function checkBackend(op: string, backend: unknown): void {
  const known = [...new Set([...BACKENDS, ...(connectorNow()?.backends() ?? [])])]
  if (!known.includes(backend as string))
    throw new ArgumentError(
      op,
      `the backend must be one of ${known.join(", ")}, received ${describe(backend)}`,
    )
}

/**
 * True if processes can talk to each other through a backend. Without `@lazuli/distributed` there is none.
 * @example
 * mx.distributed.isAvailable('jaccl') // => false
 */
export function isAvailable(backend = "any"): boolean {
  checkBackend("isAvailable", backend)
  return connectorNow()?.isAvailable(backend) ?? false
}

const initArgs = operation(
  "init",
  ["strict", "backend", "allGatherFactory"],
  (strict: boolean | null = false, backend: string | null = "any", factory: unknown = null): ProcessGroup => {
    checkBackend("init", backend ?? "any")
    if (factory !== null && factory !== undefined)
      throw new ArgumentError("init", "allGatherFactory is not needed: ranks find each other by themselves")
    const group = everybody(backend ?? "any")
    if (strict && group.size() === 1)
      throw new DeviceError("init", "no backend connects this process with others", {
        hint: "Start it with `npx lazuli launch`, mpirun or torchrun",
      })
    return group
  },
)
/**
 * The group of all processes: those that `npx lazuli launch`, mpirun or torchrun started with this one, which it waits for; otherwise this
 * one alone.
 * @throws DeviceError with `strict`, where it is alone; ArgumentError for an unknown backend
 * @example
 * mx.distributed.init().size() // => 1
 */
export function init(strict?: boolean | null, backend?: string | null): ProcessGroup
export function init(options: { strict?: boolean | null; backend?: string | null }): ProcessGroup
// By hand: there is no factory to give.
export function init(...args: unknown[]): ProcessGroup {
  return initArgs(args)
}

function asGroup(op: string, group: unknown): ProcessGroup {
  if (group === null || group === undefined) return everybody("any")
  if (group instanceof ProcessGroup) return group
  throw new ArgumentError(op, `group must come from mx.distributed.init(), received ${describe(group)}`)
}

function asRank(op: string, name: string, rank: unknown, group: ProcessGroup): number {
  if (!Number.isSafeInteger(rank) || (rank as number) < 0 || (rank as number) >= group.size())
    throw new ArgumentError(
      op,
      `${name} must be a rank from 0 to ${group.size() - 1}, received ${describe(rank)}`,
    )
  return rank as number
}

/** A function that combines one array of each member: of the only one, its own. */
function combine(op: string): (args: readonly unknown[]) => Array {
  return operation(op, ["x", "group"], (x: unknown, group: unknown): Array => {
    const its = asGroup(op, group)
    const array = asArrayArgument(op, "x", x)
    return its.size() === 1 ? array : its.exchange(array, { op })
  })
}

const allSumArgs = combine("allSum")
/**
 * The sum of the members' arrays. Its derivative is that of a result which all members use alike: the cotangent itself.
 * @example
 * mx.distributed.allSum(mx.array([1, 2])).tolist() // => [1, 2]
 */
export function allSum(x: Array, options?: GroupOptions): Array {
  return allSumArgs([x, options ?? {}])
}

const allMaxArgs = combine("allMax")
/** The larger of the members' elements. */
export function allMax(x: Array, options?: GroupOptions): Array {
  return allMaxArgs([x, options ?? {}])
}

const allMinArgs = combine("allMin")
/** The smaller of the members' elements. */
export function allMin(x: Array, options?: GroupOptions): Array {
  return allMinArgs([x, options ?? {}])
}

const allGatherArgs = combine("allGather")
/** The members' arrays, one after the other along the first axis. */
export function allGather(x: Array, options?: GroupOptions): Array {
  return allGatherArgs([x, options ?? {}])
}

const sumScatterArgs = combine("sumScatter")
/** The sum of the members' arrays, of which each member gets its part of the first axis. */
export function sumScatter(x: Array, options?: GroupOptions): Array {
  return sumScatterArgs([x, options ?? {}])
}

const allToAllArgs = combine("allToAll")
/**
 * Each member's array in as many parts along the first axis as there are members: part i goes to rank i, and the parts that come lie in the
 * order of the ranks.
 * @example
 * mx.distributed.allToAll(mx.array([1, 2])).tolist() // => [1, 2]
 */
export function allToAll(x: Array, options?: GroupOptions): Array {
  return allToAllArgs([x, options ?? {}])
}

const broadcastArgs = operation(
  "broadcast",
  ["x", "root", "group"],
  (x: unknown, root: unknown = 0, group: unknown): Array => {
    const its = asGroup("broadcast", group)
    const rank = asRank("broadcast", "root", root, its)
    const array = asArrayArgument("broadcast", "x", x)
    return its.size() === 1 ? array : its.exchange(array, { op: "broadcast", rank })
  },
)
/**
 * One member's array, for all. The others give an array of the same shape and dtype.
 * @example
 * mx.distributed.broadcast(mx.array([1, 2])).tolist() // => [1, 2]
 */
export function broadcast(x: Array, options?: RootOptions): Array {
  return broadcastArgs([x, options ?? {}])
}

const barrierArgs = operation("barrier", ["x", "group"], (x: unknown, group: unknown): Array => {
  const its = asGroup("barrier", group)
  const array = x === undefined || x === null ? zeros([0]) : asArrayArgument("barrier", "x", x)
  return its.size() === 1 ? array : its.exchange(array, { op: "barrier" })
})
/**
 * The array, once all members have come to it; without one, an empty array to evaluate: `mx.eval(mx.distributed.barrier())`.
 * @example
 * mx.distributed.barrier(mx.array([1, 2])).tolist() // => [1, 2]
 */
export function barrier(x?: Array | null, options?: GroupOptions): Array {
  return barrierArgs([x, options ?? {}])
}

/** The member to talk to: another one. */
function other(op: string, name: string, rank: unknown, group: unknown): [ProcessGroup, number] {
  const its = asGroup(op, group)
  if (its.size() === 1) throw new DeviceError(op, "a group of one process has nobody to talk to")
  const at = asRank(op, name, rank, its)
  if (at === its.rank())
    throw new ArgumentError(op, `${name} must be a rank other than this process's own, ${at}`)
  return [its, at]
}

/** A function that passes an array between this process and another member. */
function passing(op: string, member: string): (args: readonly unknown[]) => Array {
  return operation(op, ["x", member, "group"], (x: unknown, to: unknown, group: unknown): Array => {
    const array = asArrayArgument(op, "x", x)
    const [its, rank] = other(op, member, to, group)
    return its.exchange(array, { op, rank })
  })
}

const sendArgs = passing("send", "dst")
/**
 * Sends an array to another member, when the result, which is the array, is evaluated.
 * @throws DeviceError in a group of one; ArgumentError for a rank that is not another member's
 */
export function send(x: Array, dst: number, options?: GroupOptions): Array {
  return sendArgs([x, dst, options ?? {}])
}

const recvArgs = operation(
  "recv",
  { shape: "shape", dtype: "dtype", src: "any", group: "any?" },
  (shape: number | number[], dtype: Dtype, src: unknown, group: unknown): Array => {
    const [its, rank] = other("recv", "src", src, group)
    const sizes = typeof shape === "number" ? [shape] : shape
    return its.exchange(null, { op: "recv", rank, shape: sizes, dtype })
  },
)
/**
 * An array that another member sends, of that shape and dtype.
 * @throws DeviceError in a group of one; ArgumentError for a rank that is not another member's
 */
export function recv(shape: readonly number[], dtype: Dtype, src: number, options?: GroupOptions): Array {
  return recvArgs([shape, dtype, src, options ?? {}])
}

const recvLikeArgs = passing("recvLike", "src")
/**
 * An array like `x` that another member sends.
 * @throws DeviceError in a group of one; ArgumentError for a rank that is not another member's
 */
export function recvLike(x: Array, src: number, options?: GroupOptions): Array {
  return recvLikeArgs([x, src, options ?? {}])
}
