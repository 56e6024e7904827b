/**
 * The Metal backend: importing it registers it for `mx.gpu`. Also its runtime interface, the runtime that executes Metal kernels on the
 * CPU, and the streams that runtimes take.
 */
import { registerBackend } from "@lazuli/core/engine"
import { metalBackend } from "./backend"

registerBackend(metalBackend)

export { createMetalBackend, metalBackend } from "./backend"
export { Command, CommandStream, MAX_INLINE_BYTES, type Size } from "./command-stream"
export type { TemplateValue } from "./custom-source"
export { HostRuntime } from "./host-runtime"
export { type MetalKernel, type MetalKernelCall, type MetalKernelOptions, metalKernel } from "./metal-kernel"
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
