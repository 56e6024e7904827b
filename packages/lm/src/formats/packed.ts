/**
 * Layers with packed weights, of any kind, and a model's weights under their names in files.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { QuantizedSwitchLinear } from "../models/experts"
import type { Network, Weights } from "../models/network"

/** A layer with packed weights. */
export type PackedLayer = nn.QuantizedLinear | nn.QuantizedEmbedding | QuantizedSwitchLinear

export const isPacked = (module: nn.Module): module is PackedLayer =>
  module instanceof nn.QuantizedLinear ||
  module instanceof nn.QuantizedEmbedding ||
  module instanceof QuantizedSwitchLinear

/** `model.layers.0.selfAttn.qProj` as files name it. */
export const pathInFiles = (path: string): string =>
  path.replace(
    /([a-z0-9])([A-Z])/g,
    (_, before: string, letter: string) => `${before}_${letter.toLowerCase()}`,
  )

/** The packed layers of a network, by their names in files. */
export function packedLayers(network: Network): Map<string, PackedLayer> {
  const found = network.namedModules().filter((pair): pair is [string, PackedLayer] => isPacked(pair[1]))
  return new Map(found.map(([path, layer]) => [pathInFiles(path), layer]))
}

/** The weights of a model under their names in files. */
export function weightsOf({ network }: { readonly network: Network }): Weights {
  const flat = mx.treeFlatten(network.parameters()) as [string, mx.Array][]
  return Object.fromEntries(flat.map(([path, array]) => [pathInFiles(path), array]))
}
