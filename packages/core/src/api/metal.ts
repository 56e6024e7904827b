/**
 * `mx.metal`: whether Metal is there, the memory of its device, and captures. The functions on memory are those of `mx`, on the GPU.
 */
import { backendFor, type DeviceFacts, listBackends } from "../graph/backend"
import { under } from "../graph/boundary"
import { gpu, onStream } from "../graph/device"
import { ArgumentError, DeviceError, describe } from "../graph/errors"
import { deviceInfo as infoOf } from "./device-info"
import * as memory from "./memory-stats"

/**
 * True if a Metal backend is there: `mx.gpu` works, and so does `mx.fast.metalKernel`. The backend may run Metal's kernels on the CPU.
 * False with the CUDA backend alone, where `mx.fast.metalKernel` works too; the functions on memory are then of its GPU.
 * @example
 * typeof mx.metal.isAvailable() // => 'boolean'
 */
export const isAvailable = (): boolean => listBackends().some(({ name }) => name === "metal")

/** The facts of the GPU. @throws DeviceError when there is none */
export const deviceInfo = (): DeviceFacts => under("metal.deviceInfo", () => infoOf(gpu))

const onGpu = <T>(name: string, body: () => T): T => under(`metal.${name}`, () => onStream(gpu, body))

/** Bytes of all living arrays on the GPU. @throws DeviceError when there is none */
export const getActiveMemory = (): number => onGpu("getActiveMemory", memory.getActiveMemory)
/** The most bytes that were alive at once on the GPU. @throws DeviceError when there is none */
export const getPeakMemory = (): number => onGpu("getPeakMemory", memory.getPeakMemory)
/** Bytes of the GPU that are free and kept for the next arrays. @throws DeviceError when there is none */
export const getCacheMemory = (): number => onGpu("getCacheMemory", memory.getCacheMemory)
/** Starts {@link getPeakMemory} anew. @throws DeviceError when there is no GPU */
export const resetPeakMemory = (): void => onGpu("resetPeakMemory", memory.resetPeakMemory)
/** Bounds the bytes of living arrays on the GPU; gives the bound before. @throws DeviceError when there is none */
export const setMemoryLimit = (limit: number): number =>
  onGpu("setMemoryLimit", () => memory.setMemoryLimit(limit))
/** Bounds the bytes of the GPU kept for reuse; gives the bound before. @throws DeviceError when there is none */
export const setCacheLimit = (limit: number): number =>
  onGpu("setCacheLimit", () => memory.setCacheLimit(limit))
/** Bounds the bytes that stay in physical memory; gives the bound before. */
export const setWiredLimit = (limit: number): number =>
  under("metal.setWiredLimit", () => memory.setWiredLimit(limit))
/** Gives the bytes kept for reuse back to the system. @throws DeviceError when there is no GPU */
export const clearCache = (): void => onGpu("clearCache", memory.clearCache)

function capture(op: "startCapture" | "stopCapture"): DeviceError {
  const { name } = backendFor(gpu)
  return new DeviceError(`metal.${op}`, `the ${name} backend cannot capture its work here`, {
    hint: "Captures need Xcode's tools on Apple hardware",
  })
}

/** Begins to record the GPU's work into a file for Xcode. @throws DeviceError where the backend cannot */
export function startCapture(path: string): void {
  const { information, queue } = under("metal.startCapture", () => backendFor(gpu))
  if (typeof path !== "string" || path === "")
    throw new ArgumentError("metal.startCapture", `path must be a string, received ${describe(path)}`)
  if (!information?.startCapture) throw capture("startCapture")
  queue.flush()
  information.startCapture(path)
}

/** Ends what {@link startCapture} began. @throws DeviceError where the backend cannot capture */
export function stopCapture(): void {
  const { information, queue } = under("metal.stopCapture", () => backendFor(gpu))
  if (!information?.stopCapture) throw capture("stopCapture")
  queue.flush()
  information.stopCapture()
}
