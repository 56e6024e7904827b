/**
 * The kernels that programs ask a GPU for, without one: a backend with this package's kernels, on a device that computes nothing.
 */
import { backendFor, gpu, registerBackend, setBackend } from "@lazuli/core/engine"
import {
  createGpuBackend,
  type GpuLibrary,
  type GpuRuntime,
  type KernelRequest,
  wideReductions,
} from "@lazuli/gpu-kernels"
import { attentionFamilies } from "./attention"
import { quantizedFamilies } from "./quantized"

const NAME = "cuda-requests"
/** Bytes of a device that is large enough for anything. */
const MEMORY = 2 ** 40

let noted = new Map<string, KernelRequest>()

interface Library extends GpuLibrary, Pick<KernelRequest, "source" | "options"> {}

function notingRuntime(): GpuRuntime {
  let ids = 0
  return {
    name: NAME,
    info: {
      name: NAME,
      simdWidth: 32,
      maxThreadsPerThreadgroup: 1024,
      maxThreadgroupMemory: 32768,
      maxBufferLength: MEMORY,
      recommendedWorkingSet: MEMORY,
      memorySize: MEMORY,
    },
    ordered: true,
    specializes: true,
    doubles: true,
    dispatchesAhead: Number.POSITIVE_INFINITY,
    newBuffer: (length) => ({ id: ++ids, length }),
    releaseBuffer: () => {},
    read: () => {},
    write: () => {},
    newLibrary: (source, options = {}): Library => ({ kernels: [], source, options }),
    newPipeline(library, name, constants, form) {
      const { source, options } = library as Library
      noted.set(JSON.stringify([source, name, constants, form]), { source, options, name, constants, form })
      return { id: ++ids, name, maxThreads: 1024 }
    },
    commit: () => ({ id: 0 }),
    wait: () => [],
  }
}

let isRegistered = false

/**
 * Kernels that `body` asks `mx.gpu` for; its values are none. What users wrote is not among them, nor anything that it asked for in an
 * earlier call.
 */
export function kernelRequests(body: (backend: string) => void): KernelRequest[] {
  if (!isRegistered)
    registerBackend(
      // Of CUDA's libraries none is there.
      createGpuBackend(notingRuntime(), NAME, -1, {
        ...wideReductions,
        ...attentionFamilies(
          { isModern: () => true, hasGroups: () => false, bytes: () => MEMORY },
          () => null,
        ),
        ...quantizedFamilies(
          () => false,
          () => true,
          () => ({ processors: 1, maxShared: 0 }),
        ),
      }),
    )
  isRegistered = true
  noted = new Map()
  const before = backendFor(gpu).name
  setBackend(NAME, "gpu")
  try {
    body(NAME)
  } finally {
    setBackend(before, "gpu")
  }
  return [...noted.values()].filter(({ options }) => !options.wording)
}
