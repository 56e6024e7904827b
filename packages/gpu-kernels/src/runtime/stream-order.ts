/**
 * Work of several streams: which of them wait for which others, because one writes what another reads or writes. Work is counted on each
 * stream, and buffers know the last work that wrote and read them.
 */
import type { GpuBuffer } from "./runtime"

/** The last work on a buffer, in numbers of work of a stream. */
interface Use {
  writer: number
  wrote: number
  /** By stream. */
  readonly read: number[]
}

/** The stream of memory: transfers and allocations are its work. */
export const FIRST = 0

export class StreamOrder {
  /** By stream: the work that it was given. */
  private readonly given: number[] = []
  /** By stream and other stream: the work of that one which it has waited for. */
  private readonly passed: number[][] = []
  private readonly uses = new WeakMap<GpuBuffer, Use>()

  /** `join` lets the stream in use wait for all work of another. */
  constructor(private readonly join: (awaited: number) => void) {}

  /** Work before there was another stream is the first work of the first. */
  begin(stream: number): void {
    while (this.given.length <= stream) {
      this.given.push(this.given.length === FIRST ? 1 : 0)
      this.passed.push([])
    }
  }

  /** Adds work of a stream. */
  add(stream: number, reads: Iterable<GpuBuffer>, writes: Iterable<GpuBuffer>): void {
    for (const buffer of reads) {
      const { writer, wrote } = this.useOf(buffer)
      this.await(stream, writer, wrote)
    }
    for (const buffer of writes) {
      const { writer, wrote, read } = this.useOf(buffer)
      this.await(stream, writer, wrote)
      for (let other = 0; other < read.length; other++) this.await(stream, other, read[other] ?? 0)
    }
    const now = ++this.given[stream]
    for (const buffer of reads) this.useOf(buffer).read[stream] = now
    for (const buffer of writes) this.wrote(buffer, stream, now)
  }

  /** A buffer whose memory is new. */
  allocated(buffer: GpuBuffer): void {
    this.wrote(buffer, FIRST, ++this.given[FIRST])
  }

  private wrote(buffer: GpuBuffer, stream: number, now: number): void {
    const use = this.useOf(buffer)
    use.writer = stream
    use.wrote = now
    use.read.length = 0
  }

  private useOf(buffer: GpuBuffer): Use {
    let use = this.uses.get(buffer)
    if (!use) {
      use = { writer: FIRST, wrote: 1, read: [] }
      this.uses.set(buffer, use)
    }
    return use
  }

  private await(stream: number, other: number, work: number): void {
    const passed = this.passed[stream]
    if (other === stream || (passed[other] ?? 0) >= work) return
    this.join(other)
    // So is all that this one has waited for.
    this.passed[other].forEach((count, third) => {
      passed[third] = Math.max(passed[third] ?? 0, count)
    })
    passed[other] = this.given[other]
  }
}
