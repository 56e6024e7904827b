/**
 * Traces for any sizes: the recorded calls of a function, by numbers of axes, and what they serve. Which sizes there are is a program's.
 * Sizes of a long function that come for the first time run without one.
 */
import {
  applyAgain,
  type Capture,
  captureAgain,
  captureForAnySizes,
  captureForRanks,
  type Outcome,
  type Recording,
  type Subject,
} from "./capture"
import { MAX_PROGRAMS } from "./program-cache"
import type { ProgramKey } from "./program-key"

/** A function of so many calls is planned for sizes that come again: a plan takes longer than a run without one. */
const MANY_CALLS = 48

export class ShapelessTraces {
  private readonly recordings = new Map<string, Recording>()

  /**
   * A capture for the sizes of a call: from recorded calls, or from a new trace, before which `trace` is called. A recording may serve
   * other numbers of axes where its operations take them.
   */
  capture(subject: Subject, key: ProgramKey, trace: (reads: readonly string[]) => void): Capture {
    const [ofRanks, ofAny] = [key.of("rank"), key.of("none")]
    const known = this.recorded(ofRanks, key)
    const again = known && captureAgain(known, subject)
    if (again) return again
    const other = known ? undefined : this.recorded(ofAny, key)
    const served = other ? captureForRanks(other, subject) : null
    if (other && served) {
      this.remember(ofRanks + (other.namesStreams ? key.suffix : ""), other)
      return served
    }
    trace(known?.reads ?? [])
    const { capture: found, recording } = captureForAnySizes(subject)
    const end = recording.namesStreams ? key.suffix : ""
    this.remember(ofRanks + end, recording)
    this.remember(ofAny + end, recording)
    return found
  }

  /** True for a long function that was traced for other sizes: those of this call may not come again. */
  mayPass(key: ProgramKey): boolean {
    const known = this.recorded(key.of("rank"), key)
    return known !== undefined && known.calls.length >= MANY_CALLS
  }

  /** The results of such a call; null where the function has to run for them. */
  apply(subject: Subject, key: ProgramKey): Outcome | null {
    const known = this.recorded(key.of("rank"), key)
    return known ? applyAgain(known, subject) : null
  }

  /** Lets a recording serve the calls that come after the program has filled the captured outputs. */
  follow(from: string, to: string): void {
    const recording = this.recordings.get(from)
    if (recording) this.recordings.set(to, recording)
  }

  private recorded(key: string, { suffix }: ProgramKey): Recording | undefined {
    return this.recordings.get(key) ?? this.recordings.get(key + suffix)
  }

  private remember(key: string, recording: Recording): void {
    this.recordings.set(key, recording)
    if (this.recordings.size > 2 * MAX_PROGRAMS)
      this.recordings.delete(this.recordings.keys().next().value as string)
  }
}
