/**
 * The keys and values that a model keeps of what it has read: one {@link LayerCache} a layer. Here is the contract and the plain form,
 * which keeps everything; others are in rotating-cache.ts and quantized-cache.ts.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { type AttentionRules, attend, masked, type Pass } from "./attend"

/** The memory of one layer. */
export interface LayerCache {
  /** Tokens seen: the position of the next one. */
  readonly offset: number
  /** The bytes that it holds. */
  readonly nbytes: number
  /** Adds keys and values [batch, heads, length, features], and attends with the queries over all that may be seen. */
  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array
  /** Forgets the last n tokens; false where that is not possible any more. */
  trim(n: number): boolean
  /** One that goes on by itself from here. No memory is copied until it does. */
  clone(): LayerCache
  /** Its arrays and numbers, to be saved. */
  state(): CacheState
  /** The arrays that it holds, where others may hold them too. */
  held?(): mx.Array[]
}

/** The parts of a cache, as it is saved. */
export interface CacheState {
  readonly kind: string
  readonly numbers: Readonly<Record<string, number>>
  readonly arrays: Readonly<Record<string, mx.Array>>
}

/** A layer's shape, for those who make its cache. */
export interface LayerShape {
  readonly kvHeads: number
  readonly headDim: number
  /** The tokens that a query sees, or null for all. */
  readonly window: number | null
}

/** A whole model's. */
export type Cache = readonly LayerCache[]

/**
 * The tokens that a model's cache has seen.
 * @example
 * const { network } = await load('my-model')
 * cacheLength(makeCache(network)) // => 0
 */
export const cacheLength = (cache: Cache): number => cache[0]?.offset ?? 0
/**
 * The bytes that a model's cache holds.
 * @example
 * const { network } = await load('my-model')
 * cacheBytes(makeCache(network)) // => 0
 */
export const cacheBytes = (cache: Cache): number => cache.reduce((sum, layer) => sum + layer.nbytes, 0)
/** The bytes that several caches hold, what they share counted once. */
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
/** A cache that goes on by itself. */
export const cloneCache = (cache: Cache): Cache => cache.map((layer) => layer.clone())
/** Forgets the last n tokens in all layers; false, and unchanged, where one cannot. */
export function trimCache(cache: Cache, n: number): boolean {
  if (n === 0) return true
  const copies = cloneCache(cache)
  if (!copies.every((layer) => layer.trim(n))) return false
  for (const layer of cache) layer.trim(n)
  return true
}
/** The arrays of a cache, to be evaluated. */
export const cacheArrays = (cache: Cache): mx.Array[] =>
  cache.flatMap((layer) => layer.held?.() ?? Object.values(layer.state().arrays))

/**
 * A part of a layer, which gives up all arrays that it makes but for its result and what the owners hold: handles of the others would
 * keep a prompt's activations until the collector finds them.
 */
export function tidyBeside(
  cache: LayerCache | null,
  owners: readonly ({ held(): mx.Array[] } | null)[],
  part: () => mx.Array,
): mx.Array {
  if (!cache?.held) return part()
  return mx.tidy(() => ({ y: part(), held: [cache.held?.(), owners.map((owner) => owner?.held())] })).y
}

/** Buffers grow by this many tokens. */
const STEP = 256
/** The tokens that a buffer has room for once it holds so many. */
export const capacityFor = (length: number): number => Math.ceil(length / STEP) * STEP

/** Where tokens lie along the third axis. */
export const tokens = (from: number, to: number): [":", ":", ReturnType<typeof mx.s>] => [
  ":",
  ":",
  mx.s(from, to),
]

/** The memory of one layer: keys and values [batch, heads, room, features]. */
export interface Buffers {
  readonly keys: mx.Array
  readonly values: mx.Array
}

/** Writes x [rows, heads, 1, features] at one position, or at one for each row. */
function putAt(buffer: mx.Array, x: mx.Array, position: mx.Array): mx.Array {
  if (position.ndim === 0) return mx.sliceUpdate(buffer, x, position.reshape([1]), [2])
  const written = buffer.index("...")
  written.set([mx.arange(buffer.shape[0], { dtype: mx.int32 }), ":", position], x.squeeze(2))
  return written
}

/** Writes one more token into buffers with room for it, and attends over all up to it: what a compiled step does. */
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
  trim(): boolean {
    return false
  }
  clone(): StepCache {
    return new StepCache(this.buffers)
  }
  state(): never {
    throw new ArgumentError("stream", "a step's caches are saved layer by layer")
  }
}

/** Keeps all tokens. */
export class PlainCache implements LayerCache {
  offset = 0
  private keys: mx.Array | null = null
  private values: mx.Array | null = null

  get nbytes(): number {
    return (this.keys?.nbytes ?? 0) + (this.values?.nbytes ?? 0)
  }

  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const from = this.offset
    const to = from + k.shape[2]
    this.keys = put(this.keys, k, from)
    this.values = put(this.values, v, from)
    this.offset = to
    return attendWithin(q, { keys: this.keys, values: this.values }, [0, to], rules, pass)
  }

  /** Its memory, with room for one more token; null where it has none yet. */
  buffers(): Buffers | null {
    const { keys, values, offset } = this
    if (!keys || !values) return null
    return { keys: grown(keys, offset, offset + 1), values: grown(values, offset, offset + 1) }
  }
  /** Takes memory that holds so many tokens. */
  take({ keys, values }: Buffers, offset: number): this {
    Object.assign(this, { keys, values, offset })
    return this
  }
  /** Takes its memory back, with one more token in it. */
  advance({ keys, values }: Buffers): void {
    this.keys = keys
    this.values = values
    this.offset++
  }

  trim(n: number): boolean {
    if (n > this.offset) return false
    this.offset -= n
    return true
  }

  clone(): PlainCache {
    const copy = Object.assign(Object.create(Object.getPrototypeOf(this) as object) as this, this)
    // Handles of its own: writes rebind the handle that is written.
    copy.keys = this.keys?.index("...") ?? null
    copy.values = this.values?.index("...") ?? null
    return copy
  }

  held(): mx.Array[] {
    return this.keys && this.values ? [this.keys, this.values] : []
  }

  state(): CacheState {
    const { keys, values, offset } = this
    if (!keys || !values) return { kind: "plain", numbers: { offset }, arrays: {} }
    const arrays = { keys: keys.index(...tokens(0, offset)), values: values.index(...tokens(0, offset)) }
    return { kind: "plain", numbers: { offset }, arrays }
  }

  /** Takes what `state` gave. */
  restore({ numbers, arrays }: CacheState): this {
    if (arrays.keys && arrays.keys.shape[2] !== numbers.offset)
      throw new ArgumentError("loadPromptCache", "the file's keys do not belong to its number of tokens")
    this.offset = numbers.offset
    this.keys = arrays.keys?.index("...") ?? null
    this.values = arrays.values?.index("...") ?? null
    return this
  }
}

/** Attention over the tokens [from, to) of buffers. Handles of views are given up, so that the next write finds nobody who reads. */
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
 * Writes x [batch, heads, length, features] from a token on, into a buffer that grows as needed. The handle of the buffer before is given
 * up: what nobody else reads is written where it lies.
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

/** A buffer with room for so many tokens, of which it holds the first ones. */
export function grown(buffer: mx.Array, held: number, length: number): mx.Array {
  const [batch, heads, room, features] = buffer.shape
  if (room >= length) return buffer
  const free = mx.zeros([batch, heads, capacityFor(length) - held, features], buffer.dtype)
  if (held === 0) return free
  const kept = buffer.index(...tokens(0, held))
  const all = mx.concatenate([kept, free], 2)
  // Their handles would keep the buffer before until the collector finds them.
  for (const part of [kept, free]) if (part !== buffer) part.dispose()
  return all
}
