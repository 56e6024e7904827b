/**
 * One block of memory, cut ahead of time: places are taken first-fit by address and given back, and the end only grows when
 * nothing free is large enough.
 */
const ALIGNMENT = 64

const align = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT

/** Hands out offsets. */
export class Arena {
  /** Bytes that the arena must have. */
  size = 0
  /** The most bytes that were taken at once: what no layout could go below. */
  peak = 0
  private live = 0
  /** Free ranges, ascending and never adjacent. */
  private free: { offset: number; bytes: number }[] = []

  /** A place for that many bytes. */
  take(nbytes: number): number {
    const bytes = align(nbytes)
    this.live += bytes
    this.peak = Math.max(this.peak, this.live)
    let best = -1
    for (let i = 0; i < this.free.length; i++) {
      if (this.free[i].bytes >= bytes && (best < 0 || this.free[i].bytes < this.free[best].bytes)) best = i
    }
    if (best >= 0) {
      const range = this.free[best]
      const { offset } = range
      range.offset += bytes
      range.bytes -= bytes
      if (range.bytes === 0) this.free.splice(best, 1)
      return offset
    }
    // Nothing fits: grow the end, from a free range that touches it where there is one.
    const last = this.free[this.free.length - 1]
    if (last && last.offset + last.bytes === this.size) {
      this.free.pop()
      this.size = last.offset + bytes
      return last.offset
    }
    const offset = this.size
    this.size += bytes
    return offset
  }

  /** Gives a place back. */
  give(offset: number, nbytes: number): void {
    const bytes = align(nbytes)
    if (bytes === 0) return
    this.live -= bytes
    let at = 0
    while (at < this.free.length && this.free[at].offset < offset) at++
    this.free.splice(at, 0, { offset, bytes })
    for (const i of [at, at - 1]) {
      const [left, right] = [this.free[i], this.free[i + 1]]
      if (left && right && left.offset + left.bytes === right.offset) {
        left.bytes += right.bytes
        this.free.splice(i + 1, 1)
      }
    }
  }
}
