/**
 * Reads models from GGUF files: config, weights with Hugging Face names, and tokenizer. Quantized weights stay quantized.
 */
import * as mx from "@lazuli/core"
import { asPath, FormatError, readGguf, withFile } from "@lazuli/core/engine"
import type { Weights } from "../models/network"
import { inDtype, replaced } from "../models/replaced"
import { type Json, type JsonObject, Settings } from "../models/settings"
import { Tokenizer } from "../text/tokenizer"
import { type Progress, reportReading } from "./folder"
import { ARCHITECTURES, type Architecture, renameLayer } from "./gguf-architectures"
import { blockFormats } from "./gguf-blocks"
import { GgufMetadata } from "./gguf-metadata"
import { readRope } from "./gguf-rope"
import { commonDtype, type StoredFormat, storedFormats } from "./gguf-stored"
import { ggufTokenizer } from "./gguf-tokenizer"

/** The contents of a GGUF file. */
export interface GgufModel {
  readonly config: Settings
  readonly weights: Weights
  readonly tokenizer: Tokenizer
  readonly stored: readonly StoredFormat[]
}

/**
 * Reads a GGUF file. Its floating-point weights get one dtype.
 * @param check - called for each array that is read
 * @throws FormatError for architectures that are not supported, and missing metadata
 */
export function readGgufModel(
  file: string,
  given: mx.Dtype | undefined,
  onProgress: Progress | undefined,
  check: () => void,
): GgufModel {
  let stored: readonly StoredFormat[] = []
  const { arrays, metadata: values } = withFile("load", asPath("load", file), (open) => {
    reportReading(open, (done) => onProgress?.(done, open.size, file))
    return readGguf(open, blockFormats, (all, metadata) => {
      const tensors = all.filter(({ name }) => !name.startsWith(ROPE))
      const dtype = given ?? commonDtype(tensors, String(metadata["general.architecture"]))
      stored = storedFormats(tensors, dtype)
      return (name, array) => {
        check()
        return name.startsWith(ROPE) ? array : inDtype(array, dtype)
      }
    })
  })
  const metadata = new GgufMetadata(values, file)
  const architecture = architectureOf(metadata)
  const tokens = metadata.texts("tokenizer.ggml.tokens")
  if (!tokens) throw metadata.error("tokenizer.ggml.tokens is missing")
  const base = configOf(metadata, architecture, arrays)
  const weights = convertTensors(arrays, architecture, base)
  const quantization = quantizationOf(weights)
  return {
    config: new Settings(quantization ? { ...base, quantization } : base, file),
    weights,
    tokenizer: new Tokenizer(ggufTokenizer(metadata, tokens)),
    stored,
  }
}

/** The beginning of names of tensors with factors of frequencies. */
const ROPE = "rope_"

/** The architecture of a file. Families that share a name differ in their metadata. */
function architectureOf(metadata: GgufMetadata): Architecture {
  const name = metadata.text("general.architecture")
  const named = ARCHITECTURES.filter((each) => each.name === name)
  if (named.length === 0)
    throw metadata.error(
      `the architecture ${JSON.stringify(name)} is not supported in GGUF files`,
      `Supported: ${[...new Set(ARCHITECTURES.map((each) => each.name))].join(", ")}; load others from folders in Hugging Face format`,
    )
  const has = (key: string): boolean => (metadata.number(`${name}.${key}`) ?? 0) > 0
  const type = has("expert_count") ? "mixtral" : has("attention.sliding_window") ? "mistral" : "llama"
  return name === "llama" ? named.find(({ modelTypes }) => modelTypes.includes(type))! : named[0]
}

function configOf(metadata: GgufMetadata, architecture: Architecture, arrays: Weights): JsonObject {
  const { name, keys, fixed = {} } = architecture
  const config: Record<string, Json> = { model_type: architecture.modelTypes[0] }
  for (const { gguf, hf, otherwise, optional } of keys) {
    const value = metadata.number(`${name}.${gguf}`) ?? otherwise?.(config) ?? null
    if (value === null && !optional) throw metadata.error(`${name}.${gguf} is missing`)
    if (value !== null) config[hf] ??= value
  }
  for (const [key, [value]] of Object.entries(fixed)) config[key] = value
  config.vocab_size = arrays["token_embd.weight"]?.shape[0] ?? 0
  if (name === "gpt2") return config
  if (name === "bert") return { ...config, ...bertConfig(arrays) }
  if (name === "gemma2" || name === "gemma3") config.query_pre_attn_scalar = attentionScalar(name, config)
  const pattern = metadata.numbers(`${name}.attention.sliding_window_pattern`)
  if (pattern) config.layer_types = pattern.map((slides) => (slides ? "sliding_attention" : "full_attention"))
  return {
    ...config,
    tie_word_embeddings: !("output.weight" in arrays),
    attention_bias: "blk.0.attn_q.bias" in arrays,
    mlp_bias: "blk.0.ffn_up.bias" in arrays,
    ...readRope(metadata, name, arrays),
  }
}

function bertConfig(arrays: Weights): JsonObject {
  const labels = arrays["cls.output.weight"]?.shape[0]
  return {
    type_vocab_size: arrays["token_types.weight"]?.shape[0] ?? 2,
    ...(labels ? { architectures: ["BertForSequenceClassification"], num_labels: labels } : {}),
  }
}

/** Gemma's query_pre_attn_scalar, which llama.cpp derives for the largest models from their number of layers. */
export function attentionScalar(architecture: "gemma2" | "gemma3", config: JsonObject): number {
  const largest = config.num_hidden_layers === (architecture === "gemma2" ? 46 : 62)
  return largest ? Number(config.hidden_size) / Number(config.num_attention_heads) : Number(config.head_dim)
}

/** Separate tensors of experts, in older files. */
const SINGLE = /^blk\.(\d+)\.ffn_(gate|up|down)\.(\d+)$/
const SINGLE_NAMES: Readonly<Record<string, string>> = { gate: "w1", up: "w3", down: "w2" }

/** Tensors with the names and layouts of Hugging Face checkpoints. */
function convertTensors(arrays: Weights, architecture: Architecture, config: JsonObject): Weights {
  const out: Weights = {}
  for (const [name, array] of Object.entries(arrays)) {
    if (name.startsWith(ROPE)) continue
    const at = name.lastIndexOf(".")
    const [layer, leaf] = [name.slice(0, at), name.slice(at + 1)]
    const [, number, which, expert] = SINGLE.exec(layer) ?? []
    const known = number
      ? `model.layers.${number}.block_sparse_moe.experts.${expert}.${SINGLE_NAMES[which]}`
      : (renameLayer(architecture.tensors, layer, 0) ?? layer)
    out[`${known}.${leaf}`] = replaced([array], () => convertLayout(array, known, leaf, architecture, config))
  }
  return out
}

function convertLayout(
  array: mx.Array,
  layer: string,
  leaf: string,
  architecture: Architecture,
  config: JsonObject,
): mx.Array {
  const [, which] = /\.self_attn\.([qk])_proj$/.exec(layer) ?? []
  if (which && architecture.interleaved)
    return deinterleave(
      array,
      Number(which === "q" ? config.num_attention_heads : config.num_key_value_heads),
    )
  if (architecture.offsetNorms && /norm$/.test(layer) && leaf === "weight") return array.subtract(1)
  if (layer.endsWith(".shared_expert_gate") && array.ndim === 1) return array.expandDims(0)
  return array
}

/** Reorders the rows of each head from interleaved pairs to halves: 0, 2, 4, … 1, 3, 5, … */
function deinterleave(array: mx.Array, heads: number): mx.Array {
  const [rows, ...rest] = array.shape
  const pairs = rows / heads / 2
  if (!Number.isSafeInteger(pairs))
    throw new FormatError("load", `${rows} rows of queries or keys do not have ${heads} heads of pairs`)
  return array
    .reshape([heads, pairs, 2, ...rest])
    .swapaxes(1, 2)
    .reshape(array.shape)
}

/** The formats of packed weights, by the words per group: fewer than 4 in groups of 16, which have 2, 4 or 6 bits. */
function quantizationOf(weights: Weights): JsonObject | null {
  const formats: Record<string, JsonObject> = {}
  for (const [name, scales] of Object.entries(weights)) {
    if (!name.endsWith(".scales")) continue
    const layer = name.slice(0, -".scales".length)
    const words = weights[`${layer}.weight`].shape.at(-1) ?? 0
    const each = words / (scales.shape.at(-1) ?? 1)
    const group = each < 4 ? 16 : 32
    formats[layer] = {
      group_size: group,
      bits: (each * 32) / group,
      mode: scales.dtype === mx.uint8 ? "mxfp4" : "affine",
    }
  }
  const [first] = Object.values(formats)
  return first ? { ...first, ...formats } : null
}
