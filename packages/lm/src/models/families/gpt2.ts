/**
 * GPT-2: learned positions, layer norms with biases, and feed-forward networks without gates. Fields have the names of its checkpoints.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { attend, type Pass } from "../attend"
import type { Cache, LayerCache, LayerShape } from "../cache"
import { type Activation, activationOf } from "../layers"
import { CausalNetwork, type Family, type PeftNames, type Weights } from "../network"
import { replaced } from "../replaced"
import type { Settings } from "../settings"

class Attention extends nn.Module {
  c_attn: nn.Model
  c_proj: nn.Model
  constructor(
    hidden: number,
    readonly heads: number,
    private readonly scale: number,
  ) {
    super()
    this.c_attn = new nn.Linear(hidden, 3 * hidden)
    this.c_proj = new nn.Linear(hidden, hidden)
  }
  forward(x: mx.Array, cache: LayerCache | null, pass: Pass): mx.Array {
    const [batch, length, hidden] = x.shape
    const headDim = hidden / this.heads
    const [q, k, v] = mx
      .split(this.c_attn.forward(x), 3, -1)
      .map((part) => part.reshape([batch, length, this.heads, headDim]).transpose([0, 2, 1, 3]))
    const rules = { scale: this.scale, window: null, cap: null, sinks: null }
    const y = cache ? cache.attend(q, k, v, rules, pass) : attend(q, k, v, rules, pass)
    return this.c_proj.forward(y.transpose([0, 2, 1, 3]).reshape([batch, length, hidden]))
  }
}

class FeedForward extends nn.Module {
  c_fc: nn.Model
  c_proj: nn.Model
  /** @internal */
  readonly _activation: Activation
  constructor(hidden: number, inner: number, activation: Activation) {
    super()
    this.c_fc = new nn.Linear(hidden, inner)
    this.c_proj = new nn.Linear(inner, hidden)
    this._activation = activation
  }
  forward(x: mx.Array): mx.Array {
    return this.c_proj.forward(this._activation(this.c_fc.forward(x)))
  }
}

/** True if the head shares its weights with the embeddings, as in all of OpenAI's models. */
const isTied = (config: Settings): boolean => config.boolean("tie_word_embeddings", true)

/** The scale of a layer's attention scores. */
function scaleOf(config: Settings, headDim: number, layer: number): number {
  const scale = config.boolean("scale_attn_weights", true) ? headDim ** -0.5 : 1
  return config.boolean("scale_attn_by_inverse_layer_idx", false) ? scale / (layer + 1) : scale
}

class Block extends nn.Module {
  ln_1: nn.LayerNorm
  attn: Attention
  ln_2: nn.LayerNorm
  mlp: FeedForward
  constructor(config: Settings, layer: number) {
    super()
    const hidden = config.count("n_embd")
    const eps = config.number("layer_norm_epsilon", 1e-5)
    this.ln_1 = new nn.LayerNorm(hidden, eps)
    const headDim = config.headDim("n_embd", "n_head")
    this.attn = new Attention(hidden, hidden / headDim, scaleOf(config, headDim, layer))
    this.ln_2 = new nn.LayerNorm(hidden, eps)
    const activation = activationOf(config.string("activation_function", "gelu_new"))
    this.mlp = new FeedForward(hidden, config.count("n_inner", 4 * hidden), activation)
  }
  forward(x: mx.Array, cache: LayerCache | null, pass: Pass): mx.Array {
    const h = x.add(this.attn.forward(this.ln_1.forward(x), cache, pass))
    return h.add(this.mlp.forward(this.ln_2.forward(h)))
  }
}

class Body extends nn.Module {
  wte: nn.Model & { asLinear(x: mx.Array): mx.Array }
  wpe: nn.Model
  h: Block[]
  ln_f: nn.LayerNorm
  constructor(config: Settings) {
    super()
    const hidden = config.count("n_embd")
    this.wte = new nn.Embedding(config.count("vocab_size"), hidden)
    this.wpe = new nn.Embedding(config.count("n_positions", 1024), hidden)
    this.h = Array.from({ length: config.layers("n_layer") }, (_, i) => new Block(config, i))
    this.ln_f = new nn.LayerNorm(hidden, config.number("layer_norm_epsilon", 1e-5))
  }
  forward(tokens: mx.Array, cache: Cache | null, pass: Pass): mx.Array {
    const [, length] = tokens.shape
    const from = cache?.[0]?.offset ?? 0
    const at = pass.rows
      ? mx.array([...pass.rows], mx.int32).expandDims(1)
      : mx.arange(from, from + length, { dtype: mx.int32 }).expandDims(0)
    let x = this.wte.forward(tokens).add(this.wpe.forward(at))
    this.h.forEach((block, i) => {
      x = block.forward(x, cache?.[i] ?? null, pass)
    })
    return this.ln_f.forward(x)
  }
}

class Gpt2 extends CausalNetwork {
  model: Body
  lmHead?: nn.Model
  readonly vocabulary: number
  private readonly shape: LayerShape
  private readonly positions: number
  constructor(config: Settings) {
    super()
    config.only({ add_cross_attention: false })
    this.positions = config.count("n_positions", 1024)
    this.model = new Body(config)
    this.vocabulary = config.count("vocab_size")
    if (!isTied(config)) this.lmHead = new nn.Linear(config.count("n_embd"), this.vocabulary, false)
    const headDim = config.headDim("n_embd", "n_head")
    this.shape = { kvHeads: config.count("n_head"), headDim, window: null }
  }
  override get maxPositions(): number {
    return this.positions
  }
  override get peft(): PeftNames {
    return { nameOf: (name) => name.replace(/^model\.h\./, "transformer.h."), isTransposed: true }
  }
  layerShapes(): LayerShape[] {
    return this.model.h.map(() => this.shape)
  }
  hidden(tokens: mx.Array, cache: Cache | null, pass: Pass): mx.Array {
    return this.model.forward(tokens, cache, pass)
  }
  logits(hidden: mx.Array): mx.Array {
    return this.lmHead ? this.lmHead.forward(hidden) : this.model.wte.asLinear(hidden)
  }
}

export const gpt2: Family = {
  modelTypes: ["gpt2"],
  make: (config) => new Gpt2(config),
  sanitize: (weights, config) => {
    const hidden = config.count("n_embd")
    // Checkpoints on the Hub have transposed weights, as the shape of the first one shows.
    const first = Object.entries(weights).find(([name]) => name.endsWith("h.0.attn.c_attn.weight"))?.[1]
    const transposed = first?.shape[0] === hidden
    const out: Weights = {}
    for (const [name, array] of Object.entries(weights)) {
      const plain = name.replace(/^(transformer|model)\./, "")
      const isHead = plain.startsWith("lm_head.")
      // Skips masks and the tied head.
      if (/\.attn\.(bias|masked_bias)$/.test(plain) || (isHead && isTied(config))) continue
      const product = /\.(c_attn|c_proj|c_fc)\.weight$/.test(plain)
      out[isHead ? plain : `model.${plain}`] =
        transposed && product ? replaced([array], () => mx.contiguous(array.T)) : array
    }
    return out
  },
}
