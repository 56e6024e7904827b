/**
 * `stream` and `generate`: text from a prompt, token by token, with speculative decoding.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe } from "@lazuli/core/engine"
import type { LoadedModel } from "../formats/load"
import { Pass } from "../models/attend"
import { type Cache, cacheArrays, cacheLength, heldBytes, trimCache } from "../models/cache"
import { CausalNetwork } from "../models/network"
import { Detokenizer } from "../text/detokenizer"
import { StopFinder } from "../text/stops"
import { isMessage, type Message } from "../text/tokenizer"
import { type CacheOptions, makeCache } from "./caches"
import { type Choice, type Proposal, Sampler, type SamplingOptions } from "./sampler"
import { type StepOptions, stepOf } from "./steps"

/** A text, a conversation, or token ids. */
export type Prompt = string | readonly Message[] | readonly number[]

/** The reason a generation ended: an end-of-text token or a stop string, or the token limit. */
export type FinishReason = "stop" | "length"

/** The output of one generated token. */
export interface Piece {
  /** New text, never a part of a character; may be empty. */
  readonly text: string
  /** The generated token. */
  readonly token: number
  /** Its log-probability; null without `logprobs`. */
  readonly logprob: number | null
  /** The most likely tokens at its position, with `logprobs`. */
  readonly top: Choice["top"]
  /** Set in the last piece, null before. */
  readonly finish: FinishReason | null
}

/** Options of {@link stream}. */
export interface GenerateOptions extends SamplingOptions, CacheOptions, StepOptions {
  /** Maximum number of tokens to generate; 256 by default. */
  readonly maxTokens?: number
  /** Stop strings: generation ends before the first one. */
  readonly stop?: string | readonly string[]
  /** Continue after end-of-text tokens. */
  readonly ignoreEos?: boolean
  /** Return log-probabilities: of the generated token, and of this many most likely ones. */
  readonly logprobs?: number
  /** Aborts the generation. */
  readonly signal?: AbortSignal
  /** Prompt tokens processed at a time; 512 by default. */
  readonly prefillStep?: number
  /** Called as the prompt is processed, with tokens done and total. */
  readonly onPrefill?: (done: number, total: number) => void
  /** A cache to continue from, updated in place. Its tokens must be a prefix of the prompt. */
  readonly cache?: Cache
  /** Draft model for speculative decoding: a smaller model with the same vocabulary. The output does not change. */
  readonly draft?: LoadedModel
  /** Tokens to draft at a time; 4 by default. */
  readonly draftTokens?: number
}

/** The model's network. @throws ArgumentError if the model is an encoder */
export function causal(op: string, model: LoadedModel): CausalNetwork {
  const { network } = model
  if (network instanceof CausalNetwork) return network
  throw new ArgumentError(op, "the model is an encoder, which does not generate text", {
    hint: "Use embed or rerank",
  })
}

/** Adds a chunk of a prompt to a cache, lazily. Returns the logits after the last chunk, null after others. */
export function prefillChunk(
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

/** Processes a prompt in chunks. Returns the logits after its last token. */
export async function prefill(
  network: CausalNetwork,
  tokens: readonly number[],
  cache: Cache,
  options: Pick<GenerateOptions, "prefillStep" | "onPrefill" | "signal" | "maxCacheBytes"> = {},
): Promise<mx.Array> {
  const { prefillStep = 512, onPrefill, signal } = options
  onPrefill?.(0, tokens.length)
  for (let at = 0; ; at += prefillStep) {
    signal?.throwIfAborted()
    const end = Math.min(at + prefillStep, tokens.length)
    const logits = prefillChunk(network, tokens.slice(at, end), cache, end === tokens.length)
    checkCacheBytes([cache], options)
    await mx.asyncEval([logits ?? [], ...cacheArrays(cache)])
    onPrefill?.(end, tokens.length)
    if (logits) return logits
  }
}

/** @throws ArgumentError for options out of range */
export function checkOptions(options: GenerateOptions): void {
  const { maxTokens = 256, prefillStep = 512, logprobs = 0, draftTokens = 4 } = options
  if (!Number.isSafeInteger(maxTokens) || maxTokens < 1)
    throw new ArgumentError("stream", `maxTokens must be a positive integer, received ${describe(maxTokens)}`)
  if (!Number.isSafeInteger(prefillStep) || prefillStep < 1)
    throw new ArgumentError(
      "stream",
      `prefillStep must be a positive integer, received ${describe(prefillStep)}`,
    )
  if (!Number.isSafeInteger(draftTokens) || draftTokens < 1 || draftTokens > 32)
    throw new ArgumentError("stream", `draftTokens must be from 1 to 32, received ${describe(draftTokens)}`)
  if (!Number.isSafeInteger(logprobs) || logprobs < 0)
    throw new ArgumentError(
      "stream",
      `logprobs must be a non-negative integer, received ${describe(logprobs)}`,
    )
  const { stop = [], maxCacheBytes = 0 } = options
  if (![stop].flat().every((text) => typeof text === "string"))
    throw new ArgumentError(
      "stream",
      `stop must be a string or a list of strings, received ${describe(stop)}`,
    )
  if (!(maxCacheBytes >= 0))
    throw new ArgumentError(
      "stream",
      `maxCacheBytes must be a non-negative number, received ${describe(maxCacheBytes)}`,
    )
}

/**
 * The options with `maxTokens` limited to the network's maximum sequence length.
 * @throws ArgumentError for a prompt that is empty or too long, and for biases of tokens outside the vocabulary
 */
export function limitOptions(
  { maxPositions, vocabulary }: CausalNetwork,
  { length }: readonly number[],
  options: GenerateOptions,
): GenerateOptions {
  if (length === 0) throw new ArgumentError("stream", "the prompt has no tokens")
  if (length > maxPositions)
    throw new ArgumentError("stream", `the prompt has ${length} tokens, the model supports ${maxPositions}`)
  const unknown = Object.keys(options.logitBias ?? {}).find((token) => Number(token) >= vocabulary)
  if (unknown !== undefined)
    throw new ArgumentError("stream", `logitBias: the vocabulary of ${vocabulary} has no token ${unknown}`)
  return { ...options, maxTokens: Math.min(options.maxTokens ?? 256, maxPositions - length + 1) }
}

/** Turns tokens into pieces: detokenizes, and finds stop strings and the end. */
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

  /** The piece for the next token; `finish` is set if it is the last one. */
  write({ token, logprob, top }: Choice): Piece {
    const { ignoreEos = false, maxTokens = 256 } = this.options
    const ends = !ignoreEos && (this.model.tokenizer?.eosIds.has(token) ?? false)
    this.count++
    let { text, stopped } = this.stops.push(ends ? "" : (this.text?.push(token) ?? ""))
    let finish: FinishReason | null = ends || stopped ? "stop" : this.count >= maxTokens ? "length" : null
    if (finish !== null && !stopped) {
      const rest = this.stops.push(this.text?.finish() ?? "")
      text += rest.text
      if (rest.stopped) finish = "stop"
      else text += this.stops.finish()
    }
    return { text, token, logprob, top, finish }
  }
}

/**
 * Generates text after a prompt, and yields each piece as soon as it is available.
 * @throws ArgumentError for options out of range; the signal's reason if it aborts
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
  const limited = limitOptions(causal("stream", model), tokens, options)
  const writer = new Writer(model, limited)
  const choices = limited.draft
    ? speculate(model, limited.draft, tokens, limited)
    : choose(model, tokens, limited)
  for await (const choice of choices) {
    const piece = writer.write(choice)
    yield piece
    if (piece.finish !== null) return
  }
}

/**
 * Generated tokens. The next step is submitted before the current token is read, so that the device never idles. If the caller stops
 * early, the extra token is trimmed from the cache.
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
      return submit(sampler.propose(own))
    } finally {
      // Lets the next compiled step reuse their memory.
      own.dispose()
      logits.dispose()
    }
  }
  let current = submit(sampler.propose(await prefill(network, rest, cache, options)))
  let ahead: Pending | null = null
  try {
    for (let count = 1; ; count++) {
      signal?.throwIfAborted()
      const last = count === maxTokens
      let failure: { readonly reason: unknown } | null = null
      if (!last && !sampler.remembers)
        try {
          ahead = after(current.token)
        } catch (reason) {
          failure = { reason }
        }
      await current.done
      yield current.read()
      if (last) return
      if (failure) throw failure.reason
      current = ahead ?? after(current.token)
      ahead = null
    }
  } finally {
    await (ahead ?? current).done.catch(() => {})
    if (ahead) trimCache(cache, 1)
  }
}

/** A choice under computation. */
interface Pending extends Proposal {
  readonly done: Promise<void>
}

function submit(proposal: Proposal): Pending {
  const done = mx.asyncEval(proposal.arrays)
  // The error is for those who await `done`.
  done.catch(() => {})
  return { ...proposal, done }
}

/**
 * Speculative decoding: the draft model proposes tokens, and one call of the model verifies them. The result is what the model alone would
 * generate.
 */
async function* speculate(
  model: LoadedModel,
  draft: LoadedModel,
  prompt: readonly number[],
  options: GenerateOptions,
): AsyncGenerator<Choice, never, undefined> {
  const { signal, draftTokens = 4 } = options
  const network = causal("stream", model)
  const draftNetwork = causal("stream", draft)
  if (draftNetwork.vocabulary !== network.vocabulary)
    throw new ArgumentError(
      "stream",
      `the draft model's vocabulary has ${draftNetwork.vocabulary} tokens and the model's ${network.vocabulary}, expected the same`,
    )
  const { cache, rest } = startingCache(network, prompt, options)
  const draftCache = makeCache(draftNetwork, options)
  const draftStep = stepOf(draftNetwork, options)
  const sampler = new Sampler(options, prompt, options.logprobs ?? null)
  const sequence = [...prompt]
  const accept = (choice: Choice): Choice => {
    sequence.push(choice.token)
    return choice
  }
  /** Removes rejected proposals. The last token is read together with the next proposals. */
  const trim = (): void => {
    for (const each of [cache, draftCache]) {
      const surplus = cacheLength(each) - (sequence.length - 1)
      if (surplus > 0 && !trimCache(each, surplus))
        throw new ArgumentError("stream", `the cache cannot be trimmed by ${surplus} tokens`, {
          hint: "Reduce draftTokens",
        })
    }
  }
  const maxPositions = Math.min(network.maxPositions, draftNetwork.maxPositions)
  try {
    yield accept(await sampler.choose(await prefill(network, rest, cache, options)))
    for (;;) {
      signal?.throwIfAborted()
      const proposed: number[] = []
      const count = Math.min(draftTokens, maxPositions - sequence.length)
      if (count > 0) {
        // The draft model reads accepted tokens that it has not seen, then proposes its own.
        const unread = sequence.slice(cacheLength(draftCache))
        let logits = await prefill(draftNetwork, unread, draftCache, { signal })
        for (;;) {
          const token = mx.argmax(logits, -1)
          await mx.asyncEval(token)
          proposed.push(Number(token.item()))
          if (proposed.length === count) break
          logits = draftStep(mx.array([[proposed[proposed.length - 1]]], mx.int32), draftCache).index(0)
          checkCacheBytes([cache, draftCache], options)
        }
      }
      const read = [sequence[sequence.length - 1], ...proposed]
      const all = network.forward(mx.array([read], mx.int32), cache, new Pass()).index(0)
      checkCacheBytes([cache, draftCache], options)
      for (let i = 0; ; i++) {
        const choice = accept(await sampler.choose(all.index(i)))
        yield choice
        if (choice.token !== proposed[i]) break
      }
      trim()
    }
  } finally {
    // The caller may stop before all accepted proposals.
    trim()
  }
}

/** The cache to start with, and the tokens not in it: at least the last one, because caches hold no logits. */
function startingCache(
  network: CausalNetwork,
  tokens: readonly number[],
  options: GenerateOptions,
): { cache: Cache; rest: readonly number[] } {
  const cache = options.cache ?? makeCache(network, options)
  const layers = network.layerShapes().length
  if (cache.length !== layers)
    throw new ArgumentError("stream", `the cache has ${cache.length} layers, and the model ${layers}`)
  const surplus = cacheLength(cache) - (tokens.length - 1)
  if (surplus > 0 && !trimCache(cache, surplus))
    throw new ArgumentError(
      "stream",
      `the cache has ${cacheLength(cache)} tokens and cannot be trimmed to a prompt of ${tokens.length}`,
    )
  return { cache, rest: tokens.slice(cacheLength(cache)) }
}

/** Runs before the arrays are evaluated. @throws ArgumentError if caches exceed `maxCacheBytes` */
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
        hint: "cacheBits and maxContext reduce it",
      },
    )
}

/**
 * The tokens of a prompt.
 * @throws ArgumentError for a text if the model has no tokenizer, and for tokens outside the vocabulary
 */
export function promptTokens(model: LoadedModel, prompt: Prompt): number[] {
  const tokens = tokensOf(model, prompt)
  const { network, config } = model
  const vocabulary =
    network instanceof CausalNetwork ? network.vocabulary : (config.optionalCount("vocab_size") ?? Infinity)
  const unknown = tokens.find((token) => !Number.isSafeInteger(token) || token < 0 || token >= vocabulary)
  if (unknown !== undefined)
    throw new ArgumentError("stream", `the vocabulary of ${vocabulary} has no token ${unknown}`)
  return tokens
}

function tokensOf({ tokenizer }: LoadedModel, prompt: Prompt): number[] {
  const isList = (accepts: (item: unknown) => boolean): boolean =>
    Array.isArray(prompt) && prompt.every(accepts)
  if (typeof prompt !== "string" && !isList((item) => typeof item === "number") && !isList(isMessage))
    throw new ArgumentError(
      "stream",
      `the prompt must be a text, token ids, or messages with a role and a content, received ${describe(prompt)}`,
    )
  if (tokenizer) return tokenizer.tokensOf(prompt)
  if (typeof prompt !== "string" && prompt.every((item) => typeof item === "number")) return [...prompt]
  throw new ArgumentError(
    "stream",
    "the model has no tokenizer (tokenizer.json): the prompt must be a list of token ids",
  )
}

/**
 * Generates text after a prompt, as {@link stream} does, and returns all of it.
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
