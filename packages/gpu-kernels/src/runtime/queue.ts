/**
 * The backend's queue on a runtime: dispatches with what they read and write, when they are handed over, and which storages a failed one
 * leaves without a value. Memory is in buffer-pool.ts, compiled kernels in pipelines.ts, the order of work in work-order.ts.
 */
import {
  DeviceError,
  type Memory,
  type Node,
  type Primitive,
  rejected,
  Storage,
  type Stream,
} from "@lazuli/core/engine"
import {
  type DeviceLimits,
  type Dispatch,
  type DispatchQueue,
  type FlatDispatches,
  isLocation,
  type LibraryCall,
} from "../dispatch"
import { BufferPool } from "./buffer-pool"
import { CommandStream } from "./command-stream"
import { Marks } from "./marks"
import { choose, Pipelines } from "./pipelines"
import { type Recorded, Recording } from "./recording"
import type { GpuPipeline, GpuRuntime, LibrarySource, PlanId, Submission } from "./runtime"
import { WorkOrder } from "./work-order"

interface Entry {
  readonly word: number
  readonly op: string
  /** Null for work of a library. */
  readonly pipeline: GpuPipeline | null
  readonly reads: readonly Storage[]
  readonly writes: readonly Storage[]
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

/** Bytes of memory in between that a recording keeps from one run to the next. */
const MAX_KEPT = 2 ** 20

/** The id of memory that nothing uses, because nothing runs. */
const NOWHERE = -1

/** Orders work on one runtime. */
export class GpuQueue implements DispatchQueue {
  private readonly stream = new CommandStream()
  readonly buffers: BufferPool
  private readonly pipelines: Pipelines
  private readonly order: WorkOrder
  /** While nothing runs: told of each dispatch. */
  private asked: ((dispatch: Dispatch) => void) | null = null
  /** While work is recorded. */
  private recording: Recording | null = null
  private readonly entries: Entry[] = []
  private readonly submitted: Submitted[] = []
  private readonly marks: Marks
  private readonly isPlain: boolean
  /** Dispatches at which the stream is handed over. */
  private readonly most: number
  /** True if a storage lost its value since work was concluded: what reads it has none either. */
  private isPoisoned = false

  private readonly lines: FlatDispatches<GpuPipeline> = {
    pipelineFor: (kernel, form) => this.pipelines.forForm(kernel, form),
    begin: (pipeline) => this.stream.setPipeline(pipeline),
    location: (index, storage, offset) => this.stream.setBuffer(index, this.buffers.of(storage), offset),
    bytes: (index, bytes) => this.stream.setBytes(index, bytes),
    integer: (index, value) => this.stream.setInteger(index, value),
    end: (op, pipeline, threads, group, reads, writes) => {
      this.order.add(reads, writes)
      this.added({ word: this.stream.dispatchLine(threads, group), op, pipeline, reads, writes })
    },
  }

  constructor(
    readonly runtime: GpuRuntime,
    private readonly memory: Memory,
  ) {
    this.isPlain = runtime.ordered === true && runtime.specializes === true && !runtime.compileTogether
    this.most = runtime.dispatchesAhead ?? MAX_DISPATCHES
    this.marks = new Marks(runtime, (until) => {
      if (until === null) this.conclude()
      else this.concludeUntil(until)
    })
    this.pipelines = new Pipelines(runtime)
    this.buffers = new BufferPool(runtime, memory, {
      isIdle: () => this.isIdle,
      run: () => this.run(),
      allocated: (buffer) => this.order.allocated(buffer),
    })
    this.order = new WorkOrder(runtime, this.stream, this.buffers)
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
    return this.buffers.allocate(nbytes)
  }

  release(storage: Storage): void {
    if (this.recording?.release(storage) || storage.id === NOWHERE) return
    this.buffers.release(storage)
  }

  read(storage: Storage, offset: number, into: ArrayBufferView): void {
    const isDone = this.marks.reach(storage)
    if (isDone) throwFailure(storage)
    else this.wait(storage)
    this.runtime.read(this.buffers.of(storage), offset, into, isDone)
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
    const promise = this.order.hasStreams ? null : this.marks.add(storages)
    if (promise !== null) return promise
    this.conclude()
    return settled(storages)
  }
  write(storage: Storage, offset: number, from: ArrayBufferView): void {
    if (this.runtime.dispatchesAhead === undefined) this.wait(storage)
    else {
      this.order.addTransfer(storage)
      this.handOver()
    }
    this.runtime.write(this.buffers.of(storage), offset, from)
  }
  address(storage: Storage): bigint {
    this.wait(storage)
    return this.runtime.address?.(this.buffers.of(storage)) as bigint
  }
  host(storage: Storage): ArrayBuffer {
    // A view keeps the memory of its own backend.
    if (storage.lender !== null) return storage.lender.memory.host?.(storage.lender) as ArrayBuffer
    this.wait(storage)
    return this.buffers.contents(storage)
  }
  private wait(storage: Storage): void {
    this.run()
    throwFailure(storage)
  }
  // Work

  private compileAwaited(): void {
    this.pipelines.compileAwaited(this.stream, (pipeline, error) => {
      for (const entry of this.entries)
        if (entry.pipeline === pipeline) {
          this.stream.skip(entry.word)
          this.poison(error, entry.writes)
        }
    })
  }

  /** Adds the sources of the kernels that `body` dispatches to `asked`; nothing of it runs. */
  withoutRunning(asked: Map<string, LibrarySource>, body: () => void): void {
    this.asking(body, (dispatch) => this.pipelines.addMissing(dispatch, asked))
  }

  /** True if the platform, which compiles nothing, has the kernels that `body` dispatches. Nothing of it runs. */
  provides(body: () => void): boolean {
    let all = true
    this.asking(body, (dispatch) => {
      all &&= this.pipelines.provides(dispatch)
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
    const { op, arguments: args, writes, threadgroupMemory } = dispatch
    if (this.asked !== null) {
      this.asked(dispatch)
      return
    }
    const pipeline = this.pipelines.for(dispatch)
    if (this.recording !== null) {
      this.recording.dispatch(dispatch, pipeline)
      return
    }
    const locations = args.filter(isLocation)
    const reads = locations.map((p) => p.storage).filter((s) => !writes.includes(s))
    this.order.add(reads, writes)
    choose(this.stream, pipeline)
    args.forEach((argument, i) => {
      if (isLocation(argument)) this.stream.setBuffer(i, this.buffers.of(argument.storage), argument.offset)
      else this.stream.setBytes(i, argument)
    })
    threadgroupMemory?.forEach((bytes, i) => {
      this.stream.setThreadgroupMemory(i, bytes)
    })
    const word = this.stream.dispatchThreads(dispatch.grid, dispatch.threadgroup)
    this.added({ word, op, pipeline, reads: locations.map((p) => p.storage), writes })
  }

  isInput(storage: Storage): boolean {
    return this.recording?.isInput(storage) === true
  }

  overlays(input: Storage, result: Storage, at = 0): boolean {
    return (input === result && at === 0) || this.recording?.overlays(input, result, at) === true
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
    const { op, code, words, arguments: locations, writes, isBeside, exchange } = work
    const reads = locations.map((p) => p.storage)
    this.order.add(
      reads.filter((s) => !writes.includes(s)),
      writes,
    )
    locations.forEach((location, i) => {
      this.stream.setBuffer(i, this.buffers.of(location.storage), location.offset)
    })
    if (exchange) this.runtime.addExchanges?.([exchange])
    this.added({ word: this.stream.call(code, words), op, pipeline: null, reads, writes }, isBeside)
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
    const { steps, exchanges, bytes } = recorded
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
    this.order.add(reads, between ? [...writes, between] : writes)
    try {
      // Allocating memory may hand over what was added before, and wait for it.
      this.runtime.addExchanges?.(exchanges)
      if (native) {
        const op = (node.primitive as Primitive).name
        const word = this.stream.runPlan(native, bindings)
        this.added({ word, op, pipeline: null, reads, writes }, exchanges.length > 0)
      } else this.append(recorded, bindings, reads, writes)
    } finally {
      if (recorded.between === null) between?.drop()
    }
  }

  /** Adds a run of a recording whose bindings are these storages, the first `inputs` of which are read; null for those without one. */
  replay(recorded: Recorded, storages: readonly (Storage | null)[], inputs: number): void {
    const { steps, exchanges, bytes } = recorded
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
    this.order.add(reads, between ? [...writes, between] : writes)
    try {
      this.runtime.addExchanges?.(exchanges)
      this.append(recorded, bindings, reads, writes)
    } finally {
      between?.drop()
    }
  }

  /** Writes a location as the words of a binding; returns where the next begins. */
  private bind(bindings: Int32Array, at: number, storage: Storage, offset: number): number {
    const buffer = this.buffers.of(storage)
    const from = (buffer.offset ?? 0) + offset
    bindings[at] = buffer.id
    bindings[at + 1] = from
    bindings[at + 2] = Math.floor(from / 2 ** 32)
    return at + 3
  }

  private append(
    { words, steps, buffers, exchanges }: Recorded,
    bindings: Int32Array,
    reads: readonly Storage[],
    writes: readonly Storage[],
  ): void {
    const start = this.stream.append(words, steps.length, buffers, bindings)
    for (const { word, op, pipeline } of steps)
      this.entries.push({ word: start + word, op, pipeline, reads, writes })
    for (const storage of writes) storage.ticket = 0
    this.continueOrHandOver(exchanges.length > 0)
  }

  /** Forgets a recording. */
  forget({ native, between }: Recorded): void {
    between?.drop()
    if (!native) return
    this.handOver()
    this.runtime.releasePlan?.(native)
  }

  private added(entry: Entry, isAwaited = false): void {
    this.entries.push(entry)
    const { writes } = entry
    // No mark is behind it yet.
    for (let i = 0; i < writes.length; i++) writes[i].ticket = 0
    this.continueOrHandOver(isAwaited)
  }

  /** Hands over a stream that is long, or whose end others wait for: this host may wait for them next. */
  private continueOrHandOver(isAwaited: boolean): void {
    const { stream } = this
    if (isAwaited || stream.dispatches >= this.most || stream.length >= MAX_WORDS) this.handOver()
  }

  /** Adds the work that follows to a stream. */
  follow(stream: Stream): void {
    this.order.follow(stream)
  }
  /** Waits for a stream. */
  synchronize(stream: Stream): void {
    const number = this.order.numberOf(stream)
    if (number === undefined) return
    this.handOver()
    this.runtime.synchronize?.(number)
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
    if (!this.order.hasStreams) this.runtime.markExchanges?.()
    this.submitted.push({ submission, entries: this.entries.splice(0) })
    stream.clear()
    this.order.clear()
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
    this.buffers.giveBack()
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
      const error =
        reads.find((s) => s.failure && !writes.includes(s))?.failure ??
        (failure && (failure.error ?? new DeviceError(op, this.pipelines.located(failure.message, pipeline))))
      if (error) this.poison(error, writes)
    }
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
