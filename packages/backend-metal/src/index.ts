/**
 * The Metal backend: a runtime interface, the runtime that executes Metal kernels on the CPU, and the streams that both take.
 */
export { Command, CommandStream, MAX_INLINE_BYTES, type Size } from './command-stream'
export { HostRuntime } from './host-runtime'
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
} from './runtime'
