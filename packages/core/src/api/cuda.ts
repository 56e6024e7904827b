/**
 * `mx.cuda`: querying and selecting NVIDIA GPUs.
 */
import { type Backend, type DeviceFacts, listBackends } from "../graph/backend"
import { under } from "../graph/boundary"
import { ArgumentError, DeviceError, describe } from "../graph/errors"

const cudaBackend = (): Backend | undefined => listBackends().find(({ name }) => name === "cuda")

/** @throws DeviceError if the backend was not imported */
function backend(): Backend {
  const found = cudaBackend()
  if (!found)
    throw new DeviceError("cuda", "there is no CUDA backend", { hint: 'import "@lazuli/backend-cuda"' })
  return found
}

/**
 * True if a CUDA backend was imported and the driver reports a GPU. Loads the driver, but allocates no GPU memory.
 * @example
 * typeof mx.cuda.isAvailable() // => 'boolean'
 */
export const isAvailable = (): boolean => (cudaBackend()?.information?.devices?.().length ?? 0) > 0

/**
 * The number of GPUs visible to the driver; `CUDA_VISIBLE_DEVICES` may hide some. 0 without a driver or a CUDA backend.
 * @example
 * mx.cuda.deviceCount() >= 0 // => true
 */
export const deviceCount = (): number => cudaBackend()?.information?.devices?.().length ?? 0

/**
 * Properties of a GPU: name, architecture, memory in bytes, compute capability, multiprocessors. By default, of the GPU that `mx.gpu` uses.
 * @throws DeviceError if there is no such GPU, or no CUDA backend
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
 * Selects the GPU that `mx.gpu` uses in this process. The default is `LAZULI_CUDA_DEVICE`, or else 0.
 * @throws DeviceError if another GPU is already in use, or there is no such GPU
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
