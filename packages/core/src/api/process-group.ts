/**
 * A group of processes, as `mx.distributed` knows it, and the package that connects them. Without one a group has this process alone.
 */
import type { Dtype } from "../graph/dtype"
import { DeviceError } from "../graph/errors"
import type { Array } from "../graph/graph"

/** An operation of a group: the operations of `mx.distributed` by their names, and what they need besides an array. */
export interface Exchange {
  readonly op: string
  /** The root, the destination or the source. */
  readonly rank?: number
  /** Of what is received. */
  readonly shape?: readonly number[]
  readonly dtype?: Dtype
}

/** Processes that talk to each other. `mx.distributed.init()` gives the group of all. */
export class ProcessGroup {
  /** This process's number among the members, from 0. */
  rank(): number {
    return 0
  }
  /** The number of members. */
  size(): number {
    return 1
  }
  /**
   * A group of those members that call it with the same colour, in the order of their keys. Every member must call it.
   * @throws DeviceError in a group of one, which cannot be divided
   */
  split(_color: number, _key = -1): ProcessGroup {
    throw new DeviceError("split", "a group of one process cannot be split")
  }
  /** The result of an operation, of a group of several. @internal */
  exchange(_x: Array | null, { op }: Exchange): Array {
    throw new DeviceError(op, "a group of one process has nobody to talk to")
  }
}

/** The answers of a package that connects processes. */
export interface Connector {
  /** The names of its backends. */
  backends(): readonly string[]
  isAvailable(backend: string): boolean
  /** The group of all processes; null where there is this one alone. */
  connect(backend: string): ProcessGroup | null
}

const alone = new ProcessGroup()
let connector: Connector | null = null

/** Makes `mx.distributed` connect processes. */
export function setConnector(its: Connector): void {
  connector = its
}

export const connectorNow = (): Connector | null => connector

/** The group of all processes. */
export const everybody = (backend: string): ProcessGroup => connector?.connect(backend) ?? alone
