/**
 * Processing of prompts: the tokens to read, and the logits after the last token.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import { Pass } from "../models/attend"
import {
  type Cache,
  cacheArrays,
  cacheLength,
  cacheLongest,
  clearCache,
  growCache,
  heldBytes,
  trimCache,
} from "../models/cache"
import type { CausalNetwork } from "../models/network"
import type { GenerateOptions } from "./options"
import { notNumbers } from "./sampler"

/** Adds the tokens [from, to) of a prompt to its cache, lazily. Returns the logits after the last ones, null after others. */
export function prefillChunk(
  network: CausalNetwork,
  prompt: readonly number[],
  cache: Cache,
  [from, to]: readonly [number, number],
): mx.Array | null {
  const tokens = prompt.slice(from, to)
  growCache(cache, prompt.length)
  const pass = new Pass(null, true, null, null, prompt.length)
  const hidden = network.hidden(mx.array([tokens], mx.int32), cache, pass)
  const logits = to === prompt.length ? network.logits(hidden.index(":", mx.s(-1), ":")).index(0, 0) : null
  hidden.dispose()
  return logits
}

/** A check of a prompt's logits: the arrays to evaluate, and `read`, called after that. @throws NumericError if they are NaN */
export function checkLogits(logits: mx.Array | null): { arrays: mx.Array[]; read(): void } {
  const arrays = logits ? [mx.isnan(logits).any()] : []
  const read = (): void => {
    if (arrays[0]?.item()) throw notNumbers()
  }
  return { arrays, read }
}

/** Processes the tokens of a prompt that its cache does not have, in chunks. Returns the logits after its last token. */
export async function prefill(
  network: CausalNetwork,
  tokens: readonly number[],
  cache: Cache,
  options: Pick<GenerateOptions, "prefillStep" | "onPrefill" | "signal" | "maxCacheBytes"> = {},
): Promise<mx.Array> {
  const { prefillStep = 512, onPrefill, signal } = options
  const first = cacheLength(cache)
  const total = tokens.length - first
  onPrefill?.(0, total)
  for (let from = first; ; from += prefillStep) {
    signal?.throwIfAborted()
    const to = Math.min(from + prefillStep, tokens.length)
    const logits = prefillChunk(network, tokens, cache, [from, to])
    checkCacheBytes([cache], options)
    const check = checkLogits(logits)
    await mx.asyncEval([logits ?? [], check.arrays, ...cacheArrays(cache)])
    check.read()
    onPrefill?.(to - first, total)
    if (logits) return logits
  }
}

/** True if a sequence of `length` tokens must be read again before the next one, which changes the encoding of all positions. */
export const outgrows = (network: CausalNetwork, length: number): boolean =>
  length > 0 && network.sameUpTo(length) === length && network.sameUpTo(length + 1) > length + 1

/**
 * Trims a prompt's cache to the tokens that can be used: not the last one, because caches hold no logits, and none if positions are encoded
 * otherwise in a sequence of the prompt's length.
 */
export function trimToPrompt(network: CausalNetwork, tokens: readonly number[], cache: Cache): void {
  const layers = network.layerShapes().length
  if (cache.length !== layers)
    throw new ArgumentError("stream", `the cache has ${cache.length} layers, and the model ${layers}`)
  if (cacheLength(cache) > 0 && network.sameUpTo(cacheLongest(cache)) !== network.sameUpTo(tokens.length))
    clearCache(cache)
  const surplus = cacheLength(cache) - (tokens.length - 1)
  if (surplus > 0 && !trimCache(cache, surplus))
    throw new ArgumentError(
      "stream",
      `the cache has ${cacheLength(cache)} tokens and cannot be trimmed to a prompt of ${tokens.length}`,
    )
}

/** Runs before the arrays are evaluated. @throws ArgumentError if caches exceed `maxCacheBytes` */
export function checkCacheBytes(
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
        hint: "cacheBits or maxContext reduces it",
      },
    )
}
