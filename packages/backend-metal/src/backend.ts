/**
 * The Metal backend: this machine's runtime under the kernels of gpu-kernels.
 */
import { choiceFrom } from "@lazuli/core/engine"
import { createGpuBackend, type GpuBackend } from "@lazuli/gpu-kernels"
import { AppleRuntime } from "./apple-runtime"
import { HostRuntime } from "./host-runtime"
import type { MetalRuntime } from "./runtime"

/** The Metal backend. */
export interface MetalBackend extends GpuBackend {}

/** A backend on a runtime. */
export function createMetalBackend(runtime: MetalRuntime, name = "metal", priority = 100): MetalBackend {
  return createGpuBackend(runtime, name, priority)
}

/** The runtime for a system: Metal.framework on a Mac with Apple silicon, the CPU elsewhere. Nothing is opened yet. */
export function runtimeFor(
  { platform, arch }: { readonly platform: string; readonly arch: string },
  chosen: "host" | "apple" | null = choiceFrom("LAZULI_METAL_RUNTIME", ["host", "apple"]),
): AppleRuntime | HostRuntime {
  const isMac = platform === "darwin" && arch === "arm64"
  return (chosen ?? (isMac ? "apple" : "host")) === "apple" ? new AppleRuntime() : new HostRuntime()
}

const runtime = runtimeFor(process)

/** Serves `mx.gpu`, on the CPU where there is no other runtime. */
export const metalBackend: MetalBackend = createMetalBackend(runtime)

/** True where `mx.gpu` is the GPU of a Mac, which it opens. Never throws. */
export const hasMetalGpu = (): boolean => runtime instanceof AppleRuntime && runtime.isAvailable
