/**
 * GPT-OSS as another package would add it, from what `@lazuli/lm` exports: attention sinks, biases, and experts with clipped activations.
 * Its experts are plain products, and all of them compute every token.
 */
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import * as nn from "@lazuli/nn"
import { base, DIM, HEADS, HIDDEN, KV, type Tiny } from "./checkpoints"
import { VOCABULARY } from "./tokenizer"

class Experts extends nn.Module {
  gateUpProj: mx.Array
  gateUpProjBias: mx.Array
  downProj: mx.Array
  downProjBias: mx.Array
  constructor(experts: number, hidden: number, inner: number) {
    super()
    this.gateUpProj = mx.zeros([experts, hidden, 2 * inner])
    this.gateUpProjBias = mx.zeros([experts, 2 * inner])
    this.downProj = mx.zeros([experts, inner, hidden])
    this.downProjBias = mx.zeros([experts, hidden])
  }
  /** x [batch, length, hidden] → [batch, experts, length, hidden]. */
  forward(x: mx.Array): mx.Array {
    const both = x.expandDims(1).matmul(this.gateUpProj).add(this.gateUpProjBias.expandDims(1))
    const gate = mx.minimum(both.index("...", mx.s(0, null, 2)), 7)
    const up = mx.clip(both.index("...", mx.s(1, null, 2)), -7, 7)
    const inner = gate.multiply(gate.multiply(1.702).sigmoid()).multiply(up.add(1))
    return inner.matmul(this.downProj).add(this.downProjBias.expandDims(1))
  }
}

class FeedForward extends nn.Module {
  router: nn.Linear
  experts: Experts
  constructor(
    experts: number,
    private readonly chosen: number,
    hidden: number,
    inner: number,
  ) {
    super()
    this.router = new nn.Linear(hidden, experts)
    this.experts = new Experts(experts, hidden, inner)
  }
  forward(x: mx.Array): mx.Array {
    const scores = this.router.forward(x)
    const least = mx.sort(scores, -1).index("...", mx.s(-this.chosen, -this.chosen + 1 || null))
    const weights = mx.softmax(mx.where(scores.less(least), -Infinity, scores), -1)
    return this.experts
      .forward(x)
      .multiply(weights.transpose([0, 2, 1]).expandDims(-1))
      .sum(1)
  }
}

export const gptOssFamily: lm.Family = {
  modelTypes: ["gpt_oss"],
  make: (config) => {
    const hidden = config.count("hidden_size")
    const headDim = config.count("head_dim")
    const types = config.optionalStrings("layer_types") ?? []
    const attention = {
      ...{ hidden, headDim, heads: config.count("num_attention_heads") },
      ...{ kvHeads: config.count("num_key_value_heads"), rope: lm.ropeOf(config, { headDim }) },
      ...{ qkvBias: true, outBias: true, sinks: true },
    }
    return new lm.Decoder({
      ...{ vocabulary: config.count("vocab_size"), hidden, tied: false },
      layers: config.layers("num_hidden_layers"),
      attention: (layer) => ({
        ...attention,
        window: types[layer] === "sliding_attention" ? config.count("sliding_window") : null,
      }),
      feedForward: () =>
        new FeedForward(
          config.count("num_local_experts"),
          config.count("num_experts_per_tok"),
          hidden,
          config.count("intermediate_size"),
        ),
      norm: (dims) => new nn.RMSNorm(dims, config.number("rms_norm_eps")),
    })
  },
}

const [EXPERTS, INNER] = [4, 32]

/** A tiny checkpoint, unquantized as transformers saves it. */
export const gptOss: Tiny = {
  config: {
    ...base,
    model_type: "gpt_oss",
    architectures: ["GptOssForCausalLM"],
    intermediate_size: INNER,
    num_local_experts: EXPERTS,
    num_experts_per_tok: 2,
    attention_bias: true,
    swiglu_limit: 7,
    layer_types: ["sliding_attention", "full_attention"],
    sliding_window: 8,
    rope_theta: 150000,
    rope_scaling: {
      ...{ rope_type: "yarn", factor: 4, beta_fast: 32, beta_slow: 1 },
      ...{ original_max_position_embeddings: 64, truncate: false },
    },
  },
  tensors: {
    "model.embed_tokens.weight": [VOCABULARY, HIDDEN],
    "model.norm.weight": [HIDDEN],
    "lm_head.weight": [VOCABULARY, HIDDEN],
    ...Object.fromEntries(
      [0, 1].flatMap((i) => {
        const p = `model.layers.${i}`
        const a = `${p}.self_attn`
        const heads: [string, number][] = [
          ["q", HEADS],
          ["k", KV],
          ["v", KV],
        ]
        return [
          [`${p}.input_layernorm.weight`, [HIDDEN]],
          [`${p}.post_attention_layernorm.weight`, [HIDDEN]],
          ...heads.flatMap(([name, count]): [string, number[]][] => [
            [`${a}.${name}_proj.weight`, [count * DIM, HIDDEN]],
            [`${a}.${name}_proj.bias`, [count * DIM]],
          ]),
          [`${a}.o_proj.weight`, [HIDDEN, HEADS * DIM]],
          [`${a}.o_proj.bias`, [HIDDEN]],
          [`${a}.sinks`, [HEADS]],
          [`${p}.mlp.router.weight`, [EXPERTS, HIDDEN]],
          [`${p}.mlp.router.bias`, [EXPERTS]],
          [`${p}.mlp.experts.gate_up_proj`, [EXPERTS, HIDDEN, 2 * INNER]],
          [`${p}.mlp.experts.gate_up_proj_bias`, [EXPERTS, 2 * INNER]],
          [`${p}.mlp.experts.down_proj`, [EXPERTS, INNER, HIDDEN]],
          [`${p}.mlp.experts.down_proj_bias`, [EXPERTS, HIDDEN]],
        ] as [string, number[]][]
      }),
    ),
  },
}
