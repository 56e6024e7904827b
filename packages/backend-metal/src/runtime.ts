/**
 * A platform that runs Metal kernels: {@link GpuRuntime} with memory that the host sees too, under Metal's names.
 */
import type { GpuBuffer, GpuEvent, GpuRuntime } from "@lazuli/gpu-kernels"

export type {
  CommandFailure,
  Commands,
  DeviceInfo,
  GpuBuffer as MetalBuffer,
  GpuEvent as MetalEvent,
  GpuLibrary as MetalLibrary,
  GpuPipeline as MetalPipeline,
  LibraryOptions,
  LibrarySource,
  Submission,
} from "@lazuli/gpu-kernels"

/** A platform that compiles and runs Metal kernels. Its buffers are zeroed. */
export interface MetalRuntime extends GpuRuntime {
  contents(buffer: GpuBuffer): ArrayBuffer
  address(buffer: GpuBuffer): bigint
  wrapAddress(address: bigint, length: number): GpuBuffer | null
  /** Makes memory of the host a buffer without a copy; its address and size must be multiples of the page size on some platforms. */
  wrapBuffer(bytes: ArrayBuffer): GpuBuffer
  /** A counter at 0. */
  newEvent(): GpuEvent
  /** The value of a counter. */
  eventValue(event: GpuEvent): number
}
