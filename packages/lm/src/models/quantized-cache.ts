/**
 * A cache with quantized keys and values: 8.5 bits for each number at 8 bits, 6.5 at 6 (in groups of 64, with 16-bit scales), with some
 * loss of accuracy.
 */
import * as mx from "@lazuli/core"
import { type AttentionRules, type Pass, weightsOf } from "./attend"
import { type CacheState, checkSaved, disposeAll, type LayerCache, put, shared, tokens } from "./cache"

/** Packed values, scales and biases. */
type Packed = readonly [mx.Array, mx.Array, mx.Array]
type Buffers = readonly [mx.Array | null, mx.Array | null, mx.Array | null]
const NONE: Buffers = [null, null, null]

/** The numbers of bits that change the next token's distribution by a KL divergence of at most 0.01 (docs/decisions/0019). */
export const CACHE_BITS: readonly number[] = [6, 8]

/** The format of a quantized cache. */
export interface CacheFormat {
  readonly bits: number
  readonly groupSize: number
}

/** Keeps all tokens, quantized in groups of features. */
export class QuantizedCache implements LayerCache {
  offset = 0
  longest = 0
  private keys: Buffers = NONE
  private values: Buffers = NONE

  constructor(private readonly format: CacheFormat) {}

  get nbytes(): number {
    return [...this.keys, ...this.values].reduce((sum, x) => sum + (x?.nbytes ?? 0), 0)
  }

  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const from = this.offset
    const to = from + k.shape[2]
    this.keys = this.write(this.keys, k, from)
    this.values = this.write(this.values, v, from)
    this.offset = to
    const read = (buffers: Buffers): Packed =>
      buffers.map((x) => x!.index(...tokens(0, to))) as unknown as Packed
    const [keys, values] = [read(this.keys), read(this.values)]
    const y = this.attendPacked(q, keys, values, rules, pass)
    const own: readonly (mx.Array | null)[] = [...this.keys, ...this.values]
    // Without views, the next write can be in place.
    for (const view of [...keys, ...values]) if (!own.includes(view)) view.dispose()
    return y
  }

  private write(buffers: Buffers, x: mx.Array, from: number): Buffers {
    const packed = mx.quantize(x, this.format) as unknown as Packed
    return packed.map((part, i) => put(buffers[i], part, from)) as unknown as Buffers
  }

  private attendPacked(q: mx.Array, k: Packed, v: Packed, rules: AttentionRules, pass: Pass): mx.Array {
    const [batch, heads, length, features] = q.shape
    const [, groups, total] = k[0].shape
    const { format } = this
    const grouped = q.multiply(rules.scale).reshape([batch, groups, heads / groups, length, features])
    const multiply = (x: mx.Array, packed: Packed, transpose: boolean): mx.Array => {
      const grouped = packed.map((part) => part.expandDims(2)) as unknown as Packed
      const product = mx.quantizedMatmul(x, ...grouped, { transpose, ...format })
      for (const part of grouped) part.dispose()
      return product
    }
    let scores = multiply(grouped, k, true).astype(mx.float32)
    if (rules.cap !== null) scores = scores.divide(rules.cap).tanh().multiply(rules.cap)
    if (length > 1 || rules.window !== null)
      scores = mx.where(pass.mask(length, total, rules.window), scores, -Infinity)
    const weights = weightsOf(scores, rules.sinks)
    const y = multiply(weights.astype(q.dtype), v, false)
    return y.reshape([batch, heads, length, features])
  }

  canTrim(n: number): boolean {
    return n <= this.offset
  }
  trim(n: number): void {
    this.offset -= n
  }

  clone(): QuantizedCache {
    const copy = Object.assign(Object.create(Object.getPrototypeOf(this) as object) as this, this)
    const own = (buffers: Buffers): Buffers =>
      buffers.map((x) => x && shared(x, this.offset)) as unknown as Buffers
    copy.keys = own(this.keys)
    copy.values = own(this.values)
    return copy
  }

  held(): mx.Array[] {
    return [...this.keys, ...this.values].flatMap((x) => x ?? [])
  }
  dispose(): void {
    disposeAll(this.held())
  }

  state(): CacheState {
    const arrays: Record<string, mx.Array> = {}
    for (const [name, buffers] of [
      ["keys", this.keys],
      ["values", this.values],
    ] as const)
      buffers.forEach((x, i) => {
        if (x) arrays[`${name}${i}`] = x.index(...tokens(0, this.offset))
      })
    return { kind: "quantized", numbers: { offset: this.offset, ...this.format }, arrays }
  }

  /** Restores the contents from {@link state}. */
  restore({ numbers, arrays }: CacheState): this {
    const names = ["keys", "values"].flatMap((name) => [0, 1, 2].map((i) => `${name}${i}`))
    checkSaved(arrays, names, numbers.offset)
    this.offset = numbers.offset
    const read = (name: string): Buffers =>
      [0, 1, 2].map((i) => arrays[`${name}${i}`]?.index("...") ?? null) as unknown as Buffers
    this.keys = read("keys")
    this.values = read("values")
    return this
  }
}
