/**
 * A decoding step, compiled or eager. A compiled step builds no graph for each token: building it delays the matrix products on CPUs, and
 * takes longer than the kernels on GPUs.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { Pass } from "../models/attend"
import { type Buffers, type Cache, PlainCache, StepCache } from "../models/cache"
import type { CausalNetwork } from "../models/network"
import { likeliestOf } from "./sampler"

/** The logits [rows, vocabulary] after the tokens [rows, 1], or the most likely next tokens [rows, 1]; the cache takes the tokens. */
export type Step = (tokens: mx.Array, cache: Cache) => mx.Array

type Program<R> = (
  tokens: mx.Array,
  position: mx.Array,
  buffers: readonly Buffers[],
) => readonly [R, readonly Buffers[]]

/** Maximum number of compiled programs per network, one for each buffer shape and result. */
const MAX_PROGRAMS = 16
const programs = new WeakMap<CausalNetwork, Map<string, Program<unknown>>>()

/** A network's compiled step for buffers of the same shape as the first layer's; `name` is that of what `resultOf` makes of its logits. */
function programFor<R>(
  network: CausalNetwork,
  [first]: readonly Buffers[],
  name: string,
  resultOf: (logits: mx.Array, position: mx.Array) => R,
): Program<R> {
  const key = `${name},${first.keys.shape}`
  const all = programs.get(network) ?? new Map<string, Program<unknown>>()
  programs.set(network, all)
  const known = all.get(key)
  if (known) return known as Program<R>
  if (all.size >= MAX_PROGRAMS) all.delete(all.keys().next().value as string)
  const program = compile(
    // `position` is a scalar, or has one entry for each row.
    (tokens: mx.Array, position: mx.Array, buffers: readonly Buffers[]) => {
      const layers = buffers.map((each) => new StepCache(each))
      const hidden = network.hidden(tokens, layers, new Pass(null, true, null, position))
      const result = resultOf(network.logits(hidden).index(":", 0), position)
      return [result, layers.map((layer) => layer.buffers)] as const
    },
    { inputs: network.state, donate: [2] },
  ) as Program<R>
  all.set(key, program)
  return program
}

/** The program of a network's step, with its logits. */
export const programOf = (network: CausalNetwork, buffers: readonly Buffers[]): Program<mx.Array> =>
  programFor(network, buffers, "logits", (logits) => logits)

/** A step that builds its graph each time. */
const eager =
  (network: CausalNetwork): Step =>
  (tokens, cache) =>
    network.logits(network.hidden(tokens, cache, new Pass())).index(":", 0)

/** The buffers of a cache, if all layers are {@link PlainCache} and not empty. */
function buffersOf(cache: Cache): { layers: readonly PlainCache[]; buffers: readonly Buffers[] } | null {
  const layers = cache.filter((layer) => layer instanceof PlainCache)
  const buffers = layers.flatMap((layer) => layer.buffers() ?? [])
  return buffers.length === 0 || buffers.length < cache.length ? null : { layers, buffers }
}

/** A compiled step; eager while a cache is empty or not a {@link PlainCache}. */
const compiled = (network: CausalNetwork): Step => {
  const otherwise = eager(network)
  return (tokens, cache) => {
    const found = buffersOf(cache)
    if (found === null) return otherwise(tokens, cache)
    const { layers, buffers } = found
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

/** An eager step with the choice of the tokens. */
const eagerGreedy = (network: CausalNetwork): Step => {
  const step = eager(network)
  return (tokens, cache) => {
    const logits = step(tokens, cache)
    const chosen = likeliestOf(logits)
    logits.dispose()
    return chosen
  }
}

/** A compiled step with the choice of the tokens and the next position: one program follows another without work between them. */
const compiledGreedy = (network: CausalNetwork): Step => {
  const otherwise = eagerGreedy(network)
  let left: { readonly cache: Cache; readonly offset: number; readonly position: mx.Array } | null = null
  return (tokens, cache) => {
    const found = buffersOf(cache)
    if (found === null) return otherwise(tokens, cache)
    const { layers, buffers } = found
    const [{ offset }] = layers
    const isNext = left?.cache === cache && left.offset === offset
    const position = left && isNext ? left.position : mx.array(offset, mx.int32)
    const program = programFor(network, buffers, "likeliest", (logits, at) => [
      likeliestOf(logits),
      at.add(1),
    ])
    const [[chosen, next], written] = program(tokens, position, buffers)
    position.dispose()
    left = { cache, offset: offset + 1, position: next }
    layers.forEach((layer, i) => {
      layer.advance(written[i])
    })
    return chosen
  }
}

/** Options of decoding steps. */
export interface StepOptions {
  /** Compile decoding steps if the network supports it: true by default. */
  readonly compile?: boolean
}

/** A network's step for one sequence. */
export const stepOf = (network: CausalNetwork, { compile = true }: StepOptions): Step =>
  network.takesPositions && compile ? compiled(network) : eager(network)

/** The same, with the most likely tokens in place of the logits. */
export const greedyStepOf = (network: CausalNetwork, { compile = true }: StepOptions): Step =>
  network.takesPositions && compile ? compiledGreedy(network) : eagerGreedy(network)
