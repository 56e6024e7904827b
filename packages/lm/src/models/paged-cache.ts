/**
 * A cache in pages of a fixed number of tokens. Caches with a common prefix share pages, and a write copies one page at most. Attention
 * concatenates the pages in order, so that its results equal those of the plain cache.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { type AttentionRules, attend, type Pass } from "./attend"
import { type CacheState, checkSaved, disposeAll, type LayerCache, tokens } from "./cache"
import { SLACK } from "./rotating-cache"

/** A page of one layer. Only the cache that owns it replaces its arrays. */
interface Page {
  keys: mx.Array
  values: mx.Array
}

/** Keeps all tokens, or those of a sliding window, in pages. */
export class PagedCache implements LayerCache {
  offset = 0
  longest = 0
  private pages: Page[] = []
  /** Number of pages dropped at the beginning. */
  private dropped = 0
  /** Pages that are not shared. */
  private own = new Set<Page>()

  /**
   * @param size - tokens per page
   * @param window - size of the sliding window, or null for none
   */
  constructor(
    readonly size: number,
    readonly window: number | null = null,
  ) {
    if (!Number.isSafeInteger(size) || size < 1)
      throw new ArgumentError("stream", `pageTokens must be a positive integer, received ${size}`)
  }

  get nbytes(): number {
    return this.pages.reduce((sum, { keys, values }) => sum + keys.nbytes + values.nbytes, 0)
  }

  held(): mx.Array[] {
    return this.pages.flatMap(({ keys, values }) => [keys, values])
  }
  dispose(): void {
    for (const { keys, values } of this.own) disposeAll([keys, values])
  }

  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const length = k.shape[2]
    this.append(k, v)
    const first = this.dropped * this.size
    const to = this.offset - first
    const window = rules.window ?? this.window
    // Tokens before the first query's window are not needed.
    const from = window === null ? 0 : Math.max(0, to - (window + length - 1))
    const read = (which: keyof Page): mx.Array => {
      const begin = Math.floor(from / this.size)
      const parts = this.pages.slice(begin).map((page) => page[which])
      const all = parts.length === 1 ? parts[0] : mx.concatenate(parts, 2)
      return all.index(...tokens(from - begin * this.size, to - begin * this.size))
    }
    const y = attend(q, read("keys"), read("values"), { ...rules, window }, pass)
    this.dropPages()
    return y
  }

  /** Appends tokens, page by page. */
  private append(k: mx.Array, v: mx.Array): void {
    const length = k.shape[2]
    for (let done = 0; done < length; ) {
      const at = this.offset % this.size
      const some = Math.min(this.size - at, length - done)
      const page = this.pageAt(Math.floor(this.offset / this.size) - this.dropped, k, v)
      const part = (x: mx.Array): mx.Array => (some === length ? x : x.index(...tokens(done, done + some)))
      page.keys = mx.sliceUpdate(page.keys, part(k), [at], [2])
      page.values = mx.sliceUpdate(page.values, part(v), [at], [2])
      this.offset += some
      done += some
    }
  }

  /** A page to write to: a new one, or a copy if it is shared. */
  private pageAt(index: number, k: mx.Array, v: mx.Array): Page {
    const known = this.pages[index]
    if (known && this.own.has(known)) return known
    const empty = (x: mx.Array): mx.Array =>
      mx.zeros([x.shape[0], x.shape[1], this.size, x.shape[3]], x.dtype)
    // Own handles, because writes rebind the handle.
    const page = known
      ? { keys: known.keys.index("..."), values: known.values.index("...") }
      : { keys: empty(k), values: empty(v) }
    this.pages[index] = page
    this.own.add(page)
    return page
  }

  /** Drops pages outside the window of all later tokens. */
  private dropPages(): void {
    if (this.window === null) return
    const kept = this.window - 1 + SLACK
    while (this.offset - (this.dropped + 1) * this.size >= kept) {
      const [page] = this.pages.splice(0, 1)
      this.own.delete(page)
      this.dropped++
    }
  }

  canTrim(n: number): boolean {
    const rest = this.offset - this.dropped * this.size - n
    // The window before the new end must still be available, unless nothing is kept.
    return n === this.offset || rest >= (this.dropped > 0 && this.window !== null ? this.window - 1 : 0)
  }
  trim(n: number): void {
    this.offset -= n
    if (this.offset === 0) this.dropped = 0
    const pages = Math.ceil(this.offset / this.size) - this.dropped
    for (const page of this.pages.splice(pages)) this.own.delete(page)
  }

  clone(): PagedCache {
    const copy = new PagedCache(this.size, this.window)
    copy.offset = this.offset
    copy.longest = this.longest
    copy.dropped = this.dropped
    copy.pages = [...this.pages]
    // Both caches share all pages from here on.
    this.own.clear()
    return copy
  }

  state(): CacheState {
    const { offset, dropped, size, window, pages } = this
    const numbers = { offset, dropped, size, window: window ?? 0 }
    if (pages.length === 0) return { kind: "paged", numbers, arrays: {} }
    const join = (which: keyof Page): mx.Array =>
      mx.concatenate(
        pages.map((page) => page[which]),
        2,
      )
    return { kind: "paged", numbers, arrays: { keys: join("keys"), values: join("values") } }
  }

  /** Restores the contents from {@link state}. */
  restore({ numbers, arrays }: CacheState): this {
    const { keys, values } = arrays
    this.offset = numbers.offset
    this.dropped = numbers.dropped
    const held = Math.ceil(this.offset / this.size - this.dropped) * this.size
    checkSaved(arrays, ["keys", "values"], held)
    for (let at = 0; at < held; at += this.size) {
      const part = (x: mx.Array): mx.Array => mx.contiguous(x.index(...tokens(at, at + this.size)))
      this.pages.push({ keys: part(keys), values: part(values) })
    }
    return this
  }
}
