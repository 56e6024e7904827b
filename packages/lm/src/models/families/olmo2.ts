/**
 * OLMo 2: norms after attention and feed-forward network instead of before, and norms of queries and keys over all heads.
 */
import { Decoder } from "../decoder"
import type { Family } from "../network"
import { llamaPlan, rmsNorm, sanitizeDecoder, sizesOf } from "./llama"

export const olmo2: Family = {
  modelTypes: ["olmo2"],
  make: (config) => {
    const sizes = sizesOf(config)
    const bias = config.boolean("attention_bias", false)
    const norm = { over: "all", make: rmsNorm(config, 1e-5) } as const
    const plan = llamaPlan(config, () => ({ ...sizes, qkvBias: bias, outBias: bias, norm }))
    return new Decoder({ ...plan, norm: norm.make, order: "after" })
  },
  sanitize: sanitizeDecoder,
}
