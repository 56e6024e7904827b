/**
 * The addon that calls CUDA's driver and compiler: where it is found, and the type of its functions. It is loaded when the GPU is first
 * used, so that importing the package works everywhere.
 */
import { fileURLToPath } from "node:url"
import { type Addon, checkAddon, loadAddon } from "@lazuli/gpu-kernels"

/** The driver's facts of a GPU. */
export interface GpuFacts {
  readonly name: string
  /** CUDA's version that the driver has: 1000 × major + 10 × minor. */
  readonly driver: number
  /** The compute capability. */
  readonly major: number
  readonly minor: number
  readonly processors: number
  readonly warp: number
  readonly maxThreads: number
  /** Bytes of shared memory that a block may ask for. */
  readonly maxShared: number
  readonly memory: number
}

/** The outcome of a compilation: machine code, or null. */
export interface Compiled {
  readonly code: Uint8Array | null
  readonly log: string
}

/** The source of a kernel's parameter; native/cuda/device.h has the same. */
export enum Source {
  Pointer = 0,
  Value = 1,
  Grid = 2,
  Threadgroup = 3,
}

type CompileArguments = [
  source: string,
  name: string,
  headerNames: readonly string[],
  headerTexts: readonly string[],
  options: readonly string[],
]

/** The addon's functions. Buffers, modules and kernels are numbers of this isolate. */
export interface CudaNative {
  /** The version of these functions and of the commands. */
  protocol(): number
  /** Opens the first of these libraries; throws what each of them says. */
  openDriver(candidates: readonly string[]): string
  /** The facts of every GPU that the driver shows. */
  devices(): GpuFacts[]
  openDevice(ordinal: number): GpuFacts
  openCompiler(candidates: readonly string[]): { path: string; major: number; minor: number }
  /** Opens cuBLASLt. */
  openProducts(candidates: readonly string[]): string
  /** Opens cuDNN. */
  openConvolutions(candidates: readonly string[]): string
  /** Opens cuFFT. */
  openTransforms(candidates: readonly string[]): string
  /** Opens cuSOLVER. */
  openFactorizations(candidates: readonly string[]): string
  /** Opens NCCL. */
  openCollectives(candidates: readonly string[]): string
  /** Fills the bytes by which members find each other. */
  newCollectiveId(into: Uint8Array): void
  /** Begins to join the members that have the same id. */
  beginJoin(id: Uint8Array, rank: number, size: number): void
  /** The communicator's number; undefined where members are missing after that time. */
  endJoin(milliseconds: number): number | undefined
  /** Ends what runs of all communicators, and gives up joining. */
  abortCollectives(): void
  /** Does so once a file can be read from, which it closes, also while the driver is waited for. */
  abortCollectivesBy(alarm: number): void
  /** True if cuDNN has an algorithm for a convolution. */
  convolvable(words: Int32Array): boolean
  /** Opens cuDNN for graphs of operations; gives its version. */
  openOperationGraphs(candidates: readonly string[]): number
  /** The number of a graph of operations, or why cuDNN does not take it. */
  prepareGraph(words: BigInt64Array): number | string
  compile(...of: CompileArguments): Compiled
  /** The same on another thread. */
  compileLater(...of: CompileArguments): Promise<Compiled>
  /** With `part` for arrays of so many bytes each; 0 for one. */
  newBuffer(nbytes: number, part: number): number
  freeBuffer(buffer: number): void
  /** With `isDone` 1 beside what runs: the work that makes it is known to be done. */
  read(buffer: number, offset: number, into: ArrayBufferView, isDone: number): void
  write(buffer: number, offset: number, from: ArrayBufferView): void
  memory(): { free: number; total: number }
  /** PTX must end with a zero. */
  loadModule(code: Uint8Array): number
  /**
   * Parameters are pairs of a {@link Source} and an index. With `waits` the kernel waits for earlier work by itself, and may be launched
   * before that ends.
   */
  newKernel(
    module: number,
    name: string,
    parameters: Int32Array,
    waits: boolean,
  ): { id: number; maxThreads: number }
  /** Launches what the first `count` words ask for; word −1 concerns all of them. */
  run(words: Int32Array, count: number): { word: number; message: string }[] | null
  /**
   * Keeps commands whose buffers are numbers of bindings; {@link Command.Plan} runs them. Of the bindings, the first `inputs` are read;
   * their sizes are 0 where they are not in one piece. The kernel `stage` copies small ones, which lie elsewhere at each run.
   */
  newPlan(words: Int32Array, count: number, sizes: Uint32Array, inputs: number, stage: number): number
  releasePlan(plan: number): void
  /** True once a stream of commands has repeated so often that it would run as plans do, which needs the kernel `stage`. */
  wantsStage(): boolean
  /** Gives repeated streams that kernel, or -1 where there is none. */
  giveStage(stage: number): void
  /** Runs of plans as graphs so far whose small arrays the kernel `stage` copied. */
  stagedRuns(): number
  /** Weak references; see {@link Tracker}. */
  track(objects: readonly object[], count: number, ids: Int32Array): void
  untrack(id: number): void
  isAlive(id: number): boolean
  /** The numbers of objects that are gone, in `out`; of all references where `all` is 1. */
  poll(all: 0 | 1, out: Int32Array): number
  pressCollector(): void
  /**
   * Waits for a stream, or for all where it is −1; gives what the work failed of. With a time it gives undefined where there is work left
   * after that.
   */
  synchronize(stream: number): string | null
  synchronize(stream: number, milliseconds: number): string | null | undefined
  /** A mark behind what was launched on the first stream. */
  newMark(): number
  /** True once it is passed, null where it is not within that time, false where the work failed; a negative time is without end. */
  lookAtMark(mark: number, milliseconds: number): boolean | null
  freeMark(mark: number): void
  /**
   * Of the work that is done, the commands that had no result: for each the number of its {@link run}, from 1 on, its word, and the
   * caller's number for what it came to.
   */
  verdicts(): number[]
}

/** Its protocol is the version of {@link CudaNative} and of the commands that this package writes. */
const ADDON: Addon = {
  backend: "cuda",
  name: "the addon",
  package: "@lazuli/backend-cuda",
  platforms: ["linux-x64", "linux-arm64"],
  owner: "the CUDA backend",
  protocol: 14,
  hint: "Use mx.cpu where there is no GPU",
}

let loaded: CudaNative | undefined

/** Refuses an addon of another version. @throws DeviceError that names both */
export const checkProtocol = (addon: Partial<CudaNative>, path: string): void =>
  checkAddon(ADDON, addon, path)

/**
 * The addon: `LAZULI_CUDA_ADDON`, or what the build left in build/, or the platform's package. @throws DeviceError that says how to get it
 */
export function cudaNative(): CudaNative {
  // src/ and dist/ are both one below the package.
  loaded ??= loadAddon<CudaNative>(
    ADDON,
    process.env.LAZULI_CUDA_ADDON,
    fileURLToPath(new URL("../build/lazuli_cuda.node", import.meta.url)),
  )
  return loaded
}
