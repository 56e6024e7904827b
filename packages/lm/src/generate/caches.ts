/**
 * The choice of a model's cache, its limit in bytes, and caches in files.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, FormatError } from "@lazuli/core/engine"
import {
  type Cache,
  type CacheState,
  capacityFor,
  type LayerCache,
  type LayerShape,
  PlainCache,
} from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { PagedCache } from "../models/paged-cache"
import { type CacheFormat, QuantizedCache } from "../models/quantized-cache"
import { RotatingCache, rotatingCapacity, SLACK } from "../models/rotating-cache"

/** The properties of a cache. */
export interface CacheOptions {
  /**
   * Bits of quantized keys and values, 4 or 8; they are not quantized by default. In layers with a window, which keep little, they
   * never are.
   */
  readonly cacheBits?: number
  /** Features that share a scale in a quantized cache; 32 by default where a head has no multiple of 64. */
  readonly cacheGroupSize?: number
  /**
   * Keep keys and values in pages of so many tokens, which prompts that begin alike share; one buffer a layer by default. Attention then
   * copies the pages together for each token.
   */
  readonly pageTokens?: number
  /** See no further back than so many tokens, in all layers, and keep no more. */
  readonly maxContext?: number
  /** The most bytes that keys and values may take. */
  readonly maxCacheBytes?: number
}

/** The tokens that a layer sees, or Infinity. */
const windowOf = ({ window }: LayerShape, { maxContext }: CacheOptions): number =>
  Math.min(window ?? Infinity, maxContext ?? Infinity)

/**
 * An empty cache for a network: plain, or in layers with a window rotating; or in pages.
 * @example
 * const model = await load('my-model')
 * const cache = makeCache(model.network, { pageTokens: 64 })
 * await generate(model, [1, 2, 3], { cache, maxTokens: 1 })
 * cacheLength(cache) // => 3
 */
export function makeCache(network: CausalNetwork, options: CacheOptions = {}): Cache {
  const { cacheBits, pageTokens } = options
  if (cacheBits !== undefined && pageTokens !== undefined)
    throw new ArgumentError("stream", "caches in pages are not quantized: give cacheBits or pageTokens")
  return network.layerShapes().map((shape): LayerCache => {
    const window = windowOf(shape, options)
    if (pageTokens !== undefined) return new PagedCache(pageTokens, window === Infinity ? null : window)
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
    throw new ArgumentError(
      "stream",
      `heads of ${headDim} features cannot be divided into groups of ${groupSize}`,
      {
        hint: "Leave cacheBits out",
      },
    )
  return { bits, groupSize }
}

/** The most bytes of a model's cache once it has read so many tokens, of which at most `step` come at once. */
export function mostCacheBytes(
  network: CausalNetwork,
  length: number,
  step: number,
  options: CacheOptions = {},
): number {
  const itemsize = itemsizeOf(network)
  const { cacheBits, pageTokens } = options
  return network.layerShapes().reduce((sum, shape) => {
    const window = windowOf(shape, options)
    const token = 2 * shape.kvHeads * shape.headDim * itemsize
    if (pageTokens !== undefined) {
      // A page more than what lies in the window, at both ends.
      const pages = Math.min(length, window + SLACK + step) / pageTokens
      return sum + (Math.ceil(pages) + (window === Infinity ? 0 : 2)) * pageTokens * token
    }
    if (window !== Infinity)
      return sum + Math.min(capacityFor(length), rotatingCapacity(window, step)) * token
    if (cacheBits === undefined) return sum + capacityFor(length) * token
    const { bits, groupSize } = formatOf(cacheBits, shape, options)
    const packed = 2 * shape.kvHeads * shape.headDim * (bits / 8 + (2 * itemsize) / groupSize)
    return sum + capacityFor(length) * packed
  }, 0)
}

const itemsizes = new WeakMap<CausalNetwork, number>()

/** The bytes of a key's or a value's number: those of the widest weights that are not packed. */
function itemsizeOf(network: CausalNetwork): number {
  const known = itemsizes.get(network)
  if (known !== undefined) return known
  const weights = (mx.treeFlatten(network.parameters()) as [string, mx.Array][]).map(
    ([, array]) => array.dtype,
  )
  const size = Math.max(2, ...weights.filter(({ kind }) => kind === "floating").map((dtype) => dtype.size))
  itemsizes.set(network, size)
  return size
}

const KIND = "lazuli-lm-cache"

/**
 * Saves a prompt's cache as a safetensors file, with its tokens: who reads them again begins behind them.
 * @param tokens - the tokens that the cache has read
 * @example
 * const model = await load('my-model')
 * const cache = makeCache(model.network)
 * await generate(model, [1, 2, 3], { cache, maxTokens: 1 })
 * savePromptCache('prompt.safetensors', cache, [1, 2, 3])
 * loadPromptCache('prompt.safetensors').tokens // => [1, 2, 3]
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

/**
 * A prompt's cache from a file, and its tokens. @throws FormatError for a file that is none
 * @example
 * const model = await load('my-model')
 * const before = makeCache(model.network)
 * await generate(model, [1, 2, 3], { cache: before, maxTokens: 1 })
 * savePromptCache('prompt.safetensors', before, [1, 2, 3])
 * const { cache, tokens } = loadPromptCache('prompt.safetensors')
 * const text = await generate(model, [...tokens, 4], { cache, maxTokens: 1 })
 * cacheLength(cache) // => 4
 */
export function loadPromptCache(file: string): { cache: Cache; tokens: number[] } {
  const [arrays, metadata] = mx.load(file, "safetensors", true)
  if (metadata.format !== KIND || !arrays.tokens)
    throw new FormatError("loadPromptCache", `${file} is not a prompt cache`)
  let layers: readonly Omit<CacheState, "arrays">[]
  try {
    layers = JSON.parse(metadata.layers) as typeof layers
  } catch (cause) {
    throw new FormatError("loadPromptCache", `${file} is not a prompt cache`, { cause })
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
    if (kind === "paged") return new PagedCache(numbers.size, numbers.window || null).restore(state)
    if (kind === "quantized")
      return new QuantizedCache({ bits: numbers.bits, groupSize: numbers.groupSize }).restore(state)
    throw new FormatError("loadPromptCache", `${file} has a cache of unknown kind "${kind}"`)
  })
  return { cache, tokens: [...(arrays.tokens.toTypedArray() as Int32Array)] }
}
