/**
 * Marks behind work that was handed over: promises of asynchronous evaluation, and waiting for a storage without waiting for what was
 * handed over after it. A storage's ticket is the number of a mark behind the work that makes it; 0 where there is none.
 */
import type { Storage } from "@lazuli/core/engine"
import type { GpuMark, GpuRuntime, Submission } from "./runtime"

interface Marked {
  readonly number: number
  readonly mark: GpuMark
  readonly storages: readonly Storage[]
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** The host is so many marks ahead at most. */
const MOST = 64
/** Milliseconds in which each turn of the event loop looks. */
const PATIENCE = 20

const nothing = (): void => {}

export class Marks {
  /** Those that have not been passed, the oldest first. */
  private readonly pending: Marked[] = []
  private made = 0
  private passed = 0
  private isPolled = false

  /** `concluded` takes notice of what failed up to a submission, or of all where its argument is null, which it then waits for. */
  constructor(
    private readonly runtime: GpuRuntime,
    private readonly concluded: (until: Submission | null) => void,
  ) {}

  /** A promise for storages whose work was handed over; null where the runtime cannot tell when it is done. */
  add(storages: readonly Storage[]): Promise<void> | null {
    const mark = this.runtime.mark?.() ?? null
    if (mark === null) return null
    const number = ++this.made
    for (const storage of storages) if (storage.ticket === 0) storage.ticket = number
    const promise = new Promise<void>((resolve, reject) => {
      this.pending.push({ number, mark, storages, resolve, reject: refusing(() => promise, reject) })
    })
    const most = Math.min(MOST, this.runtime.marksAhead ?? MOST)
    if (this.pending.length > most) this.pass(this.pending[0].number)
    this.poll()
    return promise
  }

  /** Waits for the work that makes a storage; false where no mark is behind it. */
  reach({ ticket }: Storage): boolean {
    if (ticket === 0) return false
    if (ticket > this.passed) this.pass(ticket)
    return true
  }

  /** True if all work of these storages is known to be done. */
  isDone(storages: readonly Storage[]): boolean {
    return storages.every(({ ticket }) => ticket > 0 && ticket <= this.passed)
  }

  /** Takes notice that all work is done. */
  passAll(): void {
    this.finish(this.made)
  }

  private pass(number: number): void {
    const last = this.pending.findLast((each) => each.number <= number) as Marked
    this.note(last, last.mark.wait())
  }

  private note({ number, mark }: Marked, isWell: boolean): void {
    if (number <= this.passed) return
    if (isWell) {
      this.concluded(mark.submission)
      this.finish(number)
    } else this.concluded(null)
  }

  private finish(number: number): void {
    this.passed = Math.max(this.passed, number)
    while (this.pending.length > 0 && this.pending[0].number <= number) {
      const { mark, storages, resolve, reject } = this.pending.shift() as Marked
      mark.release()
      const failed = storages.find(({ failure }) => failure !== null)
      if (failed) reject(failed.failure)
      else resolve()
    }
  }

  /** Looks from turn to turn of the event loop whether the oldest mark is passed; after a while less often. */
  private poll(): void {
    if (this.isPolled || this.pending.length === 0) return
    this.isPolled = true
    const began = performance.now()
    const look = (): void => {
      this.isPolled = false
      const [oldest] = this.pending
      if (oldest === undefined) return
      const state = oldest.mark.look()
      if (state !== null) {
        this.note(oldest, state)
        this.poll()
        return
      }
      this.isPolled = true
      if (performance.now() - began < PATIENCE) setImmediate(look)
      else setTimeout(look, 1)
    }
    setImmediate(look)
  }
}

/** A promise that is let alone makes no unhandled rejection; only those that are rejected get a handler. */
const refusing =
  (promise: () => Promise<void>, reject: (error: unknown) => void) =>
  (error: unknown): void => {
    promise().catch(nothing)
    reject(error)
  }
