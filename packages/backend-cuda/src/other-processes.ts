/**
 * The other processes that take part in this one's work, by collectives: what they are told while this one waits for that, and how it
 * finds out that one of them has failed. How they are connected is in @lazuli/distributed.
 */
import type { GpuMark } from "@lazuli/gpu-kernels"

/** Called while work is waited for that other processes take part in; see `DeviceCollectives.join`. */
export type Check = (isWaiting: boolean, work: number, op: string) => void
/** Milliseconds between such calls. */
export const CHECK_EVERY = 20

/** The sequence of collectives up to one as a number, and that one. */
interface LastCollective {
  readonly work: number
  readonly op: string
}

export class OtherProcesses {
  private readonly checks: Check[] = []
  /** The last one that was added. */
  private last: LastCollective = { work: 0, op: "allSum" }

  /** `giveUp` ends the work that others take part in. */
  constructor(private readonly giveUp: () => void) {}

  /** True once a group was joined. */
  get exist(): boolean {
    return this.checks.length > 0
  }
  join(check: Check): void {
    this.checks.push(check)
  }
  leave(): void {
    this.checks.length = 0
  }
  /** Notes a collective that is added. */
  note(op: string, facts: readonly number[]): void {
    let { work } = this.last
    for (const fact of facts) work = (Math.imul(work ^ fact, 16777619) + 1) >>> 0
    this.last = { work, op }
  }

  /** Waits until `look`, which waits for {@link CHECK_EVERY}, has an answer; gives the error where another process fails meanwhile. */
  await<T>(look: () => T | undefined, at: LastCollective = this.last): T | Error {
    let isTold = false
    try {
      for (;;) {
        const outcome = look()
        if (outcome !== undefined) return outcome
        isTold = true
        this.tell(true, at)
      }
    } catch (error) {
      this.giveUp()
      return error as Error
    } finally {
      if (isTold) this.tell(false, at)
    }
  }
  /** @throws DistributedError where one has failed */
  private tell(isWaiting: boolean, { work, op }: LastCollective): void {
    for (const check of this.checks) check(isWaiting, work, op)
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
    const at = this.last
    let [isTold, next] = [false, performance.now() + CHECK_EVERY]
    const end = (): void => {
      if (isTold) this.tell(false, at)
      isTold = false
    }
    const answered = (outcome: boolean | Error): boolean => {
      end()
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
          isTold = true
          this.tell(true, at)
          return null
        } catch (error) {
          this.giveUp()
          return answered(error as Error)
        }
      },
      wait: () => answered(this.await(() => look(CHECK_EVERY) ?? undefined, at)),
      release() {
        end()
        free()
      },
    }
  }
}
