// The GPU of a Mac as the default device. Elsewhere nothing is loaded: whoever wants Metal kernels there imports their backend.

import { gpu, setDefaultDevice } from "@lazuli/core"
import { choiceFrom } from "@lazuli/core/engine"

/** A system, as `process` describes it. */
export interface System {
  readonly platform: string
  readonly arch: string
}

/** The part of the Metal backend that is asked. */
interface Metal {
  hasMetalGpu(): boolean
}

const loadMetal = (): Metal =>
  process.getBuiltinModule("node:module").createRequire(import.meta.url)("@lazuli/backend-metal") as Metal

/**
 * Makes the GPU the default device on a Mac with Apple silicon, unless `LAZULI_DEVICE=cpu`. Gives true where it did. A Mac whose GPU cannot
 * be used keeps the CPU; `load` stands for the Metal backend.
 */
export function preferMacGpu({ platform, arch }: System, load: () => Metal = loadMetal): boolean {
  if (platform !== "darwin" || arch !== "arm64") return false
  let metal: Metal
  try {
    metal = load()
  } catch {
    // Without the package there is the CPU.
    return false
  }
  if (choiceFrom("LAZULI_DEVICE", ["cpu", "gpu"]) === "cpu" || !metal.hasMetalGpu()) return false
  setDefaultDevice(gpu)
  return true
}
