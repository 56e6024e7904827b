/**
 * `mx.fast.metalKernel`: the function and its types. A Metal backend makes the kernels; core only knows who does.
 */
import type { StreamLike } from "../graph/device"
import type { Dtype } from "../graph/dtype"
import type { Array } from "../graph/graph"
import { kernelFunction } from "./kernel-maker"

/** A value of a template parameter. */
export type TemplateValue = Dtype | number | boolean

/** Options of the Metal compiler's arithmetic. */
export interface MetalCompileOptions {
  /** "safe" keeps what IEEE 754 says, of infinities and NaN too; "relaxed" and "fast" allow more. "safe" by default. */
  readonly mathMode?: "safe" | "relaxed" | "fast"
}

/** An input of a kernel. */
export type MetalKernelInput = Array | number | bigint | boolean

/** The call of a kernel, as {@link MetalKernelOptions.reference} sees it. */
export interface MetalKernelReferenceCall {
  readonly template: Readonly<Record<string, TemplateValue>>
  /** Shapes and dtypes of the outputs, by name. */
  readonly outputs: Readonly<Record<string, { readonly shape: readonly number[]; readonly dtype: Dtype }>>
}

/** Options of {@link metalKernel}. */
export interface MetalKernelOptions {
  /** Names the kernel in messages and in its source. */
  readonly name: string
  /** The names by which the body knows its inputs; by default the keys of each call's `inputs`. */
  readonly inputNames?: readonly string[]
  /** The names by which the body knows its outputs; by default the keys of each call's `outputShapes`. */
  readonly outputNames?: readonly string[]
  /** The body of the kernel. */
  readonly source: string
  /** Code that the body needs outside of itself, such as functions. */
  readonly header?: string
  /** Copy inputs to row-major order first where they are not; true by default. */
  readonly ensureRowContiguous?: boolean
  /** Make outputs atomic: `device atomic<float>*`. */
  readonly atomicOutputs?: boolean
  /** Options of compiling the kernel. */
  readonly compileOptions?: MetalCompileOptions | null
  /**
   * The same in ordinary operations, of the inputs by name: one output, or all in their order or by name. Backends without Metal run it,
   * and derivatives and batches follow from it.
   */
  readonly reference?: (
    inputs: Readonly<Record<string, Array>>,
    call: MetalKernelReferenceCall,
  ) => Array | readonly Array[] | Readonly<Record<string, Array>>
}

/** Options of a call of a kernel. */
export interface MetalKernelCall {
  /** Arrays, or scalars, one for each name; by name, or in the order of the names. */
  readonly inputs: readonly MetalKernelInput[] | Readonly<Record<string, MetalKernelInput>>
  /** Values of template parameters: dtypes, integers, booleans. */
  readonly template?: Readonly<Record<string, TemplateValue>> | readonly (readonly [string, TemplateValue])[]
  /** The number of threads along each axis. */
  readonly grid: readonly number[]
  /** The number of threads of a threadgroup along each axis. */
  readonly threadgroup: readonly number[]
  /** In the order of the names; or by name, and then the outputs come by name. */
  readonly outputShapes: readonly (readonly number[])[] | Readonly<Record<string, readonly number[]>>
  readonly outputDtypes: readonly Dtype[] | Readonly<Record<string, Dtype>>
  /** The value that outputs hold before the kernel runs; nothing in particular by default. */
  readonly initValue?: number | null
  /** Instead of the kernel's own. */
  readonly ensureRowContiguous?: boolean
  /** Print the generated source. */
  readonly verbose?: boolean
  /** A stream of the GPU, or the GPU; its default stream by default. */
  readonly stream?: StreamLike
}

/** A kernel: called with arrays, it gives its outputs, lazily: by name where the shapes came by name. */
export interface MetalKernel {
  (call: MetalKernelCall & { readonly outputShapes: readonly (readonly number[])[] }): Array[]
  <Name extends string>(
    call: MetalKernelCall & { readonly outputShapes: Readonly<Record<Name, readonly number[]>> },
  ): Record<Name, Array>
}

/** Makes kernels from options. */
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

/** Makes `make` serve {@link metalKernel}. For Metal backends. */
export function setMetalKernelMaker(make: MetalKernelMaker): void {
  kernels.serve(make)
}

/**
 * A kernel from the body of a Metal function. The signature follows from the arguments of each call: an input is `const device T* x`
 * (without axes `const constant T& x`), an output `device T* y`; `x_shape`, `x_strides`, `x_ndim` and attributes
 * such as `thread_position_in_grid` are parameters where the body names them. Bodies may use `elem_to_loc(i, x_shape, x_strides, x_ndim)`.
 *
 * With a `reference` in ordinary operations it runs on every backend and has derivatives and batches; without, wrap it in
 * `customFunction`. Names that are not given are the keys of `inputs` and `outputShapes`.
 *
 * @throws DeviceError where no Metal backend was imported
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
