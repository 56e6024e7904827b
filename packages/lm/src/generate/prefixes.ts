/**
 * Caches of prompts that were read, shared by later ones that begin alike: a conversation goes on where it was, and many have one
 * beginning.
 */
import { type Cache, cacheBytes, cacheLength, cloneCache, heldBytes, trimCache } from "../models/cache"

interface Entry {
  readonly tokens: readonly number[]
  readonly cache: Cache
}

/** The length of what two lists begin with alike. */
export function commonPrefix(a: readonly number[], b: readonly number[]): number {
  let n = 0
  while (n < a.length && n < b.length && a[n] === b[n]) n++
  return n
}

/**
 * Keeps the caches that were used last, up to a number of bytes.
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

  /** The bytes that are kept. */
  get nbytes(): number {
    return heldBytes(this.entries.map(({ cache }) => cache))
  }

  /**
   * A cache that has read as much as possible of the beginning of these tokens, but never their last one; null where nothing is known.
   * It goes on by itself.
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

  /** Keeps a cache with the tokens that it has read. */
  add(tokens: readonly number[], cache: Cache): void {
    if (cacheBytes(cache) > this.maxBytes) return
    const read = tokens.slice(0, cacheLength(cache))
    // One that goes on from another replaces it.
    const others = this.entries.filter((entry) => commonPrefix(entry.tokens, read) < entry.tokens.length)
    this.entries = [{ tokens: read, cache: cloneCache(cache) }, ...others]
    while (this.nbytes > this.maxBytes) this.entries.pop()
  }

  /** Forgets everything. */
  clear(): void {
    this.entries = []
  }
}
