/**
 * Qwen 2 and 2.5, with biases in attention, and Qwen 3, with norms of queries and keys; dense or mixture of experts.
 */
import { Decoder, type DecoderPlan } from "../decoder"
import { SharedExperts, SparseFeedForward, stackExperts } from "../experts"
import { activationOf, GatedFeedForward } from "../layers"
import type { Family, Weights } from "../network"
import type { Settings } from "../settings"
import { attentionSizesOf, completedBy, llamaPlan, rmsNorm, sanitizeDecoder, windowsOf } from "./llama"

function attentionOf(config: Settings): DecoderPlan["attention"] {
  const third = config.string("model_type").startsWith("qwen3")
  // Qwen 3's experts have no first layers without a window.
  const from = config.string("model_type") === "qwen3_moe" ? 0 : config.number("max_window_layers", 28)
  const windows = config.boolean("use_sliding_window", false)
    ? windowsOf(config, (layer) => layer >= from)
    : () => null
  const sizes = attentionSizesOf(config)
  const bias = config.boolean("attention_bias", false)
  return (layer) => ({
    ...sizes,
    window: windows(layer),
    ...(third
      ? { qkvBias: bias, outBias: bias, norm: { over: "head", make: rmsNorm(config) } }
      : { qkvBias: config.boolean("qkv_bias", true) }),
  })
}

/** The feed-forward network of each layer, dense or with experts. */
function feedForwardOf(config: Settings): DecoderPlan["feedForward"] {
  const hidden = config.count("hidden_size")
  const activation = activationOf(config.string("hidden_act", "silu"))
  const dense = new Set(config.numbers("mlp_only_layers", []))
  const every = config.count("decoder_sparse_step", 1)
  // The name that transformers 5 saves for Qwen 3.
  const experts = config.count(config.has("num_experts") ? "num_experts" : "num_local_experts")
  const choice = {
    hidden,
    inner: config.count("moe_intermediate_size"),
    experts,
    chosen: config.count("num_experts_per_tok"),
    normalized: config.boolean("norm_topk_prob", false),
    activation,
  }
  const shared = config.optionalCount("shared_expert_intermediate_size")
  return (layer) => {
    if (dense.has(layer) || (layer + 1) % every !== 0)
      return new GatedFeedForward(hidden, config.count("intermediate_size"), { activation })
    return shared === null ? new SparseFeedForward(choice) : new SharedExperts(choice, shared)
  }
}

const LONG = { max_position_embeddings: 32_768 }

const hasExperts = (config: Settings): boolean => config.string("model_type").endsWith("_moe")

export const qwen: Family = {
  modelTypes: ["qwen2", "qwen3", "qwen2_moe", "qwen3_moe"],
  complete: completedBy({
    qwen2: { ...LONG, num_key_value_heads: 32 },
    qwen3: { ...LONG, num_key_value_heads: 32, head_dim: 128 },
    qwen2_moe: {
      ...{ ...LONG, num_key_value_heads: 16, num_experts_per_tok: 4 },
      ...{ moe_intermediate_size: 1408, shared_expert_intermediate_size: 5632 },
    },
    qwen3_moe: { ...LONG, num_key_value_heads: 4, num_experts_per_tok: 8, moe_intermediate_size: 768 },
  }),
  make: (config) => {
    const plan = llamaPlan(config, attentionOf(config))
    return new Decoder(hasExperts(config) ? { ...plan, feedForward: feedForwardOf(config) } : plan)
  },
  sanitize: (weights, config) => {
    const kept: Weights = sanitizeDecoder(weights, config)
    return hasExperts(config) ? stackExperts(kept, "mlp", ["gate_proj", "up_proj", "down_proj"]) : kept
  },
}
