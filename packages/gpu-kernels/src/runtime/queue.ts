/**
 * The backend's queue on a runtime: buffers that are reused in the order of the work, pipelines by source, dispatches with what they
 * read and write, and whom a failed dispatch concerns.
 * It is long because it is one class, whose methods share what is under way.
 */
import {
  DeviceError,
  type Memory,
  type MemoryStats,
  type Node,
  type Primitive,
  rejected,
  Storage,
  type Stream,
} from "@lazuli/core/engine"
import type {
  Argument,
  DeviceLimits,
  Dispatch,
  DispatchForm,
  DispatchQueue,
  FlatDispatches,
  FunctionConstants,
  Kernel,
  LibraryCall,
  Location,
  Wording,
} from "../dispatch"
import { CommandStream } from "./command-stream"
import { Marks } from "./marks"
import { type Recorded, Recording } from "./recording"
import type {
  GpuBuffer,
  GpuPipeline,
  GpuRuntime,
  LibraryOptions,
  LibrarySource,
  PlanId,
  Submission,
} from "./runtime"
import { dumpSource } from "./source-dump"
import { FIRST, StreamOrder } from "./stream-order"

interface Entry {
  readonly word: number
  readonly op: string
  /** Null for work of a library. */
  readonly pipeline: GpuPipeline | null
  readonly reads: readonly Storage[]
  readonly writes: readonly Storage[]
}

/** A kernel of a stream that is compiled with the others before the stream is used. */
interface Awaited extends GpuPipeline {
  readonly key: string
  readonly kernel: Kernel
  readonly form: DispatchForm | undefined
  /** Words that are to be its number. */
  readonly numbers: { readonly stream: CommandStream; readonly at: number }[]
}

/** Work that was handed over, whose outcome is not known yet. */
interface Submitted {
  readonly submission: Submission
  readonly entries: readonly Entry[]
}

/** The stream runs once it has this many dispatches, so that it does not grow without bound. */
const MAX_DISPATCHES = 4096
/** Or so many words, of which arguments may be the most. */
const MAX_WORDS = 2 ** 16
/** The most submissions that the host is ahead where nobody asks for a value. */
const MOST_SUBMITTED = 64
/** Bytes kept for reuse, where the runtime has no bound of its own. */
const MAX_CACHE = 256 * 2 ** 20

const isLocation = (argument: Argument): argument is Location => "storage" in argument

const formOf = ({ arguments: args, grid, threadgroup, kernel }: Dispatch): DispatchForm => {
  const threads = threadgroup[0] * threadgroup[1] * threadgroup[2]
  return {
    inline: args.map((argument) => (isLocation(argument) ? undefined : argument.byteLength)),
    threads,
    // Kernels that somebody else wrote need not keep simdgroups together.
    whole:
      kernel.wording === undefined && threads % 32 === 0 && grid.every((n, i) => n % threadgroup[i] === 0),
  }
}

const keyOf = (kernel: Kernel, form: DispatchForm | undefined): string =>
  form ? `${kernel.key}\0${form.threads}\0${form.whole}\0${form.inline.join()}` : kernel.key

const fileOf = ({ file, name }: Kernel): string => file ?? `${name}.metal`

/** A kernel's source, as a runtime takes it. */
const sourceOf = (
  kernel: Kernel,
): { source: string; options: LibraryOptions; constants: FunctionConstants | undefined } => {
  const { constants, wording, mathMode, compiled, isNative } = kernel
  return {
    source: kernel.source(),
    options: { file: fileOf(kernel), wording, mathMode, compiled, isNative },
    constants,
  }
}

/** Bytes of memory in between that a recording keeps from one run to the next. */
const MAX_KEPT = 2 ** 20

/** The id of memory that nothing uses, because nothing runs. */
const NOWHERE = -1

/** Parts of buffers have at most so many bytes, the buffers so many. */
const MAX_PART = 4096
const DIVIDED = 2 ** 20

/** Sizes of parts: powers of two, where vectors and the driver's own alignment begin. */
const partClass = (nbytes: number): number => (nbytes <= 256 ? 256 : 2 ** Math.ceil(Math.log2(nbytes)))

/** Sizes of buffers: whole pages, then eight steps to each power of two, so that freed buffers fit again. */
function sizeClass(nbytes: number): number {
  if (nbytes <= 4096) return 4096
  const step = Math.max(4096, 2 ** (Math.floor(Math.log2(nbytes)) - 3))
  return Math.ceil(nbytes / step) * step
}

/** Orders work on one runtime. */
export class GpuQueue implements DispatchQueue {
  private readonly stream = new CommandStream()
  private readonly buffers: (GpuBuffer | undefined)[] = []
  private readonly freeIds: number[] = []
  private readonly pool = new Map<number, GpuBuffer[]>()
  /** By buffer id: whom to tell that memory of another backend is not used any more. */
  private readonly adopted = new Map<number, () => void>()
  /** Those whose storages are released, while work that uses them may wait. */
  private readonly leaving: { buffer: GpuBuffer; done: () => void }[] = []
  private readonly views = new Map<number, ArrayBuffer>()
  private readonly pipelines = new Map<string, GpuPipeline>()
  /** By key: what dispatches need and is not compiled yet. */
  private readonly awaited = new Map<string, Awaited>()
  /** Of kernels that users wrote. */
  private readonly wordings = new WeakMap<GpuPipeline, Wording>()
  /** While nothing runs: told of each kernel that a dispatch needs, and of its key and form. */
  private asked: ((kernel: Kernel, key: string, form: DispatchForm | undefined) => void) | null = null
  /** By key: whether the platform has a kernel that it cannot compile. */
  private readonly provided = new Map<string, boolean>()
  /** While work is recorded. */
  private recording: Recording | null = null
  private readonly entries: Entry[] = []
  private readonly submitted: Submitted[] = []
  private readonly marks: Marks
  private readonly written = new Set<number>()
  private readonly touched = new Set<number>()
  private readonly isPlain: boolean
  /** Memory is reached by work of the first stream, rather than by the host once work has ended. */
  private readonly isTransferred: boolean
  /** The stream that work is added to, and its number on the device. */
  private following: Stream | null = null
  private streamNumber = FIRST
  private readonly streamNumbers = new Map<Stream, number>()
  /** Null as long as there is one stream. */
  private several: StreamOrder | null = null
  /** Dispatches at which the stream is handed over. */
  private readonly most: number
  /** True if a storage lost its value since work was concluded: what reads it has none either. */
  private isPoisoned = false
  private active = 0
  private peak = 0
  private cached = 0
  private live = 0
  private limit = Number.POSITIVE_INFINITY
  private cacheLimit: number
  /** Frees the memory of storages that were dropped without being released, where the engine watches none of them. */
  private readonly lost: FinalizationRegistry<number> | null

  private readonly lines: FlatDispatches<GpuPipeline> = {
    pipelineFor: (kernel, form) => this.pipelineOfForm(kernel, form),
    begin: (pipeline) => this.stream.setPipeline(pipeline),
    location: (index, storage, offset) =>
      this.stream.setBuffer(index, this.buffers[storage.id] as GpuBuffer, offset),
    bytes: (index, bytes) => this.stream.setBytes(index, bytes),
    integer: (index, value) => this.stream.setInteger(index, value),
    end: (op, pipeline, threads, group, reads, writes) => {
      if (this.several !== null) this.orderStreams(reads, writes)
      this.added({ word: this.stream.dispatchLine(threads, group), op, pipeline, reads, writes })
    },
  }

  constructor(
    readonly runtime: GpuRuntime,
    private readonly memory: Memory,
  ) {
    this.lost = runtime.tracker ? null : new FinalizationRegistry((id) => this.releaseBuffer(id))
    this.isPlain = runtime.ordered === true && runtime.specializes === true && !runtime.compileTogether
    this.isTransferred = runtime.contents === undefined
    this.most = runtime.dispatchesAhead ?? MAX_DISPATCHES
    this.cacheLimit = runtime.cacheLimit ?? MAX_CACHE
    this.marks = new Marks(runtime, (until) => {
      if (until === null) this.conclude()
      else this.concludeUntil(until)
    })
  }

  /** Where kernels have forms, and order needs no barriers. */
  get flat(): FlatDispatches<unknown> | null {
    return this.isDirect ? (this.lines as FlatDispatches<unknown>) : null
  }
  /** True where kernels have forms and order needs no barriers, and dispatches are work of now. */
  get isDirect(): boolean {
    return this.asked === null && this.recording === null && this.isPlain
  }

  get limits(): DeviceLimits {
    return this.runtime.info
  }

  // Memory

  allocate(nbytes: number): Storage {
    if (this.recording !== null) return this.recording.allocate(nbytes)
    if (this.asked !== null) return new Storage(this.memory, NOWHERE, nbytes)
    const { maxBufferLength } = this.runtime.info
    if (nbytes > maxBufferLength)
      throw new DeviceError(
        this.memory.name,
        `no memory for a buffer of ${nbytes} bytes: the device has ${maxBufferLength} for one`,
      )
    const { exactBuffers, dividesBuffers } = this.runtime
    const size = exactBuffers
      ? nbytes
      : dividesBuffers && nbytes <= MAX_PART
        ? partClass(nbytes)
        : sizeClass(nbytes)
    const reused = this.pool.get(size)?.pop()
    const isPart = this.isPart(size)
    if (reused) {
      if (!isPart) this.cached -= size
    } else if (this.active + size > this.limit) {
      this.clearCache()
      throw new DeviceError(
        this.memory.name,
        `${size} bytes more would exceed the memory limit of ${this.limit} bytes: ${this.active} are in use`,
      )
    }
    const buffer = reused ?? this.newBuffer(size)
    const id = this.freeIds.pop() ?? this.buffers.length
    this.buffers[id] = buffer
    this.active += size
    this.live++
    if (this.active > this.peak) this.peak = this.active
    const storage = new Storage(this.memory, id, nbytes)
    this.lost?.register(storage, id, storage)
    return storage
  }

  private isPart(size: number): boolean {
    return size <= MAX_PART && this.runtime.dividesBuffers === true
  }

  private newBuffer(size: number, part?: number): GpuBuffer {
    if (this.isPart(size)) return this.newPart(size)
    try {
      return this.noted(this.runtime.newBuffer(size, part))
    } catch (error) {
      if (this.cached === 0) throw error
      this.clearCache()
      return this.noted(this.runtime.newBuffer(size, part))
    }
  }
  private noted(buffer: GpuBuffer): GpuBuffer {
    if (this.isTransferred) this.several?.allocated(buffer)
    return buffer
  }

  /** A part of a buffer, whose other parts are for those who ask next. */
  private newPart(size: number): GpuBuffer {
    const { id } = this.newBuffer(DIVIDED, size)
    const parts = Array.from({ length: DIVIDED / size }, (_, i) =>
      this.noted({ id, length: size, offset: i * size }),
    )
    const first = parts.shift() as GpuBuffer
    this.pool.set(size, [...(this.pool.get(size) ?? []), ...parts.reverse()])
    return first
  }

  /** A storage over memory of another backend; null where the runtime cannot use it. */
  adopt(address: bigint, nbytes: number, done: () => void): Storage | null {
    const buffer = this.runtime.wrapAddress?.(address, nbytes)
    if (!buffer) return null
    const id = this.freeIds.pop() ?? this.buffers.length
    this.buffers[id] = buffer
    this.adopted.set(id, done)
    const storage = new Storage(this.memory, id, nbytes)
    this.lost?.register(storage, id, storage)
    return storage
  }

  /** Later work may have the buffer at once: it runs after what is encoded now. */
  release(storage: Storage): void {
    if (this.recording?.release(storage) || storage.id === NOWHERE) return
    this.lost?.unregister(storage)
    this.releaseBuffer(storage.id)
  }
  private releaseBuffer(id: number): void {
    const buffer = this.buffers[id]
    if (!buffer) return
    this.buffers[id] = undefined
    this.freeIds.push(id)
    this.views.delete(id)
    const done = this.adopted.get(id)
    if (done) {
      this.adopted.delete(id)
      this.leaving.push({ buffer, done })
      if (this.isIdle) this.giveBack()
      return
    }
    this.active -= buffer.length
    this.live--
    const list = this.pool.get(buffer.length)
    if (list) list.push(buffer)
    else this.pool.set(buffer.length, [buffer])
    // Parts stay: others of their buffers may be in use.
    if (this.isPart(buffer.length)) return
    this.cached += buffer.length
    if (this.cached > this.cacheLimit) this.shrinkCache(this.cacheLimit / 2)
  }

  /** Tells the owners of adopted memory that no work uses it any more. */
  private giveBack(): void {
    for (const { buffer, done } of this.leaving.splice(0)) {
      this.runtime.releaseBuffer(buffer)
      done()
    }
  }

  clearCache(): void {
    this.shrinkCache(0)
  }
  /** Frees buffers kept for reuse, the largest first, until at most `bytes` are kept. */
  private shrinkCache(bytes: number): void {
    this.run()
    for (const size of [...this.pool.keys()].sort((a, b) => b - a)) {
      if (this.isPart(size)) continue
      const list = this.pool.get(size) as GpuBuffer[]
      while (list.length > 0 && this.cached > bytes) {
        this.runtime.releaseBuffer(list.pop() as GpuBuffer)
        this.cached -= size
      }
    }
  }
  stats(): MemoryStats {
    return {
      active: this.active,
      peak: this.peak,
      cache: this.cached,
      buffers: this.live,
      limit: this.limit,
      cacheLimit: this.cacheLimit,
    }
  }
  setMemoryLimit(bytes: number): void {
    this.limit = bytes
  }
  setCacheLimit(bytes: number): void {
    this.cacheLimit = bytes
    if (this.cached > bytes) this.shrinkCache(bytes)
  }
  resetPeak(): void {
    this.peak = this.active
  }

  read(storage: Storage, offset: number, into: ArrayBufferView): void {
    const isDone = this.marks.reach(storage)
    if (isDone) throwFailure(storage)
    else this.wait(storage)
    this.runtime.read(this.bufferOf(storage), offset, into, isDone)
  }
  /** Waits for the work that makes a storage. */
  await(storage: Storage): void {
    if (!this.marks.reach(storage) && !this.isIdle) this.run()
  }
  /** Hands over what is encoded; waits only for a host that is far ahead. */
  begin(): void {
    this.handOver()
    if (this.submitted.length > MOST_SUBMITTED) this.conclude()
  }
  /** Hands over what is encoded, and promises the storages' values. */
  submit(storages: readonly Storage[]): Promise<void> {
    this.handOver()
    if (this.marks.isDone(storages)) return settled(storages)
    const promise = this.several === null ? this.marks.add(storages) : null
    if (promise !== null) return promise
    this.conclude()
    return settled(storages)
  }
  write(storage: Storage, offset: number, from: ArrayBufferView): void {
    if (this.runtime.dispatchesAhead === undefined) this.wait(storage)
    else {
      if (this.several !== null && this.isTransferred) this.orderTransfer(storage)
      this.handOver()
    }
    this.runtime.write(this.bufferOf(storage), offset, from)
  }
  address(storage: Storage): bigint {
    this.wait(storage)
    return this.runtime.address?.(this.bufferOf(storage)) as bigint
  }
  host(storage: Storage): ArrayBuffer {
    // A view keeps the memory of its own backend.
    if (storage.lender !== null) return storage.lender.memory.host?.(storage.lender) as ArrayBuffer
    this.wait(storage)
    let view = this.views.get(storage.id)
    if (!view) {
      view = this.runtime.contents?.(this.bufferOf(storage)) as ArrayBuffer
      this.views.set(storage.id, view)
    }
    return view
  }
  private wait(storage: Storage): void {
    this.run()
    throwFailure(storage)
  }
  private bufferOf(storage: Storage): GpuBuffer {
    return this.buffers[storage.id] as GpuBuffer
  }

  // Work

  /** A kernel, compiled once, or once for each form of its dispatches. */
  private pipelineOf(dispatch: Dispatch): GpuPipeline {
    return this.pipelineOfForm(dispatch.kernel, this.runtime.specializes ? formOf(dispatch) : undefined)
  }
  private pipelineOfForm(kernel: Kernel, form: DispatchForm | undefined): GpuPipeline {
    const key = keyOf(kernel, form)
    const known = this.pipelines.get(key) ?? this.awaited.get(key)
    if (known) return known
    // A kernel of a user may not compile, which is better said at once.
    if (!this.runtime.compileTogether || kernel.wording || kernel.compiled || kernel.isNative)
      return this.compile(key, kernel, form)
    const { name } = kernel
    const { maxThreadsPerThreadgroup: maxThreads } = this.limits
    const awaited: Awaited = { id: 0, name, maxThreads, key, kernel, form, numbers: [] }
    this.awaited.set(key, awaited)
    return awaited
  }

  private compile(key: string, kernel: Kernel, form: DispatchForm | undefined): GpuPipeline {
    const { name, wording, isNative } = kernel
    const { source, options, constants } = sourceOf(kernel)
    const made = this.runtime.newPipeline(this.runtime.newLibrary(source, options), name, constants, form)
    if (wording) this.wordings.set(made, wording)
    if (!isNative) dumpSource(name, source)
    this.pipelines.set(key, made)
    return made
  }

  /** Chooses a kernel in a stream. */
  private choose(stream: CommandStream, pipeline: GpuPipeline): void {
    const at = stream.setPipeline(pipeline)
    if (at >= 0 && "numbers" in pipeline) (pipeline as Awaited).numbers.push({ stream, at })
  }

  /** Compiles all that streams wait for together. @throws the error of a kernel of a recording */
  private compileAwaited(): void {
    const { awaited, runtime } = this
    if (awaited.size === 0) return
    const all = [...awaited.values()]
    awaited.clear()
    runtime.compileTogether?.(all.map(({ kernel }) => ({ source: kernel.source(), file: fileOf(kernel) })))
    let refused: unknown = null
    for (const pipeline of all) {
      const { key, kernel, form, numbers } = pipeline
      try {
        const { id } = this.compile(key, kernel, form)
        for (const { stream, at } of numbers) stream.words[at] = id
      } catch (error) {
        if (numbers.some(({ stream }) => stream !== this.stream)) refused = error
        for (const { stream, at } of numbers) stream.skip(at - 1)
        for (const entry of this.entries)
          if (entry.pipeline === pipeline) {
            this.stream.skip(entry.word)
            this.poison(error as Error, entry.writes)
          }
      }
    }
    if (refused !== null) throw refused
  }

  /** Adds the sources of the kernels that `body` dispatches to `asked`; nothing of it runs. */
  withoutRunning(asked: Map<string, LibrarySource>, body: () => void): void {
    this.asking(body, (kernel) => {
      const { key } = kernel
      if (!this.pipelines.has(key) && !asked.has(key))
        asked.set(key, { source: kernel.source(), file: fileOf(kernel) })
    })
  }

  /** True if the platform, which compiles nothing, has the kernels that `body` dispatches. Nothing of it runs. */
  provides(body: () => void): boolean {
    let all = true
    this.asking(body, (kernel, key, form) => {
      let known = this.provided.get(key)
      if (known === undefined) {
        known = this.runtime.provides?.({ ...sourceOf(kernel), name: kernel.name, form }) ?? true
        this.provided.set(key, known)
      }
      all = all && known
    })
    return all
  }

  private asking(body: () => void, asked: NonNullable<GpuQueue["asked"]>): void {
    this.asked = asked
    try {
      body()
    } finally {
      this.asked = null
    }
  }

  dispatch(dispatch: Dispatch): void {
    const { op, kernel, arguments: args, writes, threadgroupMemory } = dispatch
    if (this.asked !== null) {
      const form = this.runtime.specializes ? formOf(dispatch) : undefined
      this.asked(kernel, keyOf(kernel, form), form)
      return
    }
    const pipeline = this.pipelineOf(dispatch)
    if (this.recording !== null) {
      this.recording.dispatch(dispatch, pipeline, this.choose)
      return
    }
    const locations = args.filter(isLocation)
    const reads = locations.map((p) => p.storage).filter((s) => !writes.includes(s))
    this.order(reads, writes)
    const { stream } = this
    this.choose(stream, pipeline)
    args.forEach((argument, i) => {
      if (isLocation(argument)) stream.setBuffer(i, this.bufferOf(argument.storage), argument.offset)
      else stream.setBytes(i, argument)
    })
    threadgroupMemory?.forEach((bytes, i) => {
      stream.setThreadgroupMemory(i, bytes)
    })
    const word = stream.dispatchThreads(dispatch.grid, dispatch.threadgroup)
    this.added({ word, op, pipeline, reads: locations.map((p) => p.storage), writes })
  }

  overlays(input: Storage, result: Storage): boolean {
    return input === result || this.recording?.overlays(input, result) === true
  }

  copyOver(input: Storage, result: Storage, copy: () => void): void {
    if (this.overlays(input, result)) return
    if (this.recording !== null && this.runtime.leavesOut === true && input.nbytes === result.nbytes)
      this.recording.unlessInPlace(input, result, copy)
    else copy()
  }

  call(work: LibraryCall): void {
    // It has no source to be asked for.
    if (this.asked) return
    if (this.recording !== null) {
      this.recording.call(work)
      return
    }
    const { op, code, words, arguments: locations, writes } = work
    const reads = locations.map((p) => p.storage)
    this.order(
      reads.filter((s) => !writes.includes(s)),
      writes,
    )
    locations.forEach((location, i) => {
      this.stream.setBuffer(i, this.bufferOf(location.storage), location.offset)
    })
    this.added({ word: this.stream.call(code, words), op, pipeline: null, reads, writes })
  }

  // Plans

  /** True while work is recorded: it then does not run, and what goes wrong is thrown. */
  get isRecording(): boolean {
    return this.recording !== null
  }

  /** Records what `body` adds; see {@link Plans.record}. */
  record(
    inputs: number,
    outputs: number,
    bytes: number,
    offsets: readonly number[],
    body: () => void,
  ): Recorded {
    const outer = this.recording
    const ordered = this.runtime.ordered === true
    const recording = new Recording(this.memory, inputs, outputs, bytes, offsets, ordered)
    this.recording = recording
    try {
      body()
      this.compileAwaited()
    } finally {
      this.recording = outer
    }
    return recording.finish()
  }

  /** The platform's form of a recording, which it makes at the first run; null where it has no such. */
  private planOf(recorded: Recorded, inputs: readonly Node[], outputs: readonly Node[]): PlanId | null {
    if (recorded.native !== null || !this.runtime.newPlan) return recorded.native
    const { words } = recorded
    // The last binding is memory in between.
    const sizes = [...inputs, ...outputs].map(({ strides, nbytes }) =>
      strides === null && nbytes < 2 ** 32 ? nbytes : 0,
    )
    const commands = { words, length: words.length }
    recorded.native = this.runtime.newPlan(commands, Uint32Array.from([...sizes, 0]), inputs.length)
    return recorded.native
  }

  /** Adds a run of a recording, of the application that it is for. */
  runRecorded(recorded: Recorded, node: Node): void {
    const { steps, bytes } = recorded
    if (steps.length === 0) return
    const { inputs } = node
    const outputs = node.outputs ?? [node]
    const native = this.planOf(recorded, inputs, outputs)
    // Small memory is kept: a platform need not be told of other memory at each run.
    const between = recorded.between ?? (bytes > 0 ? this.allocate(bytes) : null)
    if (bytes <= MAX_KEPT) recorded.between = between
    const bindings = new Int32Array(3 * (inputs.length + outputs.length + 1))
    let at = 0
    for (const { storage, offset, dtype } of inputs)
      at = this.bind(bindings, at, storage as Storage, offset * dtype.size)
    for (const { storage } of outputs) at = this.bind(bindings, at, storage as Storage, 0)
    // Nothing is read or written there where there is nothing in between.
    this.bind(bindings, at, between ?? (outputs[0].storage as Storage), 0)
    const reads = inputs.map(({ storage }) => storage as Storage)
    const writes = outputs.map(({ storage }) => storage as Storage)
    this.order(reads, between ? [...writes, between] : writes)
    if (native) {
      const op = (node.primitive as Primitive).name
      this.added({ word: this.stream.runPlan(native, bindings), op, pipeline: null, reads, writes })
    } else this.append(recorded, bindings, reads, writes)
    if (recorded.between === null) between?.drop()
  }

  /** Adds a run of a recording whose bindings are these storages, the first `inputs` of which are read; null for those without one. */
  replay(recorded: Recorded, storages: readonly (Storage | null)[], inputs: number): void {
    const { steps, bytes } = recorded
    if (steps.length === 0) return
    const between = bytes > 0 ? this.allocate(bytes) : null
    const bindings = new Int32Array(3 * (storages.length + 1))
    const reads: Storage[] = []
    const writes: Storage[] = []
    for (let i = 0; i < storages.length; i++) {
      const storage = storages[i]
      if (storage === null) continue
      this.bind(bindings, 3 * i, storage, 0)
      if (i < inputs) reads.push(storage)
      else writes.push(storage)
    }
    if (between) this.bind(bindings, 3 * storages.length, between, 0)
    this.order(reads, between ? [...writes, between] : writes)
    this.append(recorded, bindings, reads, writes)
    between?.drop()
  }

  /** Writes a location as the words of a binding; returns where the next begins. */
  private bind(bindings: Int32Array, at: number, storage: Storage, offset: number): number {
    const buffer = this.bufferOf(storage)
    const from = (buffer.offset ?? 0) + offset
    bindings[at] = buffer.id
    bindings[at + 1] = from
    bindings[at + 2] = Math.floor(from / 2 ** 32)
    return at + 3
  }

  private append(
    { words, steps, buffers }: Recorded,
    bindings: Int32Array,
    reads: readonly Storage[],
    writes: readonly Storage[],
  ): void {
    const start = this.stream.append(words, steps.length, buffers, bindings)
    for (const { word, op, pipeline } of steps)
      this.entries.push({ word: start + word, op, pipeline, reads, writes })
    for (const storage of writes) storage.ticket = 0
    this.continueOrHandOver()
  }

  /** Forgets a recording. */
  forget({ native, between }: Recorded): void {
    between?.drop()
    if (!native) return
    this.handOver()
    this.runtime.releasePlan?.(native)
  }

  private added(entry: Entry): void {
    this.entries.push(entry)
    const { writes } = entry
    // No mark is behind it yet.
    for (let i = 0; i < writes.length; i++) writes[i].ticket = 0
    this.continueOrHandOver()
  }

  private continueOrHandOver(): void {
    const { stream } = this
    if (stream.dispatches >= this.most || stream.length >= MAX_WORDS) this.handOver()
  }

  /** Adds the work that follows to a stream. */
  follow(stream: Stream): void {
    if (stream !== this.following && this.runtime.streams === true) this.turnTo(stream)
  }
  private turnTo(stream: Stream): void {
    this.following = stream
    let number = this.streamNumbers.get(stream)
    if (number === undefined) {
      number = this.streamNumbers.size
      this.streamNumbers.set(stream, number)
      if (number > FIRST) this.several ??= new StreamOrder((awaited) => this.stream.join(awaited))
      this.several?.begin(number)
    }
    this.use(number)
  }
  private use(number: number): void {
    if (number === this.streamNumber) return
    this.streamNumber = number
    this.stream.useStream(number)
  }
  private orderStreams(reads: readonly Storage[], writes: readonly Storage[]): void {
    const buffer = (storage: Storage): GpuBuffer => this.bufferOf(storage)
    this.several?.add(this.streamNumber, reads.map(buffer), writes.map(buffer))
  }
  /** Transfers to the device are work of the first stream. */
  private orderTransfer(storage: Storage): void {
    const number = this.streamNumber
    this.use(FIRST)
    this.orderStreams([], [storage])
    this.use(number)
  }
  /** Waits for a stream. */
  synchronize(stream: Stream): void {
    const number = this.streamNumbers.get(stream)
    if (number === undefined) return
    this.handOver()
    this.runtime.synchronize?.(number)
  }

  /** A barrier where this work depends on work since the last one. Buffers count, because storages share them one after another. */
  private order(reads: readonly Storage[], writes: readonly Storage[]): void {
    if (this.several !== null) this.orderStreams(reads, writes)
    if (this.runtime.ordered) return
    const { written, touched } = this
    const id = (s: Storage): number => this.bufferOf(s).id
    if (
      reads.some((s) => written.has(id(s))) ||
      writes.some((s) => written.has(id(s)) || touched.has(id(s)))
    ) {
      this.stream.barrier()
      written.clear()
      touched.clear()
    }
    for (const s of reads) touched.add(id(s))
    for (const s of writes) written.add(id(s))
  }

  private get isIdle(): boolean {
    return this.stream.length === 0 && this.submitted.length === 0
  }

  /** Hands the stream over without waiting. */
  private handOver(): void {
    const { stream } = this
    if (stream.length === 0) return
    this.compileAwaited()
    const submission = this.runtime.commit(stream)
    this.submitted.push({ submission, entries: this.entries.splice(0) })
    stream.clear()
    this.written.clear()
    this.touched.clear()
    // On a device beside the host; elsewhere the work is done by now.
    if (this.runtime.dispatchesAhead === undefined) this.conclude()
  }

  /** Runs what is encoded and waits. */
  run(): void {
    this.handOver()
    this.conclude()
  }

  /** Waits for what was handed over. */
  private conclude(): void {
    for (const each of this.submitted.splice(0)) this.concludeOne(each)
    this.isPoisoned = false
    this.marks.passAll()
    if (this.leaving.length > 0) this.giveBack()
  }

  /** The same up to a submission that is done. What it poisons may be read by later ones. */
  private concludeUntil({ id }: Submission): void {
    const { submitted } = this
    while (submitted.length > 0 && submitted[0].submission.id <= id)
      this.concludeOne(submitted.shift() as Submitted)
    if (this.isIdle) this.isPoisoned = false
  }

  private concludeOne({ submission, entries }: Submitted): void {
    const failed = this.runtime.wait(submission)
    if (failed.length === 0 && !this.isPoisoned) return
    const failures = new Map(failed.map((f) => [f.word, f] as const))
    for (const { word, op, pipeline, reads, writes } of entries) {
      const failure = failures.get(word) ?? failures.get(-1)
      const message = this.located(failure?.message, pipeline)
      const error =
        reads.find((s) => s.failure && !writes.includes(s))?.failure ??
        (message === undefined ? null : (failure?.error ?? new DeviceError(op, message)))
      if (error) this.poison(error, writes)
    }
  }

  /** A message with the lines that its author knows. */
  private located(message: string | undefined, pipeline: GpuPipeline | null): string | undefined {
    const wording = pipeline && this.wordings.get(pipeline)
    if (message === undefined || !wording) return message
    const location = (line: string): string => wording.location(Number(line))
    return message
      .replace(`${pipeline.name}: `, wording.namesKernels ? `the kernel ${pipeline.name} ` : "")
      .replace(/\bbuffer (\d+)/g, (text, index: string) => {
        const name = wording.buffer(pipeline.name, Number(index))
        return name === undefined ? text : `${text} (${name})`
      })
      .replace(/\blines? (\d+)(?: and (\d+))?/, (_, first: string, second?: string) =>
        second === undefined ? location(first) : `${location(first)} and ${location(second)}`,
      )
  }

  /** Marks storages as without a value. */
  poison(error: Error, storages: readonly Storage[]): void {
    this.isPoisoned = true
    for (const storage of storages) storage.failure ??= error
  }
}

function throwFailure({ failure }: Storage): void {
  if (failure) throw failure
}

/** A promise for storages whose work is done. */
function settled(storages: readonly Storage[]): Promise<void> {
  const failed = storages.find(({ failure }) => failure !== null)
  return failed ? rejected(failed.failure) : Promise.resolve()
}
