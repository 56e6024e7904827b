/**
 * The choice of a model's cache, its limit in bytes, and caches in files.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, FormatError } from "@lazuli/core/engine"
import { type Cache, type CacheState, type LayerCache, type LayerShape, PlainCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { type CacheFormat, QuantizedCache } from "../models/quantized-cache"
import { RotatingCache } from "../models/rotating-cache"

/** The properties of a cache. */
export interface CacheOptions {
  /**
   * Bits of quantized keys and values, 4 or 8; they are not quantized by default. In layers with a window, which keep little, they
   * never are.
   */
  readonly cacheBits?: number
  /** Features that share a scale in a quantized cache; 32 by default where a head has no multiple of 64. */
  readonly cacheGroupSize?: number
  /** See no further back than so many tokens, in all layers, and keep no more. */
  readonly maxContext?: number
  /** The most bytes that keys and values may take. */
  readonly maxCacheBytes?: number
}

/** An empty cache for a network: plain, or in layers with a window rotating. */
export function makeCache(network: CausalNetwork, options: CacheOptions = {}): Cache {
  const { cacheBits, maxContext } = options
  return network.layerShapes().map((shape): LayerCache => {
    const window = Math.min(shape.window ?? Infinity, maxContext ?? Infinity)
    if (window !== Infinity) return new RotatingCache(window)
    return cacheBits === undefined
      ? new PlainCache()
      : new QuantizedCache(formatOf(cacheBits, shape, options))
  })
}

function formatOf(bits: number, { headDim }: LayerShape, { cacheGroupSize }: CacheOptions): CacheFormat {
  if (bits !== 4 && bits !== 8)
    throw new ArgumentError("stream", `cacheBits must be 4 or 8, received ${bits}`)
  const groupSize = cacheGroupSize ?? (headDim % 64 === 0 ? 64 : 32)
  if (headDim % groupSize !== 0)
    throw new ArgumentError("stream", `heads of ${headDim} features have no groups of ${groupSize}`, {
      hint: "Leave cacheBits out",
    })
  return { bits, groupSize }
}

/** The tokens for which a model's caches stay below a number of bytes, in steps of the buffers' growth. */
export function tokensWithin(network: CausalNetwork, bytes: number, itemsize: number, bits?: number): number {
  let each = 0
  let fixed = 0
  for (const { kvHeads, headDim, window } of network.layerShapes()) {
    const size = bits === undefined ? itemsize : bits / 8 + (2 * itemsize) / 32
    const token = 2 * kvHeads * headDim * size
    if (window === null) each += token
    else fixed += 3 * window * token
  }
  if (each === 0) return fixed <= bytes ? Number.MAX_SAFE_INTEGER : 0
  return Math.max(0, Math.floor((bytes - fixed) / each / 256) * 256)
}

const KIND = "lazuli-lm-cache"

/**
 * Saves a prompt's cache as a safetensors file, with its tokens: who reads them again begins behind them.
 * @param tokens - the tokens that the cache has read
 */
export function savePromptCache(file: string, cache: Cache, tokens: readonly number[]): void {
  const arrays: Record<string, mx.Array> = { tokens: mx.array(Int32Array.from(tokens)) }
  const layers = cache.map((layer, i) => {
    const { kind, numbers, arrays: own } = layer.state()
    for (const [name, array] of Object.entries(own)) arrays[`${i}.${name}`] = array
    return { kind, numbers }
  })
  mx.saveSafetensors(file, arrays, { format: KIND, layers: JSON.stringify(layers) })
}

/** A prompt's cache from a file, and its tokens. @throws FormatError for a file that is none */
export function loadPromptCache(file: string): { cache: Cache; tokens: number[] } {
  const [arrays, metadata] = mx.load(file, "safetensors", true)
  if (metadata.format !== KIND || !arrays.tokens)
    throw new FormatError("loadPromptCache", `${file} is no prompt cache`)
  let layers: readonly Omit<CacheState, "arrays">[]
  try {
    layers = JSON.parse(metadata.layers) as typeof layers
  } catch (cause) {
    throw new FormatError("loadPromptCache", `${file} is no prompt cache`, { cause })
  }
  const cache = layers.map(({ kind, numbers }, i): LayerCache => {
    const own = Object.fromEntries(
      Object.entries(arrays).flatMap(([name, array]) =>
        name.startsWith(`${i}.`) ? [[name.slice(name.indexOf(".") + 1), array]] : [],
      ),
    )
    const state = { kind, numbers, arrays: own }
    if (kind === "plain") return new PlainCache().restore(state)
    if (kind === "rotating") return new RotatingCache(numbers.window).restore(state)
    if (kind === "quantized")
      return new QuantizedCache({ bits: numbers.bits, groupSize: numbers.groupSize }).restore(state)
    throw new FormatError("loadPromptCache", `${file} has a cache of the unknown kind "${kind}"`)
  })
  return { cache, tokens: [...(arrays.tokens.toTypedArray() as Int32Array)] }
}
