/**
 * Writes models as GGUF files, the reverse of gguf.ts. Quantized weights are copied if GGUF has their format.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  asPath,
  describe,
  FormatError,
  type GgufTensor,
  ggufParts,
  writeBeside,
} from "@lazuli/core/engine"
import { EncoderNetwork, type Weights } from "../models/network"
import { completed, familyOf } from "../models/registry"
import { type Json, type JsonObject, Settings } from "../models/settings"
import type { Progress } from "./folder"
import { ARCHITECTURES, type Architecture, type Key, type Names, renameLayer } from "./gguf-architectures"
import { checkSame } from "./gguf-compare"
import { ggufArchitecture, ggufConfig, POOLINGS, RANKS } from "./gguf-config"
import { BLOCK_TYPES, type BlockType, copyBlocks, encodeBlocks, type PackedRows } from "./gguf-encode"
import { GgufMetadata } from "./gguf-metadata"
import { writeRope } from "./gguf-rope"
import { tokenizerMetadata } from "./gguf-tokenizer-write"
import type { LoadedModel } from "./load"
import { type PackedLayer, packedLayers, weightsOf } from "./packed"

/** Types of matrices in GGUF files. */
export type GgufType = "F32" | "F16" | "BF16" | keyof typeof BLOCK_TYPES

const PLAIN = { F32: [0, mx.float32], F16: [1, mx.float16], BF16: [30, mx.bfloat16] } as const
/** The types that `save` writes. */
export const GGUF_TYPES = [...Object.keys(PLAIN), ...Object.keys(BLOCK_TYPES)] as readonly GgufType[]
const isPlain = (type: GgufType): type is keyof typeof PLAIN => type in PLAIN

type Metadata = Record<string, mx.Array | string | string[]>
const u32 = (value: number): mx.Array => mx.array(value, mx.uint32)

/**
 * Writes a model as a GGUF file.
 * @throws FormatError for models that GGUF files cannot represent
 */
export function writeGgufModel(
  model: LoadedModel,
  file: string,
  type?: GgufType,
  onProgress?: Progress,
): void {
  const path = asPath("save", file, ".gguf")
  if (type !== undefined && !GGUF_TYPES.includes(type))
    throw new ArgumentError(
      "save",
      `type must be one of ${GGUF_TYPES.join(", ")}, received ${describe(type)}`,
    )
  const config = completed(familyOf(model.config), model.config)
  const architecture = architectureOf(config)
  if (!model.tokenizer) throw new FormatError("save", "GGUF files need a tokenizer, and the model has none")
  const heads = config.optionalCount("head_dim") ?? headDimOf(config)
  const rotates = architecture.name !== "gpt2" && architecture.name !== "bert"
  const rope = rotates ? writeRope(config, architecture.name, heads, architecture.ropeBase) : null
  const described: Metadata = {
    "general.architecture": architecture.name,
    "general.type": "model",
    "general.quantization_version": u32(2),
    ...metadataOf(config, architecture),
    ...poolingOf(model, architecture),
    ...rope?.metadata,
  }
  checkSame(config, configWithin(model, architecture, described, rope?.tensors ?? {}))
  const tensors = [
    ...Object.entries(rope?.tensors ?? {}).map(([name, array]) => plainTensor(name, array, "F32", null)),
    ...tensorsOf(model, config, architecture, type),
  ]
  const metadata: Metadata = {
    ...described,
    ...tokenizerMetadata(model.tokenizer, config.count("vocab_size")),
  }
  const total = tensors.reduce((sum, { nbytes }) => sum + nbytes, 0)
  let done = 0
  const reporting = tensors.map((tensor) => ({
    ...tensor,
    *parts() {
      yield* tensor.parts()
      done += tensor.nbytes
      onProgress?.(done, total, tensor.name)
    },
  }))
  writeBeside("save", path, ggufParts("save", reporting, metadata))
}

const headDimOf = (config: Settings): number =>
  config.number("hidden_size", config.number("n_embd", 0)) /
  config.number("num_attention_heads", config.number("n_head", 1))

function architectureOf(config: Settings): Architecture {
  const type = config.string("model_type")
  const found = ARCHITECTURES.find(({ modelTypes }) => modelTypes.includes(type))
  if (!found) throw new FormatError("save", `GGUF files do not support the model_type "${type}"`)
  return found
}

function metadataOf(config: Settings, architecture: Architecture): Metadata {
  const { name, keys } = architecture
  const out: Metadata = { [`${name}.vocab_size`]: u32(config.count("vocab_size")) }
  for (const key of keys) {
    const value = valueOf(config.values, key)
    if (value !== null) out[`${name}.${key.gguf}`] = mx.array(value, key.fraction ? mx.float32 : mx.uint32)
  }
  if (name === "gemma3") out["gemma3.attention.sliding_window_pattern"] = u32(periodOf(config))
  if (name === "bert") out["bert.attention.causal"] = mx.array(false)
  return out
}

/** The pooling of embeddings, which is by default the mean for encoders. */
function poolingOf({ pooling, network }: LoadedModel, { name }: Architecture): Metadata {
  const encodes = network instanceof EncoderNetwork
  if (pooling === undefined && !encodes) return {}
  const type = encodes && network.scores ? RANKS : POOLINGS[pooling ?? "mean"]
  if (type === undefined) throw new FormatError("save", `GGUF files do not support embeddings by ${pooling}`)
  return { [`${name}.pooling_type`]: u32(type) }
}

/** The config that loading the file would give. */
function configWithin(
  model: LoadedModel,
  { tensors }: Architecture,
  metadata: Metadata,
  rope: Weights,
): Settings {
  const read = new GgufMetadata(metadata, "GGUF files")
  const shapes = Object.fromEntries(
    Object.entries(weightsOf(model)).map(([name, array]) => [renamed(tensors, name) ?? name, array]),
  )
  const architecture = ggufArchitecture(read)
  return new Settings(ggufConfig(read, architecture, shapes, rope), `a GGUF file of ${architecture.name}`)
}

/** A weight's name in GGUF files, null if they do not have it. */
function renamed(names: Names, weight: string): string | null {
  const at = weight.lastIndexOf(".")
  const layer = renameLayer(names, weight.slice(0, at), 1)
  return layer === null ? null : layer + weight.slice(at)
}

function valueOf(config: JsonObject, { hf, otherwise, optional }: Key): number | null {
  const value: Json | undefined = config[hf] ?? otherwise?.(config)
  if (typeof value === "number") return value
  if (optional) return null
  throw new FormatError("save", `"${hf}" is missing from the config`)
}

/** The period of Gemma 3's layers without windows. */
function periodOf(config: Settings): number {
  const types = config.optionalStrings("layer_types")
  if (!types) return config.count("sliding_window_pattern", 6)
  return types.indexOf("full_attention") + 1 || types.length + 1
}

const dequantized = ({ weight, scales, biases, groupSize, bits, mode }: PackedLayer): mx.Array =>
  mx.dequantize(weight, scales, biases, { groupSize, bits, mode })

/** Matrices that llama.cpp needs in float32. */
const SMALL = /^(position_embd|token_types|.*\.ffn_gate_inp(_shexp)?)$/

function tensorsOf(
  model: LoadedModel,
  config: Settings,
  architecture: Architecture,
  type: GgufType | undefined,
): GgufTensor[] {
  const packed = packedLayers(model.network)
  const heads = (which: string): number => {
    const all = config.count("num_attention_heads")
    return which === "q" ? all : config.count("num_key_value_heads", all)
  }
  return Object.entries(weightsOf(model)).flatMap(([name, array]) => {
    const at = name.lastIndexOf(".")
    const [layer, leaf] = [name.slice(0, at), name.slice(at + 1)]
    const known = renameLayer(architecture.tensors, layer, 1)
    if (known === null)
      throw new FormatError("save", `GGUF files of ${architecture.name} have no tensor for ${name}`)
    const [, which] = /\.self_attn\.([qk])_proj$/.exec(layer) ?? []
    const rows = which && architecture.interleaved ? interleave(heads(which)) : null
    const form = packed.get(layer)
    const small = SMALL.test(known)
    if (form && leaf !== "bias" && (leaf !== "weight" || !small))
      return leaf === "weight" ? [packedTensor(`${known}.weight`, form, type, rows)] : []
    const stays = array.ndim === 1 || small
    const dense = form && leaf === "weight" ? dequantized(form) : array
    const chosen = stays ? "F32" : (type ?? plainTypeOf(dense.dtype))
    const moved = (): mx.Array => {
      if (architecture.offsetNorms && /norm$/.test(layer)) return dense.add(1)
      if (layer.endsWith(".shared_expert_gate")) return dense.reshape([-1])
      return rows ? rows(dense) : dense
    }
    const shape = layer.endsWith(".shared_expert_gate") ? [dense.size] : dense.shape
    return [plainTensor(`${known}.${leaf}`, dense, chosen, moved, shape)]
  })
}

/** Reorders the rows of each head from halves to interleaved pairs: 0, h, 1, h + 1, … */
const interleave =
  (heads: number) =>
  (array: mx.Array): mx.Array =>
    array
      .reshape([heads, 2, array.shape[0] / heads / 2, ...array.shape.slice(1)])
      .swapaxes(1, 2)
      .reshape(array.shape)

const plainTypeOf = (dtype: mx.Dtype): keyof typeof PLAIN =>
  dtype === mx.float16 ? "F16" : dtype === mx.bfloat16 ? "BF16" : "F32"

/** A dense tensor. Rows that cannot be divided into blocks become float16. */
function plainTensor(
  name: string,
  array: mx.Array,
  wanted: GgufType,
  moved: (() => mx.Array) | null,
  shape: readonly number[] = array.shape,
): GgufTensor {
  const blocks: BlockType | null = isPlain(wanted) ? null : BLOCK_TYPES[wanted]
  const fits = !blocks || (shape[shape.length - 1] ?? 1) % blocks.elements === 0
  if (blocks && fits)
    return {
      name,
      shape,
      type: blocks.type,
      nbytes: (array.size / blocks.elements) * blocks.bytes,
      *parts() {
        const values = (moved?.() ?? array).astype(mx.float32).toTypedArray() as Float32Array
        yield encodeBlocks(values, blocks)
      },
    }
  const [type, dtype] = PLAIN[isPlain(wanted) ? wanted : "F16"]
  return {
    name,
    shape,
    type,
    nbytes: array.size * dtype.size,
    *parts() {
      const cast = (moved?.() ?? array).astype(dtype)
      yield bytesOf(dtype === mx.float32 ? cast : mx.contiguous(cast).view(mx.uint16))
    },
  }
}

function bytesOf(array: mx.Array): Uint8Array {
  const values = array.toTypedArray() as Uint8Array
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
}

/** ggml's types for packed weights by bits: symmetric, and with biases. */
const COPIED: Readonly<Record<number, readonly [symmetric: number, affine: number | null]>> = {
  4: [2, 3],
  5: [6, 7],
  8: [8, null],
}

/** A packed weight, copied if GGUF has its format, and otherwise dequantized. */
function packedTensor(
  name: string,
  layer: PackedLayer,
  type: GgufType | undefined,
  rows: ((array: mx.Array) => mx.Array) | null,
): GgufTensor {
  const form = copiedForm(layer)
  if (!form) {
    const dense = dequantized(layer)
    return plainTensor(name, dense, type ?? "F16", () => (rows ? rows(dense) : dense))
  }
  const { number, symmetric } = form
  const bits = layer.bits as 4 | 5 | 8
  const [words, scales] = [layer.weight, layer.scales]
  const shape = [...words.shape.slice(0, -1), (words.shape[words.ndim - 1] * 32) / bits]
  const groups = shape.reduce((a, b) => a * b, 1) / 32
  const head = layer.mode === "mxfp4" ? 1 : symmetric ? 2 : 4
  return {
    name,
    shape,
    type: number,
    nbytes: groups * (head + 4 * bits),
    *parts() {
      const move = rows ?? ((array: mx.Array): mx.Array => array)
      const halves = (array: mx.Array): Uint16Array => {
        const each = mx.repeat(move(array), layer.groupSize / 32, -1)
        return mx.contiguous(each.astype(mx.float16)).view(mx.uint16).toTypedArray() as Uint16Array
      }
      const packed: PackedRows = {
        bits,
        codes: bytesOf(mx.contiguous(move(words)).view(mx.uint8)),
        scales:
          layer.mode === "mxfp4"
            ? (mx.contiguous(move(scales)).toTypedArray() as Uint8Array)
            : halves(scales),
        biases: layer.biases && !symmetric ? halves(layer.biases) : null,
      }
      yield copyBlocks(packed)
    },
  }
}

/** The ggml type that a packed weight can be copied to, or null. */
function copiedForm({
  bits,
  mode,
  groupSize,
  scales,
  biases,
}: PackedLayer): { number: number; symmetric: boolean } | null {
  if (mode === "mxfp4") return { number: 39, symmetric: true }
  const types = mode === "affine" ? COPIED[bits] : undefined
  if (!types || !biases || groupSize % 32 !== 0) return null
  const middle = scales.multiply(-(2 ** (bits - 1)))
  const symmetric = mx.all(biases.equal(middle)).item() as boolean
  const number = types[symmetric ? 0 : 1]
  return number === null ? null : { number, symmetric }
}
