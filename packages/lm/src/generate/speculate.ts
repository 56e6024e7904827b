/**
 * Speculative decoding: the draft model proposes tokens, and one call of the model verifies them. The result is what the model alone would
 * generate.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { Pass } from "../models/attend"
import { type Cache, cacheLength, clearCache, disposeCache, trimCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { emptyCache } from "./caches"
import type { GenerateOptions } from "./options"
import { checkCacheBytes, outgrows, prefill, trimToPrompt } from "./prefill"
import { type Choice, Sampler } from "./sampler"
import { stepOf } from "./steps"

/** Generated tokens, of which the draft model has proposed some. */
export async function* speculate(
  network: CausalNetwork,
  draftNetwork: CausalNetwork,
  prompt: readonly number[],
  cache: Cache,
  options: GenerateOptions,
): AsyncGenerator<Choice, never, undefined> {
  const { signal, draftTokens = 4 } = options
  if (draftNetwork.vocabulary !== network.vocabulary)
    throw new ArgumentError(
      "stream",
      `the draft model's vocabulary has ${draftNetwork.vocabulary} tokens and the model's ${network.vocabulary}, expected the same`,
    )
  trimToPrompt(network, prompt, cache)
  const draftCache = emptyCache(draftNetwork, options)
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
    yield accept(await sampler.choose(await prefill(network, sequence, cache, options)))
    for (;;) {
      signal?.throwIfAborted()
      if (outgrows(network, cacheLength(cache))) {
        clearCache(cache)
        yield accept(await sampler.choose(await prefill(network, sequence, cache, options)))
        continue
      }
      const proposed: number[] = []
      // All tokens read together have the same encoding of positions.
      const most = Math.min(maxPositions, network.sameUpTo(sequence.length))
      const count = Math.min(draftTokens, most - sequence.length)
      if (count > 0) {
        // The draft model reads accepted tokens that it has not seen, then proposes its own.
        let logits = await prefill(draftNetwork, sequence, draftCache, { signal })
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
        signal?.throwIfAborted()
        if (choice.token !== proposed[i]) break
      }
      trim()
    }
  } finally {
    // The caller may stop before all accepted proposals.
    trim()
    disposeCache(draftCache)
  }
}
