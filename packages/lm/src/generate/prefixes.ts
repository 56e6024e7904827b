/**
 * A store of prompt caches by prefix: a conversation continues from its last turn, and prompts share a common beginning.
 */
import { type Cache, cacheBytes, cacheLength, cloneCache, heldBytes, trimCache } from "../models/cache"

interface Entry {
  readonly tokens: readonly number[]
  readonly cache: Cache
}

/** The length of the longest common prefix. */
export function commonPrefix(a: readonly number[], b: readonly number[]): number {
  let n = 0
  while (n < a.length && n < b.length && a[n] === b[n]) n++
  return n
}

/**
 * Keeps the most recently used prompt caches, up to a number of bytes.
 * @example
 * const model = await load('my-model')
 * const cache = makeCache(model.network)
 * await generate(model, [1, 2, 3], { cache, maxTokens: 1 })
 * const store = new PrefixStore(1e6)
 * store.add([1, 2, 3], cache)
 * cacheLength(store.find([1, 2, 9])) // => 2
 */
export class PrefixStore {
  private entries: Entry[] = []
  constructor(readonly maxBytes: number) {}

  /** Bytes in use. */
  get nbytes(): number {
    return heldBytes(this.entries.map(({ cache }) => cache))
  }

  /**
   * A copy of the cache with the longest common prefix, trimmed to it and at least one token shorter than `tokens`; null if there is none.
   */
  find(tokens: readonly number[]): Cache | null {
    let [best, length] = [null as Entry | null, 0]
    for (const entry of this.entries) {
      const shared = Math.min(commonPrefix(entry.tokens, tokens), tokens.length - 1)
      if (shared > length) [best, length] = [entry, shared]
    }
    if (!best) return null
    const cache = cloneCache(best.cache)
    if (!trimCache(cache, cacheLength(cache) - length)) return null
    this.entries = [best, ...this.entries.filter((entry) => entry !== best)]
    return cache
  }

  /** Stores a copy of a cache. `tokens` must begin with the tokens in the cache. */
  add(tokens: readonly number[], cache: Cache): void {
    if (cacheBytes(cache) > this.maxBytes) return
    const read = tokens.slice(0, cacheLength(cache))
    // Replaces entries that are prefixes of this one.
    const others = this.entries.filter((entry) => commonPrefix(entry.tokens, read) < entry.tokens.length)
    this.entries = [{ tokens: read, cache: cloneCache(cache) }, ...others]
    while (this.nbytes > this.maxBytes) this.entries.pop()
  }

  /** Removes all entries. */
  clear(): void {
    this.entries = []
  }
}
