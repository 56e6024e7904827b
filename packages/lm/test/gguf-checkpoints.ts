/** Checkpoints for comparison with llama.cpp as GGUF files. */
import {
  base,
  type Config,
  DIM,
  decoder,
  experts,
  LAYERS,
  type Tensors,
  type Tiny,
  tiny,
} from "./checkpoints"
import { VOCABULARY } from "./tokenizer"

/** A decoder whose rows are divisible into blocks of 256. */
function wideDecoder(): Tensors {
  const [hidden, inner] = [256, 512]
  const all: Tensors = {
    "model.embed_tokens.weight": [VOCABULARY, hidden],
    "model.norm.weight": [hidden],
    "lm_head.weight": [VOCABULARY, hidden],
  }
  for (let i = 0; i < LAYERS; i++) {
    const p = `model.layers.${i}`
    for (const norm of ["input_layernorm", "post_attention_layernorm"]) all[`${p}.${norm}.weight`] = [hidden]
    all[`${p}.self_attn.q_proj.weight`] = [hidden, hidden]
    all[`${p}.self_attn.k_proj.weight`] = [hidden / 2, hidden]
    all[`${p}.self_attn.v_proj.weight`] = [hidden / 2, hidden]
    all[`${p}.self_attn.o_proj.weight`] = [hidden, hidden]
    all[`${p}.mlp.gate_proj.weight`] = [inner, hidden]
    all[`${p}.mlp.up_proj.weight`] = [inner, hidden]
    all[`${p}.mlp.down_proj.weight`] = [hidden, inner]
  }
  return all
}

const like = (name: string, config: Config): Tiny => ({
  ...tiny[name],
  config: { ...tiny[name].config, ...config },
})

/** Checkpoints that GGUF files can represent completely. */
export const forGguf: Record<string, Tiny> = {
  ...Object.fromEntries(
    [
      "llama",
      "llama-linear",
      "llama-3",
      "llama-yarn",
      "qwen2",
      "qwen3",
      "qwen2-moe",
      "mixtral",
      "gemma",
      "olmo2",
      "gpt2",
    ].map((name) => [name, tiny[name]]),
  ),
  "phi3-longrope": tiny["phi3-longrope"],
  "phi3-plain": like("phi3", { sliding_window: null }),
  "gemma2-heads": like("gemma2", { query_pre_attn_scalar: DIM }),
  "gemma3-heads": like("gemma3", { query_pre_attn_scalar: DIM }),
  "qwen3-moe-all": {
    config: { ...tiny["qwen3-moe"].config, mlp_only_layers: [] },
    tensors: decoder({
      qkNorm: [DIM, DIM],
      mlp: (p) => experts(`${p}.mlp`, ["gate_proj", "up_proj", "down_proj"]),
    }),
  },
  "llama-256": {
    config: {
      ...base,
      model_type: "llama",
      architectures: ["LlamaForCausalLM"],
      hidden_size: 256,
      intermediate_size: 512,
      head_dim: 64,
    },
    tensors: wideDecoder(),
    scale: 0.06,
  },
}
