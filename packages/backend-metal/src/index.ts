/**
 * The Metal backend: importing it registers it for `mx.gpu`. Also its runtime interface, the runtime that executes Metal kernels on the
 * CPU, and the streams that runtimes take.
 */
import { registerBackend, setMetalKernelMaker } from "@lazuli/core/engine"
import { metalBackend } from "./backend"
import { metalKernel } from "./metal-kernel"

registerBackend(metalBackend)
setMetalKernelMaker(metalKernel)

export type { MetalKernel, MetalKernelCall, MetalKernelOptions, TemplateValue } from "@lazuli/core/engine"
export { createMetalBackend, metalBackend } from "./backend"
export { Command, CommandStream, MAX_INLINE_BYTES, type Size } from "./command-stream"
export { HostRuntime } from "./host-runtime"
export { metalKernel } from "./metal-kernel"
export type {
  CommandFailure,
  Commands,
  DeviceInfo,
  FunctionConstants,
  LibraryOptions,
  MetalBuffer,
  MetalEvent,
  MetalLibrary,
  MetalPipeline,
  MetalRuntime,
  Submission,
} from "./runtime"
