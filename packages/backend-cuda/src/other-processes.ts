/**
 * The other processes that take part in this one's work, by collectives: what they are told while this one waits for that, and how it
 * finds out that one of them has failed. How they are connected is in @lazuli/distributed.
 */
import type { DeviceWatch } from "@lazuli/core/engine"
import type { ExchangeNote, GpuMark } from "@lazuli/gpu-kernels"

/** Milliseconds between looks at the others. */
export const CHECK_EVERY = 20

/** The place of a collective among all, and the operation. */
interface Place {
  readonly place: number
  readonly op: string
}

export class OtherProcesses {
  /** By the numbers of communicators. */
  private readonly watches = new Map<number, DeviceWatch>()
  /** The last one that was added. */
  private last: Place = { place: 0, op: "allSum" }
  /** The last that is known to be done: work behind it is this process's own. */
  private done = 0
  /** Waits of which the others were told. */
  private waits = 0

  /** `giveUp` ends the work that others take part in. */
  constructor(private readonly giveUp: () => void) {}

  /** That of the first group; all are of one job. */
  private get ofJob(): DeviceWatch | undefined {
    return this.watches.values().next().value
  }
  /** True once a group was joined. */
  get exist(): boolean {
    return this.watches.size > 0
  }
  join(communicator: number, watch: DeviceWatch): void {
    this.watches.set(communicator, watch)
  }
  leave(): void {
    this.watches.clear()
    this.waits = 0
    this.last = { place: 0, op: "allSum" }
    this.done = 0
  }
  /** Notes collectives that are added. */
  add({ group, name: op, operations, from, to }: ExchangeNote): void {
    const watch = this.watches.get(group)
    if (watch === undefined) return
    for (const operation of operations) this.last = { place: watch.add(operation, op, from, to), op }
  }

  /** A wait until a collective is done, of which the others are told from the first time it tells on. */
  private wait({ place, op }: Place): { tell(): void; end(isDone: boolean): void } {
    const watch = this.ofJob as DeviceWatch
    let isTold = false
    return {
      /** @throws DistributedError where another process has failed */
      tell: () => {
        if (place <= this.done) return
        if (!isTold) this.waits++
        isTold = true
        watch.wait(place, op)
      },
      end: (isDone) => {
        if (isDone && watch === this.ofJob) this.done = Math.max(this.done, place)
        // Nothing is to be told of a job that this process has left.
        if (isTold && watch === this.ofJob) watch.end(--this.waits > 0)
        isTold = false
      },
    }
  }

  /**
   * Waits until `look`, which waits for {@link CHECK_EVERY}, has an answer; gives the error where another process fails meanwhile. `isAll`
   * says whether all collectives are done then.
   */
  await<T>(look: () => T | undefined, isAll: boolean, wait = this.wait(this.last)): T | Error {
    let isDone = false
    try {
      for (;;) {
        const outcome = look()
        if (outcome !== undefined) {
          isDone = isAll
          return outcome
        }
        wait.tell()
      }
    } catch (error) {
      this.giveUp()
      return error as Error
    } finally {
      wait.end(isDone)
    }
  }

  /**
   * A mark behind work that others take part in: whoever looks at it finds out, by and by, whether one of them has failed. `look` has an
   * answer within so many milliseconds, or none; `conclude` takes it, or the error.
   */
  mark(
    submission: GpuMark["submission"],
    look: (milliseconds: number) => boolean | null,
    conclude: (outcome: boolean | Error) => boolean,
    free: () => void,
  ): GpuMark {
    const wait = this.wait(this.last)
    let next = performance.now() + CHECK_EVERY
    const answered = (outcome: boolean | Error): boolean => {
      wait.end(outcome === true)
      return conclude(outcome)
    }
    return {
      submission,
      look: () => {
        const outcome = look(0)
        if (outcome !== null) return answered(outcome)
        if (performance.now() < next) return null
        next = performance.now() + CHECK_EVERY
        try {
          wait.tell()
          return null
        } catch (error) {
          this.giveUp()
          return answered(error as Error)
        }
      },
      wait: () => answered(this.await(() => look(CHECK_EVERY) ?? undefined, false, wait)),
      release() {
        wait.end(false)
        free()
      },
    }
  }
}
