/**
 * A Llama of 1.1 billion random weights for lm.ts: a folder that `lm.load` reads, with 4 bits a weight in groups of 64, and a GGUF file of
 * Q4_0. Both take 4.5 bits a weight (5 with scales in float32).
 */
import { randomFillSync } from "node:crypto"
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { type GgufTensor, ggufParts, writeBeside } from "@lazuli/core/engine"

/** The sizes of a model. */
export interface Sizes {
  readonly hidden: number
  readonly inner: number
  readonly layers: number
  readonly heads: number
  readonly kvHeads: number
  readonly words: number
  readonly context: number
}

export const BILLION: Sizes = {
  hidden: 2048,
  inner: 8192,
  layers: 16,
  heads: 32,
  kvHeads: 8,
  words: 32_000,
  context: 8192,
}
/** For a look at the program itself. */
export const SMALL: Sizes = { ...BILLION, hidden: 256, inner: 1024, layers: 2, heads: 4, kvHeads: 2 }

const headDim = ({ hidden, heads }: Sizes): number => hidden / heads
const keys = (sizes: Sizes): number => sizes.kvHeads * headDim(sizes)

/** Names in the hub's form and in GGUF, with rows and columns. */
type Matrix = readonly [hub: string, gguf: string, rows: number, columns: number]

function blockMatrices(sizes: Sizes, layer: number): Matrix[] {
  const { hidden, inner } = sizes
  const [hub, gguf] = [`model.layers.${layer}`, `blk.${layer}`]
  return [
    [`${hub}.self_attn.q_proj`, `${gguf}.attn_q`, hidden, hidden],
    [`${hub}.self_attn.k_proj`, `${gguf}.attn_k`, keys(sizes), hidden],
    [`${hub}.self_attn.v_proj`, `${gguf}.attn_v`, keys(sizes), hidden],
    [`${hub}.self_attn.o_proj`, `${gguf}.attn_output`, hidden, hidden],
    [`${hub}.mlp.gate_proj`, `${gguf}.ffn_gate`, inner, hidden],
    [`${hub}.mlp.up_proj`, `${gguf}.ffn_up`, inner, hidden],
    [`${hub}.mlp.down_proj`, `${gguf}.ffn_down`, hidden, inner],
  ]
}
function matrices(sizes: Sizes): Matrix[] {
  const { words, hidden, layers } = sizes
  return [
    ["model.embed_tokens", "token_embd", words, hidden],
    ...Array.from({ length: layers }, (_, i) => blockMatrices(sizes, i)).flat(),
    ["lm_head", "output", words, hidden],
  ]
}
function norms({ layers }: Sizes): (readonly [hub: string, gguf: string])[] {
  const each = Array.from({ length: layers }, (_, i): (readonly [string, string])[] => [
    [`model.layers.${i}.input_layernorm`, `blk.${i}.attn_norm`],
    [`model.layers.${i}.post_attention_layernorm`, `blk.${i}.ffn_norm`],
  ])
  return [...each.flat(), ["model.norm", "output_norm"]]
}

/** Weights that a token reads: all but the table of embeddings. */
export const weightsRead = (sizes: Sizes): number =>
  matrices(sizes).reduce((sum, [, , rows, columns]) => sum + rows * columns, 0) - sizes.words * sizes.hidden
/** Bytes of keys and values of so many tokens. */
export const cacheRead = (sizes: Sizes, tokens: number, itemsize: number): number =>
  2 * sizes.layers * keys(sizes) * itemsize * tokens

/** The scale with which codes from 0 to 15 around their middle keep the size of what is multiplied. */
const scaleFor = (columns: number): number => 1 / (4.61 * Math.sqrt(columns))

/** Writes the folder unless it is there. */
export function writeFolder(folder: string, sizes: Sizes, dtype: mx.Dtype): string {
  if (existsSync(folder)) return folder
  const group = 64
  const arrays: Record<string, mx.Array> = {}
  for (const [name, , rows, columns] of matrices(sizes)) {
    const scale = scaleFor(columns)
    const bytes = randomFillSync(new Uint8Array((rows * columns) / 2))
    arrays[`${name}.weight`] = mx.array(new Uint32Array(bytes.buffer)).reshape([rows, columns / 8])
    arrays[`${name}.scales`] = mx.full([rows, columns / group], scale, dtype)
    arrays[`${name}.biases`] = mx.full([rows, columns / group], -7.5 * scale, dtype)
  }
  for (const [name] of norms(sizes)) arrays[`${name}.weight`] = mx.ones([sizes.hidden], dtype)
  const config = {
    model_type: "llama",
    hidden_size: sizes.hidden,
    intermediate_size: sizes.inner,
    num_hidden_layers: sizes.layers,
    num_attention_heads: sizes.heads,
    num_key_value_heads: sizes.kvHeads,
    vocab_size: sizes.words,
    max_position_embeddings: sizes.context,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    tie_word_embeddings: false,
    quantization: { group_size: group, bits: 4 },
  }
  const beside = `${folder}.tmp`
  rmSync(beside, { recursive: true, force: true })
  mkdirSync(beside, { recursive: true })
  mx.saveSafetensors(join(beside, "model.safetensors"), arrays)
  writeFileSync(join(beside, "config.json"), JSON.stringify(config))
  renameSync(beside, folder)
  return folder
}

/** The number of Q4_0, its weights a block, and bytes: a scale in float16 and 32 codes of four bits. */
const [Q4_0, BLOCK, BLOCK_BYTES] = [2, 32, 18]

function* randomBlocks(rows: number, columns: number): Generator<Uint8Array> {
  const scale = mx
    .array([scaleFor(columns)], mx.float16)
    .view(mx.uint16)
    .item() as number
  // Rows at a time, so that little memory is taken.
  for (let from = 0; from < rows; from += 1024) {
    const bytes = randomFillSync(
      Buffer.alloc(((Math.min(1024, rows - from) * columns) / BLOCK) * BLOCK_BYTES),
    )
    for (let at = 0; at < bytes.length; at += BLOCK_BYTES) bytes.writeUInt16LE(scale, at)
    yield bytes
  }
}

/** Writes the GGUF file unless it is there. */
export function writeGguf(file: string, sizes: Sizes): string {
  if (existsSync(file)) return file
  const u32 = (value: number): mx.Array => mx.array(value, mx.uint32)
  const f32 = (value: number): mx.Array => mx.array(value, mx.float32)
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`)
  const special = ["<unk>", "<s>", "</s>", ...bytes]
  const tokens = Array.from({ length: sizes.words }, (_, i) => special[i] ?? `▁word${i}`)
  // An unknown one, two that control, bytes, and words.
  const types = tokens.map((_, i) => (i === 0 ? 2 : i < 3 ? 3 : i < special.length ? 6 : 1))
  const metadata = {
    "general.architecture": "llama",
    "general.name": "random",
    "general.quantization_version": u32(2),
    "general.file_type": u32(2),
    "llama.context_length": u32(sizes.context),
    "llama.embedding_length": u32(sizes.hidden),
    "llama.block_count": u32(sizes.layers),
    "llama.feed_forward_length": u32(sizes.inner),
    "llama.attention.head_count": u32(sizes.heads),
    "llama.attention.head_count_kv": u32(sizes.kvHeads),
    "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
    "llama.rope.dimension_count": u32(headDim(sizes)),
    "llama.rope.freq_base": f32(10_000),
    "llama.vocab_size": u32(sizes.words),
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.scores": mx.array(tokens.map((_, i) => -i)),
    "tokenizer.ggml.token_type": mx.array(types, mx.int32),
    "tokenizer.ggml.bos_token_id": u32(1),
    "tokenizer.ggml.eos_token_id": u32(2),
    "tokenizer.ggml.unknown_token_id": u32(0),
  }
  const ones = new Uint8Array(new Float32Array(sizes.hidden).fill(1).buffer)
  const tensors = [
    ...norms(sizes).map(
      ([, name]): GgufTensor => ({
        name: `${name}.weight`,
        shape: [sizes.hidden],
        type: 0,
        nbytes: ones.length,
        parts: () => [ones],
      }),
    ),
    ...matrices(sizes).map(
      ([, name, rows, columns]): GgufTensor => ({
        name: `${name}.weight`,
        shape: [rows, columns],
        type: Q4_0,
        nbytes: ((rows * columns) / BLOCK) * BLOCK_BYTES,
        parts: () => randomBlocks(rows, columns),
      }),
    ),
  ]
  writeBeside("lm-files", file, ggufParts("lm-files", tensors, metadata))
  return file
}
