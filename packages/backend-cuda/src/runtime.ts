/**
 * The runtime on NVIDIA's driver: memory of the device's own, kernels compiled by NVRTC from translated Metal source, and a CUDA stream
 * for each of Lazuli's. Nothing is opened before the first use.
 * It is long because it is one class, whose methods share what is open.
 */
import {
  collectorOf,
  DeviceError,
  type DeviceFacts,
  type DeviceWatch,
  DistributedError,
  integerFrom,
  type Tracker,
} from "@lazuli/core/engine"
import type {
  CommandFailure,
  Commands,
  DeviceInfo,
  DispatchForm,
  ExchangeNote,
  FunctionConstants,
  GpuBuffer,
  GpuLibrary,
  GpuMark,
  GpuPipeline,
  GpuRuntime,
  KernelRequest,
  LibraryOptions,
  PlanId,
  Submission,
} from "@lazuli/gpu-kernels"
import { hasCompiler, isProvided, type Kernels, kernelsOf } from "./compiler"
import { errorOf } from "./factorizations"
import { candidatesFor, hasDevice } from "./libraries"
import { type CudaNative, cudaNative, type GpuFacts } from "./native"
import { nativeSource } from "./native-source"
import { CHECK_EVERY, OtherProcesses } from "./other-processes"

const NONE: readonly CommandFailure[] = []
/** The GPU begins once so many dispatches are encoded, so that it works while the host encodes more. */
const DISPATCHES_AHEAD = 32
/** Submissions between two looks for streams that repeat. */
const LOOKS_EVERY = 16
/** Bytes of the argument of kernels/stage.cu. */
const STAGE_BYTES = 1536
/** Stands for all streams. */
const ALL = -1
/** Milliseconds in which collectives end that are given up; other work may go on for longer than an error has time. */
const ENDING = 300

/** A GPU's facts as `mx.deviceInfo` names them. */
const factsOf = ({ name, memory, driver, major, minor, processors }: GpuFacts): DeviceFacts => ({
  deviceName: name,
  architecture: `sm_${major}${minor}`,
  memorySize: memory,
  maxBufferLength: memory,
  maxRecommendedWorkingSetSize: Math.floor(memory * 0.9),
  computeCapability: `${major}.${minor}`,
  processors,
  driverVersion: `${Math.floor(driver / 1000)}.${Math.floor((driver % 1000) / 10)}`,
})

/** The addon's weak references; undefined where there is no GPU to use it for, or no addon. */
function trackerOf(): Tracker | undefined {
  if (!hasDevice()) return undefined
  try {
    const native = cudaNative()
    const dead = new Int32Array(1 << 17)
    return {
      track: (objects, count, ids) => native.track(objects, count, ids),
      untrack: (id) => native.untrack(id),
      isAlive: (id) => native.isAlive(id),
      poll: (all) => dead.subarray(0, native.poll(all ? 1 : 0, dead)),
      collect: collectorOf(() => native.pressCollector()),
    }
  } catch {
    // The first use says so.
    return undefined
  }
}

/** Source that is compiled when a kernel of it is asked for. */
class CudaLibrary implements GpuLibrary {
  /** By constants and form. */
  readonly compiled = new Map<string, { kernels: Kernels; module: number }>()
  constructor(
    readonly source: string,
    readonly options: LibraryOptions,
  ) {}
  get kernels(): readonly string[] {
    return [...new Set([...this.compiled.values()].flatMap(({ kernels }) => kernels.list.map((k) => k.name)))]
  }
}

/** The GPU of a process that chose none: launchers number the processes of a host. */
function ordinalAmong(native: CudaNative): number {
  for (const name of ["LAZULI_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"]) {
    const rank = integerFrom(name, 0)
    if (rank !== null) return rank % Math.max(1, native.devices().length)
  }
  return 0
}

/** By library: the addon's function that opens it. */
const OPENERS = {
  cublasLt: "openProducts",
  cudnn: "openConvolutions",
  cufft: "openTransforms",
  cusolver: "openFactorizations",
} as const

/** Runs kernels on an NVIDIA GPU. */
export class CudaRuntime implements GpuRuntime {
  readonly name = "cuda"
  readonly ordered = true
  readonly streams = true
  readonly doubles = true
  readonly leavesOut = true
  readonly specializes = true
  readonly dividesBuffers = true
  readonly tracker?: Tracker = trackerOf()
  readonly dispatchesAhead: number = DISPATCHES_AHEAD
  // Memory of a GPU is dear to ask for; what does not fit is given back when an allocation fails.
  readonly cacheLimit: number = Number.POSITIVE_INFINITY
  private opened: { native: CudaNative; facts: GpuFacts } | null = null
  private readonly libraries = new Map<string, CudaLibrary>()
  /** The kernels that were made ready so far: each one's name and the file of its machine code. */
  readonly kernels = new Set<string>()
  private readonly failures = new Map<number, readonly CommandFailure[]>()
  private submissions = 0
  /** Commands were added that may have no result, as of a singular matrix. */
  private awaitsVerdicts = false
  /** The last submission that is known to be done. */
  private concluded = 0

  /** `ordinal` chooses among several GPUs; `LAZULI_CUDA_DEVICE` does so from outside. */
  constructor(private ordinal: number | null = integerFrom("LAZULI_CUDA_DEVICE", 0)) {}

  /** The GPUs that the driver shows; none where there is no driver. */
  devices(): readonly DeviceFacts[] {
    try {
      const native = cudaNative()
      native.openDriver(candidatesFor("cuda"))
      return native.devices().map(factsOf)
    } catch {
      return []
    }
  }

  /** Runs on the GPU of this number. @throws DeviceError once another one is in use */
  choose(ordinal: number): void {
    if (this.opened && ordinal !== this.ordinal)
      throw new DeviceError(
        "cuda",
        `GPU ${this.ordinal} is already in use, and a process uses only one GPU`,
        {
          hint: "Choose before the first operation, or run one process per GPU",
        },
      )
    this.ordinal = ordinal
  }

  /** The driver and the device, opened once. @throws DeviceError that says what is missing and where it was looked for */
  private get open(): { native: CudaNative; facts: GpuFacts } {
    if (this.opened) return this.opened
    const native = cudaNative()
    const candidates = candidatesFor("cuda")
    try {
      native.openDriver(candidates)
    } catch (cause) {
      throw new DeviceError("cuda", `there is no NVIDIA driver: ${(cause as Error).message}`, {
        cause,
        hint: "Install NVIDIA's driver, or name the folder of libcuda.so.1 in LAZULI_CUDA_PATH. Use mx.cpu where there is no GPU",
      })
    }
    try {
      this.ordinal ??= ordinalAmong(native)
      this.opened = { native, facts: native.openDevice(this.ordinal) }
    } catch (cause) {
      throw new DeviceError("cuda", `no GPU can be used: ${(cause as Error).message}`, {
        cause,
        hint: "nvidia-smi shows what the driver sees; CUDA_VISIBLE_DEVICES may hide GPUs. Use mx.cpu where there is none",
      })
    }
    return this.opened
  }
  private get native(): CudaNative {
    return this.open.native
  }
  /** The driver's facts of the GPU. */
  get facts(): GpuFacts {
    return this.open.facts
  }

  /** By library: true where it is found. */
  private readonly found = new Map<keyof typeof OPENERS, boolean>()
  /** True where a library is found; opened once. */
  has(library: keyof typeof OPENERS): boolean {
    let known = this.found.get(library)
    if (known === undefined) {
      const { native } = this.open
      try {
        native[OPENERS[library]](candidatesFor(library))
        known = true
      } catch {
        known = false
      }
      this.found.set(library, known)
    }
    return known
  }

  /** True of a convolution's words if cuDNN has an algorithm for it; null where that is not there. */
  get convolvable(): ((words: Int32Array) => boolean) | null {
    return this.has("cudnn") ? (words) => this.inDriver(() => this.native.convolvable(words)) : null
  }

  /** True where NCCL and a GPU are there. */
  get hasCollectives(): boolean {
    try {
      cudaNative().openCollectives(candidatesFor("nccl"))
      return this.devices().length > 0
    } catch {
      return false
    }
  }
  newCollectiveId(): Uint8Array {
    const id = new Uint8Array(128)
    // Without opening the GPU, which takes a while: the others wait for the id.
    cudaNative().newCollectiveId(id)
    return id
  }
  private readonly others = new OtherProcesses(
    (error) => {
      this.native.abortCollectives()
      this.native.synchronize(ALL, ENDING)
      this.fail(error)
    },
    () => this.native,
  )
  /** A communicator's number. */
  joinCollectives(id: Uint8Array, rank: number, size: number, watch: DeviceWatch): number {
    const look = (): void => watch.wait(0, "init")
    try {
      // The others see from now on that this process is at it: opening the GPU may take longer than their limit.
      look()
      const { native } = this
      native.abortCollectivesBy(watch.alarm())
      native.beginJoin(id, rank, size)
      let communicator: number | undefined
      while ((communicator = native.endJoin(CHECK_EVERY)) === undefined) look()
      this.others.join(communicator, watch)
      return communicator
    } catch (cause) {
      if (!(cause instanceof DistributedError)) throw this.error(cause, "NCCL")
      this.native.abortCollectives()
      throw cause
    } finally {
      watch.end(false)
    }
  }
  leaveCollectives(): void {
    this.others.leave()
  }
  addExchanges(exchanges: readonly ExchangeNote[]): void {
    this.others.add(exchanges)
  }
  markExchanges(): void {
    this.others.markAll()
  }

  /** Waits for the work; gives what it failed of. Other processes may fail meanwhile, whose work it waits for. */
  private awaitWork(stream: number): string | Error | null {
    const { native, others } = this
    if (!others.exist) return native.synchronize(stream)
    return others.await(() => native.synchronize(stream, CHECK_EVERY), stream === ALL)
  }
  /** Runs a call from which the driver may not return before others' work is done. @throws DistributedError where one of them fails */
  private inDriver<T>(run: () => T): T {
    const outcome = this.others.during(run)
    if (outcome instanceof Error) throw outcome
    return outcome
  }
  private graphs: ((words: BigInt64Array) => number | null) | null | undefined
  /** Prepares a graph of operations for cuDNN, and gives its number; null where that is not there, or is of a version with known faults. */
  get prepareGraph(): ((words: BigInt64Array) => number | null) | null {
    if (this.graphs !== undefined) return this.graphs
    const { native, facts } = this.open
    let version = 0
    try {
      version = native.openOperationGraphs(candidatesFor("cudnn"))
    } catch {
      // Kernels serve.
    }
    // cudnn-frontend names what earlier ones, and 9.10.0 and 9.10.1, get wrong.
    this.graphs =
      version > 91001 && facts.major >= 8
        ? (words) => {
            const made = this.inDriver(() => native.prepareGraph(words))
            if (typeof made === "number") return made
            this.refusals.push(made)
            return null
          }
        : null
    return this.graphs
  }
  /** cuDNN's words on graphs that it does not take. */
  readonly refusals: string[] = []

  /** The facts of the GPU for users, the number of it among them. */
  deviceFacts(): DeviceFacts {
    return { ...factsOf(this.facts), device: this.ordinal as number }
  }

  get info(): DeviceInfo {
    const { name, memory, warp, maxThreads } = this.facts
    return {
      name,
      simdWidth: warp,
      maxThreadsPerThreadgroup: maxThreads,
      // Without a kernel's own wish: what Metal has too, so that kernels choose alike.
      maxThreadgroupMemory: 32768,
      maxBufferLength: memory,
      recommendedWorkingSet: Math.floor(memory * 0.9),
      memorySize: memory,
    }
  }

  newBuffer(length: number, part = 0): GpuBuffer {
    try {
      return { id: this.inDriver(() => this.native.newBuffer(length, part)), length }
    } catch (cause) {
      throw this.error(cause, `${length} bytes`)
    }
  }
  releaseBuffer(buffer: GpuBuffer): void {
    this.native.freeBuffer(buffer.id)
  }
  read(buffer: GpuBuffer, offset: number, into: ArrayBufferView, isDone = false): void {
    try {
      this.native.read(buffer.id, (buffer.offset ?? 0) + offset, into, Number(isDone))
    } catch (cause) {
      throw this.error(cause)
    }
  }
  write(buffer: GpuBuffer, offset: number, from: ArrayBufferView): void {
    try {
      this.inDriver(() => this.native.write(buffer.id, (buffer.offset ?? 0) + offset, from))
    } catch (cause) {
      throw this.error(cause)
    }
  }

  newLibrary(source: string, options: LibraryOptions = {}): CudaLibrary {
    const key = `${options.file}\0${options.mathMode}\0${options.isNative}\0${source}`
    let library = this.libraries.get(key)
    if (!library) {
      library = new CudaLibrary(source, options)
      this.libraries.set(key, library)
    }
    return library
  }

  private compiles: boolean | undefined
  /** Without NVRTC kernels are those that were compiled ahead. */
  get limited(): boolean {
    if (this.compiles !== undefined) return !this.compiles
    try {
      this.compiles = hasCompiler(this.native)
    } catch {
      // The first use says what is missing.
      return false
    }
    return !this.compiles
  }
  provides({ source, options, constants = {}, form }: KernelRequest): boolean {
    return isProvided(this.facts, { source, ...options, constants, form })
  }

  newPipeline(
    library: GpuLibrary,
    name: string,
    constants: FunctionConstants = {},
    form?: DispatchForm,
  ): GpuPipeline {
    const { compiled, source, options } = library as CudaLibrary
    const { native, facts } = this.open
    const key = JSON.stringify([constants, form])
    let made = compiled.get(key)
    if (!made) {
      const kernels = kernelsOf(native, facts, { source, ...options, constants, form })
      try {
        made = { kernels, module: this.inDriver(() => native.loadModule(kernels.code)) }
      } catch (cause) {
        throw this.error(cause, `the kernel ${name}`)
      }
      compiled.set(key, made)
    }
    const kernel = made.kernels.list.find((each) => each.name === name)
    if (!kernel)
      throw new DeviceError(
        "cuda",
        `the library has no kernel "${name}"; it has ${library.kernels.join(", ") || "none"}`,
      )
    try {
      const { module, kernels } = made
      const { id, maxThreads } = this.inDriver(() =>
        native.newKernel(module, kernel.symbol, kernel.parameters, kernels.waits),
      )
      this.kernels.add(`${name} ${made.kernels.key}`)
      return { id, name, maxThreads: Math.min(maxThreads, kernel.maxThreads) }
    } catch (cause) {
      throw this.error(cause, `the kernel ${name}`)
    }
  }

  newPlan(commands: Commands, sizes: Uint32Array, inputs: number): PlanId {
    return { id: this.native.newPlan(commands.words, commands.length, sizes, inputs, this.stage) }
  }
  private stageKernel: number | undefined
  /** The kernel that copies small arrays of plans. */
  private get stage(): number {
    this.stageKernel ??= this.newPipeline(
      this.newLibrary(nativeSource("stage.cu", ""), { file: "stage", isNative: true }),
      "stage",
      {},
      { inline: [STAGE_BYTES], threads: 64, whole: true },
    ).id
    return this.stageKernel
  }
  releasePlan({ id }: PlanId): void {
    this.native.releasePlan(id)
  }
  /** Runs as graphs so far whose small arrays `stage` copied: it is made ready long before, if it is needed at all. */
  get stagedRuns(): number {
    return this.opened ? this.native.stagedRuns() : 0
  }
  private looksForRepeats = true
  /** Makes the kernel that repeated streams need, once there are any. */
  private serveRepeats(): void {
    const { native } = this
    if (!native.wantsStage()) return
    this.looksForRepeats = false
    try {
      native.giveStage(this.stage)
    } catch {
      // Where nothing can be compiled, streams run launch by launch.
      native.giveStage(-1)
    }
  }

  commit(stream: Commands): Submission {
    const id = ++this.submissions
    if (this.looksForRepeats && id % LOOKS_EVERY === 0) this.serveRepeats()
    const failed = this.others.commit(() => this.native.run(stream.words, stream.length))
    if (failed instanceof Error) this.fail(failed)
    else if (failed) this.failures.set(id, failed)
    return { id }
  }
  wait({ id }: Submission): readonly CommandFailure[] {
    if (id > this.concluded) this.conclude(ALL)
    const failed = this.failures.get(id) ?? NONE
    this.failures.delete(id)
    return failed
  }
  synchronize(stream: number): void {
    this.conclude(stream)
  }
  mark(): GpuMark | null {
    // Of verdicts only waiting for everything tells.
    if (this.awaitsVerdicts) return null
    const { native, others } = this
    const submission = { id: this.submissions }
    const id = native.newMark()
    const free = (): void => native.freeMark(id)
    const conclude = (outcome: boolean | Error): boolean => {
      if (outcome === true) this.concluded = Math.max(this.concluded, submission.id)
      return outcome === true
    }
    const look = (milliseconds: number): boolean | null => native.lookAtMark(id, milliseconds)
    if (others.exist) return others.mark(submission, look, conclude, free)
    return {
      submission,
      look() {
        const outcome = look(0)
        return outcome && conclude(outcome)
      },
      wait: () => conclude(look(-1) === true),
      release: free,
    }
  }
  /** With others the host is not far ahead: where it waits tells them how far it has come. */
  get marksAhead(): number {
    return this.others.exist ? 1 : Number.POSITIVE_INFINITY
  }

  /** Told before such commands are added. */
  expectVerdicts(): void {
    this.awaitsVerdicts = true
  }
  private noteVerdicts(): void {
    const found = this.native.verdicts()
    for (let i = 0; i < found.length; i += 3) {
      const [run, word, verdict] = found.slice(i, i + 3)
      const error = errorOf(verdict)
      const { message } = error
      this.failures.set(run, [...(this.failures.get(run) ?? []), { word, message, error }])
    }
    this.awaitsVerdicts = false
  }

  /** Waits for a stream, or for all. */
  private conclude(stream: number): void {
    const lost = this.awaitWork(stream)
    // Of one stream's work others may still go on, unless that was ended.
    if (stream !== ALL && !(lost instanceof Error)) return
    if (this.awaitsVerdicts && lost === null) this.noteVerdicts()
    if (typeof lost === "string") this.fail(lost)
    this.concluded = this.submissions
  }
  /** Leaves all work that is not known to be done without a result: the launch to blame is not known. */
  private fail(lost: string | Error): void {
    const failure =
      lost instanceof Error ? { word: -1, message: lost.message, error: lost } : { word: -1, message: lost }
    for (let each = this.concluded + 1; each <= this.submissions; each++) this.failures.set(each, [failure])
    this.concluded = this.submissions
  }

  /** The addon's error as one of this library. */
  private error(cause: unknown, what?: string): Error {
    if (cause instanceof DeviceError || cause instanceof DistributedError) return cause
    const { message, code } = cause as { message: string; code?: string }
    if (code !== "ERR_LAZULI_MEMORY")
      return new DeviceError("cuda", what ? `${what}: ${message}` : message, { cause })
    let left = ""
    try {
      const { free, total } = this.native.memory()
      left = `: ${free} of ${total} bytes are free`
    } catch {
      // The message stands without it.
    }
    return new DeviceError("cuda", `no memory for ${what}${left}`, { cause })
  }
}
