/**
 * The contract of a backend, and the registry of backends. A backend is a plain object: memory, a queue of encoded work, and kernels
 * for whatever it likes. Importing its package registers it; nothing in core names one.
 */

import { copiesHint } from "./copies"
import { type Device, type DeviceType, markServed, type Stream } from "./device"
import { DeviceError, describe, RegistryError } from "./errors"
import type { Application, Node, Plan } from "./graph"
import type { Memory, Storage } from "./storage"

/** Adds an application's work to the queue: a kernel, or a compiled scalar program. One serves every application of its kernel. */
export interface Encoder {
  /**
   * Inputs have storage, unless they are immediates of an elementwise primitive; outputs have storage and are row-major. An output may
   * share the storage of an input of the same size that dies here: of elementwise primitives, and where {@link overwrites} says so.
   * Outside plans it may give outputs other strides, in the same memory.
   */
  encode(node: Node): void
  /** The inputs, by index, over which an output of an application that is not elementwise may be written; none without it. */
  overwrites?(node: Node, output: number): readonly number[]
}

/** A device's work: encoded by node, run in order stream by stream. */
export interface WorkQueue {
  /** The kernel for this application, by its primitive, shapes, dtypes and parameters; null where there is none. */
  lower(node: Node): Encoder | null
  /** Adds a copy of `source`, of any layout, to `target`, row-major. Shapes and dtypes are equal. */
  encodeCopy(source: Node, target: Node): void
  /**
   * Runs what is encoded and waits. Work that failed leaves its error on the storages that have no value for it: {@link Storage.failure}.
   */
  flush(): void
  /**
   * Lets what is encoded run, and does not wait: for backends whose memory counts as free when it is released, whatever work uses it.
   */
  begin?(): void
  /**
   * Lets what is encoded run on other threads, stream by stream in order, with streams that wait for each other where they must, and
   * gives a promise that is fulfilled when the storages have their values, and rejected with a failure. It must not keep storages from
   * being released, and whoever lets it alone must not meet an unhandled rejection: catch what is rejected, and only that, since handlers
   * of what is fulfilled pile up in a loop that never yields. Without it asynchronous evaluation flushes.
   */
  submit?(storages: readonly Storage[]): Promise<void>
  /** Encodes with `body`, so that nothing runs on this thread before {@link submit}. */
  handingOver?(body: () => void): void
  /**
   * True if nothing of a stream is under way, and its work runs on this thread as soon as somebody waits for it. Without it arrays whose
   * handles may be alive are not written over; see undo.ts.
   */
  isIdle?(stream: Stream): boolean
  /** Waits for all work of all streams, submitted before. Without it `flush` does. */
  drain?(): void
  /** Waits for all work of a stream, submitted before. Without it `flush` does. */
  synchronize?(stream: Stream): void
}

/** Work that is recorded once and run many times: what `compile` asks for. */
export interface Plans {
  /** Inputs begin at multiples of so many bytes; without it, of their dtype's size. */
  readonly alignment?: number
  /**
   * Kernels run on whole arrays: work is not cut into blocks that stay in a cache. Each intermediate is then a storage of its own while it
   * is recorded, since kernels count elements from where one begins.
   */
  readonly whole?: boolean
  /**
   * Records what `body` encodes, to be run later any number of times. Storages seen meanwhile are bindings, numbered: the inputs, then the
   * outputs, then one for all intermediates, of `arenaBytes` bytes. For kernels on {@link whole} arrays there is one for each of `offsets`,
   * where in those bytes it begins.
   */
  record(
    inputs: number,
    outputs: number,
    arenaBytes: number,
    body: () => void,
    offsets: readonly number[],
  ): Plan
  /** Adds a run of a plan: the node's inputs, which lie as those did for which it was made, and outputs are bound in order. */
  encode(plan: Plan, node: Node): void
  /** Forgets a plan. */
  release?(plan: Plan): void
  /**
   * True of work that several processes do together, beside what a plan does next. Its order is then the same whatever the shapes of other
   * work, in which processes may differ; and it comes as early as it can.
   */
  isExchange?(application: Application): boolean
  /**
   * True if applications, of which each reads what another one makes, or all of one primitive to an operand, run as one kernel; `inner` are
   * the results that nothing else reads, which then take no memory. Asked before anything has storage.
   */
  joins?(applications: readonly Application[], inner: ReadonlySet<Node>): boolean
  /** Adds applications that {@link joins} took; false, having done nothing, where they are no kernel as their operands lie. */
  encodeJoined?(applications: readonly Application[], inner: ReadonlySet<Node>): boolean
  /** Tells that {@link encodeEpilogue} may follow this application in a recorded plan. */
  takesEpilogue?(node: Node): boolean
  /**
   * Adds elementwise work that runs on the pieces of the result of what was encoded just before, as they are made: it has as many elements
   * and reads the result as it lies. The two overlap in time, so it writes over nothing that the application reads.
   */
  encodeEpilogue?(node: Node): void
  /**
   * Tells that {@link encodePrologue} may come before this application in a recorded plan: it can read a first input, row-major and read by
   * nothing else, piece by piece as that is computed.
   */
  takesPrologue?(node: Node): boolean
  /**
   * Adds elementwise work of one result for what is encoded next, which alone reads it. The two overlap in time, so what comes next writes
   * over nothing that the work reads, and the result's memory need never hold it.
   */
  encodePrologue?(node: Node): void
  /** Tells that this application reads its first input once for itself and all that follow it with the same one and the same parameters. */
  takesCompanions?(node: Node): boolean
}

/** A backend's account of its device, and recordings of its work. */
export interface DeviceInformation {
  facts?(): DeviceFacts
  /** The facts of every device that it could serve with; none where what it needs is not there. */
  devices?(): readonly DeviceFacts[]
  /** Serves with the device of this index. @throws DeviceError once another one is in use */
  choose?(index: number): void
  /** Begins to record the device's work into a file. */
  startCapture?(path: string): void
  /** Ends the recording. */
  stopCapture?(): void
}

/** Operations among processes that each have such a device, by a library of its maker. `@lazuli/distributed` connects them. */
export interface DeviceCollectives {
  /** The name by which `mx.distributed.init` knows it. */
  readonly name: string
  isAvailable(): boolean
  /** Bytes by which members find each other: one of them makes these, and all join by them. */
  newId(): Uint8Array
  /**
   * Joins those that have the same id; returns once all are there. Primitives then know the group by `group`. While the device's work is
   * waited for `check` is called with true, a number that is equal for equal sequences of operations and the last of them, and with false
   * when the wait is over; it throws where a member has failed, which ends that work.
   */
  join(
    group: number,
    id: Uint8Array,
    rank: number,
    size: number,
    check: (isWaiting: boolean, work: number, op: string) => void,
  ): void
  /** Forgets all groups. */
  leave(): void
}

/** A device's memory and kernels. */
export interface Backend {
  /** Unique; its package's name without scope is customary. */
  readonly name: string
  /** The type of device that it serves. */
  readonly device: DeviceType
  /** Among backends of one device the highest serves it. The reference has 0. */
  readonly priority: number
  /** It stands in for hardware that is not there: other backends then do not borrow its kernels. */
  readonly emulated?: boolean
  readonly memory: Memory
  readonly queue: WorkQueue
  /** Without them compiled functions run operation by operation. */
  readonly plans?: Plans
  readonly collectives?: DeviceCollectives
  readonly information?: DeviceInformation
}

/** The facts of a device. */
export interface DeviceFacts {
  readonly deviceName: string
  readonly architecture: string
  /** Bytes of memory. */
  readonly memorySize?: number
  /** Bytes of the largest buffer. */
  readonly maxBufferLength?: number
  /** Bytes that may be in use before the device slows down. */
  readonly maxRecommendedWorkingSetSize?: number
  /** Other facts. */
  readonly [fact: string]: string | number | undefined
}

const backends: Backend[] = []
/** The backend of each device. */
const serving: { cpu: Backend | undefined; gpu: Backend | undefined } = { cpu: undefined, gpu: undefined }
const listeners: ((backend: Backend) => void)[] = []

/** Checks for the parts that no backend can be without. @throws RegistryError */
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
 * Makes a backend known, and gives its index: where it may keep what it knows of primitives (`kernels`) and scalar programs (`ids`).
 * @throws RegistryError when another one has its name
 */
export function registerBackend(backend: Backend): number {
  checkBackend(backend)
  if (backends.some((b) => b.name === backend.name)) {
    throw new RegistryError("registerBackend", `a backend named "${backend.name}" is already registered`, {
      hint: "Two copies of its package in node_modules do this",
    })
  }
  backends.push(backend)
  markServed(backend.device)
  const now = serving[backend.device]
  if (!now || backend.priority > now.priority) serving[backend.device] = backend
  for (const listener of listeners) listener(backend)
  return backends.length - 1
}

/** Calls `listener` for every backend, those to come included. */
export function onBackend(listener: (backend: Backend) => void): void {
  listeners.push(listener)
  for (const backend of backends) listener(backend)
}

/** Memory of a backend to write to now. */
export function stage({ memory, queue }: Backend, nbytes: number): Storage {
  if (memory.stage) return memory.stage(nbytes)
  const storage = memory.allocate(nbytes)
  queue.flush()
  return storage
}

/** The backend whose memory it is. */
export const backendOf = (memory: Memory): Backend =>
  backends.find((backend) => backend.memory === memory) as Backend

/** True if a backend serves devices of this type. */
export const isServed = (type: DeviceType): boolean => serving[type] !== undefined

/** All backends, in the order of registration. */
export function listBackends(): readonly Backend[] {
  return backends
}

/** The backend that serves a device. @throws DeviceError when none does. */
export function backendFor(device: Device): Backend {
  const backend = device.type === "cpu" ? serving.cpu : serving.gpu
  if (!backend) {
    throw new DeviceError("device", `no backend serves ${device}`, {
      hint:
        copiesHint() ??
        `Import a package that does, such as "@lazuli/backend-${device.type === "gpu" ? "metal" : "cpu"}"`,
    })
  }
  return backend
}

/** Makes the named backend serve its device, or, with null, the one of highest priority again. For tests and comparisons. */
export function setBackend(name: string | null, device: DeviceType = "cpu"): void {
  if (name === null) {
    const best = backends.filter((b) => b.device === device).sort((a, b) => b.priority - a.priority)[0]
    if (best) serving[device] = best
    return
  }
  const backend = backends.find((b) => b.name === name)
  if (!backend)
    throw new RegistryError(
      "setBackend",
      `there is no backend ${typeof name === "string" ? `"${name}"` : describe(name)}; registered: ${backends.map((b) => b.name).join(", ") || "none"}`,
    )
  serving[backend.device] = backend
}

/**
 * By backend and primitive: how often it ran by its decomposition, by another backend's kernel on shared memory (`borrowed`), or by its
 * reference implementation, for want of a kernel.
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
 * The primitives that ran without a kernel of their own, by backend: through their decomposition, another backend's kernel on shared
 * memory, or their reference implementation.
 *
 * @example
 * mx.resetBackendStats()
 * mx.eval(mx.exp(mx.ones([2])))
 * mx.backendStats() // => {}
 */
export function backendStats(): BackendStats {
  return structuredClone(stats)
}

/** Starts {@link backendStats} anew. */
export function resetBackendStats(): void {
  for (const key of Object.keys(stats)) delete stats[key]
}
