/**
 * OLMo 2: norms after attention and feed-forward network instead of before, and norms of queries and keys over all heads. OLMo 3 adds
 * windows in three of four layers, whose RoPE is not scaled.
 */
import { Decoder } from "../decoder"
import type { AttentionSizes } from "../layers"
import type { Family } from "../network"
import type { Settings } from "../settings"
import {
  attentionSizesOf,
  completedBy,
  llamaPlan,
  localRope,
  rmsNorm,
  sanitizeDecoder,
  windowsOf,
} from "./llama"

/** The sizes of attention in each layer. */
function sizesByLayer(config: Settings): (layer: number) => AttentionSizes {
  if (config.string("model_type") === "olmo2") {
    const sizes = attentionSizesOf(config)
    return () => sizes
  }
  const base = 500_000
  const sizes = attentionSizesOf(config, { base, layerType: "full_attention" })
  const local = localRope(config, sizes.headDim, config.positive("rope_theta", base))
  const windows = windowsOf(config, (layer) => (layer + 1) % 4 !== 0)
  return (layer) => {
    const window = windows(layer)
    return { ...sizes, window, rope: window === null ? sizes.rope : local }
  }
}

export const olmo: Family = {
  modelTypes: ["olmo2", "olmo3"],
  complete: completedBy({ olmo3: { sliding_window: 4096 } }),
  make: (config) => {
    const sizes = sizesByLayer(config)
    const bias = config.boolean("attention_bias", false)
    const norm = { over: "all", make: rmsNorm(config, 1e-5) } as const
    const plan = llamaPlan(config, (layer) => ({ ...sizes(layer), qkvBias: bias, outBias: bias, norm }))
    return new Decoder({ ...plan, norm: norm.make, order: "after" })
  },
  sanitize: sanitizeDecoder,
}
