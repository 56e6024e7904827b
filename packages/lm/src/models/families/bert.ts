/**
 * BERT: encoders for embeddings, and rerankers if there is a classifier.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { attend, Pass } from "../attend"
import { type Activation, activationOf } from "../layers"
import { EncoderNetwork, type Family, type PeftNames, type Weights } from "../network"
import type { Settings } from "../settings"

class Attention extends nn.Module {
  query: nn.Model
  key: nn.Model
  value: nn.Model
  output: nn.Model
  constructor(
    hidden: number,
    readonly heads: number,
  ) {
    super()
    this.query = new nn.Linear(hidden, hidden)
    this.key = new nn.Linear(hidden, hidden)
    this.value = new nn.Linear(hidden, hidden)
    this.output = new nn.Linear(hidden, hidden)
  }
  forward(x: mx.Array, pass: Pass): mx.Array {
    const [batch, length, hidden] = x.shape
    const headDim = hidden / this.heads
    const [q, k, v] = [this.query, this.key, this.value].map((layer) =>
      layer.forward(x).reshape([batch, length, this.heads, headDim]).transpose([0, 2, 1, 3]),
    )
    const y = attend(q, k, v, { scale: headDim ** -0.5, window: null, cap: null, sinks: null }, pass)
    return this.output.forward(y.transpose([0, 2, 1, 3]).reshape([batch, length, hidden]))
  }
}

class Layer extends nn.Module {
  attention: Attention
  attentionNorm: nn.LayerNorm
  intermediate: nn.Model
  output: nn.Model
  outputNorm: nn.LayerNorm
  /** @internal */
  readonly _activation: Activation
  constructor(config: Settings) {
    super()
    const hidden = config.count("hidden_size")
    const inner = config.count("intermediate_size")
    const eps = config.number("layer_norm_eps", 1e-12)
    this.attention = new Attention(hidden, hidden / config.headDim("hidden_size", "num_attention_heads"))
    this.attentionNorm = new nn.LayerNorm(hidden, eps)
    this.intermediate = new nn.Linear(hidden, inner)
    this.output = new nn.Linear(inner, hidden)
    this.outputNorm = new nn.LayerNorm(hidden, eps)
    this._activation = activationOf(config.string("hidden_act", "gelu"))
  }
  forward(x: mx.Array, pass: Pass): mx.Array {
    const h = this.attentionNorm.forward(x.add(this.attention.forward(x, pass)))
    return this.outputNorm.forward(h.add(this.output.forward(this._activation(this.intermediate.forward(h)))))
  }
}

class Embeddings extends nn.Module {
  wordEmbeddings: nn.Model
  positionEmbeddings: nn.Model
  tokenTypeEmbeddings: nn.Model
  norm: nn.LayerNorm
  private readonly kinds: number
  constructor(
    config: Settings,
    private readonly first: number,
  ) {
    super()
    const hidden = config.count("hidden_size")
    this.kinds = config.count("type_vocab_size", 2)
    this.wordEmbeddings = new nn.Embedding(config.count("vocab_size"), hidden)
    this.positionEmbeddings = new nn.Embedding(config.count("max_position_embeddings", 512), hidden)
    this.tokenTypeEmbeddings = new nn.Embedding(this.kinds, hidden)
    this.norm = new nn.LayerNorm(hidden, config.number("layer_norm_eps", 1e-12))
  }
  forward(tokens: mx.Array, types: mx.Array | null): mx.Array {
    const [, length] = tokens.shape
    const at = mx.arange(this.first, this.first + length, { dtype: mx.int32 }).expandDims(0)
    // Models with one token type use it for both texts of a pair.
    const kind = this.kinds > 1 && types !== null ? types : mx.zeros(tokens.shape, mx.int32)
    const kinds = this.tokenTypeEmbeddings.forward(kind)
    return this.norm.forward(
      this.wordEmbeddings.forward(tokens).add(this.positionEmbeddings.forward(at)).add(kinds),
    )
  }
}

/** A BERT encoder. The classifier reads the first token through the pooler. */
export class Bert extends EncoderNetwork {
  embeddings: Embeddings
  layers: Layer[]
  pooler?: nn.Model
  classifier?: nn.Model
  private readonly positions: number
  /**
   * @param firstPosition - index of the first token's position embedding
   * @param prefix - the encoder's name in transformers' models with a head
   */
  constructor(
    config: Settings,
    firstPosition = 0,
    private readonly prefix = "bert",
  ) {
    super()
    config.only({ position_embedding_type: "absolute", is_decoder: false })
    const hidden = config.count("hidden_size")
    this.positions = config.count("max_position_embeddings", 512) - firstPosition
    this.embeddings = new Embeddings(config, firstPosition)
    this.layers = Array.from({ length: config.layers("num_hidden_layers") }, () => new Layer(config))
    if (!classifies(config)) return
    this.pooler = new nn.Linear(hidden, hidden)
    this.classifier = new nn.Linear(hidden, labelsOf(config))
  }
  override get maxPositions(): number {
    return this.positions
  }
  override get peft(): PeftNames {
    const head = this.scores ? `${this.prefix}.` : ""
    // BERT's pooler is a part of the encoder, and RoBERTa's of the classifier.
    const names: Readonly<Record<string, string>> =
      this.prefix === "bert"
        ? { pooler: "bert.pooler.dense", classifier: "classifier" }
        : { pooler: "classifier.dense", classifier: "classifier.out_proj" }
    return {
      nameOf: (name) => names[name] ?? head + nameInTransformers(name),
      plain: withoutPrefix,
      unused: this.scores ? [] : ["pooler.dense"],
    }
  }
  get scores(): boolean {
    return this.classifier !== undefined
  }
  hidden(tokens: mx.Array, types: mx.Array | null, padding: mx.Array | null): mx.Array {
    const pass = new Pass(padding, false)
    let x = this.embeddings.forward(tokens, types)
    for (const layer of this.layers) x = layer.forward(x, pass)
    return x
  }
  score(hidden: mx.Array): mx.Array {
    if (!this.pooler || !this.classifier) throw new mx.ArgumentError("rerank", "the model has no classifier")
    return this.classifier.forward(this.pooler.forward(hidden.index(":", 0)).tanh())
  }
}

const classifies = (config: Settings): boolean =>
  config.optionalStrings("architectures")?.some((name) => name.endsWith("ForSequenceClassification")) ?? false

function labelsOf(config: Settings): number {
  const labels = config.part("id2label")
  return labels ? Object.keys(labels.values).length : config.count("num_labels", 2)
}

/** A name without that of the encoder within a model with a head. */
const withoutPrefix = (name: string): string => name.replace(/^(bert|roberta)\./, "")

/** The name of a linear layer in transformers. */
const nameInTransformers = (name: string): string =>
  name
    .replace(/^layers\./, "encoder.layer.")
    .replace(/\.attention\.(query|key|value)$/, ".attention.self.$1")
    .replace(/\.(intermediate|output)$/, ".$1.dense")

/** Names in checkpoints, and the network's. */
const NAMES: readonly (readonly [RegExp, string])[] = [
  [/LayerNorm\.gamma$/, "LayerNorm.weight"],
  [/LayerNorm\.beta$/, "LayerNorm.bias"],
  [/^embeddings\.LayerNorm\./, "embeddings.norm."],
  [/^encoder\.layer\./, "layers."],
  [/\.attention\.self\./, ".attention."],
  [/\.attention\.output\.dense\./, ".attention.output."],
  [/\.attention\.output\.LayerNorm\./, ".attention_norm."],
  [/\.intermediate\.dense\./, ".intermediate."],
  [/\.output\.dense\./, ".output."],
  [/\.output\.LayerNorm\./, ".output_norm."],
  [/^pooler\.dense\./, "pooler."],
  [/^classifier\.dense\./, "pooler."],
  [/^classifier\.out_proj\./, "classifier."],
]

/** Renames a checkpoint's weights. */
export function sanitizeEncoder(weights: Weights, config: Settings): Weights {
  const out: Weights = {}
  for (const [name, array] of Object.entries(weights)) {
    const known = NAMES.reduce((text, [from, to]) => text.replace(from, to), withoutPrefix(name))
    // Skips pretraining heads, buffers, and an unused pooler.
    if (/^(cls|lm_head)\./.test(known) || known.endsWith("position_ids")) continue
    if (known.startsWith("pooler.") && !classifies(config)) continue
    if (name.includes("pooler.dense.") && "classifier.dense.weight" in weights) continue
    out[known] = array
  }
  return out
}

export const bert: Family = {
  modelTypes: ["bert"],
  make: (config) => new Bert(config),
  sanitize: sanitizeEncoder,
}
