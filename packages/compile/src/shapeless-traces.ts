/**
 * Traces for any sizes: the recorded calls of a function, by numbers of axes, and what they serve. Which sizes there are is a program's.
 */
import {
  type Capture,
  captureAgain,
  captureForAnySizes,
  captureForRanks,
  type Recording,
  type Subject,
} from "./capture"
import { MAX_PROGRAMS } from "./program-cache"
import type { ProgramKey } from "./program-key"

export class ShapelessTraces {
  private readonly recordings = new Map<string, Recording>()

  /**
   * A capture for the sizes of a call: from recorded calls, or from a new trace, before which `trace` is called. A recording may serve
   * other numbers of axes where its operations take them.
   */
  capture(subject: Subject, key: ProgramKey, trace: () => void): Capture {
    const [ofRanks, ofAny] = [key.of("rank"), key.of("none")]
    const recorded = (each: string): Recording | undefined =>
      this.recordings.get(each) ?? this.recordings.get(each + key.suffix)
    const known = recorded(ofRanks)
    if (known) return captureAgain(known, subject)
    const other = recorded(ofAny)
    const served = other ? captureForRanks(other, subject) : null
    if (other && served) {
      this.remember(ofRanks + (other.namesStreams ? key.suffix : ""), other)
      return served
    }
    trace()
    const { capture: found, recording } = captureForAnySizes(subject)
    const end = recording.namesStreams ? key.suffix : ""
    this.remember(ofRanks + end, recording)
    this.remember(ofAny + end, recording)
    return found
  }

  /** Lets a recording serve the calls that come after the program has filled the captured outputs. */
  follow(from: string, to: string): void {
    const recording = this.recordings.get(from)
    if (recording) this.recordings.set(to, recording)
  }

  private remember(key: string, recording: Recording): void {
    this.recordings.set(key, recording)
    if (this.recordings.size > 2 * MAX_PROGRAMS)
      this.recordings.delete(this.recordings.keys().next().value as string)
  }
}
