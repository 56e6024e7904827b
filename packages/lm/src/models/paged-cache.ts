/**
 * A cache in pages of some tokens each: caches that began alike share their pages, and writing copies one page, not the whole. Attention
 * reads the pages in order, so that it sums them as the plain cache does.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { type AttentionRules, attend, type Pass } from "./attend"
import { type CacheState, type LayerCache, tokens } from "./cache"
import { SLACK } from "./rotating-cache"

/** Some tokens of one layer. Its arrays are only replaced by the one cache that owns it. */
interface Page {
  keys: mx.Array
  values: mx.Array
}

/** Keeps tokens in pages: all, or those of a window. */
export class PagedCache implements LayerCache {
  offset = 0
  private pages: Page[] = []
  /** Pages before the first that is kept. */
  private dropped = 0
  /** The pages that no other cache reads. */
  private own = new Set<Page>()

  /**
   * @param size - tokens a page
   * @param window - the tokens that a query sees, or null for all
   */
  constructor(
    readonly size: number,
    readonly window: number | null = null,
  ) {
    if (!Number.isSafeInteger(size) || size < 1)
      throw new ArgumentError("stream", `pageTokens must be a positive whole number, received ${size}`)
  }

  get nbytes(): number {
    return this.pages.reduce((sum, { keys, values }) => sum + keys.nbytes + values.nbytes, 0)
  }

  /** The arrays that it holds, some of which others may hold too. */
  held(): mx.Array[] {
    return this.pages.flatMap(({ keys, values }) => [keys, values])
  }

  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const length = k.shape[2]
    this.append(k, v)
    const first = this.dropped * this.size
    const to = this.offset - first
    const window = rules.window ?? this.window
    // Further back than the window of the first query nobody looks.
    const from = window === null ? 0 : Math.max(0, to - (window + length - 1))
    const read = (which: keyof Page): mx.Array => {
      const begin = Math.floor(from / this.size)
      const parts = this.pages.slice(begin).map((page) => page[which])
      const all = parts.length === 1 ? parts[0] : mx.concatenate(parts, 2)
      return all.index(...tokens(from - begin * this.size, to - begin * this.size))
    }
    const y = attend(q, read("keys"), read("values"), { ...rules, window }, pass)
    this.forget()
    return y
  }

  /** Writes tokens behind the last one, page by page. */
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

  /** A page to write: a new one, or a copy of one that others read too. */
  private pageAt(index: number, k: mx.Array, v: mx.Array): Page {
    const known = this.pages[index]
    if (known && this.own.has(known)) return known
    const empty = (x: mx.Array): mx.Array =>
      mx.zeros([x.shape[0], x.shape[1], this.size, x.shape[3]], x.dtype)
    // Handles of its own: writes rebind the handle that is written.
    const page = known
      ? { keys: known.keys.index("..."), values: known.values.index("...") }
      : { keys: empty(k), values: empty(v) }
    this.pages[index] = page
    this.own.add(page)
    return page
  }

  /** Lets pages go that no later token sees. */
  private forget(): void {
    if (this.window === null) return
    const kept = this.window - 1 + SLACK
    while (this.offset - (this.dropped + 1) * this.size >= kept) {
      const [page] = this.pages.splice(0, 1)
      this.own.delete(page)
      this.dropped++
    }
  }

  trim(n: number): boolean {
    const kept = this.offset - this.dropped * this.size
    // The window before the new end must still be there.
    if (n > kept || (this.dropped > 0 && this.window !== null && kept - n < this.window - 1)) return false
    this.offset -= n
    const pages = Math.ceil(this.offset / this.size) - this.dropped
    for (const page of this.pages.splice(pages)) this.own.delete(page)
    return true
  }

  clone(): PagedCache {
    const copy = new PagedCache(this.size, this.window)
    copy.offset = this.offset
    copy.dropped = this.dropped
    copy.pages = [...this.pages]
    // From here on both read them.
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

  /** Takes what `state` gave. */
  restore({ numbers, arrays }: CacheState): this {
    const { keys, values } = arrays
    this.offset = numbers.offset
    this.dropped = numbers.dropped
    const held = keys ? keys.shape[2] : 0
    if (held % this.size !== 0 || this.dropped * this.size + held < this.offset)
      throw new ArgumentError("loadPromptCache", "the file's keys do not belong to its number of tokens")
    for (let at = 0; at < held; at += this.size) {
      const part = (x: mx.Array): mx.Array => mx.contiguous(x.index(...tokens(at, at + this.size)))
      this.pages.push({ keys: part(keys), values: part(values) })
    }
    return this
  }
}
