/**
 * Speculative decoding: the draft model proposes tokens, and one call of the model verifies them. The result is what the model alone would
 * generate.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import type { LoadedModel } from "../formats/load"
import { Pass } from "../models/attend"
import { type Cache, cacheLength, clearCache, disposeCache, trimCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { groupOf } from "../models/tensor-parallel"
import type { Tokenizer } from "../text/tokenizer"
import { emptyCache } from "./caches"
import type { GenerateOptions } from "./options"
import { checkCacheBytes, outgrows, prefill, trimToPrompt } from "./prefill"
import { causal } from "./prompts"
import { type Choice, Sampler } from "./sampler"
import { stepOf } from "./steps"

/** Tokenizers that were compared, and have the same tokens. */
const alike = new WeakMap<Tokenizer, WeakSet<Tokenizer>>()

/** True if no id stands for one token here and for another there; one of them may have more. */
function areAlike(a: Tokenizer, b: Tokenizer, vocabulary: number): boolean {
  if (a === b || alike.get(a)?.has(b)) return true
  for (let id = 0; id < vocabulary; id++) {
    const [text, other] = [a.textOf(id), b.textOf(id)]
    if (text !== other && text !== "" && other !== "") return false
  }
  alike.set(a, (alike.get(a) ?? new WeakSet()).add(b))
  return true
}

/** The network of a model's draft. @throws ArgumentError if its tokens are others */
export function draftOf(model: LoadedModel, draft: LoadedModel): CausalNetwork {
  const [network, draftNetwork] = [causal("stream", model), causal("stream", draft)]
  const sizes = [network.vocabulary, draftNetwork.vocabulary]
  if (model.tokenizer && draft.tokenizer) {
    if (!areAlike(model.tokenizer, draft.tokenizer, Math.min(...sizes)))
      throw new ArgumentError("stream", "the draft model's tokenizer is another one, with other tokens")
  } else if (sizes[0] !== sizes[1])
    throw new ArgumentError(
      "stream",
      `the draft model's vocabulary has ${sizes[1]} tokens and the model's ${sizes[0]}, expected the same of models without tokenizers`,
    )
  return draftNetwork
}

/** Generated tokens, of which the draft model has proposed some. */
export async function* speculate(
  network: CausalNetwork,
  draftNetwork: CausalNetwork,
  prompt: readonly number[],
  cache: Cache,
  options: GenerateOptions,
): AsyncGenerator<Choice, never, undefined> {
  const { signal, draftTokens = 4 } = options
  trimToPrompt(network, prompt, cache)
  const draftCache = emptyCache(draftNetwork, options)
  const draftStep = stepOf(draftNetwork, options)
  const sampler = new Sampler(options, prompt, options.logprobs ?? null, groupOf(network))
  const sequence = [...prompt]
  /** False after a token that only the model has. */
  let isReadable = prompt.every((token) => token < draftNetwork.vocabulary)
  const accept = (choice: Choice): Choice => {
    sequence.push(choice.token)
    isReadable &&= choice.token < draftNetwork.vocabulary
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
      const count = isReadable ? Math.min(draftTokens, most - sequence.length) : 0
      if (count > 0) {
        // The draft model reads accepted tokens that it has not seen, then proposes its own.
        let logits = await prefill(draftNetwork, sequence, draftCache, { signal })
        for (;;) {
          const token = mx.argmax(logits, -1)
          await mx.asyncEval(token)
          const proposal = Number(token.item())
          // Vocabularies of a family may be padded to several sizes.
          if (proposal >= network.vocabulary) break
          proposed.push(proposal)
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
