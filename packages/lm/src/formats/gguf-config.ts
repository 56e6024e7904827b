/**
 * The config.json of a GGUF file: the values of its metadata, and those that its architecture implies.
 */
import type { Weights } from "../models/network"
import type { Json, JsonObject } from "../models/settings"
import { ARCHITECTURES, type Architecture } from "./gguf-architectures"
import type { GgufMetadata } from "./gguf-metadata"
import { readRope } from "./gguf-rope"

/** The shapes of tensors by their names in the file. */
export type TensorShapes = Readonly<Record<string, { readonly shape: readonly number[] }>>

/** The architecture of a file. Families that share a name differ in their metadata. */
export function ggufArchitecture(metadata: GgufMetadata): Architecture {
  const name = metadata.text("general.architecture")
  const named = ARCHITECTURES.filter((each) => each.name === name)
  if (named.length === 0)
    throw metadata.error(
      `the architecture ${JSON.stringify(name)} is not supported in GGUF files`,
      `Supported: ${[...new Set(ARCHITECTURES.map((each) => each.name))].join(", ")}; load others from folders in Hugging Face format`,
    )
  const has = (key: string): boolean => (metadata.number(`${name}.${key}`) ?? 0) > 0
  if (name === "olmo2" && has("attention.sliding_window"))
    throw metadata.error(
      "OLMo 3 is not supported in GGUF files",
      "Load it from a folder in Hugging Face format",
    )
  const type = has("expert_count") ? "mixtral" : has("attention.sliding_window") ? "mistral" : "llama"
  return name === "llama" ? named.find(({ modelTypes }) => modelTypes.includes(type))! : named[0]
}

/** @param rope - the tensors with factors of frequencies */
export function ggufConfig(
  metadata: GgufMetadata,
  architecture: Architecture,
  shapes: TensorShapes,
  rope: Weights,
): JsonObject {
  const { name, keys, implied } = architecture
  const config: Record<string, Json> = { model_type: architecture.modelTypes[0] }
  for (const { gguf, hf, otherwise, optional } of keys) {
    const value = metadata.same(`${name}.${gguf}`) ?? otherwise?.(config) ?? null
    if (value === null && !optional) throw metadata.error(`${name}.${gguf} is missing`)
    // Zero stands for none.
    if (value !== null && !(optional && value === 0)) config[hf] ??= value
  }
  Object.assign(config, implied)
  config.vocab_size = shapes["token_embd.weight"]?.shape[0] ?? 0
  const tie_word_embeddings = !("output.weight" in shapes)
  if (name === "gpt2") return { ...config, tie_word_embeddings }
  if (name === "bert") return { ...config, ...bertConfig(shapes) }
  if (name === "gemma2" || name === "gemma3") config.query_pre_attn_scalar = attentionScalar(name, config)
  return {
    ...config,
    ...slidingLayers(metadata, name),
    tie_word_embeddings,
    attention_bias: "blk.0.attn_q.bias" in shapes,
    mlp_bias: "blk.0.ffn_up.bias" in shapes,
    ...readRope(metadata, name, rope, Number(config.head_dim)),
  }
}

/** The layers with windows: a list, or the period of those without. */
function slidingLayers(metadata: GgufMetadata, name: string): JsonObject {
  const key = `${name}.attention.sliding_window_pattern`
  const period = metadata.number(key)
  if (period !== null) return { sliding_window_pattern: period }
  const layers = metadata.numbers(key)
  return layers
    ? { layer_types: layers.map((slides) => (slides ? "sliding_attention" : "full_attention")) }
    : {}
}

function bertConfig(shapes: TensorShapes): JsonObject {
  const labels = shapes["cls.output.weight"]?.shape[0]
  return {
    type_vocab_size: shapes["token_types.weight"]?.shape[0] ?? 2,
    ...(labels ? { architectures: ["BertForSequenceClassification"], num_labels: labels } : {}),
  }
}

/** Gemma's query_pre_attn_scalar, which llama.cpp derives for the largest models from their number of layers. */
function attentionScalar(architecture: "gemma2" | "gemma3", config: JsonObject): number {
  const largest = config.num_hidden_layers === (architecture === "gemma2" ? 46 : 62)
  return largest ? Number(config.hidden_size) / Number(config.num_attention_heads) : Number(config.head_dim)
}

/** The poolings of embeddings by their numbers in files. 0 is none, 4 the score of a reranker. */
export const POOLINGS: Readonly<Record<string, number>> = { mean: 1, first: 2, last: 3 }
export const RANKS = 4

/** The pooling that a file asks for. */
export function ggufPooling(metadata: GgufMetadata, { name }: Architecture): string | undefined {
  const type = metadata.number(`${name}.pooling_type`)
  return Object.keys(POOLINGS).find((pooling) => POOLINGS[pooling] === type)
}
