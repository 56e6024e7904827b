/**
 * The interface of backends, and their registry. A backend is a plain object: memory, a queue of encoded work, and kernels for any
 * primitives. Importing its package registers it; core names none.
 */

import { copiesHint } from "./copies"
import { type Device, type DeviceType, importHint, markServed, type Stream } from "./device"
import { DeviceError, describe, RegistryError } from "./errors"
import type { Application, Node, Plan } from "./graph"
import type { Memory, Storage } from "./storage"

/** Encodes an application into the queue: a kernel, or a compiled scalar program. All applications of a kernel share one encoder. */
export interface Encoder {
  /**
   * Inputs have storage, unless they are immediates of an elementwise primitive; outputs have storage and are row-major. An output may
   * share the storage of an input of the same size whose last use this is: for elementwise primitives, and where {@link overwrites}
   * permits. Outside plans, `encode` may change the outputs' strides within the same memory.
   */
  encode(node: Node): void
  /** The inputs, by index, that an output of a non-elementwise application may overwrite. None if absent. */
  overwrites?(node: Node, output: number): readonly number[]
  /**
   * Where in the output's memory each input may lie beforehand, in bytes; nothing is copied of one that does. Null if none may.
   */
  partsAt?(node: Node): readonly number[] | null
}

/** A device's work: encoded node by node, run in order within each stream. */
export interface WorkQueue {
  /** Selects the kernel for an application by its primitive, shapes, dtypes and parameters; null if there is none. */
  lower(node: Node): Encoder | null
  /** Encodes a copy of `source`, of any layout, to the row-major `target` of equal shape and dtype. */
  encodeCopy(source: Node, target: Node): void
  /**
   * Runs the encoded work and waits. If work fails, the storages left without a value hold the error: {@link Storage.failure}.
   */
  flush(): void
  /**
   * True if the work of an elementwise node cannot fail once its output has memory, and if only readers of the output can tell when it
   * runs. Outputs of such nodes may then be parts of a storage. If absent, every output has a storage of its own.
   */
  isCertain?(node: Node): boolean
  /**
   * Lets the encoded work wait until somebody reads its results, if all of it is certain; otherwise, and where this is absent, it is
   * flushed.
   */
  flushSoon?(): void
  /**
   * Starts the encoded work without waiting; for backends whose memory counts as free once released, even if pending work uses it.
   */
  begin?(): void
  /**
   * Starts the encoded work on other threads, in order within each stream and with the necessary waits between streams. The promise is
   * fulfilled when the storages have their values and rejected on failure. It must not keep storages from being released, and ignoring it
   * must not cause an unhandled rejection: attach a handler only to rejections, since fulfillment handlers pile up in a loop that never
   * yields. If absent, asynchronous evaluation flushes.
   */
  submit?(storages: readonly Storage[]): Promise<void>
  /** Runs `body`, which encodes, with nothing run on this thread before {@link submit}. */
  handingOver?(body: () => void): void
  /**
   * True if a stream has no running work, so that its encoded work will run on this thread once waited for. If absent, arrays whose handles
   * may be alive are not overwritten; see undo.ts.
   */
  isIdle?(stream: Stream): boolean
  /** Waits for all submitted work of all streams; by default, `flush`. */
  drain?(): void
  /** Waits for all submitted work of a stream; by default, `flush`. */
  synchronize?(stream: Stream): void
}

/** Recorded work that runs many times, for `compile`. */
export interface Plans {
  /** The alignment of inputs in bytes; by default, the size of their dtype. */
  readonly alignment?: number
  /**
   * Kernels run on whole arrays rather than on cache-sized blocks. Each intermediate is then a separate storage while recording, since
   * kernels index from the start of a storage.
   */
  readonly whole?: boolean
  /**
   * Records the work that `body` encodes, to be run any number of times. Storages used in it are numbered bindings: the inputs, the
   * outputs, then one arena of `arenaBytes` bytes for all intermediates or, for kernels on {@link whole} arrays, one binding at each of
   * `offsets` in the arena.
   */
  record(
    inputs: number,
    outputs: number,
    arenaBytes: number,
    body: () => void,
    offsets: readonly number[],
  ): Plan
  /** Encodes a run of a plan: binds the node's inputs, whose layouts are those the plan was recorded for, and outputs in order. */
  encode(plan: Plan, node: Node): void
  /** Releases a plan. */
  release?(plan: Plan): void
  /**
   * True for communication that overlaps the plan's subsequent work. Its order then does not depend on the shapes of other work, which may
   * differ between processes, and it is scheduled as early as possible.
   */
  isExchange?(application: Application): boolean
  /**
   * True if applications that read each other's results, or that apply one primitive to a common operand, can run as one kernel; `inner`
   * are the results without other readers, which then need no memory. Called before storage is allocated.
   */
  joins?(applications: readonly Application[], inner: ReadonlySet<Node>): boolean
  /**
   * Encodes applications accepted by {@link joins} as one kernel; returns false, without effect, if the layouts of their operands do not
   * allow it.
   */
  encodeJoined?(applications: readonly Application[], inner: ReadonlySet<Node>): boolean
  /** True if {@link encodeEpilogue} may follow this application in a recorded plan. */
  takesEpilogue?(node: Node): boolean
  /**
   * Encodes elementwise work on the result of the previously encoded application, which runs tile by tile as the result is computed. It has
   * as many elements and reads the result in its layout. The two overlap in time, so it must not overwrite anything the application reads.
   */
  encodeEpilogue?(node: Node): void
  /**
   * True if {@link encodePrologue} may precede this application in a recorded plan: it can read a row-major first input without other
   * readers tile by tile as that is computed.
   */
  takesPrologue?(node: Node): boolean
  /**
   * Encodes elementwise work whose one result only the next encoded application reads. The two overlap in time, so that application must
   * not overwrite anything the work reads, and the result need not be materialized.
   */
  encodePrologue?(node: Node): void
  /**
   * True if this application reads its first input once for itself and all following applications with the same first input and parameters.
   */
  takesCompanions?(node: Node): boolean
}

/** Properties of a backend's devices, their selection, and captures. */
export interface DeviceInformation {
  facts?(): DeviceFacts
  /** Properties of all available devices; empty if the driver is missing. */
  devices?(): readonly DeviceFacts[]
  /** Selects the device of this index. @throws DeviceError if another one is already in use */
  choose?(index: number): void
  /** Starts a capture of the device's work into a file. */
  startCapture?(path: string): void
  /** Ends the capture. */
  stopCapture?(): void
}

/** Ways in which the members of a group learn what their devices do, and that one of them has failed. */
export interface DeviceWatch {
  /** @throws DeviceError where the group was closed, of which `op` then adds nothing */
  check(op: string): void
  /**
   * Notes an operation that is added, whenever it is: a number that is equal for equal operations, its name, and both ranks where it is
   * from one member to another. Gives its place among all that this process adds.
   * @throws DistributedError where a member has failed
   */
  add(operation: number, op: string, from?: number, to?: number): number
  /**
   * Called before such waits: asks the others whether they have added the same operations up to a place, of which `done` is the last that
   * the device is known to have passed.
   * @throws DistributedError where a member has failed, or has added other ones
   */
  ask(place: number, op: string, done: number): void
  /** True once they are known to have, within so many milliseconds. @throws DistributedError as above */
  agrees(place: number, op: string, milliseconds: number): boolean
  /**
   * Called every now and then while this process waits for its device to pass a place; `op` is the operation there.
   * @throws DistributedError where a member has failed, or waits for other operations
   */
  wait(place: number, op: string): void
  /** Called at the end of such a wait; true says that there are other ones. */
  end(isWaiting: boolean): void
  /** Called around what hands operations over, and other calls from which this thread may not return before the device is done. */
  call(isBegin: boolean): void
  /** A file that can be read from once the job has failed, and ends where this process leaves it; to be closed. */
  alarm(): number
}

/** Collectives between devices of several processes, by the vendor's library. `@lazuli/distributed` connects them. */
export interface DeviceCollectives {
  /** Its name in `mx.distributed.init`. */
  readonly name: string
  isAvailable(): boolean
  /** A new group id: one member creates it, and all join with it. */
  newId(): Uint8Array
  /**
   * Joins the group with an id; returns once all members have joined. Primitives refer to the group by the number `group`. `watch` is told
   * of all operations, and of the times at which this process waits for its device.
   */
  join(group: number, id: Uint8Array, rank: number, size: number, watch: DeviceWatch): void
  /** Leaves all groups. */
  leave(): void
}

/** A device's memory and kernels. */
export interface Backend {
  /** Unique; by convention its package's name without the scope. */
  readonly name: string
  /** The type of device that it supports. */
  readonly device: DeviceType
  /** The backend with the highest priority is used for its device. The reference backend has 0. */
  readonly priority: number
  /** True if it emulates missing hardware; other backends then do not borrow its kernels. */
  readonly emulated?: boolean
  readonly memory: Memory
  readonly queue: WorkQueue
  /** If absent, compiled functions run operation by operation. */
  readonly plans?: Plans
  readonly collectives?: DeviceCollectives
  readonly information?: DeviceInformation
}

/** Properties of a device. */
export interface DeviceFacts {
  readonly deviceName: string
  readonly architecture: string
  /** Bytes of memory. */
  readonly memorySize?: number
  /** Bytes of the largest buffer. */
  readonly maxBufferLength?: number
  /** The recommended maximum of bytes in use. */
  readonly maxRecommendedWorkingSetSize?: number
  /** Other properties. */
  readonly [fact: string]: string | number | undefined
}

const backends: Backend[] = []
/** The backend of each device. */
const active: { cpu: Backend | undefined; gpu: Backend | undefined } = { cpu: undefined, gpu: undefined }
const listeners: ((backend: Backend) => void)[] = []

/** Checks for the mandatory members of a backend. @throws RegistryError */
function checkBackend(backend: Partial<Backend> | null | undefined): void {
  const { name, device, priority, memory, queue } = backend ?? {}
  const missing =
    typeof name !== "string" || name === ""
      ? "a name"
      : device !== "cpu" && device !== "gpu"
        ? 'a device, "cpu" or "gpu"'
        : typeof priority !== "number"
          ? "a priority"
          : typeof memory !== "object" || memory === null
            ? "a memory"
            : typeof queue !== "object" || queue === null
              ? "a queue"
              : null
  if (missing !== null)
    throw new RegistryError(
      "registerBackend",
      `a backend must be an object with ${missing}, received ${describe(backend)}`,
    )
}

/**
 * Registers a backend and returns its index, under which it may cache data on primitives (`kernels`) and scalar programs (`ids`).
 * @throws RegistryError if the name is taken
 */
export function registerBackend(backend: Backend): number {
  checkBackend(backend)
  if (backends.some((b) => b.name === backend.name)) {
    throw new RegistryError("registerBackend", `a backend named "${backend.name}" is already registered`, {
      hint: "Two copies of its package in node_modules cause this",
    })
  }
  backends.push(backend)
  markServed(backend.device)
  const now = active[backend.device]
  if (!now || backend.priority > now.priority) active[backend.device] = backend
  for (const listener of listeners) listener(backend)
  return backends.length - 1
}

/** Calls `listener` for every backend, present and future. */
export function onBackend(listener: (backend: Backend) => void): void {
  listeners.push(listener)
  for (const backend of backends) listener(backend)
}

/** Allocates memory of a backend that may be written immediately. */
export function stage({ memory, queue }: Backend, nbytes: number): Storage {
  if (memory.stage) return memory.stage(nbytes)
  const storage = memory.allocate(nbytes)
  queue.flush()
  return storage
}

/** The backend of a memory. */
export const backendOf = (memory: Memory): Backend =>
  backends.find((backend) => backend.memory === memory) as Backend

/** True if a backend supports devices of this type. */
export const isServed = (type: DeviceType): boolean => active[type] !== undefined

/** All backends, in the order of registration. */
export function listBackends(): readonly Backend[] {
  return backends
}

/** The backend of a device. @throws DeviceError if there is none */
export function backendFor(device: Device): Backend {
  const backend = device.type === "cpu" ? active.cpu : active.gpu
  if (!backend) {
    throw new DeviceError("device", `no backend serves ${device}`, {
      hint: copiesHint() ?? importHint(device.type),
    })
  }
  return backend
}

/** Selects the backend of a device by name, or with null the one of highest priority. For tests and comparisons. */
export function setBackend(name: string | null, device: DeviceType = "cpu"): void {
  if (name === null) {
    const best = backends.filter((b) => b.device === device).sort((a, b) => b.priority - a.priority)[0]
    if (best) active[device] = best
    return
  }
  const backend = backends.find((b) => b.name === name)
  if (!backend)
    throw new RegistryError(
      "setBackend",
      `there is no backend ${typeof name === "string" ? `"${name}"` : describe(name)}; registered: ${backends.map((b) => b.name).join(", ") || "none"}`,
    )
  active[backend.device] = backend
}

/**
 * By backend and primitive without a kernel: how often it ran as its decomposition, by another backend's kernel on shared memory
 * (`borrowed`), or by its reference implementation.
 */
export type BackendStats = Record<
  string,
  Record<string, { decomposed: number; reference: number; borrowed?: number }>
>

const stats: BackendStats = {}

/** Counts one fallback. */
export function countFallback(
  backend: string,
  primitive: string,
  way: "decomposed" | "reference" | "borrowed",
): void {
  stats[backend] ??= {}
  const counts = (stats[backend][primitive] ??= { decomposed: 0, reference: 0 })
  counts[way] = (counts[way] ?? 0) + 1
}

/**
 * Counts, by backend, how often primitives without a kernel ran as their decomposition, by another backend's kernel on shared memory, or by
 * their reference implementation.
 *
 * @example
 * mx.resetBackendStats()
 * mx.eval(mx.exp(mx.ones([2])))
 * mx.backendStats() // => {}
 */
export function backendStats(): BackendStats {
  return structuredClone(stats)
}

/** Resets {@link backendStats}. */
export function resetBackendStats(): void {
  for (const key of Object.keys(stats)) delete stats[key]
}
