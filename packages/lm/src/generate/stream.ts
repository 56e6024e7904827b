/**
 * `stream` and `generate`: text from a prompt, token by token.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { checkModel } from "../arguments"
import type { LoadedModel } from "../formats/load"
import { type Cache, cacheLength, clearCache, disposeCache, trimCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { groupOf } from "../models/tensor-parallel"
import { checkContent, checkSettings, emptyCache, noteContent } from "./caches"
import { checkOptions, type GenerateOptions, limitOptions } from "./options"
import { checkCacheBytes, outgrows, prefill, trimToPrompt } from "./prefill"
import { causal, continued, type Prompt, promptTokens } from "./prompts"
import { type Choice, type Proposal, Sampler } from "./sampler"
import { draftOf, speculate } from "./speculate"
import { greedyStepOf, stepOf } from "./steps"
import { type Piece, Writer } from "./writer"

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
  checkModel("stream", model)
  checkOptions(options)
  const tokens = promptTokens(model, prompt)
  const network = causal("stream", model)
  const limited = limitOptions(network, tokens, options)
  const writer = new Writer(model, limited, continued(prompt, tokens, options))
  const cache = options.cache ?? emptyCache(network, options)
  if (inUse.has(cache))
    throw new ArgumentError("stream", "the cache is used by a generation that has not ended", {
      hint: "`cache.map((layer) => layer.clone())` copies it",
    })
  if (options.cache) {
    checkSettings(network, cache, options)
    checkContent(network, cache, tokens)
  }
  const { draft } = limited
  const choices = draft
    ? speculate(network, draftOf(model, draft), tokens, cache, limited)
    : choose(network, tokens, cache, limited)
  inUse.add(cache)
  const sequence = [...tokens]
  try {
    for await (const choice of choices) {
      sequence.push(choice.token)
      const piece = writer.write(choice)
      yield piece
      if (piece.finish !== null) return
    }
  } finally {
    inUse.delete(cache)
    if (options.cache) noteContent(network, cache, sequence)
    else disposeCache(cache)
  }
}

/** Caches of generations that have not ended. */
const inUse = new WeakSet<Cache>()

/**
 * Generated tokens. The next step is submitted before the current token is read, so that the device never idles. If the caller stops
 * early, the extra token is trimmed from the cache.
 */
async function* choose(
  network: CausalNetwork,
  tokens: readonly number[],
  cache: Cache,
  options: GenerateOptions,
): AsyncGenerator<Choice, void, undefined> {
  const { signal, maxTokens = 256 } = options
  trimToPrompt(network, tokens, cache)
  const sequence = [...tokens]
  const sampler = new Sampler(options, tokens, options.logprobs ?? null, groupOf(network))
  const step = (sampler.isGreedy ? greedyStepOf : stepOf)(network, options)
  const after = (token: mx.Array): Pending => {
    const made = step(token.astype(mx.int32).reshape([1, 1]), cache)
    try {
      checkCacheBytes([cache], options)
    } catch (error) {
      made.dispose()
      throw error
    }
    if (sampler.isGreedy) return submit(sampler.likeliest(made))
    const own = made.reshape([-1])
    try {
      return submit(sampler.propose(own))
    } finally {
      // Lets the next compiled step reuse their memory.
      own.dispose()
      made.dispose()
    }
  }
  const read = async (): Promise<Pending> => {
    const logits = await prefill(network, sequence, cache, options)
    const first = submit(sampler.propose(logits))
    logits.dispose()
    return first
  }
  let current = await read()
  let ahead: Pending | null = null
  try {
    for (let count = 1; ; count++) {
      signal?.throwIfAborted()
      const last = count === maxTokens
      let failure: { readonly reason: unknown } | null = null
      const again = !last && outgrows(network, cacheLength(cache))
      if (!last && !again && !sampler.remembers)
        try {
          ahead = after(current.token)
        } catch (reason) {
          failure = { reason }
        }
      await current.done
      const choice = current.read()
      sequence.push(choice.token)
      yield choice
      if (last) return
      if (failure) throw failure.reason
      if (again) clearCache(cache)
      current = again ? await read() : (ahead ?? after(current.token))
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
