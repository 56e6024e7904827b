/**
 * The programs that one compiled function keeps, by the keys of the calls that they serve. The least recently used goes first.
 */
import type { CachedProgram } from "./cached-program"
import type { ProgramKey } from "./program-key"

/** CachedPrograms that one compiled function keeps. */
export const MAX_PROGRAMS = 64

/** Programs that are tried before a key is made. */
const MANY_RECENT = 8

export class ProgramCache {
  /** Those used last, the latest first. */
  readonly recent: CachedProgram[] = []
  private readonly entries = new Map<string, CachedProgram>()
  private readonly aliases = new Map<string, string>()

  get size(): number {
    return this.entries.size
  }

  /** True if another program takes the place of the least recently used. */
  get isFull(): boolean {
    return this.entries.size >= MAX_PROGRAMS
  }

  /** The cached program for a key, which counts as used; undefined where there is none. */
  find(key: ProgramKey): CachedProgram | undefined {
    const { sizes, suffix } = key
    const found = this.known(sizes) ?? this.known(sizes + suffix)
    if (found === undefined) return undefined
    const cached = this.entries.get(found)
    if (cached === undefined) return undefined
    this.use(cached)
    return cached
  }

  /** Counts a kept program as used. */
  use(cached: CachedProgram): void {
    const { recent, entries } = this
    entries.delete(cached.key)
    entries.set(cached.key, cached)
    let at = recent.indexOf(cached)
    if (at < 0) at = Math.min(recent.length, MANY_RECENT - 1)
    for (; at > 0; at--) recent[at] = recent[at - 1]
    recent[0] = cached
  }

  /** Takes a cached program in, and lets go of the least recently used where there are too many. */
  add(cached: CachedProgram): void {
    const { key } = cached
    this.aliases.set(cached.alias, key)
    // The function may have called itself.
    const before = this.entries.get(key)
    if (before !== undefined) this.drop(before)
    this.use(cached)
    if (this.entries.size > MAX_PROGRAMS) this.evictOldest()
  }

  private known(key: string): string | undefined {
    return this.entries.has(key) ? key : this.aliases.get(key)
  }

  private evictOldest(): void {
    const [key, cached] = this.entries.entries().next().value as [string, CachedProgram]
    this.entries.delete(key)
    if (this.aliases.get(cached.alias) === key) this.aliases.delete(cached.alias)
    this.drop(cached)
  }

  private drop(cached: CachedProgram): void {
    const at = this.recent.indexOf(cached)
    if (at >= 0) this.recent.splice(at, 1)
    cached.capture.graph?.release()
  }
}
