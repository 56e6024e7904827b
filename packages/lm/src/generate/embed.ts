/**
 * Embeddings, from encoders or from a decoder's last token, and scores of rerankers.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe } from "@lazuli/core/engine"
import type { LoadedModel } from "../formats/load"
import { Pass } from "../models/attend"
import { EncoderNetwork, type Network } from "../models/network"
import { type Prompt, promptTokens } from "./stream"

/** Options of {@link embed}. */
export interface EmbedOptions {
  /** Mean over the tokens, or the first or last token; by default `mean` for encoders and `last` for decoders. */
  readonly pooling?: "mean" | "first" | "last"
  /** Scale embeddings to length 1; true by default. */
  readonly normalize?: boolean
  /** Texts per batch; 16 by default. */
  readonly batchSize?: number
}

/** @throws ArgumentError for texts that are longer than the network supports */
function checkLengths(op: string, { maxPositions }: Network, lists: readonly (readonly number[])[]): void {
  const long = lists.findIndex(({ length }) => length > maxPositions)
  if (long >= 0)
    throw new ArgumentError(
      op,
      `text ${long} has ${lists[long].length} tokens, the model supports ${maxPositions}`,
      { hint: "Split or truncate it" },
    )
}

/** Token lists padded with 0 to one array, and a mask that is true for tokens. */
function padded(lists: readonly (readonly number[])[]): { tokens: mx.Array; padding: mx.Array } {
  const longest = Math.max(...lists.map((list) => list.length))
  const data = new Int32Array(lists.length * longest)
  lists.forEach((list, i) => data.set(list, i * longest))
  const lengths = mx.array(
    lists.map((list) => list.length),
    mx.int32,
  )
  return {
    tokens: mx.array(data).reshape([lists.length, longest]),
    padding: mx.arange(longest).expandDims(0).less(lengths.expandDims(1)),
  }
}

/**
 * Computes an embedding for each text.
 * @throws ArgumentError for an empty text
 * @example
 * const [vector] = await embed(await load('my-model'), ['the'])
 * Math.hypot(...vector).toFixed(3) // => '1.000'
 */
export async function embed(
  model: LoadedModel,
  texts: readonly Prompt[],
  options: EmbedOptions = {},
): Promise<Float32Array[]> {
  const { network } = model
  const encodes = network instanceof EncoderNetwork
  const { pooling = encodes ? "mean" : "last", normalize = true, batchSize = 16 } = options
  if (!Number.isSafeInteger(batchSize) || batchSize < 1)
    throw new ArgumentError("embed", `batchSize must be a positive integer, received ${describe(batchSize)}`)
  const lists = texts.map((text) => promptTokens(model, text))
  const empty = lists.findIndex((list) => list.length === 0)
  if (empty >= 0) throw new ArgumentError("embed", `text ${empty} has no tokens`)
  checkLengths("embed", network, lists)
  const out: Float32Array[] = []
  for (let at = 0; at < lists.length; at += batchSize) {
    const part = lists.slice(at, at + batchSize)
    const { tokens, padding } = padded(part)
    // Decoders are causal: padding does not affect earlier tokens.
    const hidden = encodes
      ? network.hidden(tokens, null, part.every((list) => list.length === part[0].length) ? null : padding)
      : network.hidden(tokens, null, new Pass())
    let pooled = pool(hidden.astype(mx.float32), padding, part, pooling)
    if (normalize) pooled = pooled.divide(pooled.square().sum(-1, true).sqrt().maximum(1e-12))
    await mx.asyncEval(pooled)
    const values = pooled.toTypedArray() as Float32Array
    const dims = pooled.shape[1]
    part.forEach((_, i) => out.push(values.slice(i * dims, (i + 1) * dims)))
  }
  return out
}

function pool(
  hidden: mx.Array,
  padding: mx.Array,
  lists: readonly (readonly number[])[],
  pooling: "mean" | "first" | "last",
): mx.Array {
  if (pooling === "first") return hidden.index(":", 0)
  if (pooling === "last") {
    const last = lists.map((list) => list.length - 1)
    return hidden.index(mx.arange(lists.length, { dtype: mx.int32 }), mx.array(last, mx.int32))
  }
  const there = padding.astype(mx.float32).expandDims(-1)
  return hidden.multiply(there).sum(1).divide(there.sum(1))
}

/**
 * Scores texts as answers to a query with a reranker; higher is better.
 * @throws ArgumentError if the model is not an encoder with a classifier
 * @example
 * const scores = await rerank(await load('my-reranker'), 'the', ['end', 'in'])
 * scores.length // => 2
 */
export async function rerank(model: LoadedModel, query: string, texts: readonly string[]): Promise<number[]> {
  const { network, tokenizer } = model
  if (!(network instanceof EncoderNetwork) || !network.scores || !tokenizer)
    throw new ArgumentError(
      "rerank",
      "the model is not a reranker, which is an encoder with a classifier and a tokenizer",
    )
  const pairs = texts.map((text) => tokenizer.encodePair(query, text))
  checkLengths(
    "rerank",
    network,
    pairs.map(({ ids }) => ids),
  )
  const scores: number[] = []
  for (const { ids, types } of pairs) {
    const hidden = network.hidden(mx.array([ids], mx.int32), mx.array([types], mx.int32), null)
    const score = network.score(hidden).index(0, -1).astype(mx.float32)
    await mx.asyncEval(score)
    scores.push(score.item() as number)
  }
  return scores
}
