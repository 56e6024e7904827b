/**
 * Stop strings: found across pieces, and never output, not even in part.
 */

/** Searches a stream of text for stop strings. */
export class StopFinder {
  private held = ""
  private readonly matchers: readonly Matcher[]
  constructor(stops: readonly string[]) {
    this.matchers = stops.map((stop) => new Matcher(stop))
  }

  /** Adds text. Returns the text before a stop string or a possible beginning of one, and `stopped` if one was found. */
  push(piece: string): { text: string; stopped: boolean } {
    const before = this.held.length
    this.held += piece
    const starts = this.matchers.flatMap((matcher) => {
      const end = matcher.push(piece)
      return end === null ? [] : before + end - matcher.stop.length
    })
    const stopped = starts.length > 0
    const matched = Math.max(0, ...this.matchers.map((matcher) => matcher.matched))
    const to = stopped ? Math.min(...starts) : this.held.length - matched
    const text = this.held.slice(0, to)
    this.held = stopped ? "" : this.held.slice(to)
    return { text, stopped }
  }

  /** The text held back, after the last piece. */
  finish(): string {
    const text = this.held
    this.held = ""
    return text
  }
}

/** Searches a stream of text for one string, in linear time (Knuth, Morris and Pratt, 1977). */
class Matcher {
  /** The length of the longest beginning of the string with which the text ends. */
  matched = 0
  /** For each beginning of the string, the length of the longest shorter one with which it ends. */
  private readonly shorter: Int32Array

  constructor(readonly stop: string) {
    this.shorter = new Int32Array(stop.length + 1)
    for (let i = 1, n = 0; i < stop.length; i++) {
      n = this.next(n, stop[i])
      this.shorter[i + 1] = n
    }
  }

  /** Adds text. Returns where in it the string ends, or null. */
  push(piece: string): number | null {
    for (let i = 0; i < piece.length; i++) {
      this.matched = this.next(this.matched, piece[i])
      if (this.matched === this.stop.length) return i + 1
    }
    return null
  }

  private next(matched: number, character: string): number {
    let n = matched
    while (n > 0 && this.stop[n] !== character) n = this.shorter[n]
    return this.stop[n] === character ? n + 1 : 0
  }
}
