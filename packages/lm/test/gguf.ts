/** Tiny checkpoints as GGUF files, dense or in blocks of Q8_0. */
import { writeFileSync } from "node:fs"
import * as mx from "@lazuli/core"
import { CHAT_TEMPLATE, tinyTokenizer } from "./tokenizer"

const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens/, "token_embd"],
  [/^model\.norm/, "output_norm"],
  [/^lm_head/, "output"],
  [/^model\.layers\./, "blk."],
  [/input_layernorm/, "attn_norm"],
  [/post_attention_layernorm/, "ffn_norm"],
  [/self_attn\.o_proj/, "attn_output"],
  [/self_attn\.([qk])_norm/, "attn_$1_norm"],
  [/self_attn\.([qkv])_proj/, "attn_$1"],
  [/mlp\.(gate|up|down)_proj/, "ffn_$1"],
]

/** Rows of each head as neighbours, as llama.cpp's converter writes them. */
function neighbours(w: mx.Array, heads: number): mx.Array {
  const [rows, columns] = w.shape
  return w
    .reshape([heads, 2, rows / heads / 2, columns])
    .swapaxes(1, 2)
    .reshape([rows, columns])
}

type Value = number | boolean | string | string[] | Int32Array

/** A GGUF file of a checkpoint; its name. */
export function writeGguf(
  file: string,
  config: Record<string, unknown>,
  weights: Record<string, mx.Array>,
  blocks: "F32" | "Q8_0" = "F32",
): string {
  const type = String(config.model_type)
  const tokenizer = tinyTokenizer() as { model: { vocab: Record<string, number>; merges: string[] } } & {
    added_tokens: { id: number; content: string }[]
  }
  const tokens: string[] = []
  for (const [text, id] of Object.entries(tokenizer.model.vocab)) tokens[id] = text
  for (const { id, content } of tokenizer.added_tokens) tokens[id] = content
  const special = new Set(tokenizer.added_tokens.map(({ id }) => id))
  const metadata: Record<string, Value> = {
    "general.architecture": type,
    [`${type}.embedding_length`]: Number(config.hidden_size),
    [`${type}.feed_forward_length`]: Number(config.intermediate_size),
    [`${type}.block_count`]: Number(config.num_hidden_layers),
    [`${type}.attention.head_count`]: Number(config.num_attention_heads),
    [`${type}.attention.head_count_kv`]: Number(config.num_key_value_heads),
    [`${type}.attention.key_length`]: Number(config.head_dim),
    [`${type}.context_length`]: Number(config.max_position_embeddings),
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.merges": tokenizer.model.merges,
    "tokenizer.ggml.token_type": Int32Array.from(tokens, (_, id) => (special.has(id) ? 3 : 1)),
    "tokenizer.ggml.bos_token_id": 256,
    "tokenizer.ggml.eos_token_id": 257,
    "tokenizer.ggml.add_bos_token": false,
    "tokenizer.chat_template": CHAT_TEMPLATE,
  }
  const floats: Record<string, number> = {
    [`${type}.attention.layer_norm_rms_epsilon`]: Number(config.rms_norm_eps),
    [`${type}.rope.freq_base`]: Number(config.rope_theta ?? 10000),
  }
  const tensors = Object.entries(weights).map(([name, w]): [string, mx.Array] => {
    const [, which] = /self_attn\.([qk])_proj\.weight/.exec(name) ?? []
    const heads = Number(which === "q" ? config.num_attention_heads : config.num_key_value_heads)
    return [
      NAMES.reduce((text, [from, to]) => text.replace(from, to), name),
      which && type === "llama" ? neighbours(w, heads) : w,
    ]
  })
  writeFileSync(file, bytesOf(metadata, floats, tensors, blocks))
  return file
}

const u32 = (n: number): Buffer => {
  const out = Buffer.alloc(4)
  out.writeUInt32LE(n)
  return out
}
const u64 = (n: number): Buffer => {
  const out = Buffer.alloc(8)
  out.writeBigUInt64LE(BigInt(n))
  return out
}
const f32 = (n: number): Buffer => {
  const out = Buffer.alloc(4)
  out.writeFloatLE(n)
  return out
}
const text = (s: string): Buffer => Buffer.concat([u64(Buffer.byteLength(s)), Buffer.from(s)])

function valueBytes(value: Value): Buffer {
  if (typeof value === "number") return Buffer.concat([u32(4), u32(value)])
  if (typeof value === "boolean") return Buffer.concat([u32(7), Buffer.from([value ? 1 : 0])])
  if (typeof value === "string") return Buffer.concat([u32(8), text(value)])
  if (value instanceof Int32Array)
    return Buffer.concat([u32(9), u32(5), u64(value.length), Buffer.from(value.buffer.slice(0))])
  return Buffer.concat([u32(9), u32(8), u64(value.length), ...value.map(text)])
}

function bytesOf(
  metadata: Record<string, Value>,
  floats: Record<string, number>,
  tensors: readonly [string, mx.Array][],
  blocks: "F32" | "Q8_0",
): Buffer {
  const keys = [
    ...Object.entries(metadata).map(([key, value]) => Buffer.concat([text(key), valueBytes(value)])),
    ...Object.entries(floats).map(([key, value]) => Buffer.concat([text(key), u32(6), f32(value)])),
  ]
  const head = [Buffer.from("GGUF"), u32(3), u64(tensors.length), u64(keys.length), ...keys]
  const data: Buffer[] = []
  let offset = 0
  for (const [name, w] of tensors) {
    const packs = blocks === "Q8_0" && w.ndim === 2
    const values = w.astype(mx.float32).toTypedArray() as Float32Array
    const bytes = packs ? inBlocks(values) : Buffer.from(values.slice().buffer)
    head.push(text(name), u32(w.ndim), ...[...w.shape].reverse().map(u64), u32(packs ? 8 : 0), u64(offset))
    const padded = Math.ceil(bytes.length / 32) * 32
    data.push(bytes, Buffer.alloc(padded - bytes.length))
    offset += padded
  }
  const front = Buffer.concat(head)
  return Buffer.concat([front, Buffer.alloc(Math.ceil(front.length / 32) * 32 - front.length), ...data])
}

/** Blocks of 32 with a scale in float16. */
function inBlocks(values: Float32Array): Buffer {
  const out = Buffer.alloc((values.length / 32) * 34)
  for (let i = 0; i < values.length / 32; i++) {
    const block = values.subarray(i * 32, i * 32 + 32)
    const scale = Math.max(...block.map(Math.abs)) / 127
    const half = mx.array([scale], mx.float16).view(mx.uint16).item() as number
    out.writeUInt16LE(half, i * 34)
    block.forEach((value, k) => out.writeInt8(scale === 0 ? 0 : Math.round(value / scale), i * 34 + 2 + k))
  }
  return out
}
