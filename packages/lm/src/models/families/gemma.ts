/**
 * Gemma 1, 2 and 3 (text only): scaled embeddings, and norms with 1 + weight. Gemma 2 adds norms after each part, sliding windows in some
 * layers, and soft caps; Gemma 3 has norms of queries and keys instead of caps.
 */
import { Decoder, type DecoderPlan } from "../decoder"
import { activationOf, GatedFeedForward, OffsetNorm } from "../layers"
import type { Family, Weights } from "../network"
import { type JsonObject, Settings } from "../settings"
import { attentionSizesOf, llamaPlan, localRope, sanitizeDecoder, windowsOf } from "./llama"

/** The defaults of transformers' classes. Those of Gemma 3 are omitted by its multimodal models. */
const DEFAULTS: Readonly<Record<string, JsonObject>> = {
  gemma: { num_key_value_heads: 16, head_dim: 256, max_position_embeddings: 8192 },
  gemma2: {
    ...{ num_attention_heads: 8, num_key_value_heads: 4, head_dim: 256, max_position_embeddings: 8192 },
    ...{ sliding_window: 4096, attn_logit_softcapping: 50, final_logit_softcapping: 30 },
  },
  gemma3_text: {
    ...{ vocab_size: 262_208, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 256 },
    ...{ sliding_window: 4096, max_position_embeddings: 131_072 },
  },
}

/** The text model's settings, with tied embeddings by default. */
function complete(config: Settings): Settings {
  const { values, source } = config.within("text_config")
  const defaults = DEFAULTS[String(values.model_type).replace(/^gemma3$/, "gemma3_text")]
  return new Settings({ tie_word_embeddings: true, ...defaults, ...values }, source)
}

/** The additions of Gemma 2 and 3. */
const CAPS = ["attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"] as const

function planOf(config: Settings): DecoderPlan {
  const kind = config.string("model_type")
  config.only({ use_bidirectional_attention: false })
  const eps = config.number("rms_norm_eps", 1e-6)
  const norm = (dims: number): OffsetNorm => new OffsetNorm(dims, eps)
  const plan = {
    ...llamaPlan(config, attentionOf(config, norm), kind === "gemma" ? [] : CAPS),
    norm,
    embeddingScale: Math.sqrt(config.count("hidden_size")),
    feedForward: () => {
      // In Gemma's configs, "gelu" means the tanh approximation.
      const named = config.string("hidden_activation", config.string("hidden_act", "gelu_pytorch_tanh"))
      const activation = activationOf(named === "gelu" ? "gelu_pytorch_tanh" : named)
      return new GatedFeedForward(config.count("hidden_size"), config.count("intermediate_size"), {
        activation,
      })
    },
  }
  if (kind === "gemma") return plan
  return { ...plan, order: "both", logitCap: config.optionalNumber("final_logit_softcapping") }
}

function attentionOf(config: Settings, norm: (dims: number) => OffsetNorm): DecoderPlan["attention"] {
  const kind = config.string("model_type")
  if (kind === "gemma") {
    const sizes = attentionSizesOf(config)
    return () => sizes
  }
  const third = kind.startsWith("gemma3")
  const sizes = attentionSizesOf(config, third ? { base: 1e6, layerType: "full_attention" } : {})
  const scale = config.number("query_pre_attn_scalar", 256) ** -0.5
  const every = third ? config.count("sliding_window_pattern", 6) : 2
  const windows = windowsOf(config, (layer) => (layer + 1) % every !== 0)
  const cap = config.optionalNumber("attn_logit_softcapping")
  const base = config.number("rope_local_base_freq", 10000)
  const local = third ? localRope(config, sizes.headDim, base) : sizes.rope
  return (layer) => {
    const window = windows(layer)
    return {
      ...sizes,
      scale,
      window,
      cap,
      rope: window === null ? sizes.rope : local,
      ...(third ? { norm: { over: "head", make: norm } } : {}),
    }
  }
}

/** The name of a weight or layer without the parts of multimodal models. */
function textName(name: string): string {
  const plain = name.replace(/^(model\.)?language_model\./, "")
  return /^(model|lm_head)\b/.test(plain) ? plain : `model.${plain}`
}

export const gemma: Family = {
  modelTypes: ["gemma", "gemma2", "gemma3_text", "gemma3"],
  make: (config) => new Decoder(planOf(config)),
  complete,
  sanitize: (weights, config) => {
    const text: Weights = {}
    for (const [name, array] of Object.entries(weights)) {
      if (/(^|\.)(vision_tower|multi_modal_projector)\./.test(name)) continue
      text[textName(name)] = array
    }
    return sanitizeDecoder(text, config)
  },
  layerName: textName,
}
