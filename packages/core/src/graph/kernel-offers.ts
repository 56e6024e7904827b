/**
 * Kernels that packages provide for their primitives, and their delivery to backends, in any order of imports. A package offers kernels in
 * a form (a native library, Metal source); every backend that supports the form receives them.
 */
import type { Dtype } from "./dtype"
import { ArgumentError, describe, nearest } from "./errors"
import type { HostArray, Meta } from "./graph"
import type { AnyParams } from "./params"
import { checkBringer } from "./primitive"

/** The application of a primitive for which a kernel is requested. */
export interface ApplicationMeta {
  /** The primitive's name. */
  readonly primitive: string
  readonly inputs: readonly Meta[]
  readonly outputs: readonly Meta[]
  readonly params: AnyParams
}

/** A kernel of a primitive and the launches of its applications. */
export interface LaunchedKernel<Launch> {
  /** The names of inputs and outputs in the kernel and its launches. */
  readonly inputNames: readonly string[]
  readonly outputNames: readonly string[]
  /** The launch for an application; null if the kernel does not support it, so that it falls back. */
  launch(application: ApplicationMeta): Launch | null
}

/** A kernel of a primitive on a GPU. */
export interface GpuKernel<Launch> extends LaunchedKernel<Launch> {
  /** Copy inputs that are not row-contiguous; true by default. */
  readonly ensureRowContiguous?: boolean
}

/** The work of one application: dispatches in order, each of which sees the results of the previous ones. */
export interface KernelSteps<Dispatch> {
  readonly dispatches: readonly Dispatch[]
  /** Uninitialized scratch memory for the dispatches: bytes by name. */
  readonly scratch?: Readonly<Record<string, number>>
  /** The value outputs are filled with before the first dispatch; uninitialized by default. */
  readonly initValue?: number | null
}

/** A shared library that exports `lazuli_kernels`, as `lazuli/kernel.h` (in `@lazuli/backend-cpu`) describes it. */
export interface NativeKernels {
  readonly form: "native"
  /** The npm package that provides them, for error messages. */
  readonly package: string
  /** The path of the library. */
  readonly library: string | URL
  /** True for the applications that its kernels support; all by default. The others fall back. */
  supports?(application: ApplicationMeta): boolean
  /**
   * For each output, the inputs (by index) of the same size in bytes whose memory it may reuse after their last use: the kernel then
   * receives the same memory for both, and must read each element of the input before overwriting it. None by default.
   */
  overwrites?(application: ApplicationMeta): readonly (readonly number[])[]
  /**
   * True if the order of the axes is irrelevant to the kernel, as in elementwise work. Operands of one shape with the same dense layout
   * (for example, all transposed) are then passed with permuted axes as row-major, and outputs get the layout of the inputs. By default
   * outputs are row-major.
   */
  keepsLayout?(application: ApplicationMeta): boolean
}

/** The launch of a Metal kernel for one application. */
export interface MetalLaunch {
  /** The number of threads along each axis. */
  readonly grid: readonly number[]
  /** The number of threads per threadgroup along each axis. */
  readonly threadgroup: readonly number[]
  /** Values of template parameters. */
  readonly template?: Readonly<Record<string, Dtype | number | boolean>>
  /** Scalar arguments, by their names in the body: `constant float&`. */
  readonly scalars?: Readonly<Record<string, number>>
  /** The value outputs are filled with before the kernel runs; uninitialized by default. */
  readonly initValue?: number | null
}

/**
 * The body of a Metal function that computes a primitive. As in `mx.fast.metalKernel`, except that every input is `const device T*`,
 * including scalars.
 */
export interface MetalKernelSource extends GpuKernel<MetalLaunch> {
  /** The body of the kernel. */
  readonly source: string
  /** Code placed before the kernel, such as functions. */
  readonly header?: string
  /** True if outputs are atomic. */
  readonly atomicOutputs?: boolean
}

/**
 * An argument of a kernel in a `.metal` file: an input, an output or scratch memory by name, optionally at a byte offset; up to 4,096 bytes
 * of host data; the shape (int32) or strides (int64, in elements) of an input as passed to the kernel; or null for a parameter that
 * function constants exclude.
 */
export type MetalArgument =
  | string
  | { readonly name: string; readonly offset: number }
  | ArrayBufferView
  | { readonly shapeOf: string }
  | { readonly stridesOf: string }
  | null

/** One dispatch of a kernel in a `.metal` file. */
export interface MetalDispatch {
  /** The kernel's `[[host_name("…")]]`, or the name of its function. */
  readonly kernel: string
  /** By `[[buffer(index)]]`. Buffers declared as `device T*` without const are written. */
  readonly buffers: readonly MetalArgument[]
  /** The number of threads along each axis. */
  readonly grid: readonly number[]
  /** The number of threads per threadgroup along each axis. */
  readonly threadgroup: readonly number[]
  /** Values of `[[function_constant(index)]]`, by the names of the constants. */
  readonly constants?: Readonly<Record<string, number | boolean>>
  /** Bytes of each `[[threadgroup(index)]]` parameter. */
  readonly threadgroupMemory?: readonly number[]
}

/** The work of one application by the kernels of a `.metal` file. */
export type MetalSteps = KernelSteps<MetalDispatch>

/** A primitive whose kernels are in the offer's `.metal` file. */
export interface MetalFileKernel extends GpuKernel<MetalSteps> {
  readonly source?: undefined
  /**
   * For each output, the inputs of the same size in bytes whose memory it may reuse after their last use: kernels then receive the same
   * memory for both. Each thread must read its elements of the input before overwriting them, and no other thread may read them.
   */
  readonly overwrites?: Readonly<Record<string, readonly string[]>>
}

/** Kernels in Metal Shading Language, by the names of their primitives. */
export interface MetalKernels {
  readonly form: "metal"
  /** The npm package that provides them, for error messages. */
  readonly package: string
  /**
   * A `.metal` file with the kernels of those entries of `kernels` that have no `source`. Its `#include "…"` paths are relative to its
   * folder.
   */
  readonly library?: string | URL
  /** Function bodies, or kernels in `library`, by primitive. */
  readonly kernels: Readonly<Record<string, MetalKernelSource | MetalFileKernel>>
}

/**
 * An argument of a CUDA kernel: the address of an input, an output or scratch memory by name, optionally at a byte offset; the bytes of a
 * value of the parameter's type; the shape (`Shape`) or strides (`Strides`, in elements) of an input.
 */
export type CudaArgument =
  | string
  | { readonly name: string; readonly offset: number }
  | ArrayBufferView
  | { readonly shapeOf: string }
  | { readonly stridesOf: string }

/** One launch of a kernel in a `.cu` file. */
export interface CudaDispatch {
  /** The name of an `extern "C" __global__` function. */
  readonly kernel: string
  /** In the order of its parameters. */
  readonly arguments: readonly CudaArgument[]
  /** The number of threads along each axis, rounded up to whole blocks: kernels must check bounds. */
  readonly grid: readonly number[]
  /** The number of threads per block along each axis. */
  readonly threadgroup: readonly number[]
  /** Bytes of dynamic shared memory. */
  readonly sharedMemory?: number
}

/** The work of one application by the kernels of a `.cu` file. */
export type CudaSteps = KernelSteps<CudaDispatch>

/** A primitive whose kernels are in the offer's `.cu` file. */
export type CudaFileKernel = GpuKernel<CudaSteps>

/** Kernels in CUDA C++, by the names of their primitives. */
export interface CudaKernels {
  readonly form: "cuda"
  /** The npm package that provides them, for error messages. */
  readonly package: string
  /** A `.cu` file. The same declarations as in the bodies of `mx.fast.cudaKernel` are available without includes. */
  readonly library: string | URL
  readonly kernels: Readonly<Record<string, CudaFileKernel>>
}

/** A kernel in JavaScript, with the interface of a `reference`. */
export interface JsKernel {
  /** True for the applications that it supports; all by default. The others fall back. */
  supports?(application: ApplicationMeta): boolean
  /** Inputs are row-major; outputs are zero-initialized. */
  run(inputs: readonly HostArray[], outputs: readonly HostArray[], params: AnyParams): void
}

/** Kernels in JavaScript, used instead of the decomposition or reference implementation if a backend has no kernel. */
export interface JsKernels {
  readonly form: "js"
  /** The npm package that provides them, for error messages. */
  readonly package: string
  readonly kernels: Readonly<Record<string, JsKernel>>
}

/** A call of a WebAssembly function: operands by name (passed as addresses), and numbers. */
export interface WasmLaunch {
  /** The exported function. */
  readonly call: string
  readonly arguments: readonly (string | number | bigint)[]
}

/** A kernel in a WebAssembly module. */
export type WasmKernel = LaunchedKernel<WasmLaunch>

/**
 * Kernels in WebAssembly, used like those in JavaScript. The module exports its `memory`, and `__heap_base` if it has static data; operands
 * are copied there, row-major and 16-byte aligned.
 */
export interface WasmKernels {
  readonly form: "wasm"
  /** The npm package that provides them, for error messages. */
  readonly package: string
  /** A `.wasm` file. */
  readonly library: string | URL
  readonly kernels: Readonly<Record<string, WasmKernel>>
}

/** Kernels in one of the supported forms. */
export type KernelOffer = NativeKernels | MetalKernels | CudaKernels | JsKernels | WasmKernels

/** All forms. */
const FORMS: readonly string[] = ["native", "metal", "cuda", "js", "wasm"]

const offers: KernelOffer[] = []
const listeners: { form: string; take: (offer: KernelOffer) => void }[] = []

/**
 * Provides kernels for primitives. Backends that support the form load them now, or when they are imported. Without kernels, primitives run
 * as their decomposition or reference implementation.
 *
 * Elementwise primitives with `scalar` semantics need none: they run, and fuse, as scalar programs.
 *
 * @throws ArgumentError for a malformed offer; errors of backends that cannot load the kernels
 */
export function provideKernels(offer: KernelOffer): void {
  const { form, package: from, kernels } = (offer ?? {}) as Partial<Exclude<KernelOffer, NativeKernels>>
  if (typeof form !== "string" || typeof from !== "string" || from === "")
    throw new ArgumentError("provideKernels", `expected { form, package, … }, received ${describe(offer)}`, {
      hint: `form is one of ${FORMS.join(", ")}, package the npm name of the package that provides the kernels`,
    })
  if (!FORMS.includes(form)) {
    const near = nearest(form, FORMS)
    throw new ArgumentError("provideKernels", `there is no form "${form}"; there are ${FORMS.join(", ")}`, {
      hint: near ? `Did you mean "${near}"?` : "A later @lazuli/core may have it",
    })
  }
  // A native library lists its own primitives: the backend that loads it checks them.
  if (typeof kernels === "object" && kernels !== null) checkBringer(from, Object.keys(kernels))
  for (const listener of listeners) if (listener.form === form) listener.take(offer)
  offers.push(offer)
}

/** Calls `take` for every offer in this form, present and future. For backends. */
export function onKernels<F extends KernelOffer["form"]>(
  form: F,
  take: (offer: Extract<KernelOffer, { form: F }>) => void,
): void {
  listeners.push({ form, take: take as (offer: KernelOffer) => void })
  for (const offer of offers) if (offer.form === form) take(offer as Extract<KernelOffer, { form: F }>)
}

/** The offers so far, for `mx.plugins`. */
export const kernelOffers = (): readonly KernelOffer[] => offers
