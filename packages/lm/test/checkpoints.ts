/**
 * Tiny checkpoints with random weights, in Hugging Face format: config.json, safetensors, a tokenizer and a chat template. Their bytes are
 * the same on every machine, so that results of other libraries can be recorded once (test/vectors.py).
 * It is long because it has a checkpoint of every family.
 */
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { VOCABULARY, writeJson, writeTokenizer } from "./tokenizer"

/** The shape of a tensor. */
type Tensor = readonly number[]
export type Tensors = Record<string, Tensor>
export type Config = Record<string, unknown>

/** A family's tiny checkpoint. */
export interface Tiny {
  readonly config: Config
  readonly tensors: Tensors
  /** Standard deviation of weights; 0.15 by default. */
  readonly scale?: number
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

/** Sums of twelve uniform numbers: nearly normal, and without functions whose last bits differ between machines. */
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

export const [HIDDEN, INNER, HEADS, KV, DIM, LAYERS] = [64, 128, 4, 2, 16, 2]

export const base: Config = {
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
  readonly dim?: number
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

export function decoder(parts: Parts = {}): Tensors {
  const {
    layers = LAYERS,
    dim = DIM,
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
        all[`${a}.${name}_proj.weight`] = [heads * dim, HIDDEN]
        if (qkvBias) all[`${a}.${name}_proj.bias`] = [heads * dim]
      }
      all[`${a}.o_proj.weight`] = [HIDDEN, HEADS * dim]
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

const OLMO_NORMS = ["post_attention_layernorm", "post_feedforward_layernorm"]
const FOUR_NORMS = [
  "input_layernorm",
  "post_attention_layernorm",
  "pre_feedforward_layernorm",
  "post_feedforward_layernorm",
]

export function experts(p: string, [gate, up, down]: readonly string[]): Tensors {
  const all: Tensors = { [`${p}.gate.weight`]: [4, HIDDEN] }
  for (let e = 0; e < 4; e++) {
    all[`${p}.experts.${e}.${gate}.weight`] = [64, HIDDEN]
    all[`${p}.experts.${e}.${up}.weight`] = [64, HIDDEN]
    all[`${p}.experts.${e}.${down}.weight`] = [HIDDEN, 64]
  }
  return all
}

const fusedAttention = (a: string): Tensors => ({
  [`${a}.qkv_proj.weight`]: [(HEADS + 2 * KV) * DIM, HIDDEN],
  [`${a}.o_proj.weight`]: [HIDDEN, HEADS * DIM],
})
const fusedMlp = (p: string): Tensors => ({
  [`${p}.mlp.gate_up_proj.weight`]: [2 * INNER, HIDDEN],
  [`${p}.mlp.down_proj.weight`]: [HIDDEN, INNER],
})

/** GPT-2's checkpoints have transposed weights. */
function gpt2(): Tensors {
  const all: Tensors = { "wte.weight": [VOCABULARY, HIDDEN], "wpe.weight": [128, HIDDEN] }
  const norm = (name: string): Tensors => ({ [`${name}.weight`]: [HIDDEN], [`${name}.bias`]: [HIDDEN] })
  const product = (name: string, from: number, to: number): Tensors => ({
    [`${name}.weight`]: [from, to],
    [`${name}.bias`]: [to],
  })
  Object.assign(all, norm("ln_f"))
  for (let i = 0; i < LAYERS; i++) {
    const p = `h.${i}`
    Object.assign(all, norm(`${p}.ln_1`), norm(`${p}.ln_2`))
    Object.assign(
      all,
      product(`${p}.attn.c_attn`, HIDDEN, 3 * HIDDEN),
      product(`${p}.attn.c_proj`, HIDDEN, HIDDEN),
    )
    Object.assign(
      all,
      product(`${p}.mlp.c_fc`, HIDDEN, 4 * HIDDEN),
      product(`${p}.mlp.c_proj`, 4 * HIDDEN, HIDDEN),
    )
  }
  return all
}

const bertConfig: Config = {
  model_type: "bert",
  vocab_size: VOCABULARY,
  hidden_size: HIDDEN,
  intermediate_size: INNER,
  num_hidden_layers: LAYERS,
  num_attention_heads: HEADS,
  max_position_embeddings: 64,
  type_vocab_size: 2,
  layer_norm_eps: 1e-12,
  hidden_act: "gelu",
  pad_token_id: 258,
}

/** Positions start after the padding token's id, and there is one token type. */
const robertaConfig: Config = {
  ...bertConfig,
  model_type: "xlm-roberta",
  max_position_embeddings: 66,
  type_vocab_size: 1,
  layer_norm_eps: 1e-5,
  bos_token_id: 256,
  eos_token_id: 257,
  pad_token_id: 1,
}

function bert(prefix: string, positions = 64, kinds = 2): Tensors {
  const all: Tensors = {}
  const norm = (name: string): Tensors => ({ [`${name}.weight`]: [HIDDEN], [`${name}.bias`]: [HIDDEN] })
  const dense = (name: string, to: number, from: number): Tensors => ({
    [`${name}.weight`]: [to, from],
    [`${name}.bias`]: [to],
  })
  all[`${prefix}embeddings.word_embeddings.weight`] = [VOCABULARY, HIDDEN]
  all[`${prefix}embeddings.position_embeddings.weight`] = [positions, HIDDEN]
  all[`${prefix}embeddings.token_type_embeddings.weight`] = [kinds, HIDDEN]
  Object.assign(all, norm(`${prefix}embeddings.LayerNorm`))
  for (let i = 0; i < LAYERS; i++) {
    const p = `${prefix}encoder.layer.${i}`
    for (const part of ["query", "key", "value"])
      Object.assign(all, dense(`${p}.attention.self.${part}`, HIDDEN, HIDDEN))
    Object.assign(
      all,
      dense(`${p}.attention.output.dense`, HIDDEN, HIDDEN),
      norm(`${p}.attention.output.LayerNorm`),
    )
    Object.assign(
      all,
      dense(`${p}.intermediate.dense`, INNER, HIDDEN),
      dense(`${p}.output.dense`, HIDDEN, INNER),
    )
    Object.assign(all, norm(`${p}.output.LayerNorm`))
  }
  return { ...all, ...dense(`${prefix}pooler.dense`, HIDDEN, HIDDEN) }
}

/** RoBERTa's classifiers have a layer of their own instead of the pooler. */
const robertaClassifier = (): Tensors => ({
  ...Object.fromEntries(
    Object.entries(bert("roberta.", 66, 1)).filter(([name]) => !name.includes(".pooler.")),
  ),
  "classifier.dense.weight": [HIDDEN, HIDDEN],
  "classifier.dense.bias": [HIDDEN],
  "classifier.out_proj.weight": [1, HIDDEN],
  "classifier.out_proj.bias": [1],
})

/** The checkpoints by name, at least one for each family. */
export const tiny: Record<string, Tiny> = {
  llama: {
    config: { ...base, model_type: "llama", architectures: ["LlamaForCausalLM"], rope_theta: 10000 },
    tensors: decoder(),
  },
  "llama-wide": {
    config: { ...base, model_type: "llama", architectures: ["LlamaForCausalLM"], head_dim: 32 },
    tensors: decoder({ dim: 32 }),
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
  "qwen2-window": {
    config: {
      ...base,
      model_type: "qwen2",
      architectures: ["Qwen2ForCausalLM"],
      use_sliding_window: true,
      sliding_window: 8,
      max_window_layers: 1,
      tie_word_embeddings: true,
    },
    tensors: decoder({ qkvBias: true, tied: true }),
  },
  qwen3: {
    config: { ...base, model_type: "qwen3", architectures: ["Qwen3ForCausalLM"], rope_theta: 1000000 },
    tensors: decoder({ qkNorm: [DIM, DIM] }),
  },
  "qwen2-moe": {
    config: {
      ...base,
      model_type: "qwen2_moe",
      architectures: ["Qwen2MoeForCausalLM"],
      num_experts: 4,
      num_experts_per_tok: 2,
      moe_intermediate_size: 64,
      shared_expert_intermediate_size: 64,
      norm_topk_prob: false,
      decoder_sparse_step: 1,
    },
    tensors: decoder({
      qkvBias: true,
      mlp: (p) => ({
        ...experts(`${p}.mlp`, ["gate_proj", "up_proj", "down_proj"]),
        ...gated(`${p}.mlp.shared_expert`, 64),
        [`${p}.mlp.shared_expert_gate.weight`]: [1, HIDDEN],
      }),
    }),
  },
  "qwen3-moe": {
    config: {
      ...base,
      model_type: "qwen3_moe",
      architectures: ["Qwen3MoeForCausalLM"],
      num_experts: 4,
      num_experts_per_tok: 2,
      moe_intermediate_size: 64,
      norm_topk_prob: true,
      decoder_sparse_step: 1,
      mlp_only_layers: [1],
    },
    tensors: decoder({
      qkNorm: [DIM, DIM],
      mlp: (p, layer) =>
        layer === 1 ? gated(`${p}.mlp`) : experts(`${p}.mlp`, ["gate_proj", "up_proj", "down_proj"]),
    }),
  },
  mixtral: {
    config: {
      ...base,
      model_type: "mixtral",
      architectures: ["MixtralForCausalLM"],
      intermediate_size: 64,
      num_local_experts: 4,
      num_experts_per_tok: 2,
      rope_theta: 1000000,
      sliding_window: null,
    },
    tensors: decoder({ mlp: (p) => experts(`${p}.block_sparse_moe`, ["w1", "w3", "w2"]) }),
  },
  gemma: {
    config: {
      ...base,
      model_type: "gemma",
      architectures: ["GemmaForCausalLM"],
      hidden_act: "gelu_pytorch_tanh",
      hidden_activation: "gelu_pytorch_tanh",
      tie_word_embeddings: true,
    },
    tensors: decoder({ tied: true }),
  },
  gemma2: {
    config: {
      ...base,
      model_type: "gemma2",
      architectures: ["Gemma2ForCausalLM"],
      hidden_activation: "gelu_pytorch_tanh",
      tie_word_embeddings: true,
      query_pre_attn_scalar: 20,
      attn_logit_softcapping: 2.5,
      final_logit_softcapping: 3.5,
      sliding_window: 8,
    },
    tensors: decoder({ tied: true, norms: FOUR_NORMS }),
  },
  gemma3: {
    config: {
      ...base,
      model_type: "gemma3_text",
      architectures: ["Gemma3ForCausalLM"],
      num_hidden_layers: 3,
      hidden_activation: "gelu_pytorch_tanh",
      tie_word_embeddings: true,
      query_pre_attn_scalar: 20,
      sliding_window: 8,
      sliding_window_pattern: 3,
      rope_theta: 1000000,
      rope_local_base_freq: 10000,
      rope_scaling: { rope_type: "linear", factor: 8 },
    },
    tensors: decoder({ tied: true, layers: 3, norms: FOUR_NORMS, qkNorm: [DIM, DIM] }),
  },
  phi3: {
    config: { ...base, model_type: "phi3", architectures: ["Phi3ForCausalLM"], sliding_window: 16 },
    tensors: decoder({ attention: fusedAttention, mlp: fusedMlp }),
  },
  "phi3-longrope": {
    config: {
      ...base,
      model_type: "phi3",
      architectures: ["Phi3ForCausalLM"],
      sliding_window: null,
      original_max_position_embeddings: 16,
      rope_scaling: {
        type: "longrope",
        short_factor: [1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
        long_factor: [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5],
      },
    },
    tensors: decoder({ attention: fusedAttention, mlp: fusedMlp }),
  },
  olmo2: {
    config: { ...base, model_type: "olmo2", architectures: ["Olmo2ForCausalLM"], rope_theta: 500000 },
    tensors: decoder({ qkNorm: [HEADS * DIM, KV * DIM], norms: OLMO_NORMS }),
  },
  olmo3: {
    config: {
      ...base,
      model_type: "olmo3",
      architectures: ["Olmo3ForCausalLM"],
      num_hidden_layers: 4,
      sliding_window: 8,
      rope_theta: 500000,
      rope_scaling: {
        rope_type: "yarn",
        factor: 8,
        original_max_position_embeddings: 32,
        attention_factor: 1.2,
        beta_fast: 32,
        beta_slow: 1,
      },
    },
    tensors: decoder({ layers: 4, qkNorm: [HEADS * DIM, KV * DIM], norms: OLMO_NORMS }),
  },
  gpt2: {
    config: {
      model_type: "gpt2",
      architectures: ["GPT2LMHeadModel"],
      vocab_size: VOCABULARY,
      n_embd: HIDDEN,
      n_head: HEADS,
      n_layer: LAYERS,
      n_positions: 128,
      layer_norm_epsilon: 1e-5,
      activation_function: "gelu_new",
      tie_word_embeddings: true,
      bos_token_id: 256,
      eos_token_id: 257,
    },
    tensors: gpt2(),
  },
  bert: {
    config: { ...bertConfig, architectures: ["BertModel"] },
    tensors: bert(""),
  },
  "bert-reranker": {
    config: {
      ...bertConfig,
      architectures: ["BertForSequenceClassification"],
      id2label: { "0": "LABEL_0" },
      label2id: { LABEL_0: 0 },
    },
    tensors: { ...bert("bert."), "classifier.weight": [1, HIDDEN], "classifier.bias": [1] },
  },
  roberta: {
    config: { ...robertaConfig, model_type: "roberta", architectures: ["RobertaModel"] },
    tensors: bert("", 66, 1),
  },
  "roberta-reranker": {
    config: {
      ...robertaConfig,
      model_type: "roberta",
      architectures: ["RobertaForSequenceClassification"],
      id2label: { "0": "LABEL_0" },
      label2id: { LABEL_0: 0 },
    },
    tensors: robertaClassifier(),
  },
  "xlm-roberta": {
    config: { ...robertaConfig, architectures: ["XLMRobertaModel"] },
    tensors: bert("", 66, 1),
  },
  "xlm-roberta-reranker": {
    config: {
      ...robertaConfig,
      architectures: ["XLMRobertaForSequenceClassification"],
      id2label: { "0": "LABEL_0" },
      label2id: { LABEL_0: 0 },
    },
    tensors: robertaClassifier(),
  },
}

/** Weights of a checkpoint by their names. */
export function tinyWeights(name: string, made: Tiny = tiny[name]): Record<string, mx.Array> {
  const { config, tensors, scale = 0.15 } = made
  const gemma = String(config.model_type).startsWith("gemma")
  return Object.fromEntries(
    Object.entries(tensors).map(([key, shape]) => {
      const isNorm = shape.length === 1 && /norm|\bln_/i.test(key) && key.endsWith("weight")
      return [key, randomArray(shape, hash(`${name}:${key}`), isNorm ? 0.1 : scale, isNorm && !gemma ? 1 : 0)]
    }),
  )
}

/** Writes a checkpoint to a folder. Returns the folder. */
export function writeCheckpoint(name: string, folder: string, shards = 1, made: Tiny = tiny[name]): string {
  mkdirSync(folder, { recursive: true })
  writeJson(folder, "config.json", made.config)
  writeTokenizer(folder)
  const entries = Object.entries(tinyWeights(name, made))
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
  writeJson(folder, "model.safetensors.index.json", { metadata: {}, weight_map: map })
  return folder
}
