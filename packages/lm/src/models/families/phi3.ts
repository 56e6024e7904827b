/**
 * Phi 3 and 3.5: Llama with fused query, key and value projections, fused gate and up projections, and longrope.
 */
import { Decoder } from "../decoder"
import { activationOf, GatedFeedForward } from "../layers"
import type { Family } from "../network"
import { attentionSizesOf, completedBy, llamaPlan, sanitizeDecoder, windowsOf } from "./llama"

export const phi3: Family = {
  modelTypes: ["phi3"],
  complete: completedBy({ phi3: { rms_norm_eps: 1e-5, max_position_embeddings: 4096 } }),
  make: (config) => {
    const sizes = attentionSizesOf(config)
    const windows = windowsOf(config, () => true)
    const activation = activationOf(config.string("hidden_act", "silu"))
    const inner = config.count("intermediate_size")
    return new Decoder({
      ...llamaPlan(config, (layer) => ({ ...sizes, fused: true, window: windows(layer) })),
      feedForward: () => new GatedFeedForward(sizes.hidden, inner, { activation, fused: true }),
    })
  },
  sanitize: sanitizeDecoder,
}
