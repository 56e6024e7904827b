/**
 * `mx.fast.cudaKernel`: the function and its types. The CUDA backend registers the implementation.
 */
import { kernelFunction } from "./kernel-maker"
import type { MetalKernel, MetalKernelCall, MetalKernelOptions } from "./metal-kernel"

/** Options of {@link cudaKernel}. */
export interface CudaKernelOptions
  extends Pick<
    MetalKernelOptions,
    "name" | "inputNames" | "outputNames" | "source" | "header" | "ensureRowContiguous" | "reference"
  > {
  /** Bytes of dynamic shared memory (`extern __shared__`) per block; 0 by default. */
  readonly sharedMemory?: number
}

/**
 * Options of a kernel launch. `grid` counts threads and is rounded up to whole blocks, so more threads may run. `threadgroup` is CUDA's
 * block.
 */
export type CudaKernelCall = MetalKernelCall

/** A kernel: a function from arrays to lazily evaluated outputs, which are keyed by name if `outputShapes` is. */
export type CudaKernel = MetalKernel

/** Creates a kernel from its options. */
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

/** Registers the implementation of {@link cudaKernel}. For CUDA backends. */
export function setCudaKernelMaker(make: CudaKernelMaker): void {
  kernels.serve(make)
}

/**
 * Creates a custom kernel from the body of a CUDA function. The signature is generated from the arguments of each call: an input is `const
 * T* x`, an output `T* y`; `x_shape`, `x_strides` and `x_ndim` are added if the body mentions them, and template parameters become
 * constants and type aliases. `cooperative_groups` (also as `cg`), `__half`, `__nv_bfloat16` and `elem_to_loc` are available without CUDA's
 * headers.
 *
 * With a `reference` written in ordinary operations, the kernel runs on every backend and supports differentiation and vmap; without one,
 * wrap it in `customFunction`. Omitted names default to the keys of `inputs` and `outputShapes`.
 *
 * @throws DeviceError if no CUDA backend was imported
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
