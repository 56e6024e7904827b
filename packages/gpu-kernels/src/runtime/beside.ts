/**
 * Work of a recording that runs beside what follows it, and where that waits for it: before it touches the same memory, and at the end.
 */
import type { CommandStream } from "./command-stream"

/** Bytes that work touches. */
export interface Range {
  /** True of memory in between; false of inputs and outputs, which count as one byte, since an output may lie where any input lay. */
  readonly isBetween: boolean
  readonly from: number
  readonly to: number
  readonly isWritten: boolean
}

export const overlap = (a: Range, b: Range): boolean =>
  a.isBetween === b.isBetween && a.from < b.to && b.from < a.to

/** True if the order of two accesses may matter. In between that is taken to be so of reads too, which nothing is lost by. */
const conflict = (a: Range, b: Range): boolean => (a.isBetween || a.isWritten || b.isWritten) && overlap(a, b)

export class Beside {
  /** Memory that the work waited for next touches. */
  private readonly ranges: Range[] = []
  /** Where the stream says that it runs beside. */
  private readonly starts: number[] = []
  /** Other work was added since. */
  private hasOther = false

  constructor(private readonly stream: CommandStream) {}

  get isPending(): boolean {
    return this.starts.length > 0
  }

  /** Lets the library's work that is added next run beside what follows; such work runs in order among itself. */
  add(ranges: readonly Range[]): void {
    this.starts.push(this.stream.beside())
    this.ranges.push(...ranges)
  }

  /** Notes what other work touches, which is added next. */
  touch(ranges: readonly Range[]): void {
    if (ranges.some((range) => this.ranges.some((other) => conflict(range, other)))) this.end()
    else this.hasOther = true
  }

  /** Lets what follows wait. Work that nothing ran beside is work of the stream like any other. */
  end(): void {
    if (!this.isPending) return
    if (this.hasOther) this.stream.rejoin()
    else for (const start of this.starts) this.stream.skip(start)
    this.starts.length = 0
    this.ranges.length = 0
    this.hasOther = false
  }
}
