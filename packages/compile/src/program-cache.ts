/**
 * The programs that one compiled function keeps, by the keys of the calls that they serve. The least recently used goes first.
 */
import type { CachedProgram } from "./cached-program"
import type { ProgramKey } from "./program-key"

/** CachedPrograms that one compiled function keeps. */
export const MAX_PROGRAMS = 64

export class ProgramCache {
  private readonly entries = new Map<string, CachedProgram>()
  private readonly aliases = new Map<string, string>()

  get size(): number {
    return this.entries.size
  }

  /** The cached program for a key, which counts as used; undefined where there is none. */
  find(key: ProgramKey): CachedProgram | undefined {
    const { sizes, suffix } = key
    const found = this.known(sizes) ?? this.known(sizes + suffix)
    if (found === undefined) return undefined
    const cached = this.entries.get(found)
    if (cached === undefined) return undefined
    this.entries.delete(found)
    this.entries.set(found, cached)
    return cached
  }

  /** Takes a cached program in, and lets go of the least recently used where there are too many. */
  add(key: string, cached: CachedProgram): void {
    this.aliases.set(cached.alias, key)
    // The function may have called itself.
    this.entries.get(key)?.capture.graph?.release()
    this.entries.set(key, cached)
    if (this.entries.size > MAX_PROGRAMS) this.evictOldest()
  }

  private known(key: string): string | undefined {
    return this.entries.has(key) ? key : this.aliases.get(key)
  }

  private evictOldest(): void {
    const [key, cached] = this.entries.entries().next().value as [string, CachedProgram]
    this.entries.delete(key)
    if (this.aliases.get(cached.alias) === key) this.aliases.delete(cached.alias)
    cached.capture.graph?.release()
  }
}
