/**
 * Creating, sizing, saving and loading caches.
 */
import { existsSync } from "node:fs"
import * as mx from "@lazuli/core"
import { ArgumentError, describe, FormatError, isPlainObject } from "@lazuli/core/engine"
import { COUNT, checkKind, SIZE, TOKENS } from "../argument-kinds"
import { checkCausal, optionsNamed } from "../arguments"
import {
  CACHE,
  type Cache,
  type CacheState,
  cacheLength,
  capacityFor,
  type LayerCache,
  type LayerShape,
  PlainCache,
} from "../models/cache"
import { fingerprintOf } from "../models/fingerprint"
import type { CausalNetwork } from "../models/network"
import { PagedCache } from "../models/paged-cache"
import { CACHE_BITS, type CacheFormat, QuantizedCache } from "../models/quantized-cache"
import { RotatingCache, rotatingCapacity, SLACK } from "../models/rotating-cache"

/** Options of a cache. */
export interface CacheOptions {
  /**
   * Quantizes keys and values to 8 or 6 bits; not by default, and never in layers with a sliding window, which keep little. 6 bits change
   * the distribution of the next token by a KL divergence of up to 0.006, 8 bits by 1e-4, in the mean over tokens of random models.
   */
  readonly cacheBits?: number
  /** Group size of a quantized cache: by default 64 if it divides the head's dimension, and otherwise 32. */
  readonly cacheGroupSize?: number
  /**
   * Stores keys and values in pages of this many tokens, which prompts with a common prefix share. Attention then concatenates the pages
   * for each token. By default each layer has one buffer.
   */
  readonly pageTokens?: number
  /** Limits attention in all layers to this many tokens, and keeps no more. */
  readonly maxContext?: number
  /** Maximum number of bytes for keys and values. */
  readonly maxCacheBytes?: number
}

/** The names of all {@link CacheOptions}. */
export const CACHING = {
  cacheBits: true,
  cacheGroupSize: COUNT,
  pageTokens: COUNT,
  maxContext: COUNT,
  maxCacheBytes: SIZE,
} as const
const checkNames = optionsNamed<CacheOptions>(CACHING)

/** The size of a layer's attention window, or Infinity. */
const windowOf = ({ window }: LayerShape, { maxContext }: CacheOptions): number =>
  Math.min(window ?? Infinity, maxContext ?? Infinity)

/**
 * An empty cache for a network.
 * @example
 * const model = await load('my-model')
 * const cache = makeCache(model.network, { pageTokens: 64 })
 * await generate(model, [1, 2, 3], { cache, maxTokens: 1 })
 * cacheLength(cache) // => 3
 */
export function makeCache(network: CausalNetwork, options: CacheOptions = {}): Cache {
  checkCausal("makeCache", network)
  checkNames("makeCache", options)
  return emptyCache(network, options)
}

/** @throws ArgumentError for options that no cache has together, and for other bits than caches have */
export function checkCaching({ cacheBits, pageTokens, maxContext }: CacheOptions): void {
  if (cacheBits !== undefined && !CACHE_BITS.includes(cacheBits))
    throw new ArgumentError("stream", `cacheBits must be 6 or 8, received ${describe(cacheBits)}`, {
      hint: "Keys and values of fewer bits change the text too much",
    })
  if (cacheBits !== undefined && pageTokens !== undefined)
    throw new ArgumentError("stream", "paged caches cannot be quantized: pass cacheBits or pageTokens")
  if (cacheBits !== undefined && maxContext !== undefined)
    throw new ArgumentError("stream", "caches of a window are not quantized: pass cacheBits or maxContext")
}

/** The same, among other options. */
export function emptyCache(network: CausalNetwork, options: CacheOptions): Cache {
  checkCaching(options)
  const { cacheBits, pageTokens } = options
  return network.layerShapes().map((shape): LayerCache => {
    const window = windowOf(shape, options)
    if (pageTokens !== undefined) return new PagedCache(pageTokens, window === Infinity ? null : window)
    if (window !== Infinity) return new RotatingCache(window)
    return cacheBits === undefined
      ? new PlainCache()
      : new QuantizedCache(formatOf(cacheBits, shape, options))
  })
}

/** Settings of a layer's cache that options decide. */
function settingsOf(layer: LayerCache): string {
  const { kind, numbers } = layer.state()
  return JSON.stringify([kind, numbers.bits, numbers.groupSize, numbers.size, numbers.window])
}

/** @throws ArgumentError if a cache is not as options among those of its use would make it */
export function checkSettings(network: CausalNetwork, cache: Cache, options: CacheOptions): void {
  const given = (["cacheBits", "cacheGroupSize", "pageTokens", "maxContext"] as const).filter(
    (name) => options[name] !== undefined,
  )
  if (given.length === 0) return
  const wanted = emptyCache(network, options)
  if (cache.some((layer, i) => !wanted[i] || settingsOf(layer) !== settingsOf(wanted[i])))
    throw new ArgumentError("stream", `the given cache was made with another ${given.join(" or ")}`, {
      hint: "Pass its options to makeCache",
    })
}

function formatOf(bits: number, { headDim }: LayerShape, { cacheGroupSize }: CacheOptions): CacheFormat {
  const groupSize = cacheGroupSize ?? (headDim % 64 === 0 ? 64 : 32)
  if (headDim % groupSize !== 0)
    throw new ArgumentError(
      "stream",
      `the head dimension ${headDim} is not divisible by the group size ${groupSize}`,
      {
        hint: "Omit cacheBits",
      },
    )
  return { bits, groupSize }
}

/** Maximum size in bytes of a cache with `length` tokens, of which at most `step` are added at a time. */
export function maxCacheSize(
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
      // The window may begin and end within a page.
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

/** Bytes per element of keys and values: those of the widest weights that are not quantized. */
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

/** The content of a cache that a generation or a file has filled. */
interface Content {
  readonly tokens: readonly number[]
  /** The {@link fingerprintOf} the network. */
  readonly network: string
}
const contents = new WeakMap<Cache, Content>()

/** True if the first `length` tokens are the same, as far as both are known. */
const startsWith = (tokens: readonly number[], known: readonly number[], length: number): boolean =>
  known.slice(0, length).every((token, i) => i >= tokens.length || token === tokens[i])

/** Records the tokens that a generation has put into a cache, if they continue what is known of it. */
export function noteContent(network: CausalNetwork, cache: Cache, tokens: readonly number[]): void {
  contents.set(cache, {
    tokens: tokens.slice(0, cacheLength(cache)),
    network: fingerprintOf(network.parameters()),
  })
}

/** Records that a cache is a copy of another one, or of its beginning. */
export function copyContent(from: Cache, to: Cache): void {
  const content = contents.get(from)
  if (content) contents.set(to, { ...content, tokens: content.tokens.slice(0, cacheLength(to)) })
}

/** @throws ArgumentError if a cache is known to be of another model, or to have other tokens than the prompt's first ones */
export function checkContent(network: CausalNetwork, cache: Cache, prompt: readonly number[]): void {
  const content = contents.get(cache)
  const used = Math.min(cacheLength(cache), prompt.length - 1)
  if (!content || used === 0) return
  if (content.network !== fingerprintOf(network.parameters()))
    throw new ArgumentError("stream", "the cache is from another model")
  if (!startsWith(prompt, content.tokens, used))
    throw new ArgumentError("stream", "the cache has other tokens than the beginning of the prompt")
}

const FORMAT = "lazuli-lm-cache"

const areCounts = (numbers: object): boolean =>
  Object.values(numbers).every((value) => Number.isSafeInteger(value) && value >= 0)

/**
 * Saves a prompt cache and its tokens as a safetensors file.
 * @param tokens - the tokens in the cache
 * @example
 * const model = await load('my-model')
 * const cache = makeCache(model.network)
 * await generate(model, [1, 2, 3], { cache, maxTokens: 1 })
 * savePromptCache('prompt.safetensors', cache, [1, 2, 3])
 * loadPromptCache('prompt.safetensors').tokens // => [1, 2, 3]
 */
export function savePromptCache(file: string, cache: Cache, tokens: readonly number[]): void {
  checkKind("savePromptCache", "the cache", cache, CACHE)
  checkKind("savePromptCache", "tokens", tokens, TOKENS)
  const length = cacheLength(cache)
  if (tokens.length !== length)
    throw new ArgumentError(
      "savePromptCache",
      `the cache has ${length} tokens, and ${tokens.length} were passed`,
    )
  const content = contents.get(cache)
  if (content && !startsWith(tokens, content.tokens, length))
    throw new ArgumentError("savePromptCache", "the cache has other tokens")
  const arrays: Record<string, mx.Array> = { tokens: mx.array(Int32Array.from(tokens)) }
  const layers = cache.map((layer, i) => {
    const { kind, numbers, arrays: own } = layer.state()
    for (const [name, array] of Object.entries(own)) arrays[`${i}.${name}`] = array
    return { kind, numbers: { ...numbers, longest: layer.longest ?? 0 } }
  })
  mx.saveSafetensors(file, arrays, {
    format: FORMAT,
    layers: JSON.stringify(layers),
    ...(content ? { network: content.network } : {}),
  })
}

/**
 * Loads a prompt cache and its tokens from a file.
 * @throws FormatError if the file is not a prompt cache
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
  // `saveSafetensors` appends the extension to other names.
  const named = existsSync(file) || file.endsWith(".safetensors") ? file : `${file}.safetensors`
  const [arrays, metadata] = mx.load(named, "safetensors", true)
  if (metadata.format !== FORMAT || !arrays.tokens)
    throw new FormatError("loadPromptCache", `${file} is not a prompt cache`)
  let layers: unknown
  try {
    layers = JSON.parse(metadata.layers)
  } catch (cause) {
    throw new FormatError("loadPromptCache", `${file} is not a prompt cache`, { cause })
  }
  if (
    !Array.isArray(layers) ||
    !layers.every((layer) => isPlainObject(layer) && isPlainObject(layer.numbers) && areCounts(layer.numbers))
  )
    throw new FormatError("loadPromptCache", `${file} is not a prompt cache`)
  const layerOf = ({ kind, numbers }: Omit<CacheState, "arrays">, i: number): LayerCache => {
    const own = Object.fromEntries(
      Object.entries(arrays).flatMap(([name, array]) =>
        name.startsWith(`${i}.`) ? [[name.slice(name.indexOf(".") + 1), array]] : [],
      ),
    )
    const state = { kind, numbers, arrays: own }
    if (kind === "plain") return new PlainCache().restore(state)
    if (kind === "rotating") return new RotatingCache(numbers.window).restore(state)
    if (kind === "paged") return new PagedCache(numbers.size, numbers.window || null).restore(state)
    if (kind === "quantized" && !CACHE_BITS.includes(numbers.bits))
      throw new FormatError(
        "loadPromptCache",
        `${file} has keys and values of ${numbers.bits} bits, which are not supported`,
      )
    if (kind === "quantized")
      return new QuantizedCache({ bits: numbers.bits, groupSize: numbers.groupSize }).restore(state)
    throw new FormatError("loadPromptCache", `${file} has a cache of unknown kind "${kind}"`)
  }
  const cache = (layers as Omit<CacheState, "arrays">[]).map((state, i) =>
    Object.assign(layerOf(state, i), { longest: state.numbers.longest ?? 0 }),
  )
  const tokens = [...(arrays.tokens.toTypedArray() as Int32Array)]
  if (tokens.length !== cacheLength(cache))
    throw new FormatError(
      "loadPromptCache",
      `${file} has ${tokens.length} tokens, and their keys and values are of ${cacheLength(cache)}`,
    )
  if (metadata.network) contents.set(cache, { tokens, network: metadata.network })
  return { cache, tokens }
}
