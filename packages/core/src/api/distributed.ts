/**
 * `mx.distributed`: collective and point-to-point communication between processes. Without a package that connects processes, the group has
 * one member and collectives return their input, as in MLX without a backend.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import type { Dtype } from "../graph/dtype"
import { ArgumentError, DeviceError, describe } from "../graph/errors"
import type { Array } from "../graph/graph"
import { zeros } from "../ops/creation"
import { connectorNow, everybody, ProcessGroup } from "./process-group"

export { ProcessGroup as Group }

/** Options of communication functions. */
export interface GroupOptions extends StreamOptions {
  /** The group to communicate in; all processes by default. */
  group?: ProcessGroup | null
}
/** Options of communication functions with a root. */
export interface RootOptions extends GroupOptions {
  /** The rank of the source; 0 by default. */
  root?: number
}

const BACKENDS = ["any", "ring", "shm", "mpi", "nccl"]
/** MLX's, which is never available here. */
const FOREIGN = "jaccl"

function checkBackend(op: string, backend: unknown): void {
  const known = [...new Set([...BACKENDS, ...(connectorNow()?.backends() ?? [])])]
  if (backend !== FOREIGN && !known.includes(backend as string))
    throw new ArgumentError(
      op,
      `the backend must be one of ${known.join(", ")}, received ${describe(backend)}`,
    )
}

/**
 * True if a communication backend is available. Without `@lazuli/distributed` none is.
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
      throw new ArgumentError("init", "allGatherFactory is not needed: ranks discover each other")
    const group = everybody(backend ?? "any")
    if (strict && group.size() === 1)
      throw new DeviceError("init", "no backend connects this process with others", {
        hint: "Start it with `npx lazuli launch`, mpirun or torchrun",
      })
    return group
  },
)
/**
 * The group of all processes that `npx lazuli launch`, mpirun or torchrun started, once all of them have connected; otherwise a group of
 * this process alone.
 * @throws DeviceError with `strict`, if the group has one member; ArgumentError for an unknown backend
 * @example
 * mx.distributed.init().size() // => 1
 */
export function init(strict?: boolean | null, backend?: string | null): ProcessGroup
export function init(options: { strict?: boolean | null; backend?: string | null }): ProcessGroup
// By hand: `allGatherFactory` only gets an error.
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

/** A collective; the identity in a group of one. */
function combine(op: string): (args: readonly unknown[]) => Array {
  return operation(op, ["x", "group"], (x: unknown, group: unknown): Array => {
    const its = asGroup(op, group)
    const array = asArrayArgument(op, "x", x)
    return its.size() === 1 ? array : its.exchange(array, { op })
  })
}

const allSumArgs = combine("allSum")
/**
 * The sum of all ranks' arrays (all-reduce). Its vjp assumes that every rank uses the result alike: it passes the cotangent through. Where
 * ranks use it differently, `nn.sumGradients()(mx.distributed.allSum(x))` gives the derivative of the sum of their losses.
 * @example
 * mx.distributed.allSum(mx.array([1, 2])).tolist() // => [1, 2]
 */
export function allSum(x: Array, options?: GroupOptions): Array {
  return allSumArgs([x, options ?? {}])
}

const allMaxArgs = combine("allMax")
/** The elementwise maximum over all ranks. Its vjp assumes, as that of {@link allSum}, that every rank uses the result alike. */
export function allMax(x: Array, options?: GroupOptions): Array {
  return allMaxArgs([x, options ?? {}])
}

const allMinArgs = combine("allMin")
/** The elementwise minimum over all ranks. Its vjp assumes, as that of {@link allSum}, that every rank uses the result alike. */
export function allMin(x: Array, options?: GroupOptions): Array {
  return allMinArgs([x, options ?? {}])
}

const allGatherArgs = combine("allGather")
/**
 * All ranks' arrays, concatenated along the first axis. Its vjp assumes that every rank uses the result alike: it gives this rank's part of
 * its own cotangent. Where each rank has a loss of its own, as a contrastive loss of its own rows against all, use
 * `nn.sumGradients()(mx.distributed.allGather(x))`.
 */
export function allGather(x: Array, options?: GroupOptions): Array {
  return allGatherArgs([x, options ?? {}])
}

const sumScatterArgs = combine("sumScatter")
/** The sum of all ranks' arrays, split along the first axis: each rank receives its part (reduce-scatter). */
export function sumScatter(x: Array, options?: GroupOptions): Array {
  return sumScatterArgs([x, options ?? {}])
}

const allToAllArgs = combine("allToAll")
/**
 * Splits the array along the first axis into one part per rank, sends part i to rank i, and concatenates the received parts in the order of
 * ranks.
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
 * The root's array, on all ranks. The others pass an array of the same shape and dtype. Its vjp assumes, as that of {@link allSum}, that
 * every rank uses the result alike.
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
 * The array, available once all ranks have reached the barrier; without an argument, an empty array to evaluate:
 * `mx.eval(mx.distributed.barrier())`.
 * @example
 * mx.distributed.barrier(mx.array([1, 2])).tolist() // => [1, 2]
 */
export function barrier(x?: Array | null, options?: GroupOptions): Array {
  return barrierArgs([x, options ?? {}])
}

/** The group, and a rank of it other than this process's own. */
function other(op: string, name: string, rank: unknown, group: unknown): [ProcessGroup, number] {
  const its = asGroup(op, group)
  if (its.size() === 1)
    throw new DeviceError(op, "a group of one process has no other rank to communicate with")
  const at = asRank(op, name, rank, its)
  if (at === its.rank())
    throw new ArgumentError(op, `${name} must be a rank other than this process's own, ${at}`)
  return [its, at]
}

/** A point-to-point operation. */
function passing(op: string, member: string): (args: readonly unknown[]) => Array {
  return operation(op, ["x", member, "group"], (x: unknown, to: unknown, group: unknown): Array => {
    const array = asArrayArgument(op, "x", x)
    const [its, rank] = other(op, member, to, group)
    return its.exchange(array, { op, rank })
  })
}

const sendArgs = passing("send", "dst")
/**
 * Sends an array to another rank when the result, the same array, is evaluated.
 * @throws DeviceError in a group of one; ArgumentError unless the rank is another member's
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
    if (sizes.some((n) => n < 0))
      throw new ArgumentError("recv", `shape must consist of sizes, received ${describe(shape)}`)
    return its.exchange(null, { op: "recv", rank, shape: sizes, dtype })
  },
)
/**
 * Receives an array of the given shape and dtype from another rank.
 * @throws DeviceError in a group of one; ArgumentError unless the rank is another member's
 */
export function recv(shape: readonly number[], dtype: Dtype, src: number, options?: GroupOptions): Array {
  return recvArgs([shape, dtype, src, options ?? {}])
}

const recvLikeArgs = passing("recvLike", "src")
/**
 * Receives an array of the shape and dtype of `x` from another rank.
 * @throws DeviceError in a group of one; ArgumentError unless the rank is another member's
 */
export function recvLike(x: Array, src: number, options?: GroupOptions): Array {
  return recvLikeArgs([x, src, options ?? {}])
}
