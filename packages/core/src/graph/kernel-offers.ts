/**
 * Kernels that packages bring for their primitives, and how backends come by them, in whatever order the packages are imported.
 * A package offers kernels in a form (a native library, Metal source), not to a backend by name: who can run the form takes it.
 */
import type { Dtype } from "./dtype"
import { ArgumentError, describe, nearest } from "./errors"
import type { HostArray, Meta } from "./graph"
import type { AnyParams } from "./params"
import { checkBringer } from "./primitive"

/** One application of a primitive, as a kernel's package is asked about it. */
export interface ApplicationMeta {
  /** The primitive's name. */
  readonly primitive: string
  readonly inputs: readonly Meta[]
  readonly outputs: readonly Meta[]
  readonly params: AnyParams
}

/** A kernel of a primitive, as its package describes it to the backend that runs its form. */
export interface LaunchedKernel<Launch> {
  /** The names by which the kernel and its launches know the inputs and outputs. */
  readonly inputNames: readonly string[]
  readonly outputNames: readonly string[]
  /** The launch of an application; null where there is no kernel for it, so that it falls back. */
  launch(application: ApplicationMeta): Launch | null
}

/** A kernel of a primitive on a GPU. */
export interface GpuKernel<Launch> extends LaunchedKernel<Launch> {
  /** Copy inputs to row-major order first where they are not; true by default. */
  readonly ensureRowContiguous?: boolean
}

/** The work of one application: dispatches in order, each of which sees what those before it wrote. */
export interface KernelSteps<Dispatch> {
  readonly dispatches: readonly Dispatch[]
  /** Memory for the dispatches, by names of your own, in bytes. Nothing in particular is in it. */
  readonly scratch?: Readonly<Record<string, number>>
  /** The value that outputs hold before the first dispatch; nothing in particular by default. */
  readonly initValue?: number | null
}

/** A shared library that exports `lazuli_kernels`, as `lazuli/kernel.h` (in `@lazuli/backend-cpu`) describes it. */
export interface NativeKernels {
  readonly form: "native"
  /** The npm package that brings them; errors name it. */
  readonly package: string
  /** Where the library is. */
  readonly library: string | URL
  /** Chooses the applications that its kernels take; all of them by default. The others fall back. */
  supports?(application: ApplicationMeta): boolean
  /**
   * By output, the inputs (by index) of the same size in bytes over which it may be written where nobody needs them any more: the kernel
   * then gets the same memory for both. It must have read an element of the input before it writes there. None by default.
   */
  overwrites?(application: ApplicationMeta): readonly (readonly number[])[]
  /**
   * True where the order of the axes means nothing to the kernel, as in elementwise work. Inputs and outputs of one shape that lie in one
   * order without gaps, such as transposed, then come with their axes in that order, row-major, and outputs keep the layout of the inputs.
   * Otherwise, which is the default, outputs are row-major.
   */
  keepsLayout?(application: ApplicationMeta): boolean
}

/** The launch of a Metal kernel for one application. */
export interface MetalLaunch {
  /** The number of threads along each axis. */
  readonly grid: readonly number[]
  /** The number of threads of a threadgroup along each axis. */
  readonly threadgroup: readonly number[]
  /** Values of template parameters. */
  readonly template?: Readonly<Record<string, Dtype | number | boolean>>
  /** Numbers that the body knows by name, as `constant float&`. */
  readonly scalars?: Readonly<Record<string, number>>
  /** The value that outputs hold before the kernel runs; nothing in particular by default. */
  readonly initValue?: number | null
}

/**
 * The body of a Metal function that computes a primitive; by the rules of `mx.fast.metalKernel`, but that every input is `const device T*`,
 * also one without axes.
 */
export interface MetalKernelSource extends GpuKernel<MetalLaunch> {
  /** The body of the kernel. */
  readonly source: string
  /** Code that the body needs outside of itself, such as functions. */
  readonly header?: string
  /** True if outputs are atomic. */
  readonly atomicOutputs?: boolean
}

/**
 * An argument of a kernel in a `.metal` file: an input, an output or scratch memory by its name, from a byte offset on where one is
 * given; a few bytes of the host (at most 4,096); the shape (int32) or the strides (int64, in elements) of an input as the kernel gets
 * it; or null, for a parameter that function constants leave out.
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
  /** By `[[buffer(index)]]`. Those that the kernel takes as `device T*`, without const, are written. */
  readonly buffers: readonly MetalArgument[]
  /** The number of threads along each axis. */
  readonly grid: readonly number[]
  /** The number of threads of a threadgroup along each axis. */
  readonly threadgroup: readonly number[]
  /** Values of `[[function_constant(index)]]`, by the names of the constants. */
  readonly constants?: Readonly<Record<string, number | boolean>>
  /** Bytes behind each `[[threadgroup(index)]]` parameter. */
  readonly threadgroupMemory?: readonly number[]
}

/** The work of one application by the kernels of a `.metal` file. */
export type MetalSteps = KernelSteps<MetalDispatch>

/** A primitive whose kernels are in the offer's `.metal` file. */
export interface MetalFileKernel extends GpuKernel<MetalSteps> {
  readonly source?: undefined
  /**
   * By output, the inputs of the same size in bytes over which it may be written where nobody needs them any more: kernels then get the
   * same memory for both. Each thread must have read its elements of the input before it writes there, and no other thread may read them.
   */
  readonly overwrites?: Readonly<Record<string, readonly string[]>>
}

/** Kernels in Metal Shading Language, by the names of their primitives. */
export interface MetalKernels {
  readonly form: "metal"
  /** The npm package that brings them; errors name it. */
  readonly package: string
  /**
   * A `.metal` file of whole kernels, beside the package's code: for those of `kernels` that have no `source`. What it includes by
   * `#include "…"` is found from its folder.
   */
  readonly library?: string | URL
  /** Bodies of functions, and primitives whose kernels are in `library`. */
  readonly kernels: Readonly<Record<string, MetalKernelSource | MetalFileKernel>>
}

/**
 * An argument of a CUDA kernel: the address of an input, an output or scratch memory by its name, from a byte offset on where one is given;
 * a value by its bytes, as the parameter's type has them; the shape (`Shape`) or the strides (`Strides`, in elements) of an input.
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
  /** The number of threads along each axis; blocks are whole, so that a kernel looks whether it is needed. */
  readonly grid: readonly number[]
  /** The number of threads of a block along each axis. */
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
  /** The npm package that brings them; errors name it. */
  readonly package: string
  /** A `.cu` file beside the package's code. It knows what bodies of `mx.fast.cudaKernel` know, without including anything. */
  readonly library: string | URL
  readonly kernels: Readonly<Record<string, CudaFileKernel>>
}

/** A kernel in JavaScript, by the rules of a `reference`. */
export interface JsKernel {
  /** Chooses the applications that it takes; all of them by default. The others fall back. */
  supports?(application: ApplicationMeta): boolean
  /** Inputs are row-major, outputs start as zeros. */
  run(inputs: readonly HostArray[], outputs: readonly HostArray[], params: AnyParams): void
}

/** Kernels in JavaScript: they run where a backend has none, in place of the decomposition or the reference implementation. */
export interface JsKernels {
  readonly form: "js"
  /** The npm package that brings them; errors name it. */
  readonly package: string
  readonly kernels: Readonly<Record<string, JsKernel>>
}

/** The call of a function of a WebAssembly module: addresses of operands by name, and numbers. */
export interface WasmLaunch {
  /** The exported function. */
  readonly call: string
  readonly arguments: readonly (string | number | bigint)[]
}

/** A kernel in a WebAssembly module. */
export type WasmKernel = LaunchedKernel<WasmLaunch>

/**
 * Kernels in WebAssembly: they run where those in JavaScript do. The module exports its `memory`, and `__heap_base` if it has data of its
 * own; operands are copied behind that, row-major, 16 bytes apart at least.
 */
export interface WasmKernels {
  readonly form: "wasm"
  /** The npm package that brings them; errors name it. */
  readonly package: string
  /** A `.wasm` file beside the package's code. */
  readonly library: string | URL
  readonly kernels: Readonly<Record<string, WasmKernel>>
}

/** Kernels in one of the forms that backends take. */
export type KernelOffer = NativeKernels | MetalKernels | CudaKernels | JsKernels | WasmKernels

/** Every form that there is, taken by a backend or not. */
const FORMS: readonly string[] = ["native", "metal", "cuda", "js", "wasm"]

const offers: KernelOffer[] = []
const listeners: { form: string; take: (offer: KernelOffer) => void }[] = []

/**
 * Brings kernels for primitives. Backends that run the form take them now, or when they are imported. Without any, the primitives work as
 * before, by their decomposition or reference implementation.
 *
 * Elementwise primitives need none: those with `scalar` semantics run, and fuse, as programs.
 *
 * @throws ArgumentError for a malformed offer, and whatever a backend says of kernels that it cannot load
 */
export function provideKernels(offer: KernelOffer): void {
  const { form, package: from, kernels } = (offer ?? {}) as Partial<Exclude<KernelOffer, NativeKernels>>
  if (typeof form !== "string" || typeof from !== "string" || from === "")
    throw new ArgumentError("provideKernels", `expected { form, package, … }, received ${describe(offer)}`, {
      hint: `form is one of ${FORMS.join(", ")}, package the npm name of the package that brings the kernels`,
    })
  if (!FORMS.includes(form)) {
    const near = nearest(form, FORMS)
    throw new ArgumentError("provideKernels", `there is no form "${form}"; there are ${FORMS.join(", ")}`, {
      hint: near ? `Did you mean "${near}"?` : "A later @lazuli/core may have it",
    })
  }
  // A native library says itself what it has: the backend that loads it looks.
  if (typeof kernels === "object" && kernels !== null) checkBringer(from, Object.keys(kernels))
  for (const listener of listeners) if (listener.form === form) listener.take(offer)
  offers.push(offer)
}

/** Calls `take` for every offer in this form, those to come included. For backends. */
export function onKernels<F extends KernelOffer["form"]>(
  form: F,
  take: (offer: Extract<KernelOffer, { form: F }>) => void,
): void {
  listeners.push({ form, take: take as (offer: KernelOffer) => void })
  for (const offer of offers) if (offer.form === form) take(offer as Extract<KernelOffer, { form: F }>)
}

/** The offers up to now: for `mx.plugins`. */
export const kernelOffers = (): readonly KernelOffer[] => offers
