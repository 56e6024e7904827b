/**
 * A decoding step, compiled or eager. A compiled step builds no graph for each token: building it delays the matrix products on CPUs, and
 * takes longer than the kernels on GPUs.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { Pass } from "../models/attend"
import { type Buffers, type Cache, PlainCache, StepCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"

/** The logits [rows, vocabulary] after the tokens [rows, 1], which are added to the cache. */
export type Step = (tokens: mx.Array, cache: Cache) => mx.Array

type Program = (
  tokens: mx.Array,
  position: mx.Array,
  buffers: readonly Buffers[],
) => readonly [mx.Array, readonly Buffers[]]

/** Maximum number of compiled programs per network, one for each buffer shape. */
const MAX_PROGRAMS = 16
const programs = new WeakMap<CausalNetwork, Map<string, Program>>()

/** A network's compiled step for buffers of the same shape as the first layer's. */
export function programOf(network: CausalNetwork, [first]: readonly Buffers[]): Program {
  const size = first.keys.shape.join()
  const all = programs.get(network) ?? new Map<string, Program>()
  programs.set(network, all)
  const known = all.get(size)
  if (known) return known
  if (all.size >= MAX_PROGRAMS) all.delete(all.keys().next().value as string)
  const program = compile(
    // `position` is a scalar, or has one entry for each row.
    (tokens: mx.Array, position: mx.Array, buffers: readonly Buffers[]) => {
      const layers = buffers.map((each) => new StepCache(each))
      const hidden = network.hidden(tokens, layers, new Pass(null, true, null, position))
      const logits = network.logits(hidden).index(":", 0)
      return [logits, layers.map((layer) => layer.buffers)] as const
    },
    { inputs: network.state, donate: [2] },
  ) as Program
  all.set(size, program)
  return program
}

/** A step that builds its graph each time. */
const eager =
  (network: CausalNetwork): Step =>
  (tokens, cache) =>
    network.logits(network.hidden(tokens, cache, new Pass())).index(":", 0)

/** A compiled step; eager while a cache is empty or not a {@link PlainCache}. */
const compiled = (network: CausalNetwork): Step => {
  const otherwise = eager(network)
  return (tokens, cache) => {
    const layers = cache.filter((layer) => layer instanceof PlainCache)
    const buffers = layers.flatMap((layer) => layer.buffers() ?? [])
    if (buffers.length === 0 || buffers.length < cache.length) return otherwise(tokens, cache)
    const [logits, written] = programOf(network, buffers)(
      tokens,
      mx.array(layers[0].offset, mx.int32),
      buffers,
    )
    layers.forEach((layer, i) => {
      layer.advance(written[i])
    })
    return logits
  }
}

/** Options of decoding steps. */
export interface StepOptions {
  /** Compile decoding steps if the network supports it: true by default, except for batches on CPUs. */
  readonly compile?: boolean
}

/** True if a batch's steps are compiled, with shared buffers for its rows. */
export const compilesBatches = (network: CausalNetwork, { compile }: StepOptions): boolean =>
  network.takesPositions && (compile ?? mx.defaultDevice().type === "gpu")

/** A network's step for one sequence. */
export const stepOf = (network: CausalNetwork, { compile = true }: StepOptions): Step =>
  network.takesPositions && compile ? compiled(network) : eager(network)
