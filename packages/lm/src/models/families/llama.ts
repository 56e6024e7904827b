/**
 * Llama 2 and 3, and models of the same architecture: Mistral and SmolLM.
 */
import { FormatError } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { checkKind } from "../../argument-kinds"
import { Decoder, type DecoderPlan } from "../decoder"
import { type AttentionSizes, activationOf, GatedFeedForward, type MakeNorm } from "../layers"
import type { Family, Weights } from "../network"
import { type Rope, type RopeChoice, ropeOf } from "../rope"
import { type JsonObject, SETTINGS, Settings } from "../settings"

/**
 * RMS norms with the config's epsilon, or else with `eps`.
 * @example
 * rmsNorm(new Settings({ rms_norm_eps: 1e-5 }))(4).forward(mx.ones([1, 4])).shape // => [1, 4]
 */
export function rmsNorm(config: Settings, eps = 1e-6): MakeNorm {
  checkKind("rmsNorm", "the config", config, SETTINGS)
  return (dims) => new nn.RMSNorm(dims, config.number("rms_norm_eps", eps))
}

/**
 * Attention sizes and RoPE, by the names in most config.json files.
 * @throws FormatError for missing values, and sizes that do not fit
 * @example
 * const { config } = await load('my-model')
 * attentionSizesOf(config).headDim // => 16
 */
export function attentionSizesOf(
  config: Settings,
  choice: Partial<RopeChoice> = {},
): AttentionSizes & { rope: Rope } {
  checkKind("attentionSizesOf", "the config", config, SETTINGS)
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

/**
 * The sliding window of each layer, by `layer_types` or, if missing, by `slides`; null for none.
 * @throws FormatError for layer types other than `full_attention` and `sliding_attention`
 * @example
 * const windows = windowsOf(new Settings({ sliding_window: 8 }), (layer) => layer > 0)
 * ;[0, 1].map(windows) // => [null, 8]
 */
export function windowsOf(
  config: Settings,
  slides: (layer: number) => boolean,
): (layer: number) => number | null {
  checkKind("windowsOf", "the config", config, SETTINGS)
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

/**
 * The plan of a Llama-like decoder, of which a family may replace parts.
 * @param attention - the attention of each layer
 * @param known - settings that change the mathematics, which the family supports: others are refused
 * @throws FormatError for missing values, and for additions that are not known
 * @example
 * const { config } = await load('my-model')
 * const sizes = attentionSizesOf(config)
 * const decoder = new Decoder({ ...llamaPlan(config, () => sizes), order: 'both' })
 * decoder.layerShapes().length // => 2
 */
export function llamaPlan(
  config: Settings,
  attention: DecoderPlan["attention"],
  known: readonly (keyof typeof WITHOUT_ADDITIONS)[] = [],
): DecoderPlan {
  checkKind("llamaPlan", "the config", config, SETTINGS)
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

/**
 * A checkpoint's weights without RoPE frequencies and tied heads.
 * @example
 * const weights = { 'lm_head.weight': mx.ones([8, 4]), 'model.norm.weight': mx.ones([4]) }
 * Object.keys(sanitizeDecoder(weights, new Settings({ tie_word_embeddings: true }))) // => ['model.norm.weight']
 */
export function sanitizeDecoder(weights: Weights, config: Settings): Weights {
  checkKind("sanitizeDecoder", "the config", config, SETTINGS)
  const tied = config.boolean("tie_word_embeddings", false)
  return Object.fromEntries(
    Object.entries(weights).filter(
      ([name]) => !name.endsWith("rotary_emb.inv_freq") && !(tied && name.startsWith("lm_head.")),
    ),
  )
}

/** Completes configs by values for each model_type: the defaults of transformers' classes, where others would make another network. */
export const completedBy =
  (defaults: Readonly<Record<string, JsonObject>>) =>
  (config: Settings): Settings =>
    new Settings({ ...defaults[config.string("model_type")], ...config.values }, config.source)

export const llama: Family = {
  modelTypes: ["llama", "mistral", "smollm"],
  complete: completedBy({
    mistral: { num_key_value_heads: 8, sliding_window: 4096, max_position_embeddings: 131_072 },
  }),
  make: (config) => {
    const bias = config.boolean("attention_bias", false)
    const windows = windowsOf(config, () => config.string("model_type") === "mistral")
    const sizes = attentionSizesOf(config)
    return new Decoder(
      llamaPlan(config, (layer) => ({ ...sizes, qkvBias: bias, outBias: bias, window: windows(layer) })),
    )
  },
  sanitize: sanitizeDecoder,
}
