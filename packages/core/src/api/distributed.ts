/**
 * `mx.distributed`: talking to other processes. No backend for it exists here, so the world is this process: the group has one member,
 * and what combines the members' arrays gives the array itself, as MLX does without a backend.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import type { Dtype } from "../graph/dtype"
import { ArgumentError, DeviceError, describe } from "../graph/errors"
import type { Array } from "../graph/graph"

/** Processes that talk to each other. `mx.distributed.init()` gives the group of all. */
export class Group {
  /** This process's place among the members. */
  rank(): number {
    return 0
  }
  /** The number of members. */
  size(): number {
    return 1
  }
  /**
   * A group of those members that call it with the same colour.
   * @throws DeviceError because a single member cannot be divided
   */
  split(_color: number, _key = -1): Group {
    throw new DeviceError("split", "a group of one process cannot be split")
  }
}

/** The trailing options of the functions of groups. */
export interface GroupOptions extends StreamOptions {
  /** The members that take part; all processes by default. */
  group?: Group | null
}

const world = new Group()
const BACKENDS = ["any", "ring", "mpi", "nccl", "jaccl"]

function checkBackend(op: string, backend: unknown): void {
  if (!BACKENDS.includes(backend as string))
    throw new ArgumentError(
      op,
      `the backend must be one of ${BACKENDS.join(", ")}, received ${describe(backend)}`,
    )
}

/**
 * True if processes can talk to each other through a backend. There is none here.
 * @example
 * mx.distributed.isAvailable() // => false
 */
export function isAvailable(backend = "any"): boolean {
  checkBackend("isAvailable", backend)
  return false
}

const initArgs = operation(
  "init",
  ["strict", "backend", "allGatherFactory"],
  (strict: boolean | null = false, backend: string | null = "any", factory: unknown = null): Group => {
    checkBackend("init", backend ?? "any")
    if (factory !== null && factory !== undefined)
      throw new ArgumentError("init", "allGatherFactory needs a backend, and there is none")
    if (strict) throw new DeviceError("init", "no backend connects this process with others")
    return world
  },
)
/**
 * The group of all processes: this one alone.
 * @throws DeviceError with `strict`, which asks for a backend; ArgumentError for an unknown backend
 * @example
 * mx.distributed.init().size() // => 1
 */
export function init(strict?: boolean | null, backend?: string | null): Group
export function init(options: { strict?: boolean | null; backend?: string | null }): Group
// By hand: there is no factory to give.
export function init(...args: unknown[]): Group {
  return initArgs(args)
}

function checkGroup(op: string, group: unknown): void {
  if (group !== null && group !== undefined && !(group instanceof Group))
    throw new ArgumentError(op, `group must come from mx.distributed.init(), received ${describe(group)}`)
}

/** A function that combines one array of each member: of the only one, its own. */
function combine(op: string): (args: readonly unknown[]) => Array {
  return operation(op, ["x", "group"], (x: unknown, group: unknown): Array => {
    checkGroup(op, group)
    return asArrayArgument(op, "x", x)
  })
}

const allSumArgs = combine("allSum")
/**
 * The sum of the members' arrays.
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

/** There is nobody to talk to. */
function nobody(op: string): never {
  throw new DeviceError(op, "a group of one process has nobody to talk to")
}

/**
 * Sends an array to another member.
 * @throws DeviceError because there is none
 */
export function send(x: Array, _dst: number, options?: GroupOptions): Array {
  asArrayArgument("send", "x", x)
  checkGroup("send", options?.group)
  return nobody("send")
}

/**
 * An array that another member sends.
 * @throws DeviceError because there is none
 */
export function recv(_shape: readonly number[], _dtype: Dtype, _src: number, options?: GroupOptions): Array {
  checkGroup("recv", options?.group)
  return nobody("recv")
}

/**
 * An array like `x` that another member sends.
 * @throws DeviceError because there is none
 */
export function recvLike(x: Array, _src: number, options?: GroupOptions): Array {
  asArrayArgument("recvLike", "x", x)
  checkGroup("recvLike", options?.group)
  return nobody("recvLike")
}
