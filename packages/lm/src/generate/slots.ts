/**
 * Shared cache buffers for the rows of a batch, so that a compiled step does one write and one attention per layer for all rows. A row
 * gets a slot in its first step. The number of slots doubles as needed, and their capacity grows by {@link capacityFor}.
 */
import * as mx from "@lazuli/core"
import {
  type Buffers,
  type Cache,
  cacheArrays,
  cacheLength,
  capacityFor,
  disposeAll,
  disposeCache,
  grown,
  PlainCache,
  tokens,
  zerosOf,
} from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { programOf } from "./steps"

/** Number of slots for this many rows. */
const slotsFor = (rows: number): number => 2 ** Math.ceil(Math.log2(rows))

/** A row that may have a slot. While it does, its own cache is empty. */
export interface SlotRow {
  cache: Cache
}

export class Slots<R extends SlotRow> {
  private rows: (R | null)[] = []
  /** Number of tokens in each slot. */
  private lengths: number[] = []
  private layers: Buffers[] = []

  constructor(private readonly network: CausalNetwork) {}

  get nbytes(): number {
    return this.layers.reduce((sum, { keys, values }) => sum + keys.nbytes + values.nbytes, 0)
  }

  /** The largest size with these rows, given the largest sizes of their own caches. */
  maxBytes(sizes: readonly number[]): number {
    if (sizes.length === 0) return this.nbytes
    const { length } = this.rows
    return Math.max(length, slotsFor(sizes.length)) * Math.max(length && this.nbytes / length, ...sizes)
  }

  slotOf(row: R): number {
    return this.rows.indexOf(row)
  }

  /**
   * The logits [slots, vocabulary] after one more token of each row. Other rows lose their slots.
   * @param lastOf - returns the slots' last tokens
   */
  step(rows: readonly R[], lastOf: (slots: readonly (R | null)[]) => mx.Array): mx.Array {
    this.rows = this.rows.map((row) => (row && rows.includes(row) ? row : null))
    this.rows.forEach((row, i) => {
      if (!row) this.lengths[i] = 0
    })
    for (const row of rows) if (!this.rows.includes(row)) this.join(row, rows.length)
    this.shrink(rows.length)
    this.makeRoom(Math.max(...this.lengths) + 1)
    const [logits, layers] = programOf(this.network, this.layers)(
      lastOf(this.rows).expandDims(1),
      mx.array(Int32Array.from(this.lengths)),
      this.layers,
    )
    this.layers = [...layers]
    this.rows.forEach((row, i) => {
      if (row) this.lengths[i]++
    })
    return logits
  }

  /** Frees a row's slot, and returns its cache. */
  leave(row: R): Cache {
    const slot = this.slotOf(row)
    const length = this.lengths[slot]
    const own = (buffer: mx.Array): mx.Array => mx.contiguous(this.part(buffer, slot, capacityFor(length)))
    this.rows[slot] = null
    const cache = this.layers.map(({ keys, values }) =>
      new PlainCache().take({ keys: own(keys), values: own(values) }, length),
    )
    mx.eval(cacheArrays(cache))
    return cache
  }

  /** Frees all memory. */
  clear(): void {
    this.replace([])
    this.rows = []
    this.lengths = []
  }

  private replace(layers: readonly Buffers[]): void {
    const before = this.layers
    this.layers = [...layers]
    for (const { keys, values } of before) {
      keys.dispose()
      values.dispose()
    }
  }

  /** The first tokens of a slot. */
  private part(buffer: mx.Array, slot: number, length: number): mx.Array {
    return buffer.index(mx.s(slot, slot + 1), ":", mx.s(0, length))
  }

  private get room(): number {
    return this.layers[0]?.keys.shape[2] ?? 0
  }

  private join(row: R, expected: number): void {
    const own = row.cache.flatMap((layer) => (layer instanceof PlainCache ? (layer.buffers() ?? []) : []))
    const length = cacheLength(row.cache)
    const before = row.cache
    row.cache = []
    if (!this.rows.includes(null)) this.resize(slotsFor(expected), own, Math.max(length, ...this.lengths))
    this.makeRoom(length)
    const slot = this.rows.indexOf(null)
    this.rows[slot] = row
    this.lengths[slot] = length
    const put = (buffer: mx.Array, held: mx.Array): mx.Array => {
      const read = held.index(...tokens(0, length))
      const written = mx.sliceUpdate(buffer, read, [slot, 0], [0, 2])
      // Tokens of an earlier row that are NaN would make this one's results NaN, masked as they are.
      const free = zerosOf(buffer, 1, [length, this.room])
      const clean = mx.sliceUpdate(written, free, [slot, length], [0, 2])
      // Their handles would keep the buffers until garbage collection.
      disposeAll([read, written, free])
      return clean
    }
    this.replace(
      this.layers.map(({ keys, values }, i) => ({
        keys: put(keys, own[i].keys),
        values: put(values, own[i].values),
      })),
    )
    disposeCache(before)
  }

  /** Frees memory when most slots, or most of their capacity, are unused. */
  private shrink(needed: number): void {
    const longest = Math.max(...this.lengths)
    if (this.rows.length >= 4 * needed || this.room >= 4 * capacityFor(longest + 1))
      this.resize(Math.min(this.rows.length, slotsFor(needed)), this.layers, longest)
  }

  /** Changes the number and the capacity of slots, and keeps those in use; `like` gives the shapes of layers. */
  private resize(count: number, like: readonly Buffers[], longest: number): void {
    const kept = this.rows.flatMap((row, i) => (row ? [i] : []))
    const room = capacityFor(longest + 1)
    this.makeRoom(longest + 1)
    const resized = (given: mx.Array | undefined, shape: mx.Array): mx.Array => {
      const [, heads, , features] = shape.shape
      const parts = given ? kept.map((slot) => this.part(given, slot, room)) : []
      const free = mx.zeros([count - kept.length, heads, room, features], shape.dtype)
      const all = mx.concatenate([...parts, free], 0)
      // Their handles would keep the old buffers until garbage collection.
      disposeAll([...parts, free])
      return all
    }
    const { layers } = this
    this.replace(
      like.map(({ keys, values }, i) => ({
        keys: resized(layers[i]?.keys, keys),
        values: resized(layers[i]?.values, values),
      })),
    )
    const free = Array.from({ length: count - kept.length }, () => null)
    this.lengths = [...kept.map((slot) => this.lengths[slot]), ...free.map(() => 0)]
    this.rows = [...kept.map((slot) => this.rows[slot]), ...free]
  }

  private makeRoom(length: number): void {
    const { room } = this
    if (length <= room) return
    const larger = (buffer: mx.Array): mx.Array => grown(buffer, room, capacityFor(length))
    this.replace(this.layers.map(({ keys, values }) => ({ keys: larger(keys), values: larger(values) })))
  }
}
