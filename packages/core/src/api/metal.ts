/**
 * `mx.metal`: availability of Metal, GPU captures, and the memory functions of `mx` applied to the GPU.
 */
import { backendFor, type DeviceFacts, listBackends } from "../graph/backend"
import { under } from "../graph/boundary"
import { gpu, onStream } from "../graph/device"
import { ArgumentError, DeviceError, describe } from "../graph/errors"
import { deviceInfo as infoOf } from "./device-info"
import * as memory from "./memory-stats"

/**
 * True if a Metal backend is registered, so that `mx.gpu` and `mx.fast.metalKernel` work; it may run Metal kernels on the CPU. False with
 * the CUDA backend alone, although `mx.fast.metalKernel` and the memory functions work there too.
 * @example
 * typeof mx.metal.isAvailable() // => 'boolean'
 */
export const isAvailable = (): boolean => listBackends().some(({ name }) => name === "metal")

/** Properties of the GPU. @throws DeviceError without a GPU */
export const deviceInfo = (): DeviceFacts => under("metal.deviceInfo", () => infoOf(gpu))

const onGpu = <T>(name: string, body: () => T): T => under(`metal.${name}`, () => onStream(gpu, body))

/** See `mx.getActiveMemory`; for the GPU. @throws DeviceError without a GPU */
export const getActiveMemory = (): number => onGpu("getActiveMemory", memory.getActiveMemory)
/** See `mx.getPeakMemory`; for the GPU. @throws DeviceError without a GPU */
export const getPeakMemory = (): number => onGpu("getPeakMemory", memory.getPeakMemory)
/** See `mx.getCacheMemory`; for the GPU. @throws DeviceError without a GPU */
export const getCacheMemory = (): number => onGpu("getCacheMemory", memory.getCacheMemory)
/** Resets {@link getPeakMemory}. @throws DeviceError without a GPU */
export const resetPeakMemory = (): void => onGpu("resetPeakMemory", memory.resetPeakMemory)
/** See `mx.setMemoryLimit`; for the GPU. @throws DeviceError without a GPU */
export const setMemoryLimit = (limit: number): number =>
  onGpu("setMemoryLimit", () => memory.setMemoryLimit(limit))
/** See `mx.setCacheLimit`; for the GPU. @throws DeviceError without a GPU */
export const setCacheLimit = (limit: number): number =>
  onGpu("setCacheLimit", () => memory.setCacheLimit(limit))
/** See `mx.setWiredLimit`. */
export const setWiredLimit = (limit: number): number =>
  under("metal.setWiredLimit", () => memory.setWiredLimit(limit))
/** Returns cached GPU memory to the system. @throws DeviceError without a GPU */
export const clearCache = (): void => onGpu("clearCache", memory.clearCache)

function capture(op: "startCapture" | "stopCapture"): DeviceError {
  const { name } = backendFor(gpu)
  return new DeviceError(`metal.${op}`, `the ${name} backend does not support captures here`, {
    hint: "Captures need Xcode's tools on Apple hardware",
  })
}

/** Starts a GPU capture into a file for Xcode. @throws DeviceError if the backend cannot capture */
export function startCapture(path: string): void {
  const { information, queue } = under("metal.startCapture", () => backendFor(gpu))
  if (typeof path !== "string" || path === "")
    throw new ArgumentError("metal.startCapture", `path must be a string, received ${describe(path)}`)
  if (!information?.startCapture) throw capture("startCapture")
  queue.flush()
  information.startCapture(path)
}

/** Ends the capture begun by {@link startCapture}. @throws DeviceError if the backend cannot capture */
export function stopCapture(): void {
  const { information, queue } = under("metal.stopCapture", () => backendFor(gpu))
  if (!information?.stopCapture) throw capture("stopCapture")
  queue.flush()
  information.stopCapture()
}
