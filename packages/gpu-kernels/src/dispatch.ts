/**
 * The interface of kernel families to a backend's queue: kernels as source with a key, and dispatches of them. Nothing here knows how a
 * source is compiled or a grid launched: Metal sets buffers by index and dispatches threads, CUDA passes arguments and launches whole
 * blocks, with a guard for the threads beyond the grid.
 */
import type { MetalCompileOptions, Storage } from "@lazuli/core/engine"

/** A size in up to three dimensions. */
export type Size = readonly [number, number, number]

/** A location in a storage. */
export interface Location {
  readonly storage: Storage
  /** In bytes. */
  readonly offset: number
}

/** An argument of a kernel, in the order of their buffer indices: locations, and bytes (at most {@link MAX_INLINE_BYTES}). */
export type Argument = Location | ArrayBufferView

export const isLocation = (argument: Argument): argument is Location => "storage" in argument

/** The most bytes that an argument may have without a storage. */
export const MAX_INLINE_BYTES = 4096

/** The values of a kernel's `[[function_constant(i)]]`, by index. */
export type FunctionConstants = Readonly<Record<number, number | boolean>>

/** The wording of messages about a source that was generated around what somebody wrote. */
export interface Wording {
  /** The kernel's name, as its author gave it. */
  readonly name: string
  /** The name of a line, such as "line 3 of the source". */
  location(line: number): string
  /** The author's name of a buffer. */
  buffer(kernel: string, index: number): string | undefined
  /** The source has several kernels, so that messages say which of them it was. */
  readonly namesKernels?: boolean
}

/** The freedom of a compiler with arithmetic; see `compileOptions` of `mx.fast.metalKernel`. */
export type MathMode = NonNullable<MetalCompileOptions["mathMode"]>

/** One kernel of a source in Metal Shading Language, or in the platform's own language. */
export interface Kernel {
  /** Equal for equal sources, names and constants, so that the source is made only where it is not compiled yet. */
  readonly key: string
  /** Its name in the source. */
  readonly name: string
  /** The source's file, for messages and so that kernels of one source are compiled together; its name where it is not given. */
  readonly file?: string
  /** A library compiled ahead of the source, which platforms that load such take instead. */
  readonly compiled?: string
  /** The source, which may have template arguments, dtypes and sizes filled in. */
  source(): string
  readonly constants?: FunctionConstants
  readonly wording?: Wording
  /** "safe" where it is not given. */
  readonly mathMode?: MathMode
  /** True if the source is in the platform's own language: C++ of CUDA. */
  readonly isNative?: boolean
}

/** The form of a kernel's dispatch, for platforms that compile it for that. */
export interface DispatchForm {
  /** By buffer index the bytes of what comes with the dispatch; undefined for buffers. */
  readonly inline: readonly (number | undefined)[]
  /** Threads of a threadgroup. */
  readonly threads: number
  /** The grid has whole threadgroups and these whole simdgroups, all of whose threads reach the kernel's exchanges. */
  readonly whole: boolean
}

/** One run of a kernel. */
export interface Dispatch {
  /** The primitive that it computes, for messages. */
  readonly op: string
  readonly kernel: Kernel
  readonly arguments: readonly Argument[]
  /** Those of the arguments' storages that are written; the others are read. */
  readonly writes: readonly Storage[]
  /** Threads along each axis; groups at the edges may be smaller than the others. */
  readonly grid: Size
  /** Threads of a threadgroup along each axis. */
  readonly threadgroup: Size
  /** Bytes behind each `[[threadgroup(i)]]` parameter. */
  readonly threadgroupMemory?: readonly number[]
}

/** The limits that choices of kernels and grids depend on. */
export interface DeviceLimits {
  /** Threads of a simdgroup. */
  readonly simdWidth: number
  /** Most threads of a threadgroup. */
  readonly maxThreadsPerThreadgroup: number
  /** Bytes of threadgroup memory. */
  readonly maxThreadgroupMemory: number
}

/** Work that a platform's library does instead of a kernel; how it is described is between a backend and its runtime. */
export interface LibraryCall {
  /** The primitive that it computes, for messages. */
  readonly op: string
  /** The command's code in the stream, above those of dispatches. */
  readonly code: number
  readonly words: Int32Array
  readonly arguments: readonly Location[]
  /** Those of the arguments' storages that are written; the others are read. */
  readonly writes: readonly Storage[]
  /** In a recording it runs beside the work that follows, until some of that touches the same memory. */
  readonly isBeside?: boolean
  /** Where other processes take part. */
  readonly exchange?: ExchangeNote
}

/** Operations in which other processes take part, as these compare them. */
export interface ExchangeNote {
  /** The runtime's number of the group. */
  readonly group: number
  /** The operation as users know it. */
  readonly name: string
  /** Numbers that are equal for equal operations. */
  readonly operations: readonly number[]
  /** The ranks of operations from one member to another. */
  readonly from?: number
  readonly to?: number
}

/** A kernel's dispatches, argument by argument, along one axis. `P` is what the queue has for a kernel. */
export interface FlatDispatches<P> {
  pipelineFor(kernel: Kernel, form: DispatchForm): P
  begin(pipeline: P): void
  location(index: number, storage: Storage, offset: number): void
  bytes(index: number, bytes: ArrayBufferView): void
  integer(index: number, value: number): void
  end(
    op: string,
    pipeline: P,
    threads: number,
    group: number,
    reads: readonly Storage[],
    writes: readonly Storage[],
  ): void
}

/** Where dispatches go: they run in order, or as if they did. */
export interface DispatchQueue {
  readonly limits: DeviceLimits
  /** Scratch memory for dispatches to come; drop it once they are added. */
  allocate(nbytes: number): Storage
  dispatch(dispatch: Dispatch): void
  /** The quicker way for what is dispatched most; null where dispatches are no work of now. */
  readonly flat: FlatDispatches<unknown> | null
  /** True of an input of a recording, which no work before its last use writes: a run may read it before earlier work has ended. */
  isInput(storage: Storage): boolean
  /** True if a result lies where an input lay, in a recording too; in one, with `at`, if the input lies so many bytes into the result. */
  overlays(input: Storage, result: Storage, at?: number): boolean
  /** Adds a copy of an input to a result of its size, unless they lie in one place; in a recording, runs that find them so leave it out. */
  copyOver(input: Storage, result: Storage, copy: () => void): void
  /** Adds work of a library, on the platforms that have such. */
  call(call: LibraryCall): void
}
