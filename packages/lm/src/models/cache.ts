/**
 * Key-value caches: the interface {@link LayerCache} of one layer's cache, and the plain one, which keeps all tokens. Others are in
 * rotating-cache.ts, quantized-cache.ts and paged-cache.ts.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, FormatError } from "@lazuli/core/engine"
import { checkKind, type Kind } from "../argument-kinds"
import { type AttentionRules, attend, masked, type Pass } from "./attend"

/** A cache as an argument. */
export const CACHE: Kind = {
  expected: "one that makeCache or loadPromptCache made",
  accepts: (value) => Array.isArray(value) && value.every((layer) => typeof layer?.attend === "function"),
}

/** The key-value cache of one layer. */
export interface LayerCache {
  /** Number of tokens so far, which is the position of the next one. */
  readonly offset: number
  /** Size in bytes. */
  readonly nbytes: number
  /** The length of the longest sequence that its keys belong to, if that is more than the tokens it has. */
  longest?: number
  /** Adds keys and values [batch, heads, length, features], and computes the attention of the queries. */
  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array
  /** True if the last n tokens can be removed. */
  canTrim(n: number): boolean
  /** Removes the last n tokens, if {@link LayerCache.canTrim} allows it. */
  trim(n: number): void
  /** An independent copy, copied on write. */
  clone(): LayerCache
  /** Its contents, to be saved. */
  state(): CacheState
  /** Its arrays, if other caches may share them. */
  held?(): mx.Array[]
  /** Frees its memory at once, except what other caches share; it is not used afterwards. Without this method, garbage collection does. */
  dispose?(): void
}

/** The contents of a saved cache. */
export interface CacheState {
  readonly kind: string
  readonly numbers: Readonly<Record<string, number>>
  readonly arrays: Readonly<Record<string, mx.Array>>
}

/** @throws FormatError unless saved arrays [batch, heads, length, features] have these names, or there are none for no tokens */
export function checkSaved(arrays: CacheState["arrays"], names: readonly string[], length: number): void {
  const fits = (name: string): boolean => arrays[name]?.ndim === 4 && arrays[name].shape[2] === length
  const isEmpty = length === 0 && Object.keys(arrays).length === 0
  if (!isEmpty && !names.every(fits))
    throw new FormatError("loadPromptCache", "the keys and values do not match the number of tokens")
}

/** The sizes of a layer that its cache depends on. */
export interface LayerShape {
  readonly kvHeads: number
  readonly headDim: number
  /** Size of the sliding window, or null for none. */
  readonly window: number | null
}

/** A model's cache: one for each layer. */
export type Cache = readonly LayerCache[]

/**
 * Number of tokens in a cache.
 * @example
 * const { network } = await load('my-model')
 * cacheLength(makeCache(network)) // => 0
 */
export function cacheLength(cache: Cache): number {
  checkKind("cacheLength", "the cache", cache, CACHE)
  return cache[0]?.offset ?? 0
}
/**
 * Size of a cache in bytes.
 * @example
 * const { network } = await load('my-model')
 * cacheBytes(makeCache(network)) // => 0
 */
export function cacheBytes(cache: Cache): number {
  checkKind("cacheBytes", "the cache", cache, CACHE)
  return cache.reduce((sum, layer) => sum + layer.nbytes, 0)
}

/** Size of several caches in bytes, with shared arrays counted once. */
export function heldBytes(caches: readonly Cache[]): number {
  const seen = new Set<mx.Array>()
  let sum = 0
  for (const layer of caches.flat()) {
    if (!layer.held) sum += layer.nbytes
    else
      for (const array of layer.held()) {
        if (!seen.has(array)) sum += array.nbytes
        seen.add(array)
      }
  }
  return sum
}
/** An independent copy, copied on write. */
export const cloneCache = (cache: Cache): Cache => cache.map((layer) => layer.clone())
/** Frees the memory of a cache that is not used any more. */
export function disposeCache(cache: Cache): void {
  for (const layer of cache) layer.dispose?.()
}
/** The length of the longest sequence that a cache's keys belong to: positions of longer sequences may be encoded differently. */
export const cacheLongest = (cache: Cache): number => Math.max(cacheLength(cache), cache[0]?.longest ?? 0)
/** Records that a cache's keys belong to a sequence of this length. */
export function growCache(cache: Cache, length: number): void {
  const longest = Math.max(length, cacheLongest(cache))
  for (const layer of cache) layer.longest = longest
}
/** Removes all tokens from a cache. */
export function clearCache(cache: Cache): void {
  for (const layer of cache) {
    layer.trim(layer.offset)
    layer.longest = 0
  }
}
/** True if the last n tokens can be removed from all layers. */
export const canTrimCache = (cache: Cache, n: number): boolean =>
  n === 0 || cache.every((layer) => layer.canTrim(n))
/** Removes the last n tokens. Returns false, without a change, if a layer cannot. */
export function trimCache(cache: Cache, n: number): boolean {
  if (!canTrimCache(cache, n)) return false
  if (n === 0) return true
  growCache(cache, 0)
  for (const layer of cache) layer.trim(n)
  return true
}
/** A cache's arrays, for evaluation. */
export const cacheArrays = (cache: Cache): mx.Array[] =>
  cache.flatMap((layer) => layer.held?.() ?? Object.values(layer.state().arrays))

/**
 * Runs a part of a layer, and disposes of the arrays it makes, except its result and those held by the cache and the owners. Otherwise a
 * prompt's activations would stay until garbage collection.
 */
export function tidyBeside(
  cache: LayerCache | null,
  owners: readonly ({ held(): mx.Array[] } | null)[],
  part: () => mx.Array,
): mx.Array {
  if (!cache?.held) return part()
  return mx.tidy(() => ({ y: part(), held: [cache.held?.(), owners.map((owner) => owner?.held())] })).y
}

/** Disposes of arrays. */
export function disposeAll(arrays: readonly mx.Array[]): void {
  for (const array of arrays) array.dispose()
}

/** Buffers grow by this many tokens. */
const STEP = 256
/** The capacity of a buffer for this many tokens. */
export const capacityFor = (length: number): number => Math.ceil(length / STEP) * STEP

/** Index of tokens along the third axis. */
export const tokens = (from: number, to: number): [":", ":", ReturnType<typeof mx.s>] => [
  ":",
  ":",
  mx.s(from, to),
]

/** A new handle of a buffer with `length` tokens, for a copy of a cache, without capacity beyond the next step. */
export const shared = (buffer: mx.Array, length: number): mx.Array =>
  buffer.shape[2] > capacityFor(length)
    ? buffer.index(...tokens(0, capacityFor(length)))
    : buffer.index("...")

/** The buffers of one layer: keys and values [batch, heads, capacity, features]. */
export interface Buffers {
  readonly keys: mx.Array
  readonly values: mx.Array
}

/** Writes x [rows, heads, 1, features] at a position, or at one for each row. */
function putAt(buffer: mx.Array, x: mx.Array, position: mx.Array): mx.Array {
  if (position.ndim === 0) return mx.sliceUpdate(buffer, x, position.reshape([1]), [2])
  const written = buffer.index("...")
  written.set([mx.arange(buffer.shape[0], { dtype: mx.int32 }), ":", position], x.squeeze(2))
  return written
}

/** The cache in a compiled step: writes a token into buffers with enough capacity, and attends over all tokens up to it. */
export class StepCache implements LayerCache {
  readonly offset = 0
  constructor(public buffers: Buffers) {}
  get nbytes(): number {
    return this.buffers.keys.nbytes + this.buffers.values.nbytes
  }
  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const position = pass.position!
    const [keys, values] = [putAt(this.buffers.keys, k, position), putAt(this.buffers.values, v, position)]
    this.buffers = { keys, values }
    return masked(q, keys, values, rules, pass.maskUpTo(position, keys.shape[2], rules.window))
  }
  canTrim(): boolean {
    return false
  }
  trim(): never {
    throw new ArgumentError("stream", "the cache of a compiled step cannot be trimmed")
  }
  clone(): StepCache {
    return new StepCache(this.buffers)
  }
  state(): never {
    throw new ArgumentError("stream", "the cache of a compiled step cannot be saved")
  }
}

/** Keeps all tokens. */
export class PlainCache implements LayerCache {
  offset = 0
  longest = 0
  private keys: mx.Array | null = null
  private values: mx.Array | null = null
  /** Number of tokens in its buffers, with those that were trimmed. */
  private written = 0

  get nbytes(): number {
    return (this.keys?.nbytes ?? 0) + (this.values?.nbytes ?? 0)
  }

  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const from = this.offset
    const to = from + k.shape[2]
    this.keys = put(this.keys, k, from)
    this.values = put(this.values, v, from)
    this.offset = to
    this.written = Math.max(this.written, to)
    return attendWithin(q, { keys: this.keys, values: this.values }, [0, to], rules, pass)
  }

  /** Its buffers, zero beyond its tokens, with capacity for one more token; null if it is empty. */
  buffers(): Buffers | null {
    if (this.written > this.offset) this.clear()
    const { keys, values, offset } = this
    if (!keys || !values) return null
    return { keys: grown(keys, offset, offset + 1), values: grown(values, offset, offset + 1) }
  }
  /** Clears trimmed tokens: a mask does not hide NaN, since 0 · NaN is NaN. */
  private clear(): void {
    const { offset, written } = this
    const clean = (x: mx.Array): mx.Array => put(x, zerosOf(x, x.shape[0], [offset, written]), offset)
    this.keys &&= clean(this.keys)
    this.values &&= clean(this.values)
    this.written = offset
  }
  /** Takes over buffers with `offset` tokens, zero beyond them. */
  take({ keys, values }: Buffers, offset: number): this {
    Object.assign(this, { keys, values, offset, written: offset })
    return this
  }
  /** Takes over buffers with one more token. */
  advance({ keys, values }: Buffers): void {
    this.keys = keys
    this.values = values
    this.written = ++this.offset
  }

  canTrim(n: number): boolean {
    return n <= this.offset
  }
  trim(n: number): void {
    this.offset -= n
  }

  clone(): PlainCache {
    const copy = Object.assign(Object.create(Object.getPrototypeOf(this) as object) as this, this)
    // Own handles, because writes rebind the handle.
    copy.keys = this.keys && shared(this.keys, this.offset)
    copy.values = this.values && shared(this.values, this.offset)
    return copy
  }

  held(): mx.Array[] {
    return this.keys && this.values ? [this.keys, this.values] : []
  }
  dispose(): void {
    disposeAll(this.held())
  }

  state(): CacheState {
    const { keys, values, offset } = this
    if (!keys || !values) return { kind: "plain", numbers: { offset }, arrays: {} }
    const arrays = { keys: keys.index(...tokens(0, offset)), values: values.index(...tokens(0, offset)) }
    return { kind: "plain", numbers: { offset }, arrays }
  }

  /** Restores the contents from {@link state}. */
  restore({ numbers, arrays }: CacheState): this {
    checkSaved(arrays, ["keys", "values"], numbers.offset)
    this.offset = this.written = numbers.offset
    this.keys = arrays.keys?.index("...") ?? null
    this.values = arrays.values?.index("...") ?? null
    return this
  }
}

/** Attention over the tokens [from, to) of buffers. Disposes of its views, so that the next write can be in place. */
export function attendWithin(
  q: mx.Array,
  { keys, values }: Buffers,
  [from, to]: readonly [number, number],
  rules: AttentionRules,
  pass: Pass,
): mx.Array {
  const [k, v] = [keys.index(...tokens(from, to)), values.index(...tokens(from, to))]
  const y = attend(q, k, v, rules, pass)
  for (const view of [k, v]) if (view !== keys && view !== values) view.dispose()
  return y
}

/**
 * Writes x [batch, heads, length, features] at token `from` into a buffer, which grows as needed. Disposes of the old handle, so that the
 * write is in place if the buffer is not shared.
 */
export function put(buffer: mx.Array | null, x: mx.Array, from: number): mx.Array {
  const [batch, heads, length, features] = x.shape
  const held = buffer ?? mx.zeros([batch, heads, capacityFor(from + length), features], x.dtype)
  const room = grown(held, from, from + length)
  const written = mx.sliceUpdate(room, x, [from], [2])
  held.dispose()
  room.dispose()
  return written
}

/** Zeros for the tokens [from, to) of rows of a buffer, as far as it goes. */
export function zerosOf(buffer: mx.Array, rows: number, [from, to]: readonly [number, number]): mx.Array {
  const [, heads, room, features] = buffer.shape
  return mx.zeros([rows, heads, Math.max(0, Math.min(to, room) - from), features], buffer.dtype)
}

/** A buffer with capacity for `length` tokens, with the first `held` ones copied. */
export function grown(buffer: mx.Array, held: number, length: number): mx.Array {
  const [batch, heads, room, features] = buffer.shape
  if (room >= length) return buffer
  const free = mx.zeros([batch, heads, capacityFor(length) - held, features], buffer.dtype)
  if (held === 0) return free
  const kept = buffer.index(...tokens(0, held))
  const all = mx.concatenate([kept, free], 2)
  // Their handles would keep the old buffer until garbage collection.
  for (const part of [kept, free]) if (part !== buffer) part.dispose()
  return all
}
