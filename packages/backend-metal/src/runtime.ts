/**
 * What the backend asks of a platform that runs Metal kernels: some fifteen calls. Kernel sources, the choice of kernels, argument
 * binding and grid sizes are all above this line; a platform offers memory, compilation and a queue.
 *
 * The calls are those of Apple's Metal.framework by other names, with one deviation: a dispatch and its arguments travel as words in
 * a {@link Commands | stream}, so that a whole graph is one native call. They also fit a driver in CUDA's manner: libraries are modules
 * compiled at run time, pipelines functions, streams launches, and a simdgroup is a warp of 32. Such a driver rounds
 * `dispatchThreads` up to whole groups and guards the threads beyond the grid itself.
 */

import type { DeviceLimits, FunctionConstants, MathMode, Wording } from "@lazuli/gpu-kernels"

/** What a device can do. A pipeline may allow smaller threadgroups than the device. */
export interface DeviceInfo extends DeviceLimits {
  /** As the platform names it. */
  readonly name: string
  /** Bytes of the largest buffer. */
  readonly maxBufferLength: number
  /** Bytes that may be in use before the device slows down. */
  readonly recommendedWorkingSet: number
  /** How many buffers there may be at once, where there is a limit. */
  readonly resourceLimit?: number
}

/** A block of memory that kernels and the host both see. */
export interface MetalBuffer {
  /** The runtime's number for it. */
  readonly id: number
  /** Bytes. */
  readonly length: number
}

/** Compiled source. */
export interface MetalLibrary {
  /** The names of its kernels. */
  readonly kernels: readonly string[]
}

/** A kernel that is ready to run. */
export interface MetalPipeline {
  /** The runtime's number for it. */
  readonly id: number
  readonly name: string
  /** The largest threadgroup that it can run with. */
  readonly maxThreads: number
}

/** A counter that orders streams of work among each other. */
export interface MetalEvent {
  readonly id: number
}

/** A command that failed, by where it starts in its stream. */
export interface CommandFailure {
  readonly word: number
  readonly message: string
}

/** How a source is compiled. */
export interface LibraryOptions {
  /** Names the source in messages. */
  readonly file?: string
  /** How messages speak of a source that was generated around what somebody wrote. */
  readonly wording?: Wording
  /** What the compiler may assume of arithmetic; "safe", which a platform may always take instead, by default. */
  readonly mathMode?: MathMode
}

/** A source, and the name of its file in messages. */
export interface LibrarySource {
  readonly source: string
  readonly file: string
}

/** Words of a command stream; command-stream.ts writes them. */
export interface Commands {
  readonly words: Int32Array
  /** How many of them are in use. */
  readonly length: number
}

/** Work that was handed over. */
export interface Submission {
  readonly id: number
}

/** A platform that compiles and runs Metal kernels. Every method but `prepare` and `done` is synchronous. */
export interface MetalRuntime {
  /** Names the platform. */
  readonly name: string
  /** What its device can do. */
  readonly info: DeviceInfo
  /** Whether buffers are wanted in the sizes that are needed, so that any access behind them shows. */
  readonly exactBuffers?: boolean
  /** Whether it executes kernels without a GPU. */
  readonly emulated?: boolean

  /** Zeroed memory. @throws DeviceError when there is none */
  newBuffer(length: number): MetalBuffer
  /** Makes memory of the host a buffer without a copy; its address and size must be multiples of the page size on some platforms. */
  wrapBuffer(bytes: ArrayBuffer): MetalBuffer
  /** The same for memory at an address, which its owner keeps; null where the platform cannot, for instance for want of alignment. */
  wrapAddress(address: bigint, length: number): MetalBuffer | null
  /** Gives the memory back. Work that uses it must have ended; an ArrayBuffer from `contents` keeps it. */
  releaseBuffer(buffer: MetalBuffer): void
  /** The memory itself. */
  contents(buffer: MetalBuffer): ArrayBuffer
  /** Where the memory starts, for other native code. */
  address(buffer: MetalBuffer): bigint
  /** Copies bytes out. */
  read(buffer: MetalBuffer, offset: number, into: ArrayBufferView): void
  /** Copies bytes in. */
  write(buffer: MetalBuffer, offset: number, from: ArrayBufferView): void

  /** Compiles source. @throws DeviceError that names the first line that does not compile */
  newLibrary(source: string, options?: LibraryOptions): MetalLibrary
  /** Compiles sources that `newLibrary` will be asked for, together, where that is faster. What does not compile is left for then. */
  prepare?(sources: readonly LibrarySource[]): Promise<void>
  /** Takes a kernel of a library, with its function constants set. @throws DeviceError when there is none of that name */
  newPipeline(library: MetalLibrary, name: string, constants?: FunctionConstants): MetalPipeline

  /** A counter at 0. */
  newEvent(): MetalEvent
  /** What a counter stands at. */
  eventValue(event: MetalEvent): number
  /** Hands a stream over; its commands run in order. The stream may be reused at once. */
  commit(stream: Commands): Submission
  /** Waits for a submission; gives what failed. */
  wait(submission: Submission): readonly CommandFailure[]
  /** The same without blocking. */
  done(submission: Submission): Promise<readonly CommandFailure[]>
  /** Begins to record submissions into a file for the platform's tools, where it has such. @throws DeviceError */
  startCapture?(path: string): void
  /** Ends the recording. */
  stopCapture?(): void
}
