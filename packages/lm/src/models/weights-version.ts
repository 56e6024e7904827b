/**
 * Versions of a network's weights, by which stored keys and values are known to be old.
 */
import * as mx from "@lazuli/core"
import type { Network } from "./network"

interface Known {
  readonly version: number
  /** Without keeping earlier weights in memory. */
  readonly arrays: readonly WeakRef<mx.Array>[]
}
const known = new WeakMap<Network, Known>()

/** A number that is another one once the network has other weights or adapters: other arrays, whatever their values. */
export function weightsVersion(network: Network): number {
  const arrays = (mx.treeFlatten(network.parameters()) as [string, mx.Array][]).map(([, array]) => array)
  const last = known.get(network)
  if (last?.arrays.length === arrays.length && arrays.every((array, i) => last.arrays[i].deref() === array))
    return last.version
  const version = (last?.version ?? 0) + 1
  known.set(network, { version, arrays: arrays.map((array) => new WeakRef(array)) })
  return version
}
