/**
 * Process groups of `mx.distributed`, and the interface of the package that connects processes. Without one, a group has one member.
 */
import type { Dtype } from "../graph/dtype"
import { ArgumentError, DeviceError, describe } from "../graph/errors"
import type { Array } from "../graph/graph"

/** A communication operation: its name in `mx.distributed` and its arguments other than the array. */
export interface Exchange {
  readonly op: string
  /** The root, the destination or the source. */
  readonly rank?: number
  /** The shape to receive. */
  readonly shape?: readonly number[]
  readonly dtype?: Dtype
  /** A number that members compare, of gradients: equal for trees of equal structure. */
  readonly structure?: number
}

/** @throws ArgumentError unless both are integers, of which the addon takes those of 32 bits */
export function checkSplit(color: unknown, key: unknown): void {
  for (const [name, value] of Object.entries({ color, key }))
    if (!Number.isSafeInteger(value) || value !== ((value as number) | 0))
      throw new ArgumentError("split", `${name} must be an integer of 32 bits, received ${describe(value)}`)
}

/** A group of processes that communicate. `mx.distributed.init()` returns the group of all. */
export class ProcessGroup {
  /** The rank of this process, from 0. */
  rank(): number {
    return 0
  }
  /** The number of members. */
  size(): number {
    return 1
  }
  /**
   * Splits the group: members that pass the same color form a new group, ranked by key, of which a negative one stands for the rank
   * in this group. Every member must call it. A group of one stays one, so that programs run unchanged on their own.
   */
  split(color: number, key = -1): ProcessGroup {
    checkSplit(color, key)
    return this
  }
  /**
   * Frees what a group that `split` gave holds in this process, such as shared memory. Operations that were not evaluated before, and later
   * ones, fail. The group of all is closed by the end of the process.
   */
  close(): void {}
  /** The result of a communication operation. @internal */
  exchange(_x: Array | null, { op }: Exchange): Array {
    throw new DeviceError(op, "a group of one process has no other rank to communicate with")
  }
  /**
   * All members' parts of parameters, concatenated along the first axis, by one exchange; gradients are averaged over the members.
   * @internal
   */
  gatherParameters(_parts: readonly Array[]): Array[] {
    throw new DeviceError("gatherParameters", "a group of one process has no other rank to communicate with")
  }
}

/** The interface of a package that connects processes. */
export interface Connector {
  /** The names of its backends. */
  backends(): readonly string[]
  isAvailable(backend: string): boolean
  /** The group of all processes; null if this is the only one. */
  connect(backend: string): ProcessGroup | null
}

const alone = new ProcessGroup()
let connector: Connector | null = null

/** Registers the implementation of `mx.distributed`. */
export function setConnector(its: Connector): void {
  connector = its
}

export const connectorNow = (): Connector | null => connector

/** The group of all processes. */
export const everybody = (backend: string): ProcessGroup => connector?.connect(backend) ?? alone
