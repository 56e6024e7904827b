/**
 * The options of a generation, and their checks.
 */
import { ArgumentError, describe } from "@lazuli/core/engine"
import { CALLBACK, COUNT, FLAG } from "../argument-kinds"
import { checkModel, checkSignal, optionsNamed } from "../arguments"
import type { LoadedModel } from "../formats/load"
import { CACHE, type Cache } from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { CACHING, type CacheOptions, checkCaching } from "./caches"
import { checkSampling, SAMPLING, type SamplingOptions } from "./sampler"
import type { StepOptions } from "./steps"

/** Options of `stream` and `generate`. */
export interface GenerateOptions extends SamplingOptions, CacheOptions, StepOptions {
  /** Maximum number of tokens to generate; 256 by default. */
  readonly maxTokens?: number
  /** Stop strings: generation ends before the first one. */
  readonly stop?: string | readonly string[]
  /**
   * The text continues the prompt's: its first word keeps a space that SentencePiece drops at the beginning of texts. True by default for a
   * prompt that is a text, and false for a conversation, whose answer is a text of its own, and for token ids.
   */
  readonly continues?: boolean
  /** Continue after end-of-text tokens. */
  readonly ignoreEos?: boolean
  /**
   * Return log-probabilities: of the generated token, and of this many most likely ones. They are those after penalties and biases, and
   * before the temperature and the choice of tokens to sample from.
   */
  readonly logprobs?: number
  /** Aborts the generation. */
  readonly signal?: AbortSignal
  /** Prompt tokens processed at a time; 512 by default. */
  readonly prefillStep?: number
  /** Called as the prompt is processed, with tokens done and total. */
  readonly onPrefill?: (done: number, total: number) => void
  /**
   * A cache to continue from, updated in place. Its tokens must be a prefix of the prompt, which is checked if another `stream` or a file
   * has filled it, as is the model.
   */
  readonly cache?: Cache
  /**
   * Draft model for speculative decoding: a smaller model with the same tokens. The output does not change, except where logits tie up
   * to rounding: the model verifies several tokens at once, and products of several rows round differently.
   */
  readonly draft?: LoadedModel
  /** Tokens to draft at a time; 4 by default. */
  readonly draftTokens?: number
}

const checkNames = optionsNamed<GenerateOptions>({
  ...SAMPLING,
  ...CACHING,
  compile: FLAG,
  maxTokens: COUNT,
  stop: true,
  ignoreEos: FLAG,
  continues: FLAG,
  logprobs: true,
  signal: true,
  prefillStep: COUNT,
  onPrefill: CALLBACK,
  cache: CACHE,
  draft: true,
  draftTokens: true,
})

/** @throws ArgumentError for unknown options, and those out of range */
export function checkOptions(options: GenerateOptions): void {
  checkNames("stream", options)
  checkSampling("stream", options)
  checkCaching(options)
  checkSignal("stream", options.signal)
  if (options.draft !== undefined) checkModel("stream", options.draft, "draft")
  const { logprobs = 0, draftTokens = 4, stop = [] } = options
  if (!Number.isSafeInteger(draftTokens) || draftTokens < 1 || draftTokens > 32)
    throw new ArgumentError("stream", `draftTokens must be from 1 to 32, received ${describe(draftTokens)}`)
  if (!Number.isSafeInteger(logprobs) || logprobs < 0)
    throw new ArgumentError(
      "stream",
      `logprobs must be a non-negative integer, received ${describe(logprobs)}`,
    )
  if (![stop].flat().every((text) => typeof text === "string" && text !== ""))
    throw new ArgumentError(
      "stream",
      `stop must be a string or a list of strings, none of them empty, received ${describe(stop)}`,
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
  const biases = Object.entries(options.logitBias ?? {})
  const unknown = biases.map(([token]) => token).find((token) => Number(token) >= vocabulary)
  if (unknown !== undefined)
    throw new ArgumentError("stream", `logitBias: the vocabulary of ${vocabulary} has no token ${unknown}`)
  if (biases.filter(([, bias]) => bias === -Infinity).length === vocabulary)
    throw new ArgumentError("stream", "logitBias leaves no token")
  return { ...options, maxTokens: Math.min(options.maxTokens ?? 256, maxPositions - length + 1) }
}
