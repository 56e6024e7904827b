/**
 * Llama 2 and 3, and those that are built as it is: Mistral, SmolLM, Qwen 2 (with biases) and 3 (with norms of queries and keys).
 */
import * as nn from "@lazuli/nn"
import { Decoder, type DecoderPlan } from "../decoder"
import { type AttentionSizes, activationOf, GatedFeedForward, type MakeNorm } from "../layers"
import type { Family, Weights } from "../network"
import { type Rope, type RopeChoice, ropeOf } from "../rope"
import type { Settings } from "../settings"

/** The norm of nearly all families. */
export const rmsNorm =
  (config: Settings, eps = 1e-6): MakeNorm =>
  (dims) =>
    new nn.RMSNorm(dims, config.number("rms_norm_eps", eps))

/** The sizes that nearly all config.json files name alike. */
export function sizesOf(config: Settings, choice: Partial<RopeChoice> = {}): AttentionSizes & { rope: Rope } {
  const hidden = config.count("hidden_size")
  const heads = config.count("num_attention_heads")
  const headDim = config.count("head_dim", hidden / heads)
  const kvHeads = config.count("num_key_value_heads", heads)
  return { hidden, heads, kvHeads, headDim, rope: ropeOf(config, { headDim, ...choice }) }
}

/** The window of each layer: that of `layer_types`, or of all layers, or of none. */
export function windowsOf(
  config: Settings,
  slides: (layer: number) => boolean,
): (layer: number) => number | null {
  const types = config.optionalStrings("layer_types")
  const window = config.optionalCount("sliding_window")
  return (layer) => ((types ? types[layer] === "sliding_attention" : slides(layer)) ? window : null)
}

/** A plan with gated feed-forward networks and norms before them. */
export function llamaPlan(config: Settings, attention: DecoderPlan["attention"]): DecoderPlan {
  const hidden = config.count("hidden_size")
  const activation = activationOf(config.string("hidden_act", "silu"))
  const inner = config.count("intermediate_size")
  return {
    vocabulary: config.count("vocab_size"),
    hidden,
    layers: config.count("num_hidden_layers"),
    attention,
    feedForward: () =>
      new GatedFeedForward(hidden, inner, { activation, bias: config.boolean("mlp_bias", false) }),
    norm: rmsNorm(config),
    tied: config.boolean("tie_word_embeddings", false),
  }
}

/** Without what files have beside the network's own weights: frequencies, and a head that is the table of embeddings. */
export function sanitizeDecoder(weights: Weights, config: Settings): Weights {
  const tied = config.boolean("tie_word_embeddings", false)
  return Object.fromEntries(
    Object.entries(weights).filter(
      ([name]) => !name.endsWith("rotary_emb.inv_freq") && !(tied && name.startsWith("lm_head.")),
    ),
  )
}

export const llama: Family = {
  modelTypes: ["llama", "mistral", "smollm"],
  make: (config) => {
    const bias = config.boolean("attention_bias", false)
    const windows = windowsOf(config, () => config.string("model_type") === "mistral")
    const sizes = sizesOf(config)
    return new Decoder(
      llamaPlan(config, (layer) => ({ ...sizes, qkvBias: bias, outBias: bias, window: windows(layer) })),
    )
  },
  sanitize: sanitizeDecoder,
}

/** Qwen 2, 2.5 and 3. */
export const qwen: Family = {
  modelTypes: ["qwen2", "qwen3"],
  make: (config) => new Decoder(llamaPlan(config, qwenAttention(config))),
  sanitize: sanitizeDecoder,
}

/** The attention of Qwen's models, dense or with experts. */
export function qwenAttention(config: Settings): DecoderPlan["attention"] {
  const third = config.string("model_type").startsWith("qwen3")
  const from = config.number("max_window_layers", 0)
  const windows = config.boolean("use_sliding_window", false)
    ? windowsOf(config, (layer) => layer >= from)
    : () => null
  const sizes = sizesOf(config)
  const bias = config.boolean("attention_bias", false)
  return (layer) => ({
    ...sizes,
    window: windows(layer),
    ...(third
      ? { qkvBias: bias, outBias: bias, norm: { over: "head", make: rmsNorm(config) } }
      : { qkvBias: config.boolean("qkv_bias", true) }),
  })
}
