/**
 * The calls of a GPU's runtime: some fifteen that a platform offers to run kernels. Kernel sources, the choice of kernels, argument
 * binding and grid sizes are all above this line; a platform offers memory, compilation and a queue.
 *
 * The calls are those of Apple's Metal.framework by other names, with one deviation: a dispatch and its arguments travel as words in
 * a {@link Commands | stream}, so that a whole graph is one native call. They also fit CUDA's driver: libraries are modules
 * compiled at run time, pipelines functions, streams launches, and a simdgroup is a warp of 32. Such a driver rounds
 * `dispatchThreads` up to whole groups and guards the threads beyond the grid itself.
 */

import type { DeviceFacts, Tracker } from "@lazuli/core/engine"
import type {
  DeviceLimits,
  DispatchForm,
  ExchangeNote,
  FunctionConstants,
  MathMode,
  Wording,
} from "../dispatch"

/** The abilities of a device. A pipeline may allow smaller threadgroups than the device. */
export interface DeviceInfo extends DeviceLimits {
  /** As the platform names it. */
  readonly name: string
  /** Bytes of the largest buffer. */
  readonly maxBufferLength: number
  /** Bytes that may be in use before the device slows down. */
  readonly recommendedWorkingSet: number
  /** Bytes of the device's own memory; the host's are its where it has none. */
  readonly memorySize?: number
  /** The greatest number of buffers at once, where there is a limit. */
  readonly resourceLimit?: number
}

/** A block of memory that kernels see, or a part of one. */
export interface GpuBuffer {
  /** The runtime's number for it. */
  readonly id: number
  /** Bytes. */
  readonly length: number
  /** Where a part begins, in bytes. */
  readonly offset?: number
}

/** Compiled source. */
export interface GpuLibrary {
  /** The names of its kernels. */
  readonly kernels: readonly string[]
}

/** A kernel that is ready to run. */
export interface GpuPipeline {
  /** The runtime's number for it. */
  readonly id: number
  readonly name: string
  /** The largest threadgroup that it can run with. */
  readonly maxThreads: number
}

/** A counter that orders streams of work among each other. */
export interface GpuEvent {
  readonly id: number
}

/** A command that failed, by where it starts in its stream; −1 stands for all of them. */
export interface CommandFailure {
  readonly word: number
  readonly message: string
  /** The error to throw, where it is not one of the device's. */
  readonly error?: Error
}

/** Options of compiling a source. */
export interface LibraryOptions {
  /** Names the source in messages. */
  readonly file?: string
  /** The wording of messages about a source that was generated around what somebody wrote. */
  readonly wording?: Wording
  /** A library that was compiled ahead of this source, for platforms that load such. */
  readonly compiled?: string
  /** The compiler's assumptions of arithmetic; "safe", which a platform may always take instead, by default. */
  readonly mathMode?: MathMode
  /** True if the source is in the platform's own language. */
  readonly isNative?: boolean
}

/** A kernel as it is compiled. */
export interface KernelRequest {
  readonly source: string
  readonly options: LibraryOptions
  readonly name: string
  readonly constants?: FunctionConstants
  readonly form?: DispatchForm
}

/** A source, and the name of its file in messages. */
export interface LibrarySource {
  readonly source: string
  readonly file: string
}

/** Words of a command stream; command-stream.ts writes them. */
export interface Commands {
  readonly words: Int32Array
  /** The number of them in use. */
  readonly length: number
}

/** Work that was handed over. */
export interface Submission {
  readonly id: number
}

/** A place behind the work that was committed. */
export interface GpuMark {
  /** The last work before it. */
  readonly submission: Submission
  /** True once it is passed, null before, false where the work before it failed, which waiting for that tells about. */
  look(): boolean | null
  /** Waits until it is passed or has failed. */
  wait(): boolean
  /** Forgets it. */
  release(): void
}

/** A command stream that the platform keeps, to run it again. */
export interface PlanId {
  readonly id: number
}

/** A platform that compiles and runs kernels. Every method but `prepare` is synchronous. */
export interface GpuRuntime {
  /** Names the platform. */
  readonly name: string
  /** The abilities of its device. */
  readonly info: DeviceInfo
  /** True if buffers are wanted in the sizes that are needed, so that any access behind them shows. */
  readonly exactBuffers?: boolean
  /** True if it executes kernels without a GPU. */
  readonly emulated?: boolean
  /** Dispatches of a stream run in order, so that it needs no barriers. */
  readonly ordered?: boolean
  /**
   * Streams of work run side by side, each in order; {@link Command.UseStream} and {@link Command.Join} then say which and what waits.
   * Memory that the host does not see is the first one's: transfers, and what is allocated anew.
   */
  readonly streams?: boolean
  /** Commits run beside the host; a stream is then handed over once it has so many dispatches, for the device to begin. */
  readonly dispatchesAhead?: number
  /** Plans take {@link Command.Unless}. */
  readonly leavesOut?: boolean
  /** Kernels may compute with float64, which Metal does not have. */
  readonly doubles?: boolean
  /** Small buffers are parts of larger ones: asking for memory is dear. */
  readonly dividesBuffers?: boolean
  /** Weak references, where the platform can offer them. */
  readonly tracker?: Tracker
  /** Bytes of free buffers that are kept for reuse, where the user sets no bound. */
  readonly cacheLimit?: number

  /** Memory for kernels, or for arrays of `part` bytes each. @throws DeviceError when there is none */
  newBuffer(length: number, part?: number): GpuBuffer
  /** Gives the memory back. Work that uses it must have ended, or run before what takes the memory next. */
  releaseBuffer(buffer: GpuBuffer): void
  /** Copies bytes out, once the work that was committed has run; with `isDone` those whose work is known to be done, beside what runs. */
  read(buffer: GpuBuffer, offset: number, into: ArrayBufferView, isDone?: boolean): void
  /** Copies bytes in, after the work that was committed. */
  write(buffer: GpuBuffer, offset: number, from: ArrayBufferView): void
  /** The memory itself, where the host sees it; without it buffers are reached by `read` and `write` alone. */
  contents?(buffer: GpuBuffer): ArrayBuffer
  /** Where the memory starts, for other native code. */
  address?(buffer: GpuBuffer): bigint
  /** A buffer at an address, whose owner keeps it; null where the platform cannot, for instance for want of alignment. */
  wrapAddress?(address: bigint, length: number): GpuBuffer | null

  /** Compiles source. @throws DeviceError that names the first line that does not compile */
  newLibrary(source: string, options?: LibraryOptions): GpuLibrary
  /** Compiles sources that `newLibrary` will be asked for, together, where that is faster. What does not compile is left for then. */
  prepare?(sources: readonly LibrarySource[]): Promise<void>
  /**
   * Likewise, and waits. With it kernels are compiled when the stream that runs them is handed over, those of the stream together; each
   * may have the device's largest threadgroup.
   */
  compileTogether?(sources: readonly LibrarySource[]): void
  /** True if kernels are compiled for the form of their dispatches. */
  readonly specializes?: boolean
  /**
   * Takes a kernel of a library, with its function constants set, for dispatches of a form where the platform {@link specializes}.
   * @throws DeviceError when there is none of that name
   */
  newPipeline(
    library: GpuLibrary,
    name: string,
    constants?: FunctionConstants,
    form?: DispatchForm,
  ): GpuPipeline

  /** True where nothing can be compiled: kernels are those that it {@link provides}, and there is no recording. */
  readonly limited?: boolean
  /** True if a kernel is there without a compiler. */
  provides?(kernel: KernelRequest): boolean

  /**
   * Told of operations in which other processes take part, right before they are added to a stream together, in a plan too.
   * @throws LazuliError where they cannot be added, none of them
   */
  addExchanges?(exchanges: readonly ExchangeNote[]): void
  /** Told once all that were added were committed, to streams that end in this order. */
  markExchanges?(): void
  /** Hands a stream over; its commands run in order. The stream may be reused at once. */
  commit(stream: Commands): Submission
  /** Waits for a submission; gives what failed. */
  wait(submission: Submission): readonly CommandFailure[]
  /**
   * A mark behind what was committed; null where only `wait` can tell what came of it. Once it is passed, `wait` does not wait for that.
   */
  mark?(): GpuMark | null
  /** The marks that the host may be ahead, where there is a limit. */
  readonly marksAhead?: number
  /** Waits for a stream, whose failures `wait` gives. */
  synchronize?(stream: number): void
  /**
   * Keeps commands whose buffers are numbers of bindings, as many as `sizes`, the first `inputs` of which are read only: their bytes, or 0
   * where they do not lie in one piece. A run of them is a command of its own: {@link Command.Plan}. Without it they are added anew for
   * each run.
   */
  newPlan?(commands: Commands, sizes: Uint32Array, inputs: number): PlanId
  /** Forgets one, once what was committed has run. */
  releasePlan?(plan: PlanId): void
  /** Keeps at most so many bytes of buffers in physical memory, where the system can. @throws DeviceError */
  setWiredLimit?(bytes: number): void
  /** The device's facts for users, where there are more than {@link info} has. */
  deviceFacts?(): DeviceFacts
  /** The facts of every device that it could run on. */
  devices?(): readonly DeviceFacts[]
  /** Runs on the device of this index. @throws DeviceError once another one is in use */
  choose?(index: number): void
  /** Begins to record submissions into a file for the platform's tools, where it has such. @throws DeviceError */
  startCapture?(path: string): void
  /** Ends the recording. */
  stopCapture?(): void
}
