/**
 * A cache for layers with a sliding window. Tokens stay in order, so that results equal those of the plain cache.
 */
import type * as mx from "@lazuli/core"
import type { AttentionRules, Pass } from "./attend"
import {
  attendWithin,
  type CacheState,
  capacityFor,
  checkSaved,
  disposeAll,
  type LayerCache,
  put,
  shared,
  tokens,
} from "./cache"

/** Tokens kept beyond the window, so that as many can be trimmed. */
export const SLACK = 64
/** Maximum capacity of a buffer if at most `step` tokens are added at a time. */
export function rotatingCapacity(window: number, step: number): number {
  const needed = window - 1 + SLACK
  return capacityFor(Math.max(2 * needed + SLACK, needed + step))
}

/** Keeps the tokens of a sliding window. */
export class RotatingCache implements LayerCache {
  offset = 0
  longest = 0
  /** The position of the first token in the buffer. */
  private first = 0
  private keys: mx.Array | null = null
  private values: mx.Array | null = null

  constructor(readonly window: number) {}

  get nbytes(): number {
    return (this.keys?.nbytes ?? 0) + (this.values?.nbytes ?? 0)
  }

  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const length = k.shape[2]
    this.makeRoom(length)
    const from = this.offset - this.first
    this.keys = put(this.keys, k, from)
    this.values = put(this.values, v, from)
    this.offset += length
    const to = from + length
    // Tokens before the first query's window are not needed.
    const begin = Math.max(0, to - (this.window + length - 1))
    const window = Math.min(rules.window ?? this.window, this.window)
    const { keys, values } = this
    return attendWithin(q, { keys, values }, [begin, to], { ...rules, window }, pass)
  }

  /** Moves the last tokens to the front when the buffer would exceed twice the window. */
  private makeRoom(length: number): void {
    const kept = this.offset - this.first
    const needed = this.window - 1 + SLACK
    if (!this.keys || !this.values || kept + length <= 2 * needed + SLACK || kept <= needed) return
    const rows = tokens(kept - needed, kept)
    this.keys = this.keys.index(...rows)
    this.values = this.values.index(...rows)
    this.first = this.offset - needed
  }

  canTrim(n: number): boolean {
    const rest = this.offset - this.first - n
    // The window before the new end must still be available, unless nothing is kept.
    return n === this.offset || rest >= (this.first > 0 ? this.window - 1 : 0)
  }
  trim(n: number): void {
    this.offset -= n
    if (this.offset === 0) this.first = 0
  }

  clone(): RotatingCache {
    const copy = Object.assign(Object.create(Object.getPrototypeOf(this) as object) as this, this)
    copy.keys = this.keys && shared(this.keys, this.offset - this.first)
    copy.values = this.values && shared(this.values, this.offset - this.first)
    return copy
  }

  held(): mx.Array[] {
    return this.keys && this.values ? [this.keys, this.values] : []
  }
  dispose(): void {
    disposeAll(this.held())
  }

  state(): CacheState {
    const { offset, first, window, keys, values } = this
    const numbers = { offset, first, window }
    if (!keys || !values) return { kind: "rotating", numbers, arrays: {} }
    const rows = tokens(0, offset - first)
    return { kind: "rotating", numbers, arrays: { keys: keys.index(...rows), values: values.index(...rows) } }
  }

  /** Restores the contents from {@link state}. */
  restore({ numbers, arrays }: CacheState): this {
    checkSaved(arrays, ["keys", "values"], numbers.offset - numbers.first)
    this.offset = numbers.offset
    this.first = numbers.first
    this.keys = arrays.keys?.index("...") ?? null
    this.values = arrays.values?.index("...") ?? null
    return this
  }
}
