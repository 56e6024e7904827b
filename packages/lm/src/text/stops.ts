/**
 * Texts that end a generation: found across pieces, and never given out, not even in part.
 */

/** Looks for stop strings in a text that comes in pieces. */
export class StopFinder {
  private held = ""
  constructor(private readonly stops: readonly string[]) {}

  /** The text that is sure to hold no stop string, and if one was found. */
  push(piece: string): { text: string; stopped: boolean } {
    this.held += piece
    let at = -1
    for (const stop of this.stops) {
      const found = this.held.indexOf(stop)
      if (found >= 0 && (at < 0 || found < at)) at = found
    }
    if (at >= 0) {
      const text = this.held.slice(0, at)
      this.held = ""
      return { text, stopped: true }
    }
    const keep = Math.max(0, ...this.stops.map((stop) => overlap(this.held, stop)))
    const text = this.held.slice(0, this.held.length - keep)
    this.held = this.held.slice(this.held.length - keep)
    return { text, stopped: false }
  }

  /** The text that was held back, at the end. */
  finish(): string {
    const text = this.held
    this.held = ""
    return text
  }
}

/** The length of the longest end of `text` that begins `stop`. */
function overlap(text: string, stop: string): number {
  for (let n = Math.min(text.length, stop.length - 1); n > 0; n--)
    if (text.endsWith(stop.slice(0, n))) return n
  return 0
}
