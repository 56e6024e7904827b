/**
 * A store of prompt caches by prefix: a conversation continues from its last turn, and prompts share a common beginning.
 */
import { checkKind, SIZE, TOKENS } from "../argument-kinds"
import {
  CACHE,
  type Cache,
  cacheBytes,
  cacheLength,
  canTrimCache,
  cloneCache,
  disposeCache,
  heldBytes,
  trimCache,
} from "../models/cache"
import { copyContent } from "./caches"

interface Entry {
  readonly tokens: readonly number[]
  readonly cache: Cache
  /** The version of the weights, as the store's owner counts them. */
  readonly version: number
}

/** True if a cache can be trimmed to its first tokens; false if a sliding window has dropped some that are needed. */
const hasPrefix = (cache: Cache, length: number): boolean => canTrimCache(cache, cacheLength(cache) - length)

/** A copy of a cache with only its first tokens. */
function prefixOf(cache: Cache, length: number): Cache {
  const copy = cloneCache(cache)
  const surplus = cacheLength(copy) - length
  copyContent(cache, copy)
  if (surplus === 0) return copy
  trimCache(copy, surplus)
  // A second copy leaves out the capacity of the trimmed tokens.
  const trimmed = cloneCache(copy)
  copyContent(copy, trimmed)
  disposeCache(copy)
  return trimmed
}

/** The length of the longest common prefix. */
function commonPrefix(a: readonly number[], b: readonly number[]): number {
  let n = 0
  while (n < a.length && n < b.length && a[n] === b[n]) n++
  return n
}

/**
 * Keeps the most recently used prompt caches, up to a number of bytes. `stream` refuses one whose keys and values are of other weights.
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
  constructor(readonly maxBytes: number) {
    checkKind("PrefixStore", "maxBytes", maxBytes, SIZE)
  }

  /** Bytes in use. */
  get nbytes(): number {
    return heldBytes(this.entries.map(({ cache }) => cache))
  }

  /** Removes the entries of other versions of the weights. @internal */
  keepVersion(version: number): void {
    const others = this.entries.filter((entry) => entry.version !== version)
    if (others.length === 0) return
    this.entries = this.entries.filter((entry) => entry.version === version)
    for (const { cache } of others) disposeCache(cache)
  }

  /**
   * A copy of the cache with the longest common prefix, trimmed to it and at least one token shorter than `tokens`; null if there is none.
   */
  find(tokens: readonly number[]): Cache | null {
    checkKind("PrefixStore.find", "tokens", tokens, TOKENS)
    const candidates = this.entries
      .map((entry) => ({ entry, length: Math.min(commonPrefix(entry.tokens, tokens), tokens.length - 1) }))
      .filter(({ length }) => length > 0)
      .sort((a, b) => b.length - a.length)
    for (const { entry, length } of candidates) {
      if (!hasPrefix(entry.cache, length)) continue
      this.entries = [entry, ...this.entries.filter((other) => other !== entry)]
      return prefixOf(entry.cache, length)
    }
    return null
  }

  /**
   * Stores a copy of a cache. `tokens` must begin with the tokens in the cache.
   * @param version - the version of the weights that it is from
   */
  add(tokens: readonly number[], cache: Cache, version = 0): void {
    checkKind("PrefixStore.add", "tokens", tokens, TOKENS)
    checkKind("PrefixStore.add", "the cache", cache, CACHE)
    if (cacheBytes(cache) > this.maxBytes) return
    const read = tokens.slice(0, cacheLength(cache))
    const entry = { tokens: read, cache: cloneCache(cache), version }
    copyContent(cache, entry.cache)
    // Replaces entries that are prefixes of this one, unless it cannot be trimmed to them.
    const replaces = ({ tokens }: Entry): boolean =>
      commonPrefix(tokens, read) === tokens.length && hasPrefix(entry.cache, tokens.length)
    const replaced = this.entries.filter(replaces)
    this.entries = [entry, ...this.entries.filter((other) => !replaces(other))]
    for (const { cache } of replaced) disposeCache(cache)
    while (this.nbytes > this.maxBytes) disposeCache(this.entries.pop()!.cache)
  }

  /** Removes all entries. */
  clear(): void {
    for (const { cache } of this.entries) disposeCache(cache)
    this.entries = []
  }
}
