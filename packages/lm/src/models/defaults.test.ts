/** Values that config.json omits are those of transformers 5.18's classes. */
import { expect, test } from "vitest"
import { type Config, tiny } from "../../test/checkpoints"
import { checkSame } from "../formats/gguf-compare"
import { type JsonObject, Settings } from "./settings"
import "@lazuli/backend-cpu"

/** Configs in which these defaults are valid. */
const SIZES = { hidden_size: 64, num_attention_heads: 32, head_dim: 2, num_hidden_layers: 2 }
const YARN = { rope_type: "yarn", factor: 4 }

test.each<[name: string, omitted: string, value: unknown, other: unknown, config: Config]>([
  ["llama", "rms_norm_eps", 1e-6, 1e-5, {}],
  ["llama", "num_key_value_heads", 32, 8, SIZES],
  ["llama", "head_dim", 16, 8, {}],
  ["mistral", "rms_norm_eps", 1e-6, 1e-5, {}],
  ["mistral", "num_key_value_heads", 8, 32, SIZES],
  ["mistral", "sliding_window", 4096, null, {}],
  ["mistral", "max_position_embeddings", 131_072, 4096, { rope_scaling: YARN }],
  ["mixtral", "rms_norm_eps", 1e-5, 1e-6, {}],
  ["mixtral", "num_key_value_heads", 8, 32, SIZES],
  ["mixtral", "num_local_experts", 8, 4, {}],
  ["mixtral", "num_experts_per_tok", 2, 1, {}],
  ["mixtral", "rope_theta", 1e6, 1e4, {}],
  ["mixtral", "sliding_window", null, 4096, {}],
  ["phi3", "rms_norm_eps", 1e-5, 1e-6, {}],
  ["phi3", "sliding_window", null, 4096, {}],
  ["olmo2", "rms_norm_eps", 1e-5, 1e-6, {}],
  ["olmo2", "rope_theta", 1e4, 5e5, {}],
  ["olmo3", "rms_norm_eps", 1e-5, 1e-6, {}],
  ["olmo3", "sliding_window", 4096, 8, {}],
  ["qwen2", "rms_norm_eps", 1e-6, 1e-5, {}],
  ["qwen2", "num_key_value_heads", 32, 8, SIZES],
  ["qwen2", "max_position_embeddings", 32_768, 2048, { rope_scaling: YARN }],
  ["qwen3", "head_dim", 128, 16, {}],
  ["qwen2-moe", "num_key_value_heads", 16, 32, SIZES],
  ["qwen2-moe", "num_experts_per_tok", 4, 2, {}],
  ["qwen2-moe", "moe_intermediate_size", 1408, 64, {}],
  ["qwen2-moe", "shared_expert_intermediate_size", 5632, 64, {}],
  ["qwen3-moe", "num_key_value_heads", 4, 32, SIZES],
  ["qwen3-moe", "num_experts_per_tok", 8, 2, { num_experts: 8 }],
  ["qwen3-moe", "moe_intermediate_size", 768, 64, {}],
  ["qwen3-moe", "norm_topk_prob", false, true, {}],
  ["gemma", "head_dim", 256, 16, {}],
  ["gemma", "num_key_value_heads", 16, 32, SIZES],
  ["gemma2", "sliding_window", 4096, 8, {}],
  ["gemma2", "attn_logit_softcapping", 50, null, {}],
  ["gemma2", "final_logit_softcapping", 30, null, {}],
  ["gemma2", "query_pre_attn_scalar", 256, 16, {}],
  ["gemma2", "num_attention_heads", 8, 4, {}],
  ["gemma2", "num_key_value_heads", 4, 2, {}],
  ["gemma3", "sliding_window", 4096, 8, {}],
  ["gemma3", "head_dim", 256, 16, {}],
  ["gemma3", "rope_local_base_freq", 1e4, 1e6, {}],
  ["gpt2", "layer_norm_epsilon", 1e-5, 1e-6, {}],
  ["gpt2", "n_positions", 1024, 128, {}],
  ["bert", "layer_norm_eps", 1e-12, 1e-5, {}],
  ["bert", "type_vocab_size", 2, 1, {}],
  ["roberta", "layer_norm_eps", 1e-12, 1e-5, {}],
])("%s without %s has %j", (name, omitted, value, other, more) => {
  const { [omitted]: _, ...config } = { ...tiny[name].config, ...more } as JsonObject
  const same = (given: unknown): void =>
    checkSame(new Settings(config), new Settings({ ...config, [omitted]: given } as JsonObject))
  expect(() => same(value)).not.toThrow()
  expect(() => same(other)).toThrow()
})
