/**
 * Tiny checkpoints with random weights, in the hub's form: config.json, safetensors, a tokenizer and a chat template. The same family gives
 * the same bytes on every machine, so that answers of other libraries can be recorded once (test/vectors.py) and replayed.
 */
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"

/** A tensor of a checkpoint: its shape, and if it is a norm's weight, about 1. */
type Tensor = readonly number[]
type Tensors = Record<string, Tensor>
type Config = Record<string, unknown>

/** A family's tiny checkpoint. */
export interface Tiny {
  readonly config: Config
  readonly tensors: Tensors
}

/** Numbers from 0 to 1, the same everywhere: mulberry32. */
export function numbers(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), state | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

/** Sums of twelve uniform numbers: near to normal, and without functions whose last bits differ between machines. */
function randomArray(shape: Tensor, seed: number, scale: number, middle: number): mx.Array {
  const next = numbers(seed)
  const values = new Float32Array(shape.reduce((a, b) => a * b, 1))
  for (let i = 0; i < values.length; i++) {
    let sum = -6
    for (let k = 0; k < 12; k++) sum += next()
    values[i] = middle + scale * sum
  }
  return mx.array(values).reshape([...shape])
}

function hash(text: string): number {
  let h = 2166136261
  for (const c of text) h = Math.imul(h ^ c.charCodeAt(0), 16777619)
  return h >>> 0
}

export const VOCABULARY = 288
const [HIDDEN, INNER, HEADS, KV, DIM, LAYERS] = [64, 128, 4, 2, 16, 2]

const base: Config = {
  vocab_size: VOCABULARY,
  hidden_size: HIDDEN,
  intermediate_size: INNER,
  num_hidden_layers: LAYERS,
  num_attention_heads: HEADS,
  num_key_value_heads: KV,
  head_dim: DIM,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-6,
  hidden_act: "silu",
  tie_word_embeddings: false,
  bos_token_id: 256,
  eos_token_id: 257,
  pad_token_id: 258,
  torch_dtype: "float32",
}

interface Parts {
  readonly layers?: number
  readonly qkvBias?: boolean
  readonly norms?: readonly string[]
  readonly qkNorm?: readonly [number, number]
  readonly tied?: boolean
  readonly mlp?: (prefix: string, layer: number) => Tensors
  readonly attention?: (prefix: string) => Tensors
}

const gated = (p: string, inner = INNER): Tensors => ({
  [`${p}.gate_proj.weight`]: [inner, HIDDEN],
  [`${p}.up_proj.weight`]: [inner, HIDDEN],
  [`${p}.down_proj.weight`]: [HIDDEN, inner],
})

function decoder(parts: Parts = {}): Tensors {
  const {
    layers = LAYERS,
    qkvBias,
    qkNorm,
    tied,
    norms = ["input_layernorm", "post_attention_layernorm"],
  } = parts
  const all: Tensors = { "model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN] }
  if (!tied) all["lm_head.weight"] = [VOCABULARY, HIDDEN]
  for (let i = 0; i < layers; i++) {
    const p = `model.layers.${i}`
    const a = `${p}.self_attn`
    if (parts.attention) Object.assign(all, parts.attention(a))
    else {
      for (const [name, heads] of [
        ["q", HEADS],
        ["k", KV],
        ["v", KV],
      ] as const) {
        all[`${a}.${name}_proj.weight`] = [heads * DIM, HIDDEN]
        if (qkvBias) all[`${a}.${name}_proj.bias`] = [heads * DIM]
      }
      all[`${a}.o_proj.weight`] = [HIDDEN, HEADS * DIM]
    }
    if (qkNorm) {
      all[`${a}.q_norm.weight`] = [qkNorm[0]]
      all[`${a}.k_norm.weight`] = [qkNorm[1]]
    }
    for (const norm of norms) all[`${p}.${norm}.weight`] = [HIDDEN]
    Object.assign(all, parts.mlp ? parts.mlp(p, i) : gated(`${p}.mlp`))
  }
  return all
}

/** The checkpoints by name: one or more a family. */
export const tiny: Record<string, Tiny> = {
  llama: {
    config: { ...base, model_type: "llama", architectures: ["LlamaForCausalLM"], rope_theta: 10000 },
    tensors: decoder(),
  },
  "llama-linear": {
    config: {
      ...base,
      model_type: "llama",
      architectures: ["LlamaForCausalLM"],
      rope_scaling: { rope_type: "linear", factor: 4 },
      tie_word_embeddings: true,
    },
    tensors: decoder({ tied: true }),
  },
  "llama-dynamic": {
    config: {
      ...base,
      model_type: "llama",
      architectures: ["LlamaForCausalLM"],
      max_position_embeddings: 16,
      rope_scaling: { rope_type: "dynamic", factor: 2 },
    },
    tensors: decoder(),
  },
  "llama-3": {
    config: {
      ...base,
      model_type: "llama",
      architectures: ["LlamaForCausalLM"],
      rope_theta: 500000,
      rope_scaling: {
        rope_type: "llama3",
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 32,
      },
    },
    tensors: decoder(),
  },
  "llama-yarn": {
    config: {
      ...base,
      model_type: "llama",
      architectures: ["LlamaForCausalLM"],
      rope_scaling: { rope_type: "yarn", factor: 4, original_max_position_embeddings: 64 },
    },
    tensors: decoder(),
  },
  mistral: {
    config: { ...base, model_type: "mistral", architectures: ["MistralForCausalLM"], sliding_window: 8 },
    tensors: decoder(),
  },
  qwen2: {
    config: { ...base, model_type: "qwen2", architectures: ["Qwen2ForCausalLM"], rope_theta: 1000000 },
    tensors: decoder({ qkvBias: true }),
  },
  qwen3: {
    config: { ...base, model_type: "qwen3", architectures: ["Qwen3ForCausalLM"], rope_theta: 1000000 },
    tensors: decoder({ qkNorm: [DIM, DIM] }),
  },
}

/** Weights of a checkpoint by their names. */
export function tinyWeights(name: string): Record<string, mx.Array> {
  const { config, tensors } = tiny[name]
  const gemma = String(config.model_type).startsWith("gemma")
  return Object.fromEntries(
    Object.entries(tensors).map(([key, shape]) => {
      const isNorm = shape.length === 1 && /norm|ln_/i.test(key) && key.endsWith("weight")
      return [key, randomArray(shape, hash(`${name}:${key}`), isNorm ? 0.1 : 0.15, isNorm && !gemma ? 1 : 0)]
    }),
  )
}

/** The characters by which byte-level tokenizers name bytes. */
function byteCharacters(): string[] {
  const visible = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174
  let next = 256
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(visible(b) ? b : next++))
}

const MERGES = [
  ["t", "h"],
  ["th", "e"],
  ["Ġ", "the"],
  ["i", "n"],
  ["Ġ", "a"],
]
const SPECIAL = ["<|begin|>", "<|end|>", "<|pad|>", "<|user|>", "<|assistant|>"]

/** A byte-level tokenizer with a few merges, and tokens to fill the vocabulary. */
export function tinyTokenizer(): Record<string, unknown> {
  const vocab: Record<string, number> = {}
  for (const [b, c] of byteCharacters().entries()) vocab[c] = b
  MERGES.forEach((pair, i) => {
    vocab[pair.join("")] = 256 + SPECIAL.length + i
  })
  for (let id = 256 + SPECIAL.length + MERGES.length; id < VOCABULARY; id++) vocab[`unused${id}`] = id
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: SPECIAL.map((content, i) => ({
      id: 256 + i,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab,
      merges: MERGES.map((pair) => pair.join(" ")),
    },
  }
}

export const CHAT_TEMPLATE =
  "{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + eos_token }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"

const write = (folder: string, name: string, value: unknown): void =>
  writeFileSync(join(folder, name), JSON.stringify(value, null, 2))

/** Writes the tokenizer's files. */
export function writeTokenizer(folder: string): void {
  write(folder, "tokenizer.json", tinyTokenizer())
  write(folder, "tokenizer_config.json", {
    tokenizer_class: "PreTrainedTokenizerFast",
    bos_token: "<|begin|>",
    eos_token: "<|end|>",
    pad_token: "<|pad|>",
    chat_template: CHAT_TEMPLATE,
    clean_up_tokenization_spaces: false,
  })
}

/** Writes a checkpoint into a folder, and gives the folder. */
export function writeCheckpoint(name: string, folder: string, shards = 1): string {
  mkdirSync(folder, { recursive: true })
  write(folder, "config.json", tiny[name].config)
  writeTokenizer(folder)
  const entries = Object.entries(tinyWeights(name))
  if (shards === 1) {
    mx.saveSafetensors(join(folder, "model.safetensors"), Object.fromEntries(entries), { format: "pt" })
    return folder
  }
  const map: Record<string, string> = {}
  for (let i = 0; i < shards; i++) {
    const file = `model-0000${i + 1}-of-0000${shards}.safetensors`
    const part = entries.filter((_, k) => k % shards === i)
    for (const [key] of part) map[key] = file
    mx.saveSafetensors(join(folder, file), Object.fromEntries(part), { format: "pt" })
  }
  write(folder, "model.safetensors.index.json", { metadata: {}, weight_map: map })
  return folder
}
