/**
 * Models in GGUF files: their metadata as a config, their tensors under the hub's names, their tokenizer. Tensors of type Q4_0, Q4_1 and
 * Q8_0 stay as they are, as packed weights; those in other blocks become float16.
 */
import * as mx from "@lazuli/core"
import type { Weights } from "../models/network"
import { type Json, type JsonObject, Settings } from "../models/settings"
import { Tokenizer } from "../text/tokenizer"
import { GgufMetadata } from "./gguf-metadata"
import { ggufTokenizer } from "./gguf-tokenizer"

/** Architectures whose layers are Llama's, by what GGUF calls them, with the hub's name. */
const TYPES: Readonly<Record<string, string>> = { llama: "llama", qwen2: "qwen2", qwen3: "qwen3" }

/** Names of tensors, GGUF's and the hub's. */
const TENSORS: readonly (readonly [RegExp, string])[] = [
  [/^token_embd\./, "model.embed_tokens."],
  [/^output_norm\./, "model.norm."],
  [/^output\./, "lm_head."],
  [/^blk\.(\d+)\./, "model.layers.$1."],
  [/\.attn_norm\./, ".input_layernorm."],
  [/\.ffn_norm\./, ".post_attention_layernorm."],
  [/\.attn_output\./, ".self_attn.o_proj."],
  [/\.attn_([qk])_norm\./, ".self_attn.$1_norm."],
  [/\.attn_([qkv])\./, ".self_attn.$1_proj."],
  [/\.ffn_(gate|up|down)\./, ".mlp.$1_proj."],
]

/** A model's parts from a GGUF file. */
export interface GgufModel {
  readonly config: Settings
  readonly weights: Weights
  readonly tokenizer: Tokenizer
}

/**
 * Reads a GGUF file.
 * @throws FormatError for an architecture that is not known, and for metadata that are missing
 */
export function readGgufModel(file: string): GgufModel {
  const [arrays, values] = mx.load(file, "gguf", true)
  const metadata = new GgufMetadata(values, file)
  const architecture = metadata.text("general.architecture")
  const type = architecture === null ? undefined : TYPES[architecture]
  if (architecture === null || !type)
    throw metadata.error(
      `the architecture ${JSON.stringify(architecture)} is not read from GGUF files`,
      `Known are ${Object.keys(TYPES).join(", ")}; others load from folders in the hub's form`,
    )
  const tokens = metadata.texts("tokenizer.ggml.tokens")
  if (!tokens) throw metadata.error("has no tokenizer")
  const base = configOf(metadata, architecture, type, tokens.length, arrays)
  const weights = renamed(arrays, type === "llama" ? base : null)
  const quantization = quantizationOf(weights)
  return {
    config: new Settings(quantization ? { ...base, quantization } : base, file),
    weights,
    tokenizer: new Tokenizer(ggufTokenizer(metadata, tokens)),
  }
}

function configOf(
  metadata: GgufMetadata,
  architecture: string,
  type: string,
  words: number,
  arrays: Weights,
): JsonObject {
  const number = (key: string): number | null => metadata.number(`${architecture}.${key}`)
  const needed = (key: string): number => {
    const value = number(key)
    if (value === null) throw metadata.error(`lacks ${architecture}.${key}`)
    return value
  }
  const heads = needed("attention.head_count")
  const hidden = needed("embedding_length")
  if (number("expert_count")) throw metadata.error("has experts, which are not read from GGUF files")
  return {
    model_type: type,
    vocab_size: words,
    hidden_size: hidden,
    intermediate_size: needed("feed_forward_length"),
    num_hidden_layers: needed("block_count"),
    num_attention_heads: heads,
    num_key_value_heads: number("attention.head_count_kv") ?? heads,
    head_dim: number("attention.key_length") ?? hidden / heads,
    rms_norm_eps: needed("attention.layer_norm_rms_epsilon"),
    max_position_embeddings: number("context_length") ?? 2048,
    rope_theta: number("rope.freq_base") ?? 10000,
    tie_word_embeddings: !("output.weight" in arrays),
    ...scalingOf(metadata, architecture, arrays),
  }
}

function scalingOf(metadata: GgufMetadata, architecture: string, arrays: Weights): JsonObject {
  const key = (name: string): string => `${architecture}.rope.scaling.${name}`
  const context = metadata.number(`${architecture}.context_length`) ?? 2048
  const factors = arrays["rope_freqs.weight"]
  if (factors) {
    // Llama 3's frequencies, as factors of the plain ones.
    const each: Json = Array.from(factors.astype(mx.float32).toTypedArray() as Float32Array)
    const rope = { rope_type: "longrope", short_factor: each, long_factor: each, attention_factor: 1 }
    return { rope_scaling: { ...rope, factor: 1, original_max_position_embeddings: context } }
  }
  const kind = metadata.text(key("type")) ?? "none"
  if (kind === "none") return {}
  if (kind !== "linear" && kind !== "yarn")
    throw metadata.error(`scales rotary positions as "${kind}", which is not known`)
  const trained = metadata.number(key("original_context_length")) ?? context
  return {
    rope_scaling: {
      rope_type: kind,
      factor: metadata.number(key("factor")) ?? 1,
      original_max_position_embeddings: trained,
    },
  }
}

/** The hub's names. @param config - of a Llama, whose rows for queries and keys lie in another order */
function renamed(arrays: Weights, config: JsonObject | null): Weights {
  const out: Weights = {}
  for (const [name, array] of Object.entries(arrays)) {
    if (name === "rope_freqs.weight") continue
    const known = TENSORS.reduce((text, [from, to]) => text.replace(from, to), name)
    const [, which] = /\.self_attn\.([qk])_proj\./.exec(known) ?? []
    const heads = which === "q" ? config?.num_attention_heads : config?.num_key_value_heads
    out[known] = which && config ? inHalves(array, heads as number) : array
  }
  return out
}

/** Rows of a head in halves (0, 2, 4, … 1, 3, 5, …), from neighbours: what the two ways to rotate pairs differ in. */
function inHalves(array: mx.Array, heads: number): mx.Array {
  const features = array.shape[0] / heads
  const order = Int32Array.from({ length: array.shape[0] }, (_, row) => {
    const [head, at] = [Math.floor(row / features), row % features]
    const half = features / 2
    return head * features + (at < half ? 2 * at : 2 * (at - half) + 1)
  })
  return mx.take(array, mx.array(order), 0)
}

/** The formats of packed weights, by their sizes: groups of 32, of as many bits as the words hold. */
function quantizationOf(weights: Weights): JsonObject | null {
  const formats: Record<string, JsonObject> = {}
  for (const [name, scales] of Object.entries(weights)) {
    if (!name.endsWith(".scales")) continue
    const layer = name.slice(0, -".scales".length)
    const words = weights[`${layer}.weight`].shape.at(-1) ?? 0
    formats[layer] = { group_size: 32, bits: words / (scales.shape.at(-1) ?? 1), mode: "affine" }
  }
  const [first] = Object.values(formats)
  return first ? { ...first, ...formats } : null
}
