/**
 * Mixtral: Mistral with mixtures of experts.
 */
import { Decoder } from "../decoder"
import { SparseFeedForward, stackExperts } from "../experts"
import { activationOf } from "../layers"
import type { Family } from "../network"
import { attentionSizesOf, completedBy, llamaPlan, sanitizeDecoder, windowsOf } from "./llama"

export const mixtral: Family = {
  modelTypes: ["mixtral"],
  complete: completedBy({
    mixtral: {
      ...{ num_key_value_heads: 8, num_local_experts: 8, num_experts_per_tok: 2, rms_norm_eps: 1e-5 },
      max_position_embeddings: 131_072,
    },
  }),
  make: (config) => {
    const sizes = attentionSizesOf(config, { base: 1e6 })
    const windows = windowsOf(config, () => true)
    const experts = {
      hidden: sizes.hidden,
      inner: config.count("intermediate_size"),
      experts: config.count("num_local_experts"),
      chosen: config.count("num_experts_per_tok"),
      normalized: true,
      activation: activationOf(config.string("hidden_act", "silu")),
    }
    return new Decoder({
      ...llamaPlan(config, (layer) => ({ ...sizes, window: windows(layer) })),
      feedForward: () => new SparseFeedForward(experts),
      feedForwardName: "blockSparseMoe",
    })
  },
  sanitize: (weights, config) =>
    stackExperts(sanitizeDecoder(weights, config), "block_sparse_moe", ["w1", "w3", "w2"]),
}
