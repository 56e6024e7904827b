/**
 * Work that is recorded once and run many times: commands whose buffers are numbers of bindings, which a run gives. The bindings are a
 * program's inputs, its outputs, and one block for everything in between, of which each storage of the recording is a part.
 */
import { type Memory, Storage } from "@lazuli/core/engine"
import { type Dispatch, type ExchangeNote, isLocation, type LibraryCall, type Location } from "../dispatch"
import { Beside, overlap, type Range } from "./beside"
import { CommandStream } from "./command-stream"
import { choose } from "./pipelines"
import type { GpuPipeline, PlanId } from "./runtime"

/** A part of a binding, in bytes. */
interface Part {
  readonly binding: number
  readonly offset: number
}

/** A dispatch of a recording, as messages need it. */
export interface RecordedStep {
  readonly word: number
  readonly op: string
  /** Null for work of a library. */
  readonly pipeline: GpuPipeline | null
}

/** A finished recording. */
export interface Recorded {
  readonly words: Int32Array
  readonly steps: readonly RecordedStep[]
  /** The operations among them in which other processes take part. */
  readonly exchanges: readonly ExchangeNote[]
  /** Where in the words buffers are bound, so that a run can name them. */
  readonly buffers: readonly number[]
  readonly inputs: number
  readonly outputs: number
  /** Bytes of the binding after those of the outputs. */
  readonly bytes: number
  /** The platform's own form of it, where it has such. */
  native: PlanId | null
  /** Memory of that binding which stays from one run to the next. */
  between: Storage | null
}

const ALIGNMENT = 256
const aligned = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT

/** Records dispatches. */
export class Recording {
  private readonly stream = new CommandStream()
  private readonly steps: RecordedStep[] = []
  private readonly exchanges: ExchangeNote[] = []
  private readonly buffers: number[] = []
  /** By number beyond the outputs: where a storage begins. */
  private readonly offsets: number[]
  private readonly scratch = new Set<Storage>()
  /** Scratch memory whose work is recorded. */
  private readonly free: { readonly offset: number; readonly bytes: number }[] = []
  private readonly written: Range[] = []
  private readonly touched: Range[] = []
  private readonly beside = new Beside(this.stream)

  /** `offsets` are those of the intermediate storages in their order; they take `bytes` together. */
  constructor(
    private readonly memory: Memory,
    private readonly inputs: number,
    private readonly outputs: number,
    private bytes: number,
    offsets: readonly number[],
    /** Dispatches run in order, without barriers. */
    private readonly ordered: boolean,
  ) {
    this.offsets = [...offsets]
    this.bytes = aligned(bytes)
  }

  /** Memory for dispatches to come; released, it serves later ones. */
  allocate(nbytes: number): Storage {
    const bytes = aligned(Math.max(nbytes, 1))
    const index = this.free.findIndex((each) => each.bytes === bytes)
    const offset = index < 0 ? this.bytes : this.free.splice(index, 1)[0].offset
    if (index < 0) this.bytes += bytes
    this.offsets.push(offset)
    const storage = new Storage(this.memory, this.inputs + this.outputs + this.offsets.length - 1, nbytes)
    this.scratch.add(storage)
    return storage
  }
  /** Takes scratch memory back; false for memory that is not of this recording. */
  release(storage: Storage): boolean {
    if (!this.scratch.delete(storage)) return false
    this.free.push({ offset: this.partOf(storage).offset, bytes: aligned(Math.max(storage.nbytes, 1)) })
    return true
  }

  dispatch(dispatch: Dispatch, pipeline: GpuPipeline): void {
    const { stream } = this
    const locations = dispatch.arguments.filter(isLocation)
    this.order(
      locations.map(({ storage }) => storage),
      dispatch.writes,
    )
    choose(stream, pipeline)
    dispatch.arguments.forEach((argument, i) => {
      if (isLocation(argument)) this.bind(i, argument)
      else stream.setBytes(i, argument)
    })
    dispatch.threadgroupMemory?.forEach((bytes, i) => {
      stream.setThreadgroupMemory(i, bytes)
    })
    const word = stream.dispatchThreads(dispatch.grid, dispatch.threadgroup)
    this.steps.push({ word, op: dispatch.op, pipeline })
  }

  /** Adds dispatches that a run leaves out where an input lies at an output's place. */
  unlessInPlace(input: Storage, result: Storage, body: () => void): void {
    const [a, b] = [this.partOf(input), this.partOf(result)]
    if (a.binding >= this.inputs || b.binding < this.inputs || b.binding >= this.inputs + this.outputs) {
      body()
      return
    }
    const before = this.steps.length
    const end = this.stream.unless(a.binding, b.binding)
    body()
    end(this.steps.length - before)
  }

  call({ op, code, words, arguments: locations, writes, isBeside, exchange }: LibraryCall): void {
    const storages = locations.map(({ storage }) => storage)
    if (isBeside) this.beside.add(storages.map((storage) => this.rangeOf(storage, writes)))
    else this.order(storages, writes)
    locations.forEach((location, i) => {
      this.bind(i, location)
    })
    this.steps.push({ word: this.stream.call(code, words), op, pipeline: null })
    if (exchange) this.exchanges.push(exchange)
  }

  finish(): Recorded {
    this.beside.end()
    const { stream, steps, exchanges, buffers, inputs, outputs, bytes } = this
    return {
      words: stream.words.slice(0, stream.length),
      steps,
      exchanges,
      buffers,
      inputs,
      outputs,
      bytes,
      native: null,
      between: null,
    }
  }

  private partOf({ id }: Storage): Part {
    const first = this.inputs + this.outputs
    return id < first ? { binding: id, offset: 0 } : { binding: first, offset: this.offsets[id - first] }
  }

  isInput({ id }: Storage): boolean {
    return id < this.inputs
  }

  /** True if one storage, which dies here, begins so many bytes into the other, which is made. */
  overlays(input: Storage, result: Storage, at: number): boolean {
    const [a, b] = [this.partOf(input), this.partOf(result)]
    return a.binding === b.binding && a.offset === b.offset + at
  }

  private rangeOf(storage: Storage, writes: readonly Storage[]): Range {
    const { binding, offset } = this.partOf(storage)
    const isWritten = writes.includes(storage)
    return binding < this.inputs + this.outputs
      ? { isBetween: false, from: 0, to: 1, isWritten }
      : { isBetween: true, from: offset, to: offset + Math.max(storage.nbytes, 1), isWritten }
  }

  private bind(index: number, location: Location): void {
    const { binding, offset } = this.partOf(location.storage)
    this.buffers.push(this.stream.length)
    this.stream.setBuffer(index, { id: binding, length: Number.POSITIVE_INFINITY }, offset + location.offset)
  }

  /** A barrier where this work depends on work since the last one. */
  private order(storages: readonly Storage[], writes: readonly Storage[]): void {
    if (this.beside.isPending)
      this.beside.touch([...storages, ...writes].map((storage) => this.rangeOf(storage, writes)))
    if (this.ordered) return
    const meets = (list: readonly Range[], range: Range): boolean =>
      list.some((other) => overlap(other, range))
    const rangeOf = (storage: Storage): Range => this.rangeOf(storage, writes)
    const reads = storages.filter((each) => !writes.includes(each)).map(rangeOf)
    const changes = writes.map(rangeOf)
    if (
      reads.some((range) => meets(this.written, range)) ||
      changes.some((range) => meets(this.written, range) || meets(this.touched, range))
    ) {
      this.stream.barrier()
      this.written.length = 0
      this.touched.length = 0
    }
    this.touched.push(...reads)
    this.written.push(...changes)
  }
}
