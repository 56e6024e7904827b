/**
 * Tensor parallelism: attention heads and feed-forward features are sharded over the processes of a group. Each block needs two
 * all-reduces, and all processes get the same logits.
 */
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import { checkCausal, optionsNamed } from "../arguments"
import { Attention, GatedFeedForward } from "./layers"
import type { CausalNetwork } from "./network"

/** Options of {@link shardModel}. */
export interface ShardModelOptions {
  /** The processes; all by default. */
  group?: mx.distributed.Group | null
}

const checkOptions = optionsNamed<ShardModelOptions>({ group: true })

type Layer = nn.Linear | nn.QuantizedLinear

/**
 * Shards a network, quantized or not, over the processes of a group, in place. Each process must call it, and then generate with the same
 * prompts and seeds.
 * @throws ShapeError if heads or features are not divisible by the number of processes; ArgumentError for other layers, such as experts
 * @example
 * const { network } = await load('my-model')
 * shardModel(network) === network // => true
 */
export function shardModel<N extends CausalNetwork>(network: N, options: ShardModelOptions = {}): N {
  checkCausal("shardModel", network)
  checkOptions("shardModel", options)
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
      `only networks of attention and gated feed-forward layers can be sharded, which not all of the ${layers} blocks are`,
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
      `${heads} query heads and ${kvHeads} key-value heads are not divisible by ${size} processes`,
    )
  if (qNorm && attention.normOver === "all")
    throw new mx.ArgumentError("shardModel", "a norm over all heads cannot be sharded")
  if (qkvProj) {
    const segments = [heads * headDim, (heads + kvHeads) * headDim]
    attention.qkvProj = nn.shardLinear(qkvProj as Layer, "all-to-sharded", { group, segments })
  } else {
    attention.qProj = nn.shardLinear(qProj as Layer, "all-to-sharded", { group })
    attention.kProj = nn.shardLinear(kProj as Layer, "all-to-sharded", { group })
    attention.vProj = nn.shardLinear(vProj as Layer, "all-to-sharded", { group })
  }
  attention.oProj = nn.shardLinear(attention.oProj as Layer, "sharded-to-all", { group })
  if (sinks) {
    attention.sinks = mx.contiguous(sinks.split(size)[rank])
    attention._group = group
    attention._shards = { sinks: { axis: 0, segments: [heads] } }
  }
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
