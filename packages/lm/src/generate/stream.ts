/**
 * `stream`: text as a model writes it, one piece after another.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe } from "@lazuli/core/engine"
import type { LoadedModel } from "../formats/load"
import { Pass } from "../models/attend"
import { type Cache, cacheArrays, cacheLength, heldBytes, trimCache } from "../models/cache"
import { CausalNetwork } from "../models/network"
import { Detokenizer } from "../text/detokenizer"
import { StopFinder } from "../text/stops"
import type { Message } from "../text/tokenizer"
import { type CacheOptions, makeCache } from "./caches"
import { type Choice, type Proposal, Sampler, type SamplingOptions } from "./sampler"
import { type StepOptions, stepOf } from "./steps"

/** A text, a conversation, or tokens. */
export type Prompt = string | readonly Message[] | readonly number[]

/** Why a generation ended: a token or text that ends it, or the number of tokens. */
export type FinishReason = "stop" | "length"

/** Some of what a model wrote. */
export interface Piece {
  /** Whole characters; may be empty. */
  readonly text: string
  /** The token that completed it. */
  readonly token: number
  /** The logarithm of its probability, with `logprobs`. */
  readonly logprob: number | null
  /** The likeliest tokens in its place, with `logprobs`. */
  readonly top: Choice["top"]
  /** In the last piece alone. */
  readonly finish: FinishReason | null
}

/** Options of {@link stream}. */
export interface GenerateOptions extends SamplingOptions, CacheOptions, StepOptions {
  /** The most tokens; 256 by default. */
  readonly maxTokens?: number
  /** Texts that end the answer; they are not part of it. */
  readonly stop?: string | readonly string[]
  /** Goes on after the tokens that end a text. */
  readonly ignoreEos?: boolean
  /** Log-probabilities: of the chosen token, and of so many of the likeliest. */
  readonly logprobs?: number
  /** Ends the generation; what was read and written is freed. */
  readonly signal?: AbortSignal
  /** Tokens of a prompt that are read at once; 512 by default. */
  readonly prefillStep?: number
  /** Told as the prompt is read. */
  readonly onPrefill?: (done: number, total: number) => void
  /** A cache to go on from, which is written; its tokens are those that the prompt begins with. */
  readonly cache?: Cache
  /** A smaller model with the same words, which guesses tokens that the model then confirms: faster, and the same answer. */
  readonly draft?: LoadedModel
  /** The tokens that it guesses at once; 4 by default. */
  readonly draftTokens?: number
}

/** @throws ArgumentError unless the model predicts tokens */
export function causal(op: string, model: LoadedModel): CausalNetwork {
  const { network } = model
  if (network instanceof CausalNetwork) return network
  throw new ArgumentError(op, "the model is an encoder, which does not generate text", {
    hint: "Use embed or rerank",
  })
}

/** Writes a part of a prompt into a cache, to be computed, and gives the logits after the last part. */
export function readPart(
  network: CausalNetwork,
  tokens: readonly number[],
  cache: Cache,
  isLast: boolean,
): mx.Array | null {
  const hidden = network.hidden(mx.array([tokens], mx.int32), cache, new Pass())
  const logits = isLast ? network.logits(hidden.index(":", mx.s(-1), ":")).index(0, 0) : null
  hidden.dispose()
  return logits
}

/** Reads tokens into a cache, some at a time, and gives the logits after the last one. */
export async function prefill(
  network: CausalNetwork,
  tokens: readonly number[],
  cache: Cache,
  options: Pick<GenerateOptions, "prefillStep" | "onPrefill" | "signal" | "maxCacheBytes"> = {},
): Promise<mx.Array> {
  const { prefillStep = 512, onPrefill, signal } = options
  if (tokens.length === 0) throw new ArgumentError("stream", "the prompt has no tokens")
  onPrefill?.(0, tokens.length)
  for (let at = 0; ; at += prefillStep) {
    signal?.throwIfAborted()
    const end = Math.min(at + prefillStep, tokens.length)
    const logits = readPart(network, tokens.slice(at, end), cache, end === tokens.length)
    checkCacheBytes([cache], options)
    await mx.asyncEval([logits ?? [], ...cacheArrays(cache)])
    onPrefill?.(end, tokens.length)
    if (logits) return logits
  }
}

/** @throws ArgumentError for a number of tokens that is none */
export function checkOptions(options: GenerateOptions): void {
  const { maxTokens = 256, prefillStep = 512, logprobs = 0, draftTokens = 4 } = options
  if (!Number.isSafeInteger(maxTokens) || maxTokens < 1)
    throw new ArgumentError(
      "stream",
      `maxTokens must be a positive whole number, received ${describe(maxTokens)}`,
    )
  if (!Number.isSafeInteger(prefillStep) || prefillStep < 1)
    throw new ArgumentError(
      "stream",
      `prefillStep must be a positive whole number, received ${describe(prefillStep)}`,
    )
  if (!Number.isSafeInteger(draftTokens) || draftTokens < 1 || draftTokens > 32)
    throw new ArgumentError("stream", `draftTokens must be from 1 to 32, received ${describe(draftTokens)}`)
  if (!Number.isSafeInteger(logprobs) || logprobs < 0)
    throw new ArgumentError("stream", `logprobs must be a whole number, received ${describe(logprobs)}`)
}

/** Turns chosen tokens into pieces: characters, stop strings, the ends of texts. */
export class Writer {
  private readonly text: Detokenizer | null
  private readonly stops: StopFinder
  private count = 0
  constructor(
    private readonly model: LoadedModel,
    private readonly options: GenerateOptions,
  ) {
    const { stop = [] } = options
    const stops = typeof stop === "string" ? [stop] : stop
    this.text = model.tokenizer && new Detokenizer(model.tokenizer)
    this.stops = new StopFinder(stops.filter((text) => text !== ""))
  }

  /** The piece of one more token; its `finish` says if it is the last. */
  write({ token, logprob, top }: Choice): Piece {
    const { ignoreEos = false, maxTokens = 256 } = this.options
    const ends = !ignoreEos && (this.model.tokenizer?.eosIds.has(token) ?? false)
    this.count++
    let { text, stopped } = this.stops.push(ends ? "" : (this.text?.push(token) ?? ""))
    const finish: FinishReason | null = ends || stopped ? "stop" : this.count >= maxTokens ? "length" : null
    if (finish !== null && !stopped) {
      const rest = this.stops.push(this.text?.finish() ?? "")
      text += rest.text
      if (!rest.stopped) text += this.stops.finish()
    }
    return { text, token, logprob, top, finish }
  }
}

/**
 * Writes on from a prompt, and gives each piece as soon as it is there.
 * @throws ArgumentError for options out of range; the signal's reason when it aborts
 * @example
 * const model = await load('my-model')
 * let tokens = 0
 * for await (const { text } of stream(model, 'the', { maxTokens: 4, ignoreEos: true })) tokens++
 * tokens // => 4
 */
export async function* stream(
  model: LoadedModel,
  prompt: Prompt,
  options: GenerateOptions = {},
): AsyncGenerator<Piece, void, undefined> {
  checkOptions(options)
  const tokens = promptTokens(model, prompt)
  const writer = new Writer(model, options)
  const choices = options.draft
    ? speculate(model, options.draft, tokens, options)
    : choose(model, tokens, options)
  for await (const choice of choices) {
    const piece = writer.write(choice)
    yield piece
    if (piece.finish !== null) return
  }
}

/**
 * Tokens after a prompt, one by one. While one is computed, the next one's work is already on its way, so that the device never waits for
 * it: a token that is not asked for any more is taken back from the cache.
 */
async function* choose(
  model: LoadedModel,
  tokens: readonly number[],
  options: GenerateOptions,
): AsyncGenerator<Choice, void, undefined> {
  const { signal, maxTokens = 256 } = options
  const network = causal("stream", model)
  const { cache, rest } = startingCache(network, tokens, options)
  const sampler = new Sampler(options, tokens, options.logprobs ?? null)
  const step = stepOf(network, options)
  const after = (token: mx.Array): Pending => {
    const logits = step(token.astype(mx.int32).reshape([1, 1]), cache)
    const own = logits.reshape([-1])
    try {
      checkCacheBytes([cache], options)
      return begun(sampler.propose(own))
    } finally {
      // Their memory is there for the next ones at once, which compiled steps find in its place.
      own.dispose()
      logits.dispose()
    }
  }
  let current = begun(sampler.propose(await prefill(network, rest, cache, options)))
  let ahead: Pending | null = null
  try {
    for (let count = 1; ; count++) {
      signal?.throwIfAborted()
      const last = count === maxTokens
      let refused: { readonly reason: unknown } | null = null
      if (!last && !sampler.remembers)
        try {
          ahead = after(current.token)
        } catch (reason) {
          refused = { reason }
        }
      await current.done
      yield current.read()
      if (last) return
      if (refused) throw refused.reason
      current = ahead ?? after(current.token)
      ahead = null
    }
  } finally {
    await (ahead ?? current).done.catch(() => {})
    if (ahead) trimCache(cache, 1)
  }
}

/** A choice that is being computed. */
interface Pending extends Proposal {
  readonly done: Promise<void>
}

function begun(proposal: Proposal): Pending {
  const done = mx.asyncEval(proposal.arrays)
  // The one who waits for it hears of an error.
  done.catch(() => {})
  return { ...proposal, done }
}

/**
 * Tokens after a prompt, which a smaller model guesses and the model confirms, several in one call. They are those that the model alone
 * would choose.
 */
async function* speculate(
  model: LoadedModel,
  draft: LoadedModel,
  prompt: readonly number[],
  options: GenerateOptions,
): AsyncGenerator<Choice, never, undefined> {
  const { signal, draftTokens = 4 } = options
  const network = causal("stream", model)
  const guesser = causal("stream", draft)
  if (guesser.vocabulary !== network.vocabulary)
    throw new ArgumentError(
      "stream",
      `draft has a vocabulary of ${guesser.vocabulary} and the model one of ${network.vocabulary}, expected the same`,
    )
  const { cache, rest } = startingCache(network, prompt, options)
  const guesses = makeCache(guesser, options)
  const guess = stepOf(guesser, options)
  const sampler = new Sampler(options, prompt, options.logprobs ?? null)
  const sequence = [...prompt]
  const accept = (choice: Choice): Choice => {
    sequence.push(choice.token)
    return choice
  }
  yield accept(await sampler.choose(await prefill(network, rest, cache, options)))
  for (;;) {
    signal?.throwIfAborted()
    // Tokens that the guesser has not read yet, then its own.
    const guessed: number[] = []
    let logits = await prefill(guesser, sequence.slice(cacheLength(guesses)), guesses, { signal })
    for (;;) {
      const token = mx.argmax(logits, -1)
      await mx.asyncEval(token)
      guessed.push(Number(token.item()))
      if (guessed.length === draftTokens) break
      logits = guess(mx.array([[guessed[guessed.length - 1]]], mx.int32), guesses).index(0)
      checkCacheBytes([cache, guesses], options)
    }
    const read = [sequence[sequence.length - 1], ...guessed]
    const all = network.forward(mx.array([read], mx.int32), cache, new Pass()).index(0)
    checkCacheBytes([cache, guesses], options)
    for (let i = 0; ; i++) {
      const choice = accept(await sampler.choose(all.index(i)))
      yield choice
      if (choice.token !== guessed[i]) break
    }
    // The last token is read with the next guesses.
    const known = sequence.length - 1
    for (const each of [cache, guesses]) {
      const surplus = cacheLength(each) - known
      if (surplus > 0 && !trimCache(each, surplus))
        throw new ArgumentError("stream", `a cache cannot drop its last ${surplus} tokens`, {
          hint: "Take fewer draftTokens",
        })
    }
  }
}

/** The cache to begin with, and the tokens that it has not read: at least the last one, since logits are not kept. */
function startingCache(
  network: CausalNetwork,
  tokens: readonly number[],
  options: GenerateOptions,
): { cache: Cache; rest: readonly number[] } {
  const cache = options.cache ?? makeCache(network, options)
  const surplus = cacheLength(cache) - (tokens.length - 1)
  if (surplus > 0 && !trimCache(cache, surplus))
    throw new ArgumentError(
      "stream",
      `the cache has read ${cacheLength(cache)} tokens of a prompt of ${tokens.length}`,
    )
  return { cache, rest: tokens.slice(cacheLength(cache)) }
}

/** Before anything is computed for it. @throws ArgumentError where caches have passed their limit */
function checkCacheBytes(
  caches: readonly Cache[],
  { maxCacheBytes }: Pick<GenerateOptions, "maxCacheBytes">,
): void {
  if (maxCacheBytes === undefined) return
  const bytes = heldBytes(caches)
  if (bytes > maxCacheBytes)
    throw new ArgumentError(
      "stream",
      `the cache has ${bytes} bytes, more than maxCacheBytes (${maxCacheBytes})`,
      {
        hint: "cacheBits and maxContext make it smaller",
      },
    )
}

/** The tokens of a prompt. @throws ArgumentError for a text where the model has no tokenizer */
export function promptTokens(model: LoadedModel, prompt: Prompt): number[] {
  if (model.tokenizer) return model.tokenizer.tokensOf(prompt)
  if (typeof prompt !== "string" && prompt.every((item) => typeof item === "number")) return [...prompt]
  throw new ArgumentError("stream", "the model has no tokenizer: the prompt must be a list of tokens")
}

/**
 * All that {@link stream} writes, at once.
 * @example
 * const text = await generate(await load('my-model'), 'the', { maxTokens: 4 })
 * typeof text // => 'string'
 */
export async function generate(
  model: LoadedModel,
  prompt: Prompt,
  options: GenerateOptions = {},
): Promise<string> {
  let text = ""
  for await (const piece of stream(model, prompt, options)) text += piece.text
  return text
}
