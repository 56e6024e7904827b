/** Adapters for tests. */
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"

/** Adds adapters that change the output. */
export function addOnes(network: lm.CausalNetwork, scale: number): lm.LoraLinear[] {
  lm.addAdapters(network, { rank: 2, scale })
  const layers = network.modules().filter((module) => module instanceof lm.LoraLinear)
  for (const layer of layers) layer.loraB = mx.full(layer.loraB.shape, 0.01)
  return layers
}
