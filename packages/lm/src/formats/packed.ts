/**
 * Quantized layers of any kind, and the names of layers and weights in files.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { QuantizedSwitchLinear } from "../models/experts"
import type { Network, Weights } from "../models/network"

/** A quantized layer. */
export type PackedLayer = nn.QuantizedLinear | nn.QuantizedEmbedding | QuantizedSwitchLinear

export const isPacked = (module: nn.Module): module is PackedLayer =>
  module instanceof nn.QuantizedLinear ||
  module instanceof nn.QuantizedEmbedding ||
  module instanceof QuantizedSwitchLinear

/** Converts a path to the name in files: `model.layers.0.selfAttn.qProj` → `model.layers.0.self_attn.q_proj`. */
export const pathInFiles = (path: string): string =>
  path.replace(
    /([a-z0-9])([A-Z])/g,
    (_, before: string, letter: string) => `${before}_${letter.toLowerCase()}`,
  )

/** The quantized layers of a network, by their names in files. */
export function packedLayers(network: Network): Map<string, PackedLayer> {
  const found = network.namedModules().filter((pair): pair is [string, PackedLayer] => isPacked(pair[1]))
  return new Map(found.map(([path, layer]) => [pathInFiles(path), layer]))
}

/** The weights of a model, by their names in files. */
export function weightsOf({ network }: { readonly network: Network }): Weights {
  const flat = mx.treeFlatten(network.parameters()) as [string, mx.Array][]
  return Object.fromEntries(flat.map(([path, array]) => [pathInFiles(path), array]))
}
