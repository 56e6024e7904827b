/**
 * Communicators: how a group's members exchange bytes. Those of the addon run as kernels on a stream's thread; those of other packages are
 * called from JavaScript.
 */
import { cpu, DeviceError, DistributedError, type Dtype } from "@lazuli/core"
import { backendFor, type DeviceWatch } from "@lazuli/core/engine"
import { native } from "./native"

/** The operations, by the numbers that the addon knows them by. */
export const KINDS = [
  "allReduce",
  "allGather",
  "sumScatter",
  "broadcast",
  "allToAll",
  "send",
  "recv",
  "barrier",
] as const
/** The reductions, likewise. */
export const REDUCTIONS = ["sum", "max", "min"] as const

/** One operation as a member sees it, on row-major elements. */
export interface Work {
  readonly kind: (typeof KINDS)[number]
  readonly reduction: (typeof REDUCTIONS)[number]
  readonly dtype: Dtype
  /** Empty for `recv`. */
  readonly input: Uint8Array
  /** To fill: as long as the input, for `allGather` and `sumScatter` the group's size times and part of that. */
  readonly output: Uint8Array
  /** The elements of the input; of the output, for `recv`. */
  readonly count: number
  /** The root, the destination or the source; 0 for others. */
  readonly peer: number
  /** The public name of the operation. */
  readonly name: string
  /** A number that is equal for equal shapes. */
  readonly shape: number
  /** For gradients, a number that is equal for trees of equal structure; 0 for others. */
  readonly structure: number
  /** For the derivative of an operation, the order of the derivative; 0 for others. Members must not pair one with the other. */
  readonly derivative: number
}

/** The way in which this process talks to the other members of a group. Third parties bring theirs by {@link registerCommunicators}. */
export interface Communicator {
  /** The name of its backend. */
  readonly backend: string
  readonly rank: number
  readonly size: number
  /** Runs one operation, and waits for it. A failure that concerns a rank should say `rank N …`. */
  run(work: Work): void
  split(color: number, key: number): Communicator
  /** Frees what it holds; nothing follows. */
  close?(): void
}

/** A group of the addon. */
export class NativeCommunicator implements Communicator {
  readonly backend: string
  readonly rank: number
  readonly size: number
  constructor(readonly number: number) {
    this.backend = native().transport(number)
    this.rank = native().rank(number)
    this.size = native().size(number)
  }
  run(work: Work): void {
    native().run(
      this.number,
      KINDS.indexOf(work.kind),
      REDUCTIONS.indexOf(work.reduction),
      work.dtype.code,
      work.input,
      work.output,
      work.count,
      work.peer,
      work.shape,
      work.name,
      work.structure,
      work.derivative,
    )
  }
  /** Tells the others of this rank's device. */
  readonly watch: DeviceWatch = {
    check: (op) => void under(op, () => native().rank(this.number)),
    add: (operation, op, from = -1, to = -1) =>
      under(op, () => native().addDeviceWork(this.number, operation, from, to)),
    ask: (place, op, done) => under(op, () => native().askOfDevice(this.number, place, done)),
    agrees: (place, op, milliseconds) =>
      under(op, () => native().agreesOnDevice(this.number, place, milliseconds)),
    wait: (place, op) => under(op, () => native().awaitDevice(this.number, place, op)),
    end: (isWaiting) => native().endDevice(this.number, isWaiting),
    call: (isBegin) => native().beginDeviceCall(this.number, isBegin),
    alarm: () => native().alarm(this.number),
  }
  split(color: number, key: number): NativeCommunicator {
    return under("split", () => new NativeCommunicator(native().split(this.number, color, key)))
  }
  close(): void {
    native().close(this.number)
  }
}

/** By the number that primitives know a group by, shifted: the addon's are not negative, and the others are. */
const others: (Communicator | undefined)[] = []
const natives = new Map<number, NativeCommunicator>()

/** The number by which primitives know a communicator. */
export function numberOf(communicator: Communicator): number {
  if (communicator instanceof NativeCommunicator) {
    natives.set(communicator.number, communicator)
    return communicator.number
  }
  const known = others.indexOf(communicator)
  return known < 0 ? -others.push(communicator) : -known - 1
}

/** A communicator of the addon. */
export const ofAddon = (number: number): NativeCommunicator => new NativeCommunicator(number)

const knownAt = (number: number): Communicator | undefined =>
  number < 0 ? others[-number - 1] : natives.get(number)

/** Forgets the groups of a job that this process leaves. */
export function forgetGroups(): void {
  others.fill(undefined)
  natives.clear()
}

/** Waits for the exchanges that other threads have yet to run: what this one does among the members comes behind them on all ranks. */
export const awaitExchanges = (): void => backendFor(cpu).queue.drain?.()

/** Frees a group; those made from it stay. */
export function closeGroup(number: number): void {
  awaitExchanges()
  knownAt(number)?.close?.()
  if (number < 0) delete others[-number - 1]
  else natives.delete(number)
}

/** The communicator with a number. @throws DeviceError where there is none, as for a number that came from a file */
export function communicatorAt(number: number): Communicator {
  const found = knownAt(number)
  if (!found)
    throw new DeviceError(
      "group",
      "the group was closed, or belongs to another process or to a job that has ended",
    )
  return found
}

/** Runs `body` so that what the addon throws is an error of `op`. */
export function under<T>(op: string, body: () => T): T {
  try {
    return body()
  } catch (error) {
    throw asError(op, error)
  }
}

/** An error that names a rank is a DistributedError. */
export function asError(op: string, error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof DistributedError) return error
  return /^rank \d+ /.test(error.message)
    ? new DistributedError(op, error.message, { cause: error })
    : new DeviceError(op, error.message, { cause: error })
}
