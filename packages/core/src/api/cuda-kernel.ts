/**
 * `mx.fast.cudaKernel`: the function and its types. The CUDA backend makes the kernels; core only knows who does.
 */
import { kernelFunction } from "./kernel-maker"
import type { MetalKernel, MetalKernelCall, MetalKernelOptions } from "./metal-kernel"

/** Options of {@link cudaKernel}. */
export interface CudaKernelOptions
  extends Pick<
    MetalKernelOptions,
    "name" | "inputNames" | "outputNames" | "source" | "header" | "ensureRowContiguous" | "reference"
  > {
  /** Bytes of dynamic shared memory of a block, `extern __shared__`; none by default. */
  readonly sharedMemory?: number
}

/**
 * Options of a call of a kernel. `grid` counts threads; blocks are whole, so that there may be more threads than that. `threadgroup` is
 * CUDA's block.
 */
export type CudaKernelCall = MetalKernelCall

/** A kernel: called with arrays, it gives its outputs, lazily: by name where the shapes came by name. */
export type CudaKernel = MetalKernel

/** Makes kernels from options. */
export type CudaKernelMaker = (options: CudaKernelOptions) => CudaKernel

const kernels = kernelFunction<CudaKernelOptions, CudaKernel>(
  "cudaKernel",
  [
    "name",
    "inputNames",
    "outputNames",
    "source",
    "header",
    "ensureRowContiguous",
    "sharedMemory",
    "reference",
  ],
  "CUDA",
  "@lazuli/backend-cuda",
)

/** Makes `make` serve {@link cudaKernel}. For CUDA backends. */
export function setCudaKernelMaker(make: CudaKernelMaker): void {
  kernels.serve(make)
}

/**
 * A kernel from the body of a CUDA function. The signature follows from the arguments of each call: an input is `const T* x`, an output
 * `T* y`; `x_shape`, `x_strides` and `x_ndim` are parameters where the body names them, and template parameters are constants and types of
 * the body. `cooperative_groups` (as `cg` too), `__half`, `__nv_bfloat16` and `elem_to_loc` are there; none of CUDA's headers is needed.
 *
 * With a `reference` in ordinary operations it runs on every backend and has derivatives and batches; without, wrap it in
 * `customFunction`. Names that are not given are the keys of `inputs` and `outputShapes`.
 *
 * @throws DeviceError where no CUDA backend was imported
 * @throws ArgumentError when names are missing or malformed
 * @example
 * const options = { name: 'twice', inputNames: ['x'], outputNames: ['y'],
 *   source: 'auto i = cg::this_grid().thread_rank(); if (i < 2) y[i] = 2 * x[i];' }
 * const twice = () => mx.fast.cudaKernel(options)({ inputs: [mx.array([1, 2])], grid: [2, 1, 1], threadgroup: [2, 1, 1],
 *   outputShapes: [[2]], outputDtypes: [mx.float32] })
 * mx.cuda.isAvailable() ? twice()[0].tolist() : [2, 4] // => [2, 4]
 */
export function cudaKernel(options: CudaKernelOptions): CudaKernel
export function cudaKernel(
  name: string,
  inputNames: readonly string[],
  outputNames: readonly string[],
  source: string,
  options?: Pick<CudaKernelOptions, "header" | "ensureRowContiguous" | "sharedMemory" | "reference">,
): CudaKernel
export function cudaKernel(
  name: string,
  inputNames: readonly string[],
  outputNames: readonly string[],
  source: string,
  header?: string,
  ensureRowContiguous?: boolean,
  sharedMemory?: number,
  options?: Pick<CudaKernelOptions, "reference">,
): CudaKernel
// By hand: options are documented one by one.
export function cudaKernel(...args: unknown[]): CudaKernel {
  return kernels.call(args)
}
