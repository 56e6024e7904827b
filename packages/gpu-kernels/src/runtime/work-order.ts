/**
 * The order of dispatches that depend on each other: barriers on a platform that wants them, and joins among streams of work that run side
 * by side.
 */
import type { Storage, Stream } from "@lazuli/core/engine"
import type { BufferPool } from "./buffer-pool"
import type { CommandStream } from "./command-stream"
import type { GpuBuffer, GpuRuntime } from "./runtime"
import { FIRST, StreamOrder } from "./stream-order"

export class WorkOrder {
  /** Ids of the buffers that dispatches since the last barrier write and read. */
  private readonly written = new Set<number>()
  private readonly touched = new Set<number>()
  /** Memory is reached by work of the first stream, rather than by the host once work has ended. */
  private readonly isTransferred: boolean
  /** The stream that work is added to, and its number on the device. */
  private following: Stream | null = null
  private number = FIRST
  private readonly numbers = new Map<Stream, number>()
  /** Null as long as there is one stream. */
  private several: StreamOrder | null = null

  constructor(
    private readonly runtime: GpuRuntime,
    private readonly commands: CommandStream,
    private readonly buffers: BufferPool,
  ) {
    this.isTransferred = runtime.contents === undefined
  }

  /** True once work was added to a second stream. */
  get hasStreams(): boolean {
    return this.several !== null
  }

  /** Adds the work that follows to a stream. */
  follow(stream: Stream): void {
    if (stream !== this.following && this.runtime.streams === true) this.turnTo(stream)
  }
  private turnTo(stream: Stream): void {
    this.following = stream
    let number = this.numbers.get(stream)
    if (number === undefined) {
      number = this.numbers.size
      this.numbers.set(stream, number)
      if (number > FIRST) this.several ??= new StreamOrder((awaited) => this.commands.join(awaited))
      this.several?.begin(number)
    }
    this.use(number)
  }
  private use(number: number): void {
    if (number === this.number) return
    this.number = number
    this.commands.useStream(number)
  }
  /** A stream's number on the device; undefined where it was never followed. */
  numberOf(stream: Stream): number | undefined {
    return this.numbers.get(stream)
  }

  /** Lets the work that comes next wait for what it depends on. Buffers count, because storages share them one after another. */
  add(reads: readonly Storage[], writes: readonly Storage[]): void {
    if (this.several !== null) this.joinStreams(this.several, reads, writes)
    if (!this.runtime.ordered) this.addBarrier(reads, writes)
  }
  private joinStreams(several: StreamOrder, reads: readonly Storage[], writes: readonly Storage[]): void {
    const bufferOf = (storage: Storage): GpuBuffer => this.buffers.of(storage)
    several.add(this.number, reads.map(bufferOf), writes.map(bufferOf))
  }
  private addBarrier(reads: readonly Storage[], writes: readonly Storage[]): void {
    const { written, touched } = this
    const id = (s: Storage): number => this.buffers.of(s).id
    if (
      reads.some((s) => written.has(id(s))) ||
      writes.some((s) => written.has(id(s)) || touched.has(id(s)))
    ) {
      this.commands.barrier()
      this.clear()
    }
    for (const s of reads) touched.add(id(s))
    for (const s of writes) written.add(id(s))
  }

  /** Adds a transfer to the device, which is work of the first stream. */
  addTransfer(storage: Storage): void {
    if (this.several === null || !this.isTransferred) return
    const { number } = this
    this.use(FIRST)
    this.joinStreams(this.several, [], [storage])
    this.use(number)
  }

  /** Takes notice of new memory, which the first stream has from the device. */
  allocated(buffer: GpuBuffer): void {
    if (this.isTransferred) this.several?.allocated(buffer)
  }

  /** Forgets what needed barriers: it is handed over. */
  clear(): void {
    // To clear an empty set costs as much.
    if (this.touched.size + this.written.size === 0) return
    this.written.clear()
    this.touched.clear()
  }
}
