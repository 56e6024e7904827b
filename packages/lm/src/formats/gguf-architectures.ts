/**
 * GGUF architectures: how tensor names and metadata keys map to those of Hugging Face checkpoints, for reading and writing.
 * Names: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-arch.cpp
 */
import { isPlainObject } from "@lazuli/core/engine"
import type { Json, JsonObject } from "../models/settings"

/** Layer names in GGUF and in Hugging Face checkpoints; `#` is the block's number. */
export type Names = readonly (readonly [gguf: string, hf: string])[]

/** A metadata key, without the architecture's name, and the one in config.json. Values are float32 if `fraction`, and otherwise uint32. */
export interface Key {
  readonly gguf: string
  readonly hf: string
  readonly fraction?: boolean
  /** The default. */
  readonly otherwise?: (config: JsonObject) => Json | undefined
  readonly optional?: boolean
}

/** A GGUF architecture, and its families. */
export interface Architecture {
  readonly name: string
  readonly modelTypes: readonly string[]
  readonly tensors: Names
  readonly keys: readonly Key[]
  /** GGUF files interleave the rotated pairs of query and key rows; here a head's halves are rotated. */
  readonly interleaved?: boolean
  /** GGUF files store 1 + weight for norms. */
  readonly offsetNorms?: boolean
  /** Values of config.json that GGUF files do not have. */
  readonly implied?: JsonObject
  /** The RoPE base if config.json has none. */
  readonly ropeBase?: number
}

const number = (value: Json | undefined): number | undefined =>
  typeof value === "number" ? value : undefined

const SIZES: readonly Key[] = [
  { gguf: "embedding_length", hf: "hidden_size" },
  { gguf: "feed_forward_length", hf: "intermediate_size" },
  { gguf: "block_count", hf: "num_hidden_layers" },
  { gguf: "context_length", hf: "max_position_embeddings", otherwise: () => 2048 },
  { gguf: "attention.head_count", hf: "num_attention_heads" },
]
const headDim = (config: JsonObject): number | undefined =>
  number(config.head_dim) ?? Number(config.hidden_size) / Number(config.num_attention_heads)
const rotary = (eps: number): readonly Key[] => [
  ...SIZES,
  { gguf: "attention.head_count_kv", hf: "num_key_value_heads", otherwise: (c) => c.num_attention_heads },
  { gguf: "attention.key_length", hf: "head_dim", otherwise: headDim },
  { gguf: "attention.value_length", hf: "head_dim", otherwise: headDim },
  {
    gguf: "attention.layer_norm_rms_epsilon",
    hf: "rms_norm_eps",
    fraction: true,
    otherwise: () => eps,
  },
]
const ROTARY = rotary(1e-6)
/** The RoPE base of layers with windows, as transformers 5 writes it. */
const localBase = ({ rope_parameters: rope }: JsonObject): number | undefined => {
  const local = isPlainObject(rope) ? (rope as JsonObject).sliding_attention : null
  return isPlainObject(local) ? number((local as JsonObject).rope_theta) : undefined
}
const WINDOW: Key = { gguf: "attention.sliding_window", hf: "sliding_window", optional: true }
const cap = (name: string, value: number): readonly Key[] => [
  { gguf: name, hf: name, fraction: true, optional: true, otherwise: () => value },
]
const EXPERTS = (count: string): readonly Key[] => [
  { gguf: "expert_count", hf: count },
  { gguf: "expert_used_count", hf: "num_experts_per_tok" },
]

const OUTER: Names = [
  ["token_embd", "model.embed_tokens"],
  ["output_norm", "model.norm"],
  ["output", "lm_head"],
]
const within = (names: Names, gguf: string, hf: string): Names =>
  names.map(([a, b]) => [`${gguf}.${a}`, `${hf}.${b}`])
const block = (...names: Names): Names => within(names, "blk.#", "model.layers.#")

const ATTENTION: Names = [
  ...OUTER,
  ...block(
    ["attn_q", "self_attn.q_proj"],
    ["attn_k", "self_attn.k_proj"],
    ["attn_v", "self_attn.v_proj"],
    ["attn_output", "self_attn.o_proj"],
    ["attn_q_norm", "self_attn.q_norm"],
    ["attn_k_norm", "self_attn.k_norm"],
  ),
]
const BEFORE = block(["attn_norm", "input_layernorm"], ["ffn_norm", "post_attention_layernorm"])
const GATED = block(["ffn_gate", "mlp.gate_proj"], ["ffn_up", "mlp.up_proj"], ["ffn_down", "mlp.down_proj"])
const experts = (name: string): Names =>
  block(
    ["ffn_gate_inp", `${name}.gate`],
    ["ffn_gate_exps", `${name}.switch_mlp.gate_proj`],
    ["ffn_up_exps", `${name}.switch_mlp.up_proj`],
    ["ffn_down_exps", `${name}.switch_mlp.down_proj`],
  )
const FOUR_NORMS = block(
  ["attn_norm", "input_layernorm"],
  ["post_attention_norm", "post_attention_layernorm"],
  ["ffn_norm", "pre_feedforward_layernorm"],
  ["post_ffw_norm", "post_feedforward_layernorm"],
)

/** GPT-2's config.json has its own names. */
const GPT2_KEYS: readonly Key[] = [
  { gguf: "embedding_length", hf: "n_embd" },
  { gguf: "feed_forward_length", hf: "n_inner", otherwise: (c) => 4 * Number(c.n_embd) },
  { gguf: "block_count", hf: "n_layer" },
  { gguf: "context_length", hf: "n_positions", otherwise: () => 1024 },
  { gguf: "attention.head_count", hf: "n_head" },
  { gguf: "attention.layer_norm_epsilon", hf: "layer_norm_epsilon", fraction: true, otherwise: () => 1e-5 },
]

const dense: Pick<Architecture, "tensors" | "keys"> = {
  tensors: [...ATTENTION, ...BEFORE, ...GATED],
  keys: ROTARY,
}
const gemma: Pick<Architecture, "tensors" | "offsetNorms"> = {
  tensors: [...ATTENTION, ...FOUR_NORMS, ...GATED],
  offsetNorms: true,
}
const wide: JsonObject = { use_sliding_window: false }
const sparse: JsonObject = { ...wide, decoder_sparse_step: 1, mlp_only_layers: [] }

export const ARCHITECTURES: readonly Architecture[] = [
  { name: "llama", modelTypes: ["llama", "smollm"], ...dense, interleaved: true },
  { name: "llama", modelTypes: ["mistral"], ...dense, keys: [...ROTARY, WINDOW], interleaved: true },
  {
    name: "llama",
    modelTypes: ["mixtral"],
    tensors: [...ATTENTION, ...BEFORE, ...experts("block_sparse_moe")],
    keys: [...ROTARY, WINDOW, ...EXPERTS("num_local_experts")],
    interleaved: true,
    ropeBase: 1e6,
  },
  { name: "qwen2", modelTypes: ["qwen2"], ...dense, implied: wide },
  { name: "qwen3", modelTypes: ["qwen3"], ...dense, implied: wide },
  {
    name: "qwen2moe",
    modelTypes: ["qwen2_moe"],
    tensors: [
      ...ATTENTION,
      ...BEFORE,
      ...experts("mlp"),
      ...block(
        ["ffn_gate_inp_shexp", "mlp.shared_expert_gate"],
        ["ffn_gate_shexp", "mlp.shared_expert.gate_proj"],
        ["ffn_up_shexp", "mlp.shared_expert.up_proj"],
        ["ffn_down_shexp", "mlp.shared_expert.down_proj"],
      ),
    ],
    keys: [
      ...ROTARY,
      ...EXPERTS("num_experts"),
      { gguf: "expert_feed_forward_length", hf: "moe_intermediate_size" },
      { gguf: "expert_shared_feed_forward_length", hf: "shared_expert_intermediate_size" },
    ],
    implied: { ...sparse, norm_topk_prob: false },
  },
  {
    name: "qwen3moe",
    modelTypes: ["qwen3_moe"],
    tensors: [...ATTENTION, ...BEFORE, ...experts("mlp")],
    keys: [
      ...ROTARY,
      ...EXPERTS("num_experts"),
      { gguf: "expert_feed_forward_length", hf: "moe_intermediate_size" },
    ],
    implied: { ...sparse, norm_topk_prob: true },
  },
  { name: "gemma", modelTypes: ["gemma"], ...dense, offsetNorms: true },
  {
    name: "gemma2",
    modelTypes: ["gemma2"],
    ...gemma,
    keys: [
      ...ROTARY,
      { ...WINDOW, otherwise: () => 4096 },
      ...cap("attn_logit_softcapping", 50),
      ...cap("final_logit_softcapping", 30),
    ],
  },
  {
    name: "gemma3",
    modelTypes: ["gemma3_text", "gemma3"],
    ...gemma,
    ropeBase: 1e6,
    keys: [
      ...ROTARY,
      WINDOW,
      {
        gguf: "rope.freq_base_swa",
        hf: "rope_local_base_freq",
        fraction: true,
        otherwise: (c) => localBase(c) ?? 10000,
      },
    ],
  },
  {
    name: "phi3",
    modelTypes: ["phi3"],
    tensors: [
      ...OUTER,
      ...BEFORE,
      ...block(
        ["attn_qkv", "self_attn.qkv_proj"],
        ["attn_output", "self_attn.o_proj"],
        ["ffn_up", "mlp.gate_up_proj"],
        ["ffn_down", "mlp.down_proj"],
      ),
    ],
    keys: [...ROTARY, WINDOW],
  },
  {
    name: "olmo2",
    modelTypes: ["olmo2"],
    tensors: [
      ...ATTENTION,
      ...GATED,
      ...block(
        ["post_attention_norm", "post_attention_layernorm"],
        ["post_ffw_norm", "post_feedforward_layernorm"],
      ),
    ],
    keys: rotary(1e-5),
  },
  {
    name: "gpt2",
    modelTypes: ["gpt2"],
    tensors: [
      ["token_embd", "model.wte"],
      ["position_embd", "model.wpe"],
      ["output_norm", "model.ln_f"],
      ["output", "lm_head"],
      ...within(
        [
          ["attn_norm", "ln_1"],
          ["attn_qkv", "attn.c_attn"],
          ["attn_output", "attn.c_proj"],
          ["ffn_norm", "ln_2"],
          ["ffn_up", "mlp.c_fc"],
          ["ffn_down", "mlp.c_proj"],
        ],
        "blk.#",
        "model.h.#",
      ),
    ],
    keys: GPT2_KEYS,
  },
  {
    name: "bert",
    modelTypes: ["bert"],
    tensors: [
      ["token_embd", "embeddings.word_embeddings"],
      ["token_types", "embeddings.token_type_embeddings"],
      ["position_embd", "embeddings.position_embeddings"],
      ["token_embd_norm", "embeddings.norm"],
      ["cls", "pooler"],
      ["cls.output", "classifier"],
      ...within(
        [
          ["attn_q", "attention.query"],
          ["attn_k", "attention.key"],
          ["attn_v", "attention.value"],
          ["attn_output", "attention.output"],
          ["attn_output_norm", "attention_norm"],
          ["ffn_up", "intermediate"],
          ["ffn_down", "output"],
          ["layer_output_norm", "output_norm"],
        ],
        "blk.#",
        "layers.#",
      ),
    ],
    keys: [
      ...SIZES,
      {
        gguf: "attention.layer_norm_epsilon",
        hf: "layer_norm_eps",
        fraction: true,
        otherwise: () => 1e-12,
      },
    ],
  },
]

/** Maps a layer's name to the other naming, or null; `from` is the side that it is from. */
export function renameLayer(names: Names, layer: string, from: 0 | 1): string | null {
  const [, number] = /\.(\d+)\./.exec(layer) ?? []
  const general = number === undefined ? layer : layer.replace(`.${number}.`, ".#.")
  const found = names.find((pair) => pair[from] === general)
  return found ? found[1 - from].replace("#", number ?? "") : null
}
