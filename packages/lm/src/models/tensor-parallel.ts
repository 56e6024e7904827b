/**
 * Tensor parallelism: attention's heads and the feed-forward networks' features spread over the processes of a group. Each block then
 * exchanges twice, and all processes have the same logits.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { Attention, GatedFeedForward } from "./layers"
import type { CausalNetwork } from "./network"

/** Options of {@link shardModel}. */
export interface ShardModelOptions {
  /** The processes; all by default. */
  group?: mx.distributed.Group | null
}

type Layer = nn.Linear | nn.QuantizedLinear

/**
 * Spreads a network's weights over the processes of a group, in place: every one calls it, then generates with the same prompts and seeds.
 * Quantized networks are spread as they are.
 * @throws ShapeError where the group cannot divide the heads or the features; ArgumentError for networks with other parts, such as experts
 * @example
 * const { network } = await load('my-model')
 * shardModel(network) === network // => true
 */
export function shardModel<N extends CausalNetwork>(network: N, options: ShardModelOptions = {}): N {
  const group = options.group ?? mx.distributed.init()
  if (group.size() === 1) return network
  const parts = network.modules().flatMap((part) => {
    if (part instanceof Attention) return [() => shardAttention(part, group)]
    return part instanceof GatedFeedForward ? [() => shardFeedForward(part, group)] : []
  })
  const layers = network.layerShapes().length
  if (parts.length !== 2 * layers)
    throw new mx.ArgumentError(
      "shardModel",
      `expected attention and a gated feed-forward network in each of the ${layers} blocks`,
    )
  for (const shard of parts) shard()
  mx.eval(network.parameters())
  return network
}

function shardAttention(attention: Attention, group: mx.distributed.Group): void {
  const { heads, kvHeads, headDim, qkvProj, qProj, kProj, vProj, qNorm, sinks } = attention
  const [rank, size] = [group.rank(), group.size()]
  if (heads % size !== 0 || kvHeads % size !== 0)
    throw new mx.ShapeError(
      "shardModel",
      `${heads} heads of queries and ${kvHeads} of keys cannot be divided among ${size} processes`,
    )
  if (qNorm && attention.normOver === "all")
    throw new mx.ArgumentError("shardModel", "a norm over all heads cannot be divided among processes")
  if (qkvProj) {
    const segments = [heads * headDim, (heads + kvHeads) * headDim]
    attention.qkvProj = nn.shardLinear(qkvProj as Layer, "all-to-sharded", { group, segments })
  } else {
    attention.qProj = nn.shardLinear(qProj as Layer, "all-to-sharded", { group })
    attention.kProj = nn.shardLinear(kProj as Layer, "all-to-sharded", { group })
    attention.vProj = nn.shardLinear(vProj as Layer, "all-to-sharded", { group })
  }
  attention.oProj = nn.shardLinear(attention.oProj as Layer, "sharded-to-all", { group })
  if (sinks) attention.sinks = mx.contiguous(sinks.split(size)[rank])
  attention.heads = heads / size
  attention.kvHeads = kvHeads / size
}

function shardFeedForward(network: GatedFeedForward, group: mx.distributed.Group): void {
  const { gateUpProj, gateProj, upProj } = network
  if (gateUpProj)
    network.gateUpProj = nn.shardLinear(gateUpProj as Layer, "all-to-sharded", { group, segments: 2 })
  else {
    network.gateProj = nn.shardLinear(gateProj as Layer, "all-to-sharded", { group })
    network.upProj = nn.shardLinear(upProj as Layer, "all-to-sharded", { group })
  }
  network.downProj = nn.shardLinear(network.downProj as Layer, "sharded-to-all", { group })
}
