/**
 * The longest sequences that a server accepts.
 */
import type { LoadedModel } from "../formats/load"
import { completed, familyOf } from "../models/registry"
import type { ServerOptions } from "./server-options"

/**
 * Maximum number of tokens of a prompt and its answer. Without an option that is what the model's config says, since models of RoPE can
 * read on and only get worse; a `maxContext` within it lets sequences be of any length, of which attention sees no more.
 */
export function contextOf(
  { network, config }: LoadedModel,
  options: Pick<ServerOptions, "contextLength" | "maxContext">,
): number {
  const { contextLength, maxContext = Infinity } = options
  const sizes = completed(familyOf(config), config).within("text_config")
  const rope = sizes.part("rope_parameters") ?? sizes.part("rope_scaling")
  // Others give the length after stretching.
  const isYarn = rope?.string("rope_type", rope.string("type", "")) === "yarn"
  const trained = isYarn ? (rope?.optionalCount("original_max_position_embeddings") ?? 0) : 0
  const stretched = trained * (rope?.optionalPositive("factor") ?? 1)
  const own = Math.max(sizes.optionalCount("max_position_embeddings") ?? Infinity, Math.floor(stretched))
  return Math.min(network.maxPositions, contextLength ?? (maxContext <= own ? Infinity : own))
}
