/**
 * Continuous batching: each decoding step reads the weights once for all requests, which join and leave between steps.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { checkModel } from "../arguments"
import type { LoadedModel } from "../formats/load"
import { Pass } from "../models/attend"
import {
  type Cache,
  cacheArrays,
  cacheLength,
  clearCache,
  disposeCache,
  heldBytes,
  PlainCache,
  trimCache,
} from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { groupOf } from "../models/tensor-parallel"
import { weightsVersion } from "../models/weights-version"
import { type Batching, type BatchOptions, checkBatch, checkRequest, withDefaults } from "./batch-options"
import { emptyCache, maxCacheSize } from "./caches"
import { checkOptions, type GenerateOptions, limitOptions } from "./options"
import { checkLogits, outgrows, prefillChunk, trimToPrompt } from "./prefill"
import { PrefixStore } from "./prefixes"
import { causal, continued, type Prompt, promptTokens } from "./prompts"
import { RowsCache } from "./rows-cache"
import { type Choice, likeliestOf, type Proposal, Sampler } from "./sampler"
import { type SlotRow, Slots } from "./slots"
import { type Step, stepOf } from "./steps"
import { type Piece, Writer } from "./writer"

/**
 * The error of a batch whose queue is full, or that is closed.
 * @example
 * const batch = new Batcher(await load('my-model'))
 * batch.close()
 * batch.stream('the') // => throws BusyError: the batch is closed
 */
export class BusyError extends Error {
  override readonly name = "BusyError"
}

/** A request, and its progress. */
interface Row {
  readonly tokens: readonly number[]
  readonly options: GenerateOptions
  readonly sampler: Sampler
  readonly writer: Writer
  readonly pieces: PieceQueue
  /** Maximum size of its cache in bytes. */
  readonly reserved: number
  cache: Cache
  /** The version of the weights that its cache is from. */
  version: number
  /** Number of processed tokens of the prompt, or of a sequence that is read again. */
  processed: number
  /** The next token, once the prompt is processed: element `at` of an array that rows share, or an array of its own. */
  next: (Proposal & { readonly at?: number }) | null
  /** The generated tokens. */
  readonly written: number[]
}

/** A queue of pieces for a request's reader, bounded by the request's token limit. */
class PieceQueue {
  private readonly pieces: Piece[] = []
  private wake: (() => void) | null = null
  private failure: { readonly reason: unknown } | null = null
  private ended = false

  push(piece: Piece): void {
    this.pieces.push(piece)
    if (piece.finish !== null) this.ended = true
    this.wake?.()
  }
  fail(reason: unknown): void {
    this.failure = { reason }
    this.wake?.()
  }
  async *read(stop: () => void): AsyncGenerator<Piece, void, undefined> {
    try {
      for (;;) {
        const piece = this.pieces.shift()
        if (piece) yield piece
        else if (this.failure) throw this.failure.reason
        else if (this.ended) return
        else
          await new Promise<void>((resolve) => {
            this.wake = resolve
          })
      }
    } finally {
      stop()
    }
  }
}

/**
 * Generates for many prompts in one batch. Requests may be added at any time.
 * @example
 * const batch = new Batcher(await load('my-model'), { maxRows: 8 })
 * const write = async (prompt) => {
 *   let text = ''
 *   for await (const piece of batch.stream(prompt, { maxTokens: 4 })) text += piece.text
 *   return text
 * }
 * const answers = await Promise.all(['the', 'in'].map(write))
 * answers.length // => 2
 * batch.close()
 */
export class Batcher {
  private readonly network: CausalNetwork
  private readonly waiting: Row[] = []
  private readonly active: Row[] = []
  private readonly prefixes: PrefixStore | null
  private readonly options: Batching
  private readonly stepOne: Step
  /** Shared buffers of compiled steps, if all layers have plain caches. */
  private readonly slots: Slots<Row> | null
  /** Settles once the next tokens are computed. */
  private computing: Promise<void> = Promise.resolve()
  private running = false
  private closed = false

  constructor(
    readonly model: LoadedModel,
    given: BatchOptions = {},
  ) {
    checkModel("batch", model)
    this.network = causal("batch", model)
    checkBatch(given)
    const options = withDefaults(given)
    this.options = options
    this.stepOne = stepOf(this.network, options)
    // Throws for invalid cache options.
    const empty = emptyCache(this.network, options)
    this.prefixes = options.prefixBytes ? new PrefixStore(options.prefixBytes) : null
    const shares = !options.exact && empty.length > 0 && empty.every((layer) => layer instanceof PlainCache)
    this.slots = shares && options.compile && this.network.takesPositions ? new Slots(this.network) : null
  }

  /** Size of the vocabulary. */
  get vocabulary(): number {
    return this.network.vocabulary
  }

  /** Number of active and queued requests, and bytes of caches. */
  stats(): { active: number; waiting: number; cacheBytes: number; prefixBytes: number } {
    return {
      active: this.active.length,
      waiting: this.waiting.length,
      cacheBytes: heldBytes(this.active.map((row) => row.cache)) + (this.slots?.nbytes ?? 0),
      prefixBytes: this.prefixes?.nbytes ?? 0,
    }
  }

  /**
   * Generates text after a prompt, as `stream` does, in the batch.
   * @throws BusyError if the queue is full; ArgumentError for options out of range, or a request that cannot fit `maxCacheBytes`
   */
  stream(prompt: Prompt, given: GenerateOptions = {}): AsyncGenerator<Piece, void, undefined> {
    checkOptions(given)
    const tokens = promptTokens(this.model, prompt)
    const options = limitOptions(this.network, tokens, given)
    const { signal, maxTokens = 256 } = options
    checkRequest(given, this.options)
    const { prefillStep, maxCacheBytes } = this.options
    const reserved = maxCacheSize(this.network, tokens.length + maxTokens, prefillStep, this.options)
    if (reserved > maxCacheBytes)
      throw new ArgumentError(
        "batch",
        `a prompt of ${tokens.length} tokens and ${maxTokens} generated ones do not fit maxCacheBytes`,
      )
    if (this.closed) throw new BusyError("the batch is closed")
    if (this.waiting.length >= this.options.maxWaiting) throw new BusyError("the queue is full")
    const row: Row = {
      tokens,
      options,
      sampler: new Sampler(options, tokens, options.logprobs ?? null, groupOf(this.network)),
      writer: new Writer(this.model, options, continued(prompt, tokens, options)),
      pieces: new PieceQueue(),
      reserved,
      cache: [],
      processed: 0,
      version: 0,
      next: null,
      written: [],
    }
    this.waiting.push(row)
    const abort = (): void => this.remove(row, signal?.reason)
    if (signal?.aborted) abort()
    signal?.addEventListener("abort", abort, { once: true })
    void this.work()
    return this.deliver(row, () => signal?.removeEventListener("abort", abort))
  }

  /** Rejects further requests, and fails all current ones. */
  close(): void {
    this.closed = true
    for (const row of [...this.active, ...this.waiting])
      this.remove(row, new BusyError("the batch is closed"))
    this.prefixes?.clear()
  }

  /** Yields a row's pieces. Removes the row when the reader stops. */
  private deliver(row: Row, done: () => void): AsyncGenerator<Piece, void, undefined> {
    const stop = (): void => {
      done()
      this.remove(row, new BusyError("the reader stopped"))
    }
    const pieces = row.pieces.read(stop)
    const end = pieces.return.bind(pieces)
    // A generator that has not started does not run its finally block.
    pieces.return = (value) => {
      stop()
      return end(value)
    }
    return pieces
  }

  private remove(row: Row, reason: unknown): void {
    for (const list of [this.waiting, this.active]) {
      const at = list.indexOf(row)
      if (at < 0) continue
      list.splice(at, 1)
      // The reader may keep the row.
      forgetCache(row)
      row.pieces.fail(reason)
    }
  }

  /** Runs while there are requests: processes a chunk of one prompt, then a decoding step of all rows whose prompts are processed. */
  private async work(): Promise<void> {
    if (this.running) return
    this.running = true
    try {
      while (this.active.length + this.waiting.length > 0) {
        this.admit()
        const reading = this.active.find((row) => row.next === null)
        if (reading) await this.guarded([reading], () => this.prefillNext(reading))
        const ready = this.active.filter((row) => row.next !== null)
        if (ready.length > 0) await this.guarded(ready, () => this.step(ready))
        // Yields to the event loop, for incoming requests and outgoing pieces.
        await new Promise((resolve) => setImmediate(resolve))
      }
    } finally {
      this.running = false
      this.slots?.clear()
    }
  }

  private async guarded(rows: readonly Row[], body: () => Promise<void>): Promise<void> {
    try {
      await body()
    } catch (error) {
      for (const row of rows) this.remove(row, error)
    }
  }

  private admit(): void {
    while (this.active.length < this.options.maxRows) {
      const row = this.waiting[0]
      if (!row) return
      // Alone, a row fits.
      if (this.active.length === 0) this.slots?.clear()
      else if (this.maxBytes([...this.active, row]) > this.options.maxCacheBytes) return
      this.waiting.shift()
      if (this.prefixes) row.version = weightsVersion(this.network)
      this.prefixes?.keepVersion(row.version)
      row.cache = this.prefixOf(row.tokens) ?? emptyCache(this.network, this.options)
      trimToPrompt(this.network, row.tokens, row.cache)
      row.processed = cacheLength(row.cache)
      this.active.push(row)
    }
  }

  /** A copy of an earlier prompt's cache with a prefix of these tokens. */
  private prefixOf(tokens: readonly number[]): Cache | null {
    const found = this.prefixes?.find(tokens)
    if (!found) return null
    // Products of other numbers of tokens round differently.
    const surplus = this.options.exact ? cacheLength(found) % this.options.prefillStep : 0
    if (trimCache(found, surplus)) return found
    disposeCache(found)
    return null
  }

  /** The largest size of the caches of rows. */
  private maxBytes(rows: readonly Row[]): number {
    const total = (of: readonly Row[]): number => of.reduce((sum, { reserved }) => sum + reserved, 0)
    const { slots } = this
    if (!slots) return total(rows)
    // Rows have their own caches until they are processed, in order, and then slots.
    const processed = rows.filter(({ next }) => next !== null)
    const others = rows.filter(({ next }) => next === null)
    const sizes = [...processed, ...others].map(({ reserved }) => reserved)
    return Math.max(
      ...Array.from({ length: others.length + 1 }, (_, i) => {
        return slots.maxBytes(sizes.slice(0, processed.length + i)) + total(others.slice(i))
      }),
    )
  }

  /** Processes the next chunk of a prompt, or of a sequence that must be read again. */
  private async prefillNext(row: Row): Promise<void> {
    const tokens = [...row.tokens, ...row.written]
    const to = Math.min(tokens.length, row.processed + this.options.prefillStep)
    const logits = prefillChunk(this.network, tokens, row.cache, [row.processed, to])
    row.processed = to
    const next = logits && row.sampler.propose(logits)
    const check = checkLogits(logits)
    await mx.asyncEval([next?.arrays ?? [], check.arrays, ...cacheArrays(row.cache)])
    check.read()
    if (!next || !this.active.includes(row)) return
    this.prefixes?.add(tokens, row.cache, row.version)
    row.next = next
  }

  /**
   * Delivers each row's token and starts the next step: before the token is computed if no row needs its value, so that the device never
   * idles.
   */
  private async step(rows: readonly Row[]): Promise<void> {
    const { computing } = this
    this.computing = Promise.resolve()
    let ahead: ReadonlyMap<Row, Row["next"]> | null = null
    let failure: { readonly reason: unknown } | null = null
    try {
      ahead = this.stepAhead(rows)
    } catch (reason) {
      failure = { reason }
    }
    await computing
    const continuing: Row[] = []
    rows.forEach((row) => {
      // It may have been removed meanwhile.
      if (!this.active.includes(row)) return
      let choice: Choice
      try {
        choice = row.next!.read()
      } catch (error) {
        this.remove(row, error)
        return
      }
      row.written.push(choice.token)
      const piece = row.writer.write(choice)
      row.pieces.push(piece)
      if (piece.finish !== null) this.finish(row)
      else if (!this.slots && outgrows(this.network, cacheLength(row.cache))) {
        clearCache(row.cache)
        row.processed = 0
        row.next = null
      } else continuing.push(row)
    })
    if (continuing.length === 0) return
    if (failure) throw failure.reason
    if (ahead) {
      for (const row of continuing) row.next = ahead.get(row) ?? null
      return
    }
    if (this.options.exact || (continuing.length === 1 && !this.slots))
      for (const row of continuing) row.next = row.sampler.propose(this.stepAlone(row))
    else {
      const next = this.propose(continuing, (slots) =>
        mx.array(Int32Array.from(slots, (row) => (row ? lastOf(row) : 0))),
      )
      for (const row of continuing) row.next = next.get(row)!
      return
    }
    this.compute(continuing.map(({ next }) => next!))
  }

  /** Starts the step after tokens that are not computed yet; null if a row needs their values first. */
  private stepAhead(rows: readonly Row[]): ReadonlyMap<Row, Row["next"]> | null {
    const { slots } = this
    if (slots === null || rows.some((row) => row.sampler.remembers)) return null
    const ends = (row: Row): boolean => row.written.length + 1 >= (row.options.maxTokens ?? 256)
    const continuing = rows.filter((row) => !ends(row))
    if (continuing.length === 0) return null
    for (const row of rows) if (ends(row)) this.keep(row)
    return this.propose(continuing, tokensAhead)
  }

  private compute(next: readonly Proposal[]): void {
    this.computing = mx.asyncEval(next.map(({ arrays }) => arrays))
    // The next step sees the error.
    this.computing.catch(() => {})
  }

  /**
   * Starts computing the next tokens of rows together, with one argmax for all greedy rows.
   * @param tokens - returns the slots' last tokens
   */
  private propose(
    rows: readonly Row[],
    tokens: (slots: readonly (Row | null)[]) => mx.Array,
  ): Map<Row, NonNullable<Row["next"]>> {
    const { slots } = this
    const logits = slots ? slots.step(rows, tokens) : this.stepTogether(rows)
    const likeliest = likeliestOf(logits).squeeze(-1)
    let chosen: ArrayLike<number> | null = null
    const next = new Map<Row, NonNullable<Row["next"]>>()
    rows.forEach((row, i) => {
      const at = slots ? slots.slotOf(row) : i
      const read = (): ReturnType<Proposal["read"]> => {
        chosen ??= likeliest.toTypedArray() as Int32Array
        return row.sampler.accept(chosen[at])
      }
      next.set(
        row,
        row.sampler.isGreedy
          ? { token: likeliest, at, arrays: [likeliest], read }
          : row.sampler.propose(logits.index(at)),
      )
    })
    this.compute([...next.values()])
    // Lets the next compiled step reuse their memory.
    logits.dispose()
    return next
  }

  private finish(row: Row): void {
    this.keep(row)
    this.active.splice(this.active.indexOf(row), 1)
  }

  /** Stores a row's cache: the next turn of a conversation continues after the output. */
  private keep(row: Row): void {
    const { prefixes, slots } = this
    // With `exact`, later prompts would need the rounding of prompts.
    if (prefixes && !this.options.exact) {
      const cache = slots && slots.slotOf(row) >= 0 ? slots.leave(row) : row.cache
      if (cache.length > 0) prefixes.add([...row.tokens, ...row.written], cache, row.version)
      if (cache !== row.cache) disposeCache(cache)
    }
    forgetCache(row)
  }

  private stepAlone(row: Row): mx.Array {
    return this.stepOne(mx.array([[lastOf(row)]], mx.int32), row.cache).index(0)
  }

  /** The logits [rows, vocabulary] of rows with their own caches. */
  private stepTogether(rows: readonly Row[]): mx.Array {
    const tokens = mx.array(Int32Array.from(rows, lastOf)).expandDims(1)
    const layers = rows[0].cache.map((_, i) => new RowsCache(rows.map((row) => row.cache[i])))
    const pass = new Pass(
      null,
      true,
      rows.map((row) => cacheLength(row.cache)),
    )
    return this.network.forward(tokens, layers, pass).index(":", 0)
  }
}

/** Frees a row's cache. */
function forgetCache(row: SlotRow): void {
  disposeCache(row.cache)
  row.cache = []
}

/** A row's last generated token. */
const lastOf = ({ written }: Row): number => written[written.length - 1]

/** The slots' last tokens, not computed yet: the previous step's array itself if no row has moved. */
function tokensAhead(slots: readonly (Row | null)[]): mx.Array {
  const [first] = slots.flatMap((row) => row?.next ?? [])
  const isInPlace =
    first.token.ndim === 1 &&
    first.token.shape[0] === slots.length &&
    slots.every((row, i) => !row || (row.next!.token === first.token && row.next!.at === i))
  if (isInPlace) return first.token.astype(mx.int32)
  const none = mx.array(0, mx.int32)
  const each = slots.map((row) => {
    if (!row) return none
    const { token, at } = row.next!
    return (at === undefined ? token : token.index(at)).astype(mx.int32)
  })
  return mx.stack(each)
}
