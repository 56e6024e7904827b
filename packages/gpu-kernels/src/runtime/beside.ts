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

/** Work beside other work that nothing has waited for. */
interface Pending {
  readonly ranges: readonly Range[]
  /** Where the stream says that it runs beside. */
  readonly start: number
  readonly number: number
}

export class Beside {
  /** In the order in which it runs. */
  private pending: Pending[] = []
  private count = 0
  /** Other work was added since the first of them. */
  private hasOther = false

  constructor(private readonly stream: CommandStream) {}

  get isPending(): boolean {
    return this.pending.length > 0
  }

  /** Lets the library's work that is added next run beside what follows; such work runs in order among itself. */
  add(ranges: readonly Range[]): void {
    const number = this.count++
    this.pending.push({ ranges, start: this.stream.beside(number), number })
  }

  /** Notes what other work touches, which is added next. */
  touch(ranges: readonly Range[]): void {
    const { pending } = this
    let met = pending.length - 1
    while (met >= 0 && !ranges.some((range) => pending[met].ranges.some((other) => conflict(range, other))))
      met--
    this.wait(met + 1)
    if (this.isPending) this.hasOther = true
  }

  /** Lets what follows wait. Work that nothing ran beside is work of the stream like any other. */
  end(): void {
    this.wait(this.pending.length)
  }

  /** Lets what follows wait for the first so many. */
  private wait(count: number): void {
    if (count === 0) return
    const { pending, stream } = this
    if (this.hasOther) stream.rejoin(pending[count - 1].number)
    else for (const { start } of pending.slice(0, count)) stream.skip(start)
    this.pending = pending.slice(count)
    if (this.pending.length === 0) this.hasOther = false
  }
}
