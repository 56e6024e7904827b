/**
 * The Metal backend: hands each application to the family that has a kernel for it. What no family has falls back in core, through
 * decompositions or the TypeScript meaning on the buffers' memory.
 */
import { totalmem } from "node:os"
import {
  type Backend,
  type Node,
  onKernels,
  type Primitive,
  RegistryError,
  type Storage,
} from "@lazuli/core/engine"
import type { Family } from "./family"
import { HostRuntime } from "./host-runtime"
import { encodeCopy } from "./kernels/copy"
import { customKernels, providedKernels } from "./kernels/custom"
import { elementwise } from "./kernels/elementwise"
import { products } from "./kernels/matmul"
import { reductions } from "./kernels/reduce"
import { softmax } from "./kernels/softmax"
import { viewOf } from "./layout"
import { MetalQueue } from "./queue"
import type { MetalRuntime } from "./runtime"

const families: Record<string, Family> = { ...reductions, ...softmax, ...products, ...customKernels }
/** Who brought the kernels that are not this package's own. */
const providers = new Map<string, string>()

onKernels("metal", (offer) => {
  const provided = providedKernels(offer)
  for (const name of Object.keys(provided))
    if (Object.hasOwn(families, name))
      throw new RegistryError(
        "backend-metal",
        `${offer.package} brings a kernel for ${name}, which ${providers.get(name) ?? "the Metal backend itself"} has already`,
      )
  for (const [name, family] of Object.entries(provided)) {
    families[name] = family
    providers.set(name, offer.package)
  }
})

function familyOf(primitive: Primitive): Family | undefined {
  if (primitive.elementwise) return elementwise
  return Object.hasOwn(families, primitive.name) ? families[primitive.name] : undefined
}

/** A backend on a runtime. */
export function createMetalBackend(runtime: MetalRuntime, name = "metal", priority = 100): Backend {
  const backend: Backend = {
    name,
    device: "gpu",
    emulated: runtime.emulated,
    priority,
    allocate: (nbytes) => queue.allocate(nbytes),
    release: (storage) => queue.release(storage),
    read: (storage, byteOffset, into) => queue.read(storage, byteOffset, into),
    write: (storage, byteOffset, from) => queue.write(storage, byteOffset, from),
    host: (storage) => queue.host(storage),
    address: (storage) => queue.address(storage),
    adopt: (address, nbytes, done) => queue.adopt(address, nbytes, done),
    supports: (node) => familyOf(node.primitive as Primitive)?.supports(node) ?? false,
    encode: (node) =>
      guarded(node, () => (familyOf(node.primitive as Primitive) as Family).encode(node, queue)),
    encodeCopy: (source, target) =>
      guarded(target, () =>
        encodeCopy(queue, viewOf(source), { storage: target.storage as Storage, offset: 0 }),
      ),
    flush: () => queue.flush(),
    memory: () => queue.stats(),
    setMemoryLimit: (bytes) => queue.setMemoryLimit(bytes),
    setCacheLimit: (bytes) => queue.setCacheLimit(bytes),
    clearCache: () => queue.clearCache(),
    resetPeakMemory: () => queue.resetPeak(),
    info: () => {
      const { info } = runtime
      return {
        deviceName: info.name,
        architecture: runtime.name,
        memorySize: totalmem(),
        maxBufferLength: info.maxBufferLength,
        maxRecommendedWorkingSetSize: info.recommendedWorkingSet,
        maxThreadgroupMemoryLength: info.maxThreadgroupMemory,
        resourceLimit: info.resourceLimit,
      }
    },
    startCapture: runtime.startCapture && ((path) => runtime.startCapture?.(path)),
    stopCapture: runtime.stopCapture && (() => runtime.stopCapture?.()),
  }
  const queue = new MetalQueue(runtime, backend)
  /** A kernel that does not compile leaves its outputs without a value, like one that fails. */
  const guarded = (node: Node, body: () => void): void => {
    try {
      body()
    } catch (error) {
      queue.poison(
        error as Error,
        (node.outputs ?? [node]).map((n) => n.storage as Storage),
      )
    }
  }
  return backend
}

/** Serves `mx.gpu`, on the CPU where there is no other runtime. */
export const metalBackend: Backend = createMetalBackend(new HostRuntime())
