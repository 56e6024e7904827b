/**
 * Llama 2 and 3, and models of the same architecture: Mistral and SmolLM.
 */
import { FormatError } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { Decoder, type DecoderPlan } from "../decoder"
import { type AttentionSizes, activationOf, GatedFeedForward, type MakeNorm } from "../layers"
import type { Family, Weights } from "../network"
import { type Rope, type RopeChoice, ropeOf } from "../rope"
import { Settings } from "../settings"

/** RMS norm with the config's epsilon. */
export const rmsNorm =
  (config: Settings, eps = 1e-6): MakeNorm =>
  (dims) =>
    new nn.RMSNorm(dims, config.number("rms_norm_eps", eps))

/** Attention sizes, by the names in most config.json files. */
export function sizesOf(config: Settings, choice: Partial<RopeChoice> = {}): AttentionSizes & { rope: Rope } {
  const hidden = config.count("hidden_size")
  const heads = config.count("num_attention_heads")
  const headDim = config.has("head_dim")
    ? config.count("head_dim", undefined, 2 ** 16)
    : config.headDim("hidden_size", "num_attention_heads")
  const kvHeads = config.count("num_key_value_heads", heads)
  if (heads % kvHeads !== 0)
    throw new FormatError(
      "load",
      `${config.source}: "num_attention_heads" ${heads} is not divisible by "num_key_value_heads" ${kvHeads}`,
    )
  return { hidden, heads, kvHeads, headDim, rope: ropeOf(config, { headDim, ...choice }) }
}

/** The sliding window of each layer, by `layer_types` or, if missing, by `slides`. */
export function windowsOf(
  config: Settings,
  slides: (layer: number) => boolean,
): (layer: number) => number | null {
  const types = config.optionalStrings("layer_types")
  const isKnown = (type: string): boolean => type === "sliding_attention" || type === "full_attention"
  if (types && (types.length !== config.layers("num_hidden_layers") || !types.every(isKnown)))
    throw new FormatError(
      "load",
      `${config.source}: "layer_types" must be "sliding_attention" or "full_attention" for each layer, received ${types.join(", ")}`,
    )
  const window = config.optionalCount("sliding_window")
  return (layer) => ((types ? types[layer] === "sliding_attention" : slides(layer)) ? window : null)
}

/** RoPE of layers with windows that is not scaled as that of others is. @param base - the base if the config has none for these layers */
export function localRope(config: Settings, headDim: number, base: number): Rope {
  if (config.part("rope_parameters")?.part("sliding_attention"))
    return ropeOf(config, { headDim, base, layerType: "sliding_attention" })
  const { rope_scaling: _, rope_parameters: __, ...values } = config.values
  return ropeOf(new Settings({ ...values, rope_theta: base }, config.source), { headDim })
}

/** Settings of other Llama-like decoders (Granite, Cohere, Gemma, OLMo), with the values that change nothing. */
const WITHOUT_ADDITIONS = {
  attn_logit_softcapping: null,
  final_logit_softcapping: null,
  query_pre_attn_scalar: null,
  attention_multiplier: null,
  embedding_multiplier: 1,
  residual_multiplier: 1,
  logits_scaling: 1,
  logit_scale: 1,
  clip_qkv: null,
  use_qk_norm: false,
  qk_layernorm: false,
}

/** The plan of a Llama-like decoder. @param known - additions that the family has */
export function llamaPlan(
  config: Settings,
  attention: DecoderPlan["attention"],
  known: readonly (keyof typeof WITHOUT_ADDITIONS)[] = [],
): DecoderPlan {
  const others = Object.entries(WITHOUT_ADDITIONS).filter(([key]) => !known.includes(key as never))
  config.only(Object.fromEntries(others))
  const hidden = config.count("hidden_size")
  const activation = activationOf(config.string("hidden_act", "silu"))
  const inner = config.count("intermediate_size")
  return {
    vocabulary: config.count("vocab_size"),
    hidden,
    layers: config.layers("num_hidden_layers"),
    attention,
    feedForward: () =>
      new GatedFeedForward(hidden, inner, { activation, bias: config.boolean("mlp_bias", false) }),
    norm: rmsNorm(config),
    tied: config.boolean("tie_word_embeddings", false),
  }
}

/** Removes RoPE frequencies and tied heads from a checkpoint. */
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
