/**
 * Many prompts answered together: each decoding step reads the weights once for all of them. Requests come and go between steps, each with
 * a cache of its own, so that nobody's answer depends on who else is there.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import type { LoadedModel } from "../formats/load"
import { type AttentionRules, Pass } from "../models/attend"
import { type Cache, cacheArrays, cacheLength, heldBytes, type LayerCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { type CacheOptions, makeCache, mostCacheBytes } from "./caches"
import { PrefixStore } from "./prefixes"
import { type Proposal, Sampler } from "./sampler"
import { Slots } from "./slots"
import { compilesBatches, type StepOptions } from "./steps"
import {
  causal,
  checkOptions,
  type GenerateOptions,
  type Piece,
  type Prompt,
  promptTokens,
  readPart,
  Writer,
} from "./stream"

/** Options of a {@link Batcher}. */
export interface BatchOptions extends CacheOptions, StepOptions {
  /** The most requests that are answered at once; 16 by default. */
  readonly maxRows?: number
  /** The most requests that wait; more are refused. 256 by default. */
  readonly maxWaiting?: number
  /** Tokens of a prompt that are read between two steps of the others; 256 by default. */
  readonly prefillStep?: number
  /** Bytes for caches of prompts that later ones may begin with; none by default. */
  readonly prefixBytes?: number
  /**
   * Computes each row's logits by itself: they are then those of `stream`, bit for bit, and batches are no faster than one after another.
   * Without it products of many rows may round the last bits differently.
   */
  readonly exact?: boolean
}

/**
 * A batch that takes no more requests for now.
 * @example
 * const batch = new Batcher(await load('my-model'))
 * batch.close()
 * batch.stream('the') // => throws BusyError: the batch is closed
 */
export class BusyError extends Error {
  override readonly name = "BusyError"
}

/** One request: what it still has to read, and what it has written. */
interface Row {
  readonly tokens: readonly number[]
  readonly options: GenerateOptions
  readonly sampler: Sampler
  readonly writer: Writer
  readonly outlet: Outlet
  /** The bytes that its cache may come to hold. */
  readonly reserved: number
  cache: Cache
  /** The next token, once the prompt is read: the element `at` of an array that several rows have, or an array of its own. */
  next: (Proposal & { readonly at?: number }) | null
  /** The tokens that were chosen. */
  readonly written: number[]
}

/** Pieces on the way to the one who waits for them. There are never more than a request's tokens. */
class Outlet {
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
  async *read(): AsyncGenerator<Piece, void, undefined> {
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
  }
}

/** The caches of one layer of all rows: each row attends over its own. */
class RowsCache implements LayerCache {
  readonly offset = 0
  constructor(private readonly rows: readonly LayerCache[]) {}
  get nbytes(): number {
    return this.rows.reduce((sum, row) => sum + row.nbytes, 0)
  }
  attend(q: mx.Array, k: mx.Array, v: mx.Array, rules: AttentionRules, pass: Pass): mx.Array {
    const n = this.rows.length
    const [qs, ks, vs] = [q, k, v].map((x) => mx.split(x, n, 0))
    return mx.concatenate(
      this.rows.map((row, i) => row.attend(qs[i], ks[i], vs[i], rules, pass)),
      0,
    )
  }
  trim(): boolean {
    return false
  }
  clone(): RowsCache {
    return new RowsCache(this.rows.map((row) => row.clone()))
  }
  state(): never {
    throw new ArgumentError("batch", "a batch's caches are saved row by row")
  }
}

/**
 * Answers many requests with one network.
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
  private readonly budget: number
  /** Of compiled steps rows share buffers, where no limit of bytes is held. */
  private readonly slots: Slots<Row> | null
  /** The next tokens that are being computed. */
  private computing: Promise<void> = Promise.resolve()
  private running = false
  private closed = false

  constructor(
    readonly model: LoadedModel,
    private readonly options: BatchOptions = {},
  ) {
    this.network = causal("batch", model)
    this.prefixes = options.prefixBytes ? new PrefixStore(options.prefixBytes) : null
    this.budget = options.maxCacheBytes ?? Number.MAX_SAFE_INTEGER
    const shares = options.maxCacheBytes === undefined && !options.exact
    this.slots = shares && compilesBatches(this.network, options) ? new Slots(this.network) : null
  }

  /** Words that there are logits for. */
  get vocabulary(): number {
    return this.network.vocabulary
  }

  /** Requests that are answered, and that wait; bytes of caches. */
  stats(): { active: number; waiting: number; cacheBytes: number; prefixBytes: number } {
    return {
      active: this.active.length,
      waiting: this.waiting.length,
      cacheBytes: heldBytes(this.active.map((row) => row.cache)) + (this.slots?.nbytes ?? 0),
      prefixBytes: this.prefixes?.nbytes ?? 0,
    }
  }

  /**
   * Answers a prompt, as `stream` does, beside others.
   * @throws BusyError where too many wait; ArgumentError for options out of range and for what never fits the limit of bytes
   */
  stream(prompt: Prompt, options: GenerateOptions = {}): AsyncGenerator<Piece, void, undefined> {
    checkOptions(options)
    const { signal, maxTokens = 256 } = options
    const tokens = promptTokens(this.model, prompt)
    if (tokens.length === 0) throw new ArgumentError("batch", "the prompt has no tokens")
    if (options.draft || options.cache)
      throw new ArgumentError("batch", "takes no draft and no cache of its own")
    const step = this.options.prefillStep ?? 256
    const reserved = mostCacheBytes(this.network, tokens.length + maxTokens, step, this.options)
    if (reserved > this.budget)
      throw new ArgumentError("batch", `${tokens.length} + ${maxTokens} tokens do not fit maxCacheBytes`)
    if (this.closed) throw new BusyError("the batch is closed")
    if (this.waiting.length >= (this.options.maxWaiting ?? 256)) throw new BusyError("too many requests wait")
    const row: Row = {
      tokens,
      options,
      sampler: new Sampler(options, tokens, options.logprobs ?? null),
      writer: new Writer(this.model, options),
      outlet: new Outlet(),
      reserved,
      cache: [],
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

  /** Refuses further requests, and ends all that are there with an error. */
  close(): void {
    this.closed = true
    for (const row of [...this.active, ...this.waiting])
      this.remove(row, new BusyError("the batch is closed"))
    this.prefixes?.clear()
  }

  private async *deliver(row: Row, done: () => void): AsyncGenerator<Piece, void, undefined> {
    try {
      yield* row.outlet.read()
    } finally {
      done()
      this.remove(row, new BusyError("the reader has stopped"))
    }
  }

  private remove(row: Row, reason: unknown): void {
    for (const list of [this.waiting, this.active]) {
      const at = list.indexOf(row)
      if (at < 0) continue
      list.splice(at, 1)
      row.outlet.fail(reason)
    }
  }

  /** Goes on while there are requests: reads a part of a prompt, then takes a step with all that have read theirs. */
  private async work(): Promise<void> {
    if (this.running) return
    this.running = true
    try {
      while (this.active.length + this.waiting.length > 0) {
        this.admit()
        const reading = this.active.find((row) => row.next === null)
        if (reading) await this.guarded([reading], () => this.readSome(reading))
        const ready = this.active.filter((row) => row.next !== null)
        if (ready.length > 0) await this.guarded(ready, () => this.step(ready))
        // Others have their turn: requests that come in, pieces that go out.
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
    let room = this.budget - this.active.reduce((sum, row) => sum + row.reserved, 0)
    while (this.active.length < (this.options.maxRows ?? 16)) {
      const row = this.waiting[0]
      if (!row || row.reserved > room) return
      this.waiting.shift()
      row.cache = this.prefixes?.find(row.tokens) ?? makeCache(this.network, this.options)
      room -= row.reserved
      this.active.push(row)
    }
  }

  /** Reads the next part of a prompt. */
  private async readSome(row: Row): Promise<void> {
    const from = cacheLength(row.cache)
    const to = Math.min(row.tokens.length, from + (this.options.prefillStep ?? 256))
    const logits = readPart(this.network, row.tokens.slice(from, to), row.cache, to === row.tokens.length)
    const next = logits && row.sampler.propose(logits)
    await mx.asyncEval([next?.arrays ?? [], ...cacheArrays(row.cache)])
    if (!next) return
    this.prefixes?.add(row.tokens, row.cache)
    row.next = next
  }

  /**
   * Gives out the token of each row, and begins to compute what comes after it; where nobody needs to know the token for that, before it is
   * computed itself, so that the device never waits.
   */
  private async step(rows: readonly Row[]): Promise<void> {
    const { computing } = this
    this.computing = Promise.resolve()
    let ahead: ReadonlyMap<Row, Row["next"]> | null = null
    let refused: { readonly reason: unknown } | null = null
    try {
      ahead = this.stepAhead(rows)
    } catch (reason) {
      refused = { reason }
    }
    await computing
    const going: Row[] = []
    rows.forEach((row) => {
      // One that left meanwhile has nobody to read it.
      if (!this.active.includes(row)) return
      const choice = row.next!.read()
      row.written.push(choice.token)
      const piece = row.writer.write(choice)
      row.outlet.push(piece)
      if (piece.finish === null) going.push(row)
      else this.finish(row)
    })
    if (going.length === 0) return
    if (refused) throw refused.reason
    if (ahead) {
      for (const row of going) row.next = ahead.get(row) ?? null
      return
    }
    if (this.options.exact || (going.length === 1 && !this.slots))
      for (const row of going) row.next = row.sampler.propose(this.alone(row))
    else {
      const next = this.propose(going, (slots) =>
        mx.array(Int32Array.from(slots, (row) => (row ? lastOf(row) : 0))),
      )
      for (const row of going) row.next = next.get(row)!
      return
    }
    this.compute(going.map(({ next }) => next!))
  }

  /** Begins the step after tokens that are not computed yet, of all rows that go on; null where a row has to be known before. */
  private stepAhead(rows: readonly Row[]): ReadonlyMap<Row, Row["next"]> | null {
    const { slots } = this
    if (slots === null || !rows.every((row) => slots.takes(row) && !row.sampler.remembers)) return null
    const ends = (row: Row): boolean => row.written.length + 1 >= (row.options.maxTokens ?? 256)
    const going = rows.filter((row) => !ends(row))
    if (going.length === 0) return null
    if (this.prefixes)
      for (const row of rows) if (ends(row) && slots.slotOf(row) >= 0) row.cache = slots.leave(row)
    return this.propose(going, tokensAhead)
  }

  private compute(next: readonly Proposal[]): void {
    this.computing = mx.asyncEval(next.map(({ arrays }) => arrays))
    // The next step hears of an error.
    this.computing.catch(() => {})
  }

  /** Begins to compute the next tokens of rows together: the likeliest ones at once. `tokens` gives the last ones of slots. */
  private propose(
    rows: readonly Row[],
    tokens: (slots: readonly (Row | null)[]) => mx.Array,
  ): Map<Row, NonNullable<Row["next"]>> {
    const { slots } = this
    const inSlots = slots !== null && rows.every((row) => slots.takes(row))
    const logits = inSlots ? slots.step(rows, tokens) : this.together(rows)
    const likeliest = mx.argmax(logits, -1)
    let chosen: ArrayLike<number> | null = null
    const next = new Map<Row, NonNullable<Row["next"]>>()
    rows.forEach((row, i) => {
      const at = inSlots ? slots.slotOf(row) : i
      const read = (): ReturnType<Proposal["read"]> => {
        chosen ??= likeliest.toTypedArray() as Uint32Array
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
    // Their memory is there for the next ones at once, which compiled steps find in its place.
    logits.dispose()
    return next
  }

  private finish(row: Row): void {
    // A conversation goes on behind what was written.
    if (this.prefixes) {
      if (this.slots && this.slots.slotOf(row) >= 0) row.cache = this.slots.leave(row)
      this.prefixes.add([...row.tokens, ...row.written], row.cache)
    }
    this.active.splice(this.active.indexOf(row), 1)
  }

  private alone(row: Row): mx.Array {
    const token = mx.array([[lastOf(row)]], mx.int32)
    return this.network.forward(token, row.cache, new Pass()).index(0, 0)
  }

  /** The logits [rows, vocabulary] of rows with caches of their own. */
  private together(rows: readonly Row[]): mx.Array {
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

/** The token that a row has written last. */
const lastOf = ({ written }: Row): number => written[written.length - 1]

/** The tokens of slots that are not computed yet: those of the step before, where all are in their places. */
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
