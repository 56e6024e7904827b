/**
 * Mixtral: Mistral with mixtures of experts.
 */
import { Decoder } from "../decoder"
import { SparseFeedForward, stackExperts } from "../experts"
import { activationOf } from "../layers"
import type { Family } from "../network"
import { llamaPlan, sanitizeDecoder, sizesOf, windowsOf } from "./llama"

export const mixtral: Family = {
  modelTypes: ["mixtral"],
  make: (config) => {
    const sizes = sizesOf(config, { base: 1e6 })
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
