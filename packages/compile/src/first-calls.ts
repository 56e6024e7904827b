/**
 * Calls that may not come again: they run as the function is written, since a trace and a plan cost as much as many calls. Those that are
 * met again get a program.
 */
import { MAX_PROGRAMS } from "./program-cache"
import type { ProgramKey } from "./program-key"

/** So many keys are remembered that were met once. */
const MANY_KEYS = 4 * MAX_PROGRAMS

/**
 * A number for a key, by FNV-1a: keys of large states are long. Where two keys have one number, a call is planned early or late, and its
 * results are the same.
 */
function digestOf(key: string): number {
  let digest = 0x811c9dc5
  for (let i = 0; i < key.length; i++) digest = Math.imul(digest ^ key.charCodeAt(i), 0x01000193)
  return digest
}

/** The keys of calls that were met once. */
export class FirstCalls {
  /** By digest the number of changes of programs by then. */
  private readonly met = new Map<number, number>()

  /**
   * True for a key's first call, which is not worth a plan. A full cache plans a key only if it comes back within {@link MAX_PROGRAMS}
   * changes of program: later than that, the cache would have dropped the program before it served again.
   */
  isFirst({ sizes, suffix }: ProgramKey, changes: number, isFull: boolean): boolean {
    const digest = digestOf(sizes + suffix)
    const before = this.met.get(digest)
    this.met.delete(digest)
    if (before !== undefined && (!isFull || changes - before < MAX_PROGRAMS)) return false
    this.met.set(digest, changes)
    if (this.met.size > MANY_KEYS) this.met.delete(this.met.keys().next().value as number)
    return true
  }
}

/** Traces that differ in numbers alone, after which other numbers are not expected to come again. */
const MANY_TRACES = 16

/** Numbers among the arguments and in the captured state that change from call to call. */
export class ChangingNumbers {
  /** Numbers of traces, by the digest of the key of all but the numbers. */
  private readonly traces = new Map<number, number>()

  note({ butNumbers }: ProgramKey): void {
    if (butNumbers === null) return
    const digest = digestOf(butNumbers)
    this.traces.set(digest, (this.traces.get(digest) ?? 0) + 1)
    if (this.traces.size > MAX_PROGRAMS) this.traces.delete(this.traces.keys().next().value as number)
  }

  /** True for a call with numbers where many others were traced: its own may not come again. */
  mayPass({ butNumbers }: ProgramKey): boolean {
    return butNumbers !== null && (this.traces.get(digestOf(butNumbers)) ?? 0) >= MANY_TRACES
  }
}
