/**
 * RoPE in GGUF files: base and scaling in the metadata, and factors of frequencies as tensors.
 */
import * as mx from "@lazuli/core"
import type { Weights } from "../models/network"
import { frequencyFactors, ropeSettings } from "../models/rope"
import type { Json, JsonObject, Settings } from "../models/settings"
import type { GgufMetadata } from "./gguf-metadata"

const list = (array: mx.Array): Json => Array.from(array.astype(mx.float32).toTypedArray() as Float32Array)

/** The RoPE fields of config.json. */
export function readRope(
  metadata: GgufMetadata,
  architecture: string,
  arrays: Weights,
  headDim: number,
): JsonObject {
  const key = (name: string): string => `${architecture}.rope.${name}`
  const context = metadata.number(`${architecture}.context_length`) ?? 2048
  const dims = metadata.number(key("dimension_count")) ?? headDim
  const theta = {
    rope_theta: metadata.number(key("freq_base")) ?? 10000,
    ...(dims === headDim ? {} : { partial_rotary_factor: dims / headDim }),
  }
  const trained = metadata.number(key("scaling.original_context_length"))
  const factors = arrays["rope_freqs.weight"]
  const [short, long] = [arrays["rope_factors_short.weight"], arrays["rope_factors_long.weight"]]
  if (factors || (short && long)) {
    // Llama 3's factors are the same for all lengths.
    const each = factors
      ? { short_factor: list(factors), long_factor: list(factors), attention_factor: 1 }
      : {
          short_factor: list(short),
          long_factor: list(long),
          attention_factor: metadata.number(key("scaling.attn_factor")) ?? 1,
        }
    const rope = { rope_type: "longrope", factor: 1, original_max_position_embeddings: trained ?? context }
    return { ...theta, rope_scaling: { ...rope, ...each } }
  }
  const kind = metadata.text(key("scaling.type")) ?? "none"
  const older = metadata.number(key("scale_linear"))
  const factor = metadata.number(key("scaling.factor")) ?? older ?? 1
  if (kind === "none" || factor === 1) return theta
  if (kind !== "linear" && kind !== "yarn")
    throw metadata.error(`the RoPE scaling type "${kind}" is not supported`)
  const rope: Record<string, Json> = { rope_type: kind, factor }
  if (kind === "yarn") {
    rope.original_max_position_embeddings = trained ?? context
    const fast = metadata.number(key("scaling.yarn_beta_fast"))
    const slow = metadata.number(key("scaling.yarn_beta_slow"))
    if (fast !== null) rope.beta_fast = fast
    if (slow !== null) rope.beta_slow = slow
  }
  return { ...theta, rope_scaling: rope }
}

/** RoPE in a GGUF file. */
export interface RopeParts {
  readonly metadata: Record<string, mx.Array | string>
  readonly tensors: Weights
}

/**
 * The metadata and tensors of a config's RoPE.
 * @throws FormatError for types that llama.cpp does not support
 */
export function writeRope(config: Settings, architecture: string, headDim: number, base?: number): RopeParts {
  const layerType = architecture === "gemma3" ? "full_attention" : undefined
  const { kind, theta, dims, rope } = ropeSettings(config, { headDim, layerType, base })
  const key = (name: string): string => `${architecture}.rope.${name}`
  const f32 = (value: number): mx.Array => mx.array(value, mx.float32)
  const u32 = (value: number): mx.Array => mx.array(value, mx.uint32)
  const metadata: Record<string, mx.Array | string> = {
    [key("dimension_count")]: u32(dims),
    [key("freq_base")]: f32(theta),
  }
  const tensors: Weights = {}
  if (kind === "default" || rope === null) return { metadata, tensors }
  const maxPositions = config.count("max_position_embeddings", 2048)
  const trained =
    rope.optionalCount("original_max_position_embeddings") ??
    config.optionalCount("original_max_position_embeddings") ??
    maxPositions
  if (kind === "linear" || kind === "yarn") {
    metadata[key("scaling.type")] = kind
    metadata[key("scaling.factor")] = f32(rope.number("factor", maxPositions / trained))
    if (kind === "linear") return { metadata, tensors }
    metadata[key("scaling.original_context_length")] = u32(trained)
    for (const [name, hf] of [
      ["yarn_beta_fast", "beta_fast"],
      ["yarn_beta_slow", "beta_slow"],
    ])
      if (rope.has(hf)) metadata[key(`scaling.${name}`)] = f32(rope.number(hf))
    if (rope.has("attention_factor") || rope.has("mscale") || !rope.boolean("truncate", true))
      throw new mx.FormatError("save", `${rope.source}: GGUF files do not support these yarn parameters`)
    return { metadata, tensors }
  }
  if (kind === "llama3" || kind === "longrope" || kind === "su") {
    const { short, long, attention } = frequencyFactors(config, { headDim })
    const same = attention === 1 && short.every((factor, i) => factor === long[i])
    if (architecture !== "phi3" && same) tensors["rope_freqs.weight"] = mx.array(short)
    else if (architecture === "phi3") {
      tensors["rope_factors_short.weight"] = mx.array(short)
      tensors["rope_factors_long.weight"] = mx.array(long)
      metadata[key("scaling.attn_factor")] = f32(attention)
      metadata[key("scaling.original_context_length")] = u32(trained)
    } else
      throw new mx.FormatError("save", `${rope.source}: GGUF files support factors by length only for Phi 3`)
    return { metadata, tensors }
  }
  throw new mx.FormatError("save", `${rope.source}: GGUF files do not support the rope_type "${kind}"`)
}
