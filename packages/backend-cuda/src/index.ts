/**
 * The CUDA backend: importing it registers it for `mx.gpu`. Nothing of CUDA is opened before the GPU is used.
 */
import { existsSync } from "node:fs"
import { registerBackend, setMetalKernelMaker } from "@lazuli/core/engine"
import { createGpuBackend, type GpuBackend, metalKernel } from "@lazuli/gpu-kernels"
import { productFamilies } from "./products"
import { CudaRuntime } from "./runtime"

/** Serves `mx.gpu`; ahead of other backends where a driver's device is there. */
const isPresent = ["/dev/nvidiactl", "/dev/dxg"].some((path) => existsSync(path))

const runtime = new CudaRuntime()

/** The backend on the first GPU, or on the one that `LAZULI_CUDA_DEVICE` numbers. */
export const cudaBackend: GpuBackend = createGpuBackend(
  runtime,
  "cuda",
  isPresent ? 200 : 50,
  productFamilies(() => runtime.hasProducts),
)

registerBackend(cudaBackend)
setMetalKernelMaker(metalKernel)

export { CudaRuntime } from "./runtime"
