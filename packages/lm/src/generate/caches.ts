/**
 * The choice of a model's cache.
 */
import { type Cache, PlainCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"

/** The properties of a cache. */
export type CacheOptions = {}

/** An empty cache for a network. */
export function makeCache(network: CausalNetwork, _options: CacheOptions = {}): Cache {
  return network.layerShapes().map(() => new PlainCache())
}
