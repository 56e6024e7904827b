/**
 * `mx.cuda`: NVIDIA's GPUs, as the CUDA backend finds them, and the choice among several.
 */
import { type Backend, type DeviceFacts, listBackends } from "../graph/backend"
import { under } from "../graph/boundary"
import { ArgumentError, DeviceError, describe } from "../graph/errors"

const cudaBackend = (): Backend | undefined => listBackends().find(({ name }) => name === "cuda")

/** @throws DeviceError where the backend was not imported */
function backend(): Backend {
  const found = cudaBackend()
  if (!found)
    throw new DeviceError("cuda", "there is no CUDA backend", { hint: 'import "@lazuli/backend-cuda"' })
  return found
}

/**
 * True if a CUDA backend was imported and finds a driver with a GPU. That opens the driver, and takes no memory of a GPU.
 * @example
 * typeof mx.cuda.isAvailable() // => 'boolean'
 */
export const isAvailable = (): boolean => (cudaBackend()?.information?.devices?.().length ?? 0) > 0

/**
 * The number of GPUs that the driver shows; `CUDA_VISIBLE_DEVICES` may hide some. 0 where there is no driver or no CUDA backend.
 * @example
 * mx.cuda.deviceCount() >= 0 // => true
 */
export const deviceCount = (): number => cudaBackend()?.information?.devices?.().length ?? 0

/**
 * The facts of a GPU: name, architecture, memory in bytes, compute capability, processors; without an index of the one that serves
 * `mx.gpu`.
 * @throws DeviceError where there is none of that number, or no CUDA backend
 */
export function deviceInfo(index?: number): DeviceFacts {
  return under("cuda.deviceInfo", () => {
    const { information } = backend()
    if (index === undefined) return { deviceName: "cuda", architecture: "cuda", ...information?.facts?.() }
    const all = information?.devices?.() ?? []
    checkIndex("cuda.deviceInfo", index, all.length)
    return all[index]
  })
}

/**
 * Lets a GPU of this number serve `mx.gpu` in this process; the first one does otherwise, or the one that `LAZULI_CUDA_DEVICE` numbers.
 * @throws DeviceError once another one is in use, and where there is none of that number
 */
export function setDevice(index: number): void {
  under("cuda.setDevice", () => {
    const { information } = backend()
    checkIndex("cuda.setDevice", index, information?.devices?.().length ?? 0)
    information?.choose?.(index)
  })
}

function checkIndex(op: string, index: unknown, count: number): void {
  if (!Number.isInteger(index) || (index as number) < 0)
    throw new ArgumentError(op, `the index must be a non-negative integer, received ${describe(index)}`)
  if ((index as number) >= count)
    throw new DeviceError(op, `there is no GPU ${index}: the driver shows ${count}`)
}
