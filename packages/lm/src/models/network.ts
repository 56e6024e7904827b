/**
 * The contract of a network that predicts the next token, and of a family of them: what a package registers to add one of its own.
 */
import type * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { Pass } from "./attend"
import type { Cache, LayerShape } from "./cache"
import type { Settings } from "./settings"

/**
 * A network that gives the logits of the token after each one.
 * @example
 * class Bigram extends CausalNetwork {
 *   vocabulary = 8
 *   table = new nn.Embedding(8, 8)
 *   layerShapes() {
 *     return []
 *   }
 *   hidden(tokens) {
 *     return this.table.forward(tokens)
 *   }
 *   logits(hidden) {
 *     return hidden
 *   }
 * }
 * new Bigram().forward(mx.array([[1, 2]], mx.int32)).shape // => [1, 2, 8]
 */
export abstract class CausalNetwork extends nn.Module {
  /** The shape of each layer's cache. */
  abstract layerShapes(): readonly LayerShape[]
  /** The last layer's vectors of tokens [batch, length]; with a cache, of tokens that go on from it. */
  abstract hidden(tokens: mx.Array, cache: Cache | null, pass: Pass): mx.Array
  /** The logits of such vectors. */
  abstract logits(hidden: mx.Array): mx.Array
  /** Words that there are logits for. */
  abstract readonly vocabulary: number
  /** True where `hidden` takes the position of one more token from `pass.position`, so that steps can be compiled. */
  get takesPositions(): boolean {
    return false
  }

  /** The logits after each of the tokens [batch, length]. */
  forward(tokens: mx.Array, cache: Cache | null = null, pass: Pass = new Pass()): mx.Array {
    return this.logits(this.hidden(tokens, cache, pass))
  }
}

/**
 * A network that turns texts into vectors, or pairs of texts into scores.
 * @example
 * const { network } = await load('my-reranker')
 * network instanceof EncoderNetwork && network.scores // => true
 */
export abstract class EncoderNetwork extends nn.Module {
  /** The last layer's vectors [batch, length, hidden]; `padding` is true for tokens that are there. */
  abstract hidden(tokens: mx.Array, types: mx.Array | null, padding: mx.Array | null): mx.Array
  /** Scores of sequences [batch, labels], where the model has a classifier. */
  abstract score(hidden: mx.Array): mx.Array
  /** True where the model has a classifier. */
  abstract readonly scores: boolean
  forward(tokens: mx.Array): mx.Array {
    return this.hidden(tokens, null, null)
  }
}

/** A network that a family makes. */
export type Network = CausalNetwork | EncoderNetwork
/** Weights by their names in files. */
export type Weights = Record<string, mx.Array>

/** Models of one architecture: which config.json files are theirs, and how their networks are made. */
export interface Family {
  /** The values of `model_type`. */
  readonly modelTypes: readonly string[]
  /** A network with any weights. */
  make(config: Settings): Network
  /** Weights as the network names them, from those of a file in the hub's form or in our own. */
  sanitize?(weights: Weights, config: Settings): Weights
}
