/**
 * A backend on a GPU's runtime: hands each application to the family that has a kernel for it. What no family has falls back in core,
 * through decompositions or reference implementations.
 */
import { totalmem } from "node:os"
import {
  type Application,
  type Backend,
  determinism,
  type Encoder,
  listBackends,
  type Memory,
  type Node,
  type Plans,
  type Primitive,
  Storage,
  type Stream,
  type WorkQueue,
} from "@lazuli/core/engine"
import { familyOf } from "../families"
import type { Families, Family } from "../family"
import { joinedWork } from "../joined"
import { encodeCopy } from "../kernels/copy"
import { elementwise, wideElementwise } from "../kernels/elementwise"
import { viewOf } from "../layout"
import { copyOnHost } from "./host-copy"
import { GpuQueue } from "./queue"
import type { Recorded } from "./recording"
import { Replays } from "./replays"
import type { GpuRuntime, LibrarySource } from "./runtime"

/** Bytes at whose multiples inputs of plans begin: kernels are recorded that read vectors. */
const ALIGNMENT = 16

/** A backend that runs this package's kernels. */
export interface GpuBackend extends Backend {
  /**
   * Compiles the kernels that `body` needs ahead, many at a time: for tests that need hundreds. `body` runs on the reference, so that it
   * gets the right values, and its kernels do not run. Without a body that can be run twice there is no need for it: kernels are
   * compiled when they are needed.
   *
   * @returns how many sources there were
   * @example
   * await metalBackend.rehearse(() => mx.eval(mx.stream(mx.gpu, () => mx.exp(mx.ones([2])))))
   */
  rehearse(body: () => void): Promise<number>
}

const NONE: readonly number[] = []

/** A backend on a runtime. Families of its `own` come first, where they support an application. */
export function createGpuBackend(
  runtime: GpuRuntime,
  name: string,
  priority: number,
  own: Families = {},
): GpuBackend {
  let rehearsed: Map<string, LibrarySource> | null = null
  const memory: Memory = {
    name,
    allocate: (nbytes) => queue.allocate(nbytes),
    release: (storage) => queue.release(storage),
    read: (storage, byteOffset, into) => queue.read(storage, byteOffset, into),
    write: (storage, byteOffset, from) => queue.write(storage, byteOffset, from),
    ...(runtime.contents && {
      host: (storage: Storage) => queue.host(storage),
      address: (storage: Storage) => queue.address(storage),
      adopt: (address: bigint, nbytes: number, done: () => void) =>
        queue.buffers.adopt(address, nbytes, done),
    }),
    ...(runtime.tracker && { tracker: runtime.tracker }),
    ...(runtime.setWiredLimit && { setWiredLimit: (bytes: number) => runtime.setWiredLimit?.(bytes) }),
    // Writes are work of the device: what was encoded before runs first.
    ...(runtime.mark && !runtime.contents && { stage: (nbytes: number) => queue.allocate(nbytes) }),
    ...(runtime.mark && { wait: (storage: Storage) => queue.await(storage) }),
    stats: () => queue.buffers.stats(),
    setLimit: (bytes) => queue.buffers.setLimit(bytes),
    setCacheLimit: (bytes) => queue.buffers.setCacheLimit(bytes),
    clearCache: () => queue.buffers.clearCache(),
    resetPeak: () => queue.buffers.resetPeak(),
  }
  const queue = new GpuQueue(runtime, memory)
  const choice = familyChoice(runtime, memory, queue, own)
  /** The last choice, which is asked for several times until the application is encoded. */
  let last: { node: Node; inputs: readonly Node[]; family: Family } | null = null
  const familyFor = (node: Node): Family | null => {
    if (node.primitive?.elementwise) return choice(node)
    if (last !== null && last.node === node && last.inputs === node.inputs) return last.family
    const family = choice(node)
    // It may depend on how inputs lie.
    const isFinal = family !== null && queue.isDirect && node.inputs.every(({ storage }) => storage !== null)
    last = isFinal ? { node, inputs: node.inputs, family } : null
    return family
  }
  const isExchange = (node: Application): boolean => {
    const family = Object.hasOwn(own, node.primitive.name) ? own[node.primitive.name] : undefined
    return family?.isExchange === true && family.supports(node)
  }
  const plans = plansOn(queue, familyFor, isExchange)
  const replays = new Replays(queue, memory)
  const encoder: Encoder = {
    overwrites: (node, output) => familyFor(node)?.overwrites?.(node, output) ?? NONE,
    partsAt: (node) => familyFor(node)?.partsAt?.(node) ?? null,
    encode(node) {
      const encode = (): void => (familyFor(node) as Family).encode(node, queue)
      const mayRecord = (): boolean => isRepeatable(familyFor(node) as Family, node)
      try {
        work(
          node,
          () => {
            queue.follow(node.stream)
            // Remembered dispatches may be of another order.
            const remembers = queue.isDirect && !determinism.isAsked
            if (!remembers || !replays.run(node, mayRecord, encode)) encode()
          },
          (reference) => {
            const instead = node.primitive?.facts.opaque ? null : reference.lower(node)
            return instead && (() => instead.encode(node))
          },
        )
      } finally {
        last = null
      }
    },
  }
  /** Elementwise work where nothing is rehearsed or recorded: the same in fewer steps. */
  const elementwiseEncoder: Encoder = {
    encode(node) {
      if (rehearsed !== null || queue.isRecording) {
        encoder.encode(node)
        return
      }
      try {
        queue.follow(node.stream)
        elementwise.encode(node, queue)
      } catch (error) {
        poison(queue, node, error)
      }
    },
  }
  const backend: GpuBackend = {
    name,
    device: "gpu",
    emulated: runtime.emulated,
    priority,
    memory,
    queue: {
      lower(node) {
        const family = familyFor(node)
        if (family === null || (family.unplanned === true && queue.isRecording)) return null
        return family === elementwise ? elementwiseEncoder : encoder
      },
      encodeCopy: (source, target) =>
        work(
          target,
          () => {
            queue.follow(target.stream)
            const copy = (): void =>
              encodeCopy(queue, viewOf(source), { storage: target.storage as Storage, offset: 0 })
            if (runtime.limited !== true || queue.provides(copy)) copy()
            else copyOnHost(source, target)
          },
          (reference) => () => reference.encodeCopy(source, target),
        ),
      flush() {
        last = null
        queue.run()
      },
      ...(runtime.mark && {
        begin() {
          last = null
          queue.begin()
        },
      }),
      ...(runtime.mark && { submit: (storages: readonly Storage[]) => queue.submit(storages) }),
      // Memory counts as free when it is released, whatever work uses it: that runs before what takes it next.
      drain: () => {},
      ...(runtime.synchronize && { synchronize: (stream: Stream) => queue.synchronize(stream) }),
    },
    // Rehearsals run on the reference, operation by operation; fused work needs a compiler.
    get plans() {
      return rehearsed || runtime.limited === true ? undefined : plans
    },
    information: informationOf(runtime),
    async rehearse(body) {
      const asked = new Map<string, LibrarySource>()
      rehearsed = asked
      try {
        body()
      } finally {
        rehearsed = null
      }
      await runtime.prepare?.([...asked.values()])
      return asked.size
    },
  }
  /** A kernel that does not compile leaves its outputs without a value, like one that fails. */
  const work = (
    node: Node,
    body: () => void,
    onReference: (reference: WorkQueue) => (() => void) | null,
  ): void => {
    // The whole plan is refused.
    if (queue.isRecording) {
      body()
      return
    }
    try {
      const instead = rehearsed && onReference(referenceBackend().queue)
      if (rehearsed && instead) {
        queue.withoutRunning(rehearsed, body)
        instead()
      } else body()
    } catch (error) {
      poison(queue, node, error)
    }
  }
  return backend
}

/** True if an application's work may be recorded. */
const isRepeatable = (family: Family, node: Node): boolean =>
  family.unplanned !== true && family.isOnce?.(node) !== true

/** The backend of the reference implementations; core registers it. */
const referenceBackend = (): Backend => listBackends().find((b) => b.name === "reference") as Backend

/** Finds the family that takes an application. */
function familyChoice(
  runtime: GpuRuntime,
  memory: Memory,
  queue: GpuQueue,
  own: Families,
): (node: Node) => Family | null {
  /** Without its kernel the work of an opaque primitive is nothing: the attempt says what is missing. */
  const isThere = (node: Node, family: Family): boolean =>
    runtime.limited !== true || node.primitive?.facts.opaque === true || isProvided(node, family)
  /** True if the kernels of an application are there, where none can be compiled. What it has no memory for yet counts as row-major. */
  const isProvided = (node: Node, family: Family): boolean => {
    const lacking = [...node.inputs, ...(node.outputs ?? [node])].filter(
      (each) => each.storage === null && each.primitive?.facts.immediate !== true,
    )
    for (const each of lacking) each.storage = new Storage(memory, -1, each.nbytes)
    try {
      return queue.provides(() => family.encode(node, queue))
    } catch {
      return false
    } finally {
      for (const each of lacking) each.storage = null
    }
  }
  return (node) => {
    const primitive = node.primitive as Primitive
    // Nobody has other kernels for it.
    if (primitive.elementwise)
      return elementwise.supports(node) && isThere(node, elementwise)
        ? elementwise
        : runtime.doubles === true && wideElementwise.supports(node) && isThere(node, wideElementwise)
          ? wideElementwise
          : null
    for (const family of [
      Object.hasOwn(own, primitive.name) ? own[primitive.name] : undefined,
      familyOf(primitive),
    ])
      if (family?.supports(node) && isThere(node, family)) return family
    return null
  }
}

/** Recorded programs, and work of several applications at once. */
function plansOn(
  queue: GpuQueue,
  familyFor: (node: Node) => Family | null,
  isExchange: (node: Application) => boolean,
): Plans {
  const recordings = new Map<number, Recorded>()
  let recordingCount = 0
  return {
    alignment: ALIGNMENT,
    whole: true,
    record(inputs, outputs, bytes, body, offsets) {
      const recorded = queue.record(inputs, outputs, bytes, offsets, body)
      recordings.set(++recordingCount, recorded)
      return { id: recordingCount }
    },
    encode(plan, node) {
      try {
        queue.follow(node.stream)
        queue.runRecorded(recordings.get(plan.id) as Recorded, node)
      } catch (error) {
        poison(queue, node, error)
      }
    },
    isExchange,
    joins: (members, inner) => joinedWork(members, inner, familyFor) !== null,
    encodeJoined(members, inner) {
      const work = joinedWork(members, inner, familyFor)
      work?.(queue)
      return work !== null
    },
    release(plan) {
      const recorded = recordings.get(plan.id)
      recordings.delete(plan.id)
      if (recorded) queue.forget(recorded)
    },
  }
}

const informationOf = (runtime: GpuRuntime): NonNullable<Backend["information"]> => ({
  facts: () => {
    const { info } = runtime
    return {
      deviceName: info.name,
      architecture: runtime.name,
      memorySize: info.memorySize ?? totalmem(),
      maxBufferLength: info.maxBufferLength,
      maxRecommendedWorkingSetSize: info.recommendedWorkingSet,
      maxThreadgroupMemoryLength: info.maxThreadgroupMemory,
      resourceLimit: info.resourceLimit,
      ...runtime.deviceFacts?.(),
    }
  },
  devices: runtime.devices && (() => runtime.devices?.() ?? []),
  choose: runtime.choose && ((index) => runtime.choose?.(index)),
  startCapture: runtime.startCapture && ((path) => runtime.startCapture?.(path)),
  stopCapture: runtime.stopCapture && (() => runtime.stopCapture?.()),
})

/** Leaves the outputs of an application without values. */
function poison(queue: GpuQueue, node: Node, error: unknown): void {
  queue.poison(
    error as Error,
    (node.outputs ?? [node]).map((output) => output.storage as Storage),
  )
}
