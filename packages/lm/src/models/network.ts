/**
 * The interfaces of networks and model families, which other packages implement to add models.
 */
import type * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { Pass } from "./attend"
import type { Cache, LayerShape } from "./cache"
import type { Settings } from "./settings"

/** The names of a network's layers in transformers, which adapters in PEFT's format have. */
export interface PeftNames {
  /** The name of a layer that is called `name` in files of `save`. */
  nameOf(name: string): string
  /** A name without what only some of transformers' classes put before it; by default it is as given. */
  plain?(name: string): string
  /** Linear layers that transformers' model has and this network does not need. */
  readonly unused?: readonly string[]
  /** True if weights are transposed there. */
  readonly isTransposed?: boolean
}

/**
 * A network that predicts the next token.
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
  /** The last layer's hidden states [batch, length, hidden] of tokens [batch, length], which continue the cache if there is one. */
  abstract hidden(tokens: mx.Array, cache: Cache | null, pass: Pass): mx.Array
  /** The logits of hidden states. */
  abstract logits(hidden: mx.Array): mx.Array
  /** Size of the vocabulary. */
  abstract readonly vocabulary: number
  /** Maximum sequence length of networks with learned positions; by default there is none. */
  get maxPositions(): number {
    return Infinity
  }
  /**
   * The longest sequence whose positions are encoded as those of a sequence of this length. Cached keys of other lengths differ, so that
   * a sequence that outgrows the answer is read again, unless the encoding changes with every token.
   */
  sameUpTo(_length: number): number {
    return Infinity
  }
  /** The names in PEFT's files, if they differ from ours. */
  get peft(): PeftNames | null {
    return null
  }
  /** True if `hidden` supports `pass.position`, so that decoding steps can be compiled. */
  get takesPositions(): boolean {
    return false
  }

  /** The logits [batch, length, vocabulary] after each token. */
  forward(tokens: mx.Array, cache: Cache | null = null, pass: Pass = new Pass()): mx.Array {
    return this.logits(this.hidden(tokens, cache, pass))
  }
}

/**
 * A network that computes embeddings of texts, or scores of pairs of texts.
 * @example
 * const { network } = await load('my-reranker')
 * network instanceof EncoderNetwork && network.scores // => true
 */
export abstract class EncoderNetwork extends nn.Module {
  /** The last layer's hidden states [batch, length, hidden]; `padding` is true for tokens and false for padding. */
  abstract hidden(tokens: mx.Array, types: mx.Array | null, padding: mx.Array | null): mx.Array
  /** Scores of sequences [batch, labels], if the model has a classifier. */
  abstract score(hidden: mx.Array): mx.Array
  /** True if the model has a classifier. */
  abstract readonly scores: boolean
  /** Maximum sequence length of networks with learned positions; by default there is none. */
  get maxPositions(): number {
    return Infinity
  }
  /** The names in PEFT's files, if they differ from ours. */
  get peft(): PeftNames | null {
    return null
  }
  forward(tokens: mx.Array): mx.Array {
    return this.hidden(tokens, null, null)
  }
}

/** A network of any kind. */
export type Network = CausalNetwork | EncoderNetwork
/** Weights by their names in files. */
export type Weights = Record<string, mx.Array>

/** A model family: the `model_type`s it supports, and how to create its networks. */
export interface Family {
  /** The values of `model_type`. */
  readonly modelTypes: readonly string[]
  /** Creates a network with uninitialized or random weights. */
  make(config: Settings): Network
  /** The config with the values that it may omit, as `make` and `sanitize` get it; by default it is as given. */
  complete?(config: Settings): Settings
  /** Maps the weights of a checkpoint to the network's names and layouts. Must also accept weights saved by `save`. */
  sanitize?(weights: Weights, config: Settings): Weights
  /** Maps a checkpoint's name of a layer to the network's, where `sanitize` changes them. */
  layerName?(name: string): string
}
