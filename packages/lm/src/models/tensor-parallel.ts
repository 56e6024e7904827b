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

const groups = new WeakMap<CausalNetwork, mx.distributed.Group>()

/** The processes that a network is spread over; null if this one has all of it. */
export const groupOf = (network: CausalNetwork): mx.distributed.Group | null => groups.get(network) ?? null

type Layer = nn.Linear | nn.QuantizedLinear

/**
 * Shards a network, quantized or not, over the processes of a group, in place. Each process must call it, and then generate with the same
 * prompts and options. Where tokens are sampled, all take rank 0's seed, whether it was given or is random.
 * @throws ShapeError if heads or features are not divisible by the number of processes; ArgumentError for other layers, such as experts,
 * and for a network of which each process has a part already. The network then stays as it was
 * @example
 * const { network } = await load('my-model')
 * shardModel(network) === network // => true
 */
export function shardModel<N extends CausalNetwork>(network: N, options: ShardModelOptions = {}): N {
  checkCausal("shardModel", network)
  checkOptions("shardModel", options)
  const group = options.group ?? mx.distributed.init()
  if (group.size() === 1) return network
  const [spread] = nn.shardedModules(network)
  if (spread)
    throw new mx.ArgumentError("shardModel", `the network has only a part of "${spread[0]}" already`)
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
  // All are made before the first one is put into its place.
  for (const { module, fields } of parts.map((shard) => shard())) Object.assign(module, fields)
  mx.eval(network.parameters())
  groups.set(network, group)
  return network
}

/** A module, and its fields that are to be others. */
interface Sharded {
  readonly module: nn.Module
  readonly fields: object
}

function shardAttention(attention: Attention, group: mx.distributed.Group): Sharded {
  const { heads, kvHeads, headDim, qkvProj, qProj, kProj, vProj, oProj, qNorm, sinks } = attention
  const [rank, size] = [group.rank(), group.size()]
  if (heads % size !== 0 || kvHeads % size !== 0)
    throw new mx.ShapeError(
      "shardModel",
      `${heads} query heads and ${kvHeads} key-value heads are not divisible by ${size} processes`,
    )
  if (qNorm && attention.normOver === "all")
    throw new mx.ArgumentError("shardModel", "a norm over all heads cannot be sharded")
  const outputs = outputsOver(group)
  const segments = [heads * headDim, (heads + kvHeads) * headDim]
  const inner = qkvProj
    ? { qkvProj: outputs(qkvProj, segments) }
    : { qProj: outputs(qProj), kProj: outputs(kProj), vProj: outputs(vProj) }
  const own = sinks && {
    sinks: mx.contiguous(sinks.split(size)[rank]),
    _group: group,
    _shards: { sinks: { axis: 0, segments: [heads] } },
  }
  const sizes = { heads: heads / size, kvHeads: kvHeads / size }
  const fields = { ...inner, oProj: inputsOver(group)(oProj), ...own, ...sizes } satisfies Partial<Attention>
  return { module: attention, fields }
}

function shardFeedForward(module: GatedFeedForward, group: mx.distributed.Group): Sharded {
  const { gateUpProj, gateProj, upProj, downProj } = module
  const outputs = outputsOver(group)
  const inner = gateUpProj
    ? { gateUpProj: outputs(gateUpProj, 2) }
    : { gateProj: outputs(gateProj), upProj: outputs(upProj) }
  const fields = { ...inner, downProj: inputsOver(group)(downProj) } satisfies Partial<GatedFeedForward>
  return { module, fields }
}

const outputsOver =
  (group: mx.distributed.Group) =>
  (layer: unknown, segments?: number | number[]): nn.Model =>
    nn.shardLinear(layer as Layer, "all-to-sharded", { group, segments }) as nn.Model
const inputsOver =
  (group: mx.distributed.Group) =>
  (layer: unknown): nn.Model =>
    nn.shardLinear(layer as Layer, "sharded-to-all", { group }) as nn.Model
