/**
 * Processing of prompts: the tokens to read, and the logits after the last token.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, NumericError } from "@lazuli/core/engine"
import { Pass } from "../models/attend"
import { type Cache, cacheArrays, cacheLength, heldBytes, trimCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"
import type { GenerateOptions } from "./options"

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

/** A check of a prompt's logits: the arrays to evaluate, and `read`, called after that. @throws NumericError if they are NaN */
export function checkLogits(logits: mx.Array | null): { arrays: mx.Array[]; read(): void } {
  const arrays = logits ? [mx.isnan(logits).any()] : []
  const read = (): void => {
    if (arrays[0]?.item())
      throw new NumericError("stream", "the logits are not numbers", {
        hint: "The weights are damaged, or too large for their dtype: try float32",
      })
  }
  return { arrays, read }
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
    const check = checkLogits(logits)
    await mx.asyncEval([logits ?? [], check.arrays, ...cacheArrays(cache)])
    check.read()
    onPrefill?.(end, tokens.length)
    if (logits) return logits
  }
}

/** The tokens that are not in a cache: at least the last one, because caches hold no logits. Trims the cache to those before. */
export function unreadTokens(
  network: CausalNetwork,
  tokens: readonly number[],
  cache: Cache,
): readonly number[] {
  const layers = network.layerShapes().length
  if (cache.length !== layers)
    throw new ArgumentError("stream", `the cache has ${cache.length} layers, and the model ${layers}`)
  const surplus = cacheLength(cache) - (tokens.length - 1)
  if (surplus > 0 && !trimCache(cache, surplus))
    throw new ArgumentError(
      "stream",
      `the cache has ${cacheLength(cache)} tokens and cannot be trimmed to a prompt of ${tokens.length}`,
    )
  return tokens.slice(cacheLength(cache))
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
        hint: "cacheBits and maxContext reduce it",
      },
    )
}
