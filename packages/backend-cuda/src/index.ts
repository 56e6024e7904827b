/**
 * The CUDA backend: importing it registers it for `mx.gpu`, and makes that the default device where a driver and a GPU are there. Nothing
 * of CUDA is opened before the GPU is used.
 */
import {
  onKernels,
  RegistryError,
  registerBackend,
  setCudaKernelMaker,
  setDefaultDevice,
  setMetalKernelMaker,
} from "@lazuli/core/engine"
import {
  createGpuBackend,
  type Family,
  type GpuBackend,
  metalKernel,
  wideReductions,
} from "@lazuli/gpu-kernels"
import { attentionFamilies } from "./attention"
import { collectivesOf } from "./collectives"
import { convolutionFamilies } from "./convolutions"
import { cudaKernel, userKernels } from "./cuda-kernel"
import { factorizationFamilies } from "./factorizations"
import { isLikely } from "./libraries"
import { productFamilies } from "./products"
import { providedKernels } from "./provided"
import { quantizedFamilies } from "./quantized"
import { CudaRuntime } from "./runtime"
import { transformFamilies } from "./transforms"

/** Serves `mx.gpu`; ahead of other backends where a driver's device is there. */
const isPresent = isLikely()

const runtime = new CudaRuntime()

/** True of GPUs with the tensor cores of Ampere or later. */
const isModern = (): boolean => runtime.facts.major >= 8
/** The generation whose tensor cores take products of groups of warps; later ones have other instructions. */
const HOPPER = 9

const { families: collectiveFamilies, collectives } = collectivesOf(runtime)

/** The kernels of CUDA's own; those of other packages are added when they come. */
const families: Record<string, Family> = {
  ...wideReductions,
  ...productFamilies(() => runtime.has("cublasLt"), isModern),
  ...convolutionFamilies(
    () => runtime.convolvable,
    isModern,
    () => runtime.facts.processors,
  ),
  ...attentionFamilies(
    {
      isModern,
      hasGroups: () => runtime.facts.major === HOPPER && !runtime.limited,
      bytes: () => runtime.facts.maxShared,
    },
    () => runtime.prepareGraph,
  ),
  ...quantizedFamilies(
    () => runtime.has("cublasLt"),
    isModern,
    () => ({
      processors: runtime.facts.processors,
      maxShared: runtime.limited ? 0 : runtime.facts.maxShared,
    }),
  ),
  ...transformFamilies(() => runtime.has("cufft")),
  ...factorizationFamilies(
    () => runtime.has("cusolver"),
    () => runtime.expectVerdicts(),
  ),
  ...collectiveFamilies,
  ...userKernels,
}
/** The backend on the first GPU, or on the one that `LAZULI_CUDA_DEVICE` or `mx.cuda.setDevice` numbers. */
export const cudaBackend: GpuBackend = Object.assign(
  createGpuBackend(runtime, "cuda", isPresent ? 200 : 50, families),
  { collectives },
)

onKernels("cuda", (offer) => {
  const provided = providedKernels(offer)
  for (const name of Object.keys(provided))
    if (Object.hasOwn(families, name))
      throw new RegistryError("cuda", `${offer.package} brings a kernel for ${name}, which already has one`)
  Object.assign(families, provided)
})

registerBackend(cudaBackend)
setMetalKernelMaker(metalKernel)
setCudaKernelMaker(cudaKernel)
if (isPresent) setDefaultDevice("gpu")

export type { CudaKernel, CudaKernelCall, CudaKernelOptions } from "@lazuli/core/engine"
/** The runtime behind it. */
export const cudaRuntime: CudaRuntime = runtime

export { candidatesFor } from "./libraries"
export { type Compile, type Packed, type PackOptions, packKernels } from "./pack"
export { kernelRequests } from "./requests"
export { CudaRuntime } from "./runtime"
