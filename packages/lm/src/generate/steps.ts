/**
 * One more token of a sequence: by a compiled program, which builds no graph for each token, or eager. Building a graph for each token
 * keeps a processor from the products, and on GPUs takes longer than the kernels.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { Pass } from "../models/attend"
import { type Buffers, type Cache, PlainCache, StepCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"

/** The logits [rows, vocabulary] after one more token of each row [rows, 1], which the cache reads. */
export type Step = (tokens: mx.Array, cache: Cache) => mx.Array

type Program = (
  tokens: mx.Array,
  position: mx.Array,
  buffers: readonly Buffers[],
) => readonly [mx.Array, readonly Buffers[]]

/** The most sizes of buffers that a network's programs are kept for. */
const MOST_PROGRAMS = 16
const programs = new WeakMap<CausalNetwork, Map<string, Program>>()

/** The program of a network for buffers of a size. */
export function programOf(network: CausalNetwork, [first]: readonly Buffers[]): Program {
  const size = first.keys.shape.join()
  const all = programs.get(network) ?? new Map<string, Program>()
  programs.set(network, all)
  const known = all.get(size)
  if (known) return known
  if (all.size >= MOST_PROGRAMS) all.delete(all.keys().next().value as string)
  const program = compile(
    // The position is that of all rows, or has one for each.
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

/** A step that is computed as it is written. */
const eager =
  (network: CausalNetwork): Step =>
  (tokens, cache) =>
    network.logits(network.hidden(tokens, cache, new Pass())).index(":", 0)

/** A step by a program of its own for each size of the cache; eager where a cache has another form. */
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

/** Options of steps. */
export interface StepOptions {
  /** Compute a token by a compiled program, where the network allows it: the default, but for batches on CPUs. */
  readonly compile?: boolean
}

/** True if steps of a batch are compiled, whose rows then share buffers. */
export const compilesBatches = (network: CausalNetwork, { compile }: StepOptions): boolean =>
  network.takesPositions && (compile ?? mx.defaultDevice().type === "gpu")

/** A step of a network for one sequence. */
export const stepOf = (network: CausalNetwork, { compile = true }: StepOptions): Step =>
  network.takesPositions && compile ? compiled(network) : eager(network)
