/**
 * The other processes that take part in this one's work, by collectives: what they are told while this one waits for that, and how it
 * finds out that one of them has failed. How they are connected is in @lazuli/distributed.
 */
import { type DeviceWatch, DistributedError } from "@lazuli/core/engine"
import type { ExchangeNote, GpuMark } from "@lazuli/gpu-kernels"

/** Milliseconds between looks at the others. */
export const CHECK_EVERY = 20

/** The place of a collective among all, and the operation. */
interface Place {
  readonly place: number
  readonly op: string
}

/** A wait until a collective is done. */
interface Wait {
  /** Asks the others whether they have added the same. @throws DistributedError where one has not, or has failed */
  ask(): void
  /** True once they are known to have, within so many milliseconds. @throws DistributedError as above */
  agrees(milliseconds: number): boolean
  /** Tells the others of it. @throws DistributedError where one has failed */
  tell(): void
  end(isDone: boolean): void
}

/** Marks behind work on the device, by their numbers. */
export interface DeviceMarks {
  newMark(): number
  /** True once it is passed, within so many milliseconds. */
  lookAtMark(id: number, milliseconds: number): boolean | null
  freeMark(id: number): void
}

export class OtherProcesses {
  /** By the numbers of communicators. */
  private readonly watches = new Map<number, DeviceWatch>()
  /** The last one that was added. */
  private last: Place = { place: 0, op: "allSum" }
  /** The last that is known to be done: work behind it is this process's own. */
  private done = 0
  /** The last up to which all are known to have added the same: what comes of others is not used. */
  private agreed = 0
  /** The failure of another process. */
  private failure: Error | null = null
  /** Collectives were added that were not committed yet. */
  private hasNew = false
  /** Marks behind collectives that are not known to be done, the oldest first. */
  private readonly marks: { readonly place: number; readonly id: number }[] = []
  /** Waits of which the others were told. */
  private waits = 0

  /** `end` ends the work that others take part in, and leaves all that was committed without a result. */
  constructor(
    private readonly end: (error: Error) => void,
    private readonly device: () => DeviceMarks,
  ) {}

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
    this.agreed = 0
    this.failure = null
    this.hasNew = false
    for (const { id } of this.marks.splice(0)) this.device().freeMark(id)
  }
  /** Makes what follows this process's own. */
  private giveUp(error: Error): Error {
    this.end(error)
    this.failure = error
    this.done = this.last.place
    this.agreed = this.done
    return error
  }
  /** Notes collectives that are added together: all, or none where the group of one was closed. */
  add(notes: readonly ExchangeNote[]): void {
    for (const { group, name } of notes) this.watches.get(group)?.check(name)
    this.hasNew ||= notes.length > 0
    for (const { group, name: op, operations, from, to } of notes) {
      const watch = this.watches.get(group)
      if (watch === undefined) continue
      for (const operation of operations) this.last = { place: watch.add(operation, op, from, to), op }
    }
  }
  /** Marks a place behind all collectives that were added: they were handed over, and end in their order. */
  markAll(): void {
    this.passMarks()
    const { place } = this.last
    if (place > (this.marks.at(-1)?.place ?? this.done))
      this.marks.push({ place, id: this.device().newMark() })
  }
  private passMarks(): void {
    const { marks } = this
    while (marks.length > 0) {
      const [{ place, id }] = marks
      if (place > this.done && this.device().lookAtMark(id, 0) !== true) return
      this.done = Math.max(this.done, place)
      this.device().freeMark(id)
      marks.shift()
    }
  }

  /** A wait until a collective is done, of which the others are told from the first time it tells on. */
  private wait({ place, op }: Place): Wait {
    const watch = this.ofJob as DeviceWatch
    let isTold = false
    const end = (isDone: boolean): void => {
      if (isDone && watch === this.ofJob) this.done = Math.max(this.done, place)
      // Nothing is to be told of a job that this process has left.
      if (isTold && watch === this.ofJob) watch.end(--this.waits > 0)
      isTold = false
    }
    const agrees = (milliseconds: number): boolean => {
      if (place > this.agreed && watch === this.ofJob && watch.agrees(place, op, milliseconds))
        this.agreed = place
      return place <= this.agreed
    }
    return {
      ask: () => {
        if (place > this.agreed) watch.ask(place, op, this.done)
      },
      agrees,
      tell: () => {
        if (place > this.done) this.passMarks()
        if (place <= this.done && agrees(0)) return end(false)
        if (!isTold) this.waits++
        isTold = true
        watch.wait(place, op)
      },
      end,
    }
  }

  /**
   * Waits until `look`, which waits for {@link CHECK_EVERY}, has an answer; gives the error where another process fails meanwhile. `isAll`
   * says whether all collectives are done then.
   */
  await<T>(look: () => T | undefined, isAll: boolean): T | Error {
    const wait = this.wait(this.last)
    try {
      wait.ask()
      return this.finish(wait, look, isAll)
    } catch (error) {
      return this.giveUp(error as Error)
    }
  }
  /** The same for a wait of which the others were asked; what comes of collectives is used once all are known to have added the same. */
  private finish<T>(wait: Wait, look: () => T | undefined, isAll: boolean): T | Error {
    let isDone = false
    try {
      for (;;) {
        const outcome = look()
        const isWell = outcome === null || outcome === true
        // The failure of another may be why.
        if (outcome !== undefined && !isWell) wait.tell()
        if (outcome !== undefined && (!isAll || !isWell || wait.agrees(CHECK_EVERY))) {
          isDone = isAll
          return outcome
        }
        wait.tell()
      }
    } catch (error) {
      return this.giveUp(error as Error)
    } finally {
      wait.end(isDone)
    }
  }

  /** Commits what was added; gives the error where another process has failed, or fails meanwhile. */
  commit<T>(run: () => T): T | Error {
    // Collectives that were given up cannot run.
    const outcome = this.hasNew && this.failure ? this.failure : this.during(run)
    this.hasNew = false
    return outcome
  }
  /** Runs what the driver may not return from before collectives are done; gives the error where another process fails meanwhile. */
  during<T>(run: () => T): T | Error {
    const watch = this.ofJob
    if (watch === undefined || this.last.place <= this.done) return run()
    const wait = this.wait(this.last)
    try {
      wait.tell()
      watch.call(true)
      try {
        return run()
      } finally {
        watch.call(false)
      }
    } catch (error) {
      if (!(error instanceof DistributedError)) throw error
      return this.giveUp(error)
    } finally {
      wait.end(false)
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
    let isAsked = false
    const answered = (outcome: boolean | Error): boolean => {
      wait.end(outcome === true)
      return conclude(outcome)
    }
    /** Gives the answer of `body`, or the error. */
    const trying = (body: () => boolean | null): boolean | null => {
      try {
        if (!isAsked) wait.ask()
        isAsked = true
        return body()
      } catch (error) {
        return answered(this.giveUp(error as Error))
      }
    }
    return {
      submission,
      look: () =>
        trying(() => {
          const outcome = look(0)
          if (outcome === false || (outcome === true && wait.agrees(0))) return answered(outcome)
          if (performance.now() < next) return null
          next = performance.now() + CHECK_EVERY
          wait.tell()
          return null
        }),
      wait: () =>
        trying(() => answered(this.finish(wait, () => look(CHECK_EVERY) ?? undefined, true))) === true,
      release() {
        wait.end(false)
        free()
      },
    }
  }
}
