/**
 * Embeddings, from encoders or from a decoder's last token, and scores of rerankers.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe } from "@lazuli/core/engine"
import { COUNT, checkKind, FLAG, SIZE, STRING } from "../argument-kinds"
import { checkModel, optionsNamed } from "../arguments"
import type { LoadedModel } from "../formats/load"
import { Pass } from "../models/attend"
import { cacheArrays, disposeCache } from "../models/cache"
import { type CausalNetwork, EncoderNetwork, type Network } from "../models/network"
import type { Tokenizer } from "../text/tokenizer"
import type { Encoded } from "../text/tokenizer-thread"
import { makeCache, maxCacheSize } from "./caches"
import { type Prompt, promptTokens } from "./prompts"
import { notNumbers } from "./sampler"

/** Options of {@link embed}. */
export interface EmbedOptions {
  /** Mean over the tokens, or the first or last token; by default as the folder says, or `mean` for encoders and `last` for decoders. */
  readonly pooling?: "mean" | "first" | "last"
  /** Scale embeddings to length 1; true by default. */
  readonly normalize?: boolean
  /** Texts per batch, fewer if they are long; 16 by default. Texts of similar length share a batch. */
  readonly batchSize?: number
  /** Maximum number of bytes for a decoder's keys and values of a batch: a text that needs more is an error. */
  readonly maxCacheBytes?: number
}

const checkNames = optionsNamed<EmbedOptions>({
  pooling: true,
  normalize: FLAG,
  batchSize: COUNT,
  maxCacheBytes: SIZE,
})

/** Texts per batch by default. */
const BATCH = 16
/** Tokens that a decoder processes at a time, of all texts together: what else the process computes gets its turn between them. */
const CHUNK = 512

/** The largest size of the keys and values of a text's tokens in bytes; encoders have none. */
const cacheSizeOf = (network: Network, tokens: number): number =>
  network instanceof EncoderNetwork ? 0 : maxCacheSize(network, tokens, CHUNK)

/** @throws ArgumentError for texts that are empty, or longer than the network or its cache supports */
export function checkTexts(
  op: string,
  network: Network,
  lists: readonly (readonly number[])[],
  maxCacheBytes = Infinity,
): void {
  const { maxPositions } = network
  const empty = lists.findIndex(({ length }) => length === 0)
  if (empty >= 0) throw new ArgumentError(op, `text ${empty} has no tokens`)
  const long = lists.findIndex(({ length }) => length > maxPositions)
  if (long >= 0)
    throw new ArgumentError(
      op,
      `text ${long} has ${lists[long].length} tokens, the model supports ${maxPositions}`,
      { hint: "Split or truncate it" },
    )
  const large = lists.findIndex(({ length }) => cacheSizeOf(network, length) > maxCacheBytes)
  if (large >= 0)
    throw new ArgumentError(op, `text ${large} of ${lists[large].length} tokens does not fit maxCacheBytes`, {
      hint: "Split or truncate it",
    })
}

function checkList(op: string, texts: unknown): void {
  if (!Array.isArray(texts))
    throw new ArgumentError(op, `expected a list of texts, received ${describe(texts)}`)
}

/** Lists padded with 0 to one array. */
function padded(lists: readonly (readonly number[])[]): mx.Array {
  const longest = Math.max(...lists.map((list) => list.length))
  const data = new Int32Array(lists.length * longest)
  lists.forEach((list, i) => data.set(list, i * longest))
  return mx.array(data).reshape([lists.length, longest])
}

/** A mask [lists, longest] that is true for tokens, and false for padding. */
function paddingOf(lists: readonly (readonly number[])[]): mx.Array {
  const lengths = lists.map((list) => list.length)
  return mx
    .arange(Math.max(...lengths))
    .expandDims(0)
    .less(mx.array(lengths, mx.int32).expandDims(1))
}

/** The mask for an encoder's attention; null if there is no padding. */
const attentionPadding = (lists: readonly (readonly number[])[]): mx.Array | null =>
  lists.every(({ length }) => length === lists[0].length) ? null : paddingOf(lists)

/** Maximum number of tokens of a batch, with padding, if no text has more: one long text must not make caches of its length for others. */
const MOST_PADDED = 8192

/** Results of all items, computed in batches of items with similar length that fit together, which need little padding. */
async function inBatches<T, R>(
  items: readonly T[],
  lengthOf: (item: T) => number,
  fit: (count: number, longest: number) => boolean,
  compute: (batch: readonly T[]) => Promise<readonly R[]>,
): Promise<R[]> {
  const order = items.map((_, i) => i).sort((a, b) => lengthOf(items[a]) - lengthOf(items[b]))
  const out = new Array<R>(items.length)
  for (let at = 0, end = 0; at < order.length; at = end) {
    end = at + 1
    const fits = (): boolean => {
      const [count, longest] = [end - at + 1, lengthOf(items[order[end]])]
      return count * longest <= MOST_PADDED && fit(count, longest)
    }
    while (end < order.length && fits()) end++
    const part = order.slice(at, end)
    const results = await compute(part.map((i) => items[i]))
    part.forEach((i, k) => {
      out[i] = results[k]
    })
  }
  return out
}

/**
 * Computes an embedding for each text.
 * @throws ArgumentError for a text that is empty, or too long for the model or `maxCacheBytes`; NumericError if the model gives NaN
 * @example
 * const [vector] = await embed(await load('my-model'), ['the'])
 * Math.hypot(...vector).toFixed(3) // => '1.000'
 */
export async function embed(
  model: LoadedModel,
  texts: readonly Prompt[],
  options: EmbedOptions = {},
): Promise<Float32Array[]> {
  checkModel("embed", model)
  checkNames("embed", options)
  const { network } = model
  const encodes = network instanceof EncoderNetwork
  const { normalize = true, batchSize = BATCH, maxCacheBytes = Infinity } = options
  const pooling = options.pooling ?? poolingOf(model, encodes ? "mean" : "last")
  if (!isPooling(pooling))
    throw new ArgumentError("embed", `pooling must be mean, first or last, received ${describe(pooling)}`)
  checkList("embed", texts)
  const lists = texts.map((text) => promptTokens(model, text))
  checkTexts("embed", network, lists, maxCacheBytes)
  const lengthOf = (list: readonly number[]): number => list.length
  const fit = (count: number, longest: number): boolean =>
    count <= batchSize && count * cacheSizeOf(network, longest) <= maxCacheBytes
  return inBatches(lists, lengthOf, fit, async (part) => {
    let pooled = encodes
      ? poolNext(null, network.hidden(padded(part), null, attentionPadding(part)), part, 0, pooling)
      : await poolByChunks(network as CausalNetwork, part, pooling)
    if (normalize) pooled = pooled.divide(pooled.square().sum(-1, true).sqrt().maximum(1e-12))
    const values = await numbersOf("embed", pooled)
    const dims = pooled.shape[1]
    return part.map((_, i) => values.slice(i * dims, (i + 1) * dims))
  })
}

/** The values of a float32 array. @throws NumericError if some are NaN */
async function numbersOf(op: string, x: mx.Array): Promise<Float32Array> {
  await mx.asyncEval(x)
  const values = x.toTypedArray() as Float32Array
  if (values.some(Number.isNaN)) throw notNumbers(op, "results")
  return values
}

type Pooling = NonNullable<EmbedOptions["pooling"]>
const isPooling = (name: unknown): name is Pooling => ["mean", "first", "last"].includes(name as string)

/** The pooling of a model's own. @throws ArgumentError if it is not supported */
function poolingOf({ pooling, name }: LoadedModel, otherwise: Pooling): Pooling {
  if (pooling === undefined) return otherwise
  if (isPooling(pooling)) return pooling
  throw new ArgumentError("embed", `${name} makes embeddings by ${pooling}, which is not supported`, {
    hint: "Pass pooling, for embeddings of another kind",
  })
}

/** The pooled states of a decoder, which processes the texts in chunks with a cache. */
async function poolByChunks(
  network: CausalNetwork,
  lists: readonly (readonly number[])[],
  pooling: Pooling,
): Promise<mx.Array> {
  const encodings = new Set(lists.map(({ length }) => network.sameUpTo(length)))
  if (encodings.size > 1) {
    const each: mx.Array[] = []
    for (const list of lists) each.push(await poolByChunks(network, [list], pooling))
    return mx.concatenate(each, 0)
  }
  // Decoders are causal: padding does not affect earlier tokens.
  const tokens = padded(lists)
  const step = Math.max(1, Math.floor(CHUNK / lists.length))
  const cache = makeCache(network)
  let pooled: mx.Array | null = null
  for (let at = 0; at < tokens.shape[1]; at += step) {
    const pass = new Pass(null, true, null, null, tokens.shape[1])
    const hidden = network.hidden(tokens.index(":", mx.s(at, at + step)), cache, pass)
    pooled = poolNext(pooled, hidden, lists, at, pooling)
    await mx.asyncEval(pooled, ...cacheArrays(cache))
  }
  disposeCache(cache)
  return pooled as mx.Array
}

/** Pooled states, with those of the tokens that begin at `from`: `before` are those of earlier tokens. */
function poolNext(
  before: mx.Array | null,
  states: mx.Array,
  lists: readonly (readonly number[])[],
  from: number,
  pooling: Pooling,
): mx.Array {
  const hidden = states.astype(mx.float32)
  const length = hidden.shape[1]
  if (pooling === "first") return before ?? hidden.index(":", 0)
  if (pooling === "last") {
    const last = lists.map((list) => list.length - 1 - from)
    const inside = last.map((i) => Math.min(Math.max(i, 0), length - 1))
    const found = hidden.index(mx.arange(lists.length, { dtype: mx.int32 }), mx.array(inside, mx.int32))
    if (!before) return found
    const isHere = mx.array(last.map((i) => i >= 0 && i < length)).expandDims(1)
    return mx.where(isHere, found, before)
  }
  const there = paddingOf(lists)
    .index(":", mx.s(from, from + length))
    .astype(mx.float32)
    .expandDims(-1)
  const lengths = mx.array(lists.map((list) => list.length)).expandDims(1)
  const share = hidden.multiply(there).sum(1).divide(lengths)
  return before ? before.add(share) : share
}

/**
 * Scores texts as answers to a query with a reranker; higher is better.
 * @throws ArgumentError if the model is not an encoder with a classifier
 * @example
 * const scores = await rerank(await load('my-reranker'), 'the', ['end', 'in'])
 * scores.length // => 2
 */
export async function rerank(model: LoadedModel, query: string, texts: readonly string[]): Promise<number[]> {
  checkModel("rerank", model)
  checkKind("rerank", "the query", query, STRING)
  checkList("rerank", texts)
  texts.forEach((text, i) => {
    checkKind("rerank", `text ${i}`, text, STRING)
  })
  const { network, tokenizer } = reranker(model)
  const pairs = texts.map((text) => tokenizer.encodePair(query, text))
  checkTexts(
    "rerank",
    network,
    pairs.map(({ ids }) => ids),
  )
  return scorePairs(model, pairs)
}

/** @throws ArgumentError unless the model is a reranker */
export function reranker({ network, tokenizer }: LoadedModel): {
  network: EncoderNetwork
  tokenizer: Tokenizer
} {
  if (network instanceof EncoderNetwork && network.scores && tokenizer) return { network, tokenizer }
  throw new ArgumentError(
    "rerank",
    "the model is not a reranker, which is an encoder with a classifier and a tokenizer",
  )
}

/** The scores of pairs, in batches. */
export async function scorePairs(model: LoadedModel, pairs: readonly Encoded[]): Promise<number[]> {
  const { network } = reranker(model)
  const lengthOf = ({ ids }: Encoded): number => ids.length
  const fit = (count: number): boolean => count <= BATCH
  return inBatches(pairs, lengthOf, fit, async (part) => {
    const lists = part.map(({ ids }) => ids)
    const types = padded(part.map(({ types }) => types))
    const hidden = network.hidden(padded(lists), types, attentionPadding(lists))
    const scores = network.score(hidden).index(":", -1).astype(mx.float32)
    return [...(await numbersOf("rerank", scores))]
  })
}
