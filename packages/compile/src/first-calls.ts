/**
 * Calls that may not come again: they run as the function is written, since a trace and a plan cost as much as many calls. Those that are
 * met again get a program.
 */
import { MAX_PROGRAMS } from "./program-cache"
import type { ProgramKey } from "./program-key"

/** So many keys are remembered that were met once. */
const MANY_KEYS = 4 * MAX_PROGRAMS

/** The keys of calls that were met once. */
export class FirstCalls {
  private readonly met = new Set<string>()

  /** True for a key's first call. Those that are met again are planned, and anew once their program was dropped for others. */
  isFirst(key: string): boolean {
    if (this.met.delete(key)) return false
    this.met.add(key)
    if (this.met.size > MANY_KEYS) this.met.delete(this.met.values().next().value as string)
    return true
  }
}

/** Traces that differ in numbers alone, after which other numbers are not expected to come again. */
const MANY_TRACES = 16

/** Numbers among the arguments and in the captured state that change from call to call. */
export class ChangingNumbers {
  /** Numbers of traces, by the key of all but the numbers. */
  private readonly traces = new Map<string, number>()
  private readonly first = new FirstCalls()

  note({ butNumbers }: ProgramKey): void {
    if (butNumbers === null) return
    this.traces.set(butNumbers, (this.traces.get(butNumbers) ?? 0) + 1)
    if (this.traces.size > MAX_PROGRAMS) this.traces.delete(this.traces.keys().next().value as string)
  }

  /** True for the first call with numbers where many others were traced. */
  isPassing({ butNumbers, sizes, suffix }: ProgramKey): boolean {
    if (butNumbers === null || (this.traces.get(butNumbers) ?? 0) < MANY_TRACES) return false
    return this.first.isFirst(sizes + suffix)
  }
}
