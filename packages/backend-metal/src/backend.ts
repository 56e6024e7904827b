/**
 * The Metal backend: this machine's runtime under the kernels of gpu-kernels.
 */
import { createGpuBackend, type GpuBackend } from "@lazuli/gpu-kernels"
import { HostRuntime } from "./host-runtime"
import type { MetalRuntime } from "./runtime"

/** The Metal backend. */
export interface MetalBackend extends GpuBackend {}

/** A backend on a runtime. */
export function createMetalBackend(runtime: MetalRuntime, name = "metal", priority = 100): MetalBackend {
  return createGpuBackend(runtime, name, priority)
}

/** Serves `mx.gpu`, on the CPU where there is no other runtime. */
export const metalBackend: MetalBackend = createMetalBackend(new HostRuntime())
