/**
 * Stop strings: found across pieces, and never output, not even in part.
 */

/** Searches a stream of text for stop strings. */
export class StopFinder {
  private held = ""
  constructor(private readonly stops: readonly string[]) {}

  /** Adds text. Returns the text before a stop string or a possible beginning of one, and `stopped` if one was found. */
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

  /** The text held back, after the last piece. */
  finish(): string {
    const text = this.held
    this.held = ""
    return text
  }
}

/** The length of the longest suffix of `text` that is a proper prefix of `stop`. */
function overlap(text: string, stop: string): number {
  for (let n = Math.min(text.length, stop.length - 1); n > 0; n--)
    if (text.endsWith(stop.slice(0, n))) return n
  return 0
}
