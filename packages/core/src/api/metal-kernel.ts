/**
 * `mx.fast.metalKernel`: the function and its types. A Metal backend registers the implementation.
 */
import type { StreamLike } from "../graph/device"
import type { Dtype } from "../graph/dtype"
import type { Array } from "../graph/graph"
import { kernelFunction } from "./kernel-maker"

/** A value of a template parameter. */
export type TemplateValue = Dtype | number | boolean

/** Floating-point options of the Metal compiler. */
export interface MetalCompileOptions {
  /** "safe" (the default) follows IEEE 754, including infinities and NaN; "relaxed" and "fast" allow more optimizations. */
  readonly mathMode?: "safe" | "relaxed" | "fast"
}

/** An input of a kernel. */
export type MetalKernelInput = Array | number | bigint | boolean

/** The call of a kernel, as passed to {@link MetalKernelOptions.reference}. */
export interface MetalKernelReferenceCall {
  readonly template: Readonly<Record<string, TemplateValue>>
  /** Shapes and dtypes of the outputs, by name. */
  readonly outputs: Readonly<Record<string, { readonly shape: readonly number[]; readonly dtype: Dtype }>>
}

/** Options of {@link metalKernel}. */
export interface MetalKernelOptions {
  /** The kernel's name in messages and in the generated source. */
  readonly name: string
  /** Names of the inputs in the body; by default the keys of each call's `inputs`. */
  readonly inputNames?: readonly string[]
  /** Names of the outputs in the body; by default the keys of each call's `outputShapes`. */
  readonly outputNames?: readonly string[]
  /** The body of the kernel. */
  readonly source: string
  /** Code placed before the kernel, such as functions. */
  readonly header?: string
  /** Copy inputs that are not row-contiguous; true by default. */
  readonly ensureRowContiguous?: boolean
  /** Make outputs atomic: `device atomic<float>*`. */
  readonly atomicOutputs?: boolean
  /** Compiler options. */
  readonly compileOptions?: MetalCompileOptions | null
  /**
   * The same computation in ordinary operations, from the inputs by name to one output, a list of all, or an object by name. It runs on
   * backends without Metal and defines derivatives and vmap.
   */
  readonly reference?: (
    inputs: Readonly<Record<string, Array>>,
    call: MetalKernelReferenceCall,
  ) => Array | readonly Array[] | Readonly<Record<string, Array>>
}

/** Options of a kernel launch. */
export interface MetalKernelCall {
  /** Arrays or scalars, by name or in the order of the names. */
  readonly inputs: readonly MetalKernelInput[] | Readonly<Record<string, MetalKernelInput>>
  /** Values of template parameters: dtypes, integers, booleans. */
  readonly template?: Readonly<Record<string, TemplateValue>> | readonly (readonly [string, TemplateValue])[]
  /** The number of threads along each axis. */
  readonly grid: readonly number[]
  /** The number of threads per threadgroup along each axis. */
  readonly threadgroup: readonly number[]
  /** In the order of the names, or by name; in that case the outputs are also returned by name. */
  readonly outputShapes: readonly (readonly number[])[] | Readonly<Record<string, readonly number[]>>
  readonly outputDtypes: readonly Dtype[] | Readonly<Record<string, Dtype>>
  /** The value outputs are filled with before the kernel runs; uninitialized by default. */
  readonly initValue?: number | null
  /** Overrides the kernel's own option. */
  readonly ensureRowContiguous?: boolean
  /** Print the generated source. */
  readonly verbose?: boolean
  /** A GPU stream, or the GPU; its default stream by default. */
  readonly stream?: StreamLike
}

/** A kernel: a function from arrays to lazily evaluated outputs, which are keyed by name if `outputShapes` is. */
export interface MetalKernel {
  (call: MetalKernelCall & { readonly outputShapes: readonly (readonly number[])[] }): Array[]
  <Name extends string>(
    call: MetalKernelCall & { readonly outputShapes: Readonly<Record<Name, readonly number[]>> },
  ): Record<Name, Array>
}

/** Creates a kernel from its options. */
export type MetalKernelMaker = (options: MetalKernelOptions) => MetalKernel

const kernels = kernelFunction<MetalKernelOptions, MetalKernel>(
  "metalKernel",
  [
    "name",
    "inputNames",
    "outputNames",
    "source",
    "header",
    "ensureRowContiguous",
    "atomicOutputs",
    "compileOptions",
    "reference",
  ],
  "Metal",
  "@lazuli/backend-metal",
)

/** Registers the implementation of {@link metalKernel}. For Metal backends. */
export function setMetalKernelMaker(make: MetalKernelMaker): void {
  kernels.serve(make)
}

/**
 * Creates a custom kernel from the body of a Metal function. The signature is generated from the arguments of each call: an input is `const
 * device T* x` (`const constant T& x` for a scalar), an output `device T* y`; `x_shape`, `x_strides`, `x_ndim` and attributes such as
 * `thread_position_in_grid` are added if the body mentions them. Bodies may use `elem_to_loc(i, x_shape, x_strides, x_ndim)`.
 *
 * With a `reference` written in ordinary operations, the kernel runs on every backend and supports differentiation and vmap; without one,
 * wrap it in `customFunction`. Omitted names default to the keys of `inputs` and `outputShapes`.
 *
 * @throws DeviceError if no Metal backend was imported
 * @throws ArgumentError when names are missing or malformed
 * @example
 * const twice = mx.fast.metalKernel({ name: 'twice', inputNames: ['x'], outputNames: ['y'],
 *   source: 'uint i = thread_position_in_grid.x; y[i] = 2 * x[i];' })
 * const [y] = twice({ inputs: [mx.array([1, 2])], grid: [2, 1, 1], threadgroup: [2, 1, 1],
 *   outputShapes: [[2]], outputDtypes: [mx.float32] })
 * y.tolist() // => [2, 4]
 */
export function metalKernel(options: MetalKernelOptions): MetalKernel
export function metalKernel(
  name: string,
  inputNames: readonly string[],
  outputNames: readonly string[],
  source: string,
  options?: Pick<
    MetalKernelOptions,
    "header" | "ensureRowContiguous" | "atomicOutputs" | "compileOptions" | "reference"
  >,
): MetalKernel
export function metalKernel(
  name: string,
  inputNames: readonly string[],
  outputNames: readonly string[],
  source: string,
  header?: string,
  ensureRowContiguous?: boolean,
  atomicOutputs?: boolean,
  options?: Pick<MetalKernelOptions, "compileOptions" | "reference">,
): MetalKernel
// By hand: options are documented one by one.
export function metalKernel(...args: unknown[]): MetalKernel {
  return kernels.call(args)
}
