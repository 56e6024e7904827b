/**
 * The Metal backend: importing it registers it for `mx.gpu`. Also its runtime interface, the runtime that executes Metal kernels on the
 * CPU, and the streams that runtimes take.
 */
import { registerBackend, setMetalKernelMaker } from "@lazuli/core/engine"
import { metalKernel } from "@lazuli/gpu-kernels"
import { metalBackend } from "./backend"

registerBackend(metalBackend)
setMetalKernelMaker(metalKernel)

export type {
  MetalCompileOptions,
  MetalKernel,
  MetalKernelCall,
  MetalKernelOptions,
  TemplateValue,
} from "@lazuli/core/engine"
export {
  Command,
  CommandStream,
  type FunctionConstants,
  MAX_INLINE_BYTES,
  metalKernel,
  type Size,
} from "@lazuli/gpu-kernels"
export { AppleRuntime } from "./apple-runtime"
export { createMetalBackend, hasMetalGpu, metalBackend } from "./backend"
export { canCompileKernels } from "./host-compiler"
export { HostRuntime } from "./host-runtime"
export type {
  CommandFailure,
  Commands,
  DeviceInfo,
  LibraryOptions,
  MetalBuffer,
  MetalEvent,
  MetalLibrary,
  MetalPipeline,
  MetalRuntime,
  Submission,
} from "./runtime"
