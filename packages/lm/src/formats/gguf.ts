/**
 * Reads models from GGUF files: config, weights with Hugging Face names, and tokenizer. Quantized weights stay quantized.
 */
import * as mx from "@lazuli/core"
import { FormatError, readGgufTensors, withFile } from "@lazuli/core/engine"
import type { Weights } from "../models/network"
import { inDtype, replaced } from "../models/replaced"
import { type JsonObject, Settings } from "../models/settings"
import { Tokenizer } from "../text/tokenizer"
import { type Progress, reportReading } from "./folder"
import { type Architecture, renameLayer } from "./gguf-architectures"
import { ggufArchitecture, ggufConfig, ggufPooling } from "./gguf-config"
import { GgufMetadata } from "./gguf-metadata"
import { readParts } from "./gguf-parts"
import { commonDtype, type StoredFormat, storedFormats } from "./gguf-stored"
import { ggufTokenizer } from "./gguf-tokenizer"

/** The contents of a GGUF file, or of all parts of a model. */
export interface GgufModel {
  readonly config: Settings
  readonly weights: Weights
  readonly tokenizer: Tokenizer
  readonly stored: readonly StoredFormat[]
  readonly pooling: string | undefined
  /** The size of its files. */
  readonly bytes: number
}

/**
 * Reads a GGUF file, with the other parts if it is one of several. Its floating-point weights get one dtype.
 * @param check - called for each array that is read
 * @throws FormatError for architectures that are not supported, missing parts and missing metadata
 */
export function readGgufModel(
  file: string,
  given: mx.Dtype | undefined,
  onProgress: Progress | undefined,
  check: () => void,
): GgufModel {
  const parts = readParts(file)
  const total = parts.reduce((sum, { bytes }) => sum + bytes, 0)
  const metadata = new GgufMetadata(parts[0].metadata, file)
  const tensors = parts.flatMap((part) => part.tensors).filter(({ name }) => !name.startsWith(ROPE))
  const dtype = given ?? commonDtype(tensors, String(metadata.text("general.architecture")))
  const stored = storedFormats(tensors, dtype)
  const read = new Map<string, mx.Array>()
  let done = 0
  onProgress?.(0, total, file)
  for (const { path, bytes, tensors } of parts) {
    const before = done
    const arrays = withFile("load", path, (open) => {
      reportReading(open, (now) => onProgress?.(before + now, total, path))
      return readGgufTensors(open, tensors, (name, array) => {
        check()
        return name.startsWith(ROPE) ? array : inDtype(array, dtype)
      })
    })
    for (const [name, array] of Object.entries(arrays)) {
      if (read.has(name)) throw metadata.error(`two parts have the tensor ${JSON.stringify(name)}`)
      read.set(name, array)
    }
    done += bytes
  }
  const arrays = Object.fromEntries(read)
  const architecture = ggufArchitecture(metadata)
  const tokens = metadata.texts("tokenizer.ggml.tokens")
  if (!tokens) throw metadata.error("tokenizer.ggml.tokens is missing")
  const base = ggufConfig(metadata, architecture, arrays, arrays)
  const weights = convertTensors(arrays, architecture, base)
  const quantization = quantizationOf(weights)
  return {
    config: new Settings(quantization ? { ...base, quantization } : base, file),
    weights,
    tokenizer: new Tokenizer(ggufTokenizer(metadata, tokens)),
    stored,
    pooling: ggufPooling(metadata, architecture),
    bytes: total,
  }
}

/** The beginning of names of tensors with factors of frequencies. */
const ROPE = "rope_"

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
