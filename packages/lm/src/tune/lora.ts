/**
 * Low-rank adapters (LoRA): y = W x + scale · B A x, with frozen W, quantized or not. Hu et al., 2021: https://arxiv.org/abs/2106.09685
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { COUNT, checkKind, FINITE, FLAG, FRACTION, STRINGS } from "../argument-kinds"
import { checkNetwork, optionsNamed } from "../arguments"
import { pathInFiles } from "../formats/packed"
import type { Network } from "../models/network"

/** Options of {@link addAdapters}. */
export interface LoraOptions {
  /** 8 by default. */
  readonly rank?: number
  /** Scale of the adapters' output; 20 by default, as in mlx-lm. In PEFT it is alpha / rank. */
  readonly scale?: number
  /** Dropout on the adapters' input; 0 by default. */
  readonly dropout?: number
  /** Adapt only the last n blocks; all by default. */
  readonly layers?: number
  /** Linear layers to adapt, by the ends of their names; by default query and value projections. */
  readonly keys?: readonly string[]
}

const checkNames = optionsNamed<LoraOptions>({
  rank: COUNT,
  scale: FINITE,
  dropout: FRACTION,
  layers: COUNT,
  keys: STRINGS,
})

const KEYS = [
  "self_attn.q_proj",
  "self_attn.v_proj",
  "self_attn.qkv_proj",
  "attn.c_attn",
  "attention.query",
  "attention.value",
]

/**
 * A linear layer with an adapter. Only `loraA` [in, rank] and `loraB` [rank, out] are trained.
 * @example
 * const layer = new LoraLinear(new nn.Linear(4, 3), 2, 20)
 * layer.forward(mx.ones([1, 4])).shape // => [1, 3]
 */
export class LoraLinear extends nn.Module {
  linear: nn.Linear | nn.QuantizedLinear
  loraA: mx.Array
  loraB: mx.Array
  scale: number
  readonly dropout?: nn.Dropout

  constructor(linear: nn.Linear | nn.QuantizedLinear, rank: number, scale: number, dropout = 0) {
    super()
    const expected = "an nn.Linear or nn.QuantizedLinear"
    checkKind("LoraLinear", "the layer", linear, { expected, accepts: isLinear })
    checkKind("LoraLinear", "rank", rank, COUNT)
    checkKind("LoraLinear", "scale", scale, FINITE)
    checkKind("LoraLinear", "dropout", dropout, FRACTION)
    const [out, inner] = sizesOf(linear)
    this.linear = linear
    this.scale = scale
    const bound = 1 / Math.sqrt(inner)
    this.loraA = mx.random.uniform(-bound, bound, [inner, rank])
    this.loraB = mx.zeros([rank, out])
    if (dropout > 0) this.dropout = new nn.Dropout(dropout)
  }

  forward(x: mx.Array): mx.Array {
    const y = this.linear.forward(x)
    const kept = this.dropout ? this.dropout.forward(x) : x
    const added = mx.matmul(mx.matmul(kept.astype(this.loraA.dtype), this.loraA), this.loraB)
    return y.add(added.multiply(this.scale).astype(y.dtype))
  }

  /** The adapter's share of the weight [out, in], in float32. */
  get delta(): mx.Array {
    const [a, b] = [this.loraA, this.loraB].map((x) => x.astype(mx.float32))
    return mx.matmul(a, b).T.multiply(this.scale)
  }

  /**
   * The linear layer with the adapter merged into its weight. A quantized one becomes dense, since codes of few bits cannot hold a small
   * change, unless it is `requantized`.
   * @param dtype - dtype of a dense weight whose layer has codes as scales
   */
  fused(requantized = false, dtype: mx.Dtype = mx.bfloat16): nn.Linear | nn.QuantizedLinear {
    const { linear } = this
    const isQuantized = linear instanceof nn.QuantizedLinear
    const [out, inner] = sizesOf(linear)
    const dense = new nn.Linear(inner, out, false)
    const own = (isQuantized ? linear.scales : linear.weight).dtype
    // The sum is rounded once.
    dense.weight = weightOf(linear)
      .add(this.delta)
      .astype(own.kind === "floating" ? own : dtype)
    if (linear.bias) dense.bias = linear.bias
    if (!isQuantized || !requantized) return dense
    const { groupSize, bits, mode } = linear
    return nn.QuantizedLinear.fromLinear(dense, { groupSize, bits, mode })
  }
}

/** The dtype of a network's norms, or else of its other weights that are not quantized. */
function denseDtype(network: Network): mx.Dtype {
  const weights = mx.treeFlatten(network.parameters()) as [string, mx.Array][]
  const dense = weights.filter(([path, { dtype }]) => dtype.kind === "floating" && !/lora[AB]$/.test(path))
  return (dense.find(([path]) => /norm/i.test(path)) ?? dense[0])?.[1].dtype ?? mx.bfloat16
}

/** A layer's weight [out, in] in float32. */
function weightOf(linear: nn.Linear | nn.QuantizedLinear): mx.Array {
  if (!(linear instanceof nn.QuantizedLinear)) return linear.weight.astype(mx.float32)
  const { weight, scales, biases, groupSize, bits, mode } = linear
  const exact = (x: mx.Array): mx.Array => (x.dtype.kind === "floating" ? x.astype(mx.float32) : x)
  const format = { groupSize, bits, mode, dtype: mx.float32 }
  return mx.dequantize(weight, exact(scales), biases && exact(biases), format)
}

function sizesOf(linear: nn.Linear | nn.QuantizedLinear): [out: number, inner: number] {
  const [out, columns] = linear.weight.shape
  return [out, linear instanceof nn.QuantizedLinear ? (columns * 32) / linear.bits : columns]
}

const isLinear = (module: unknown): module is nn.Linear | nn.QuantizedLinear =>
  module instanceof nn.Linear || module instanceof nn.QuantizedLinear

/** The block's number in a layer's name, or null. */
export function blockOf(name: string): number | null {
  const found = /\.(?:layers|h)\.(\d+)\./.exec(`.${name}`)
  return found ? Number(found[1]) : null
}

/** Replaces modules by path. */
function replaceModules(network: Network, by: ReadonlyMap<string, nn.Module>): void {
  for (const [path, module] of by) {
    const names = path.split(".")
    let holder = network as unknown as Record<string, unknown>
    for (const name of names.slice(0, -1)) holder = holder[name] as Record<string, unknown>
    holder[names[names.length - 1]] = module
  }
}

/**
 * Freezes a network, and adds adapters to its layers. Returns the names of the layers in files.
 * @throws ArgumentError for options out of range, or if no layer is selected
 * @example
 * const { network } = await load('my-model')
 * addAdapters(network, { rank: 4, layers: 1 }) // => ['model.layers.1.self_attn.v_proj', 'model.layers.1.self_attn.q_proj']
 */
export function addAdapters(network: Network, options: LoraOptions = {}): string[] {
  checkNetwork("addAdapters", network)
  checkNames("addAdapters", options)
  const { rank = 8, scale = 20, dropout = 0, layers, keys = KEYS } = options
  if (adaptersOf(network).size > 0)
    throw new ArgumentError("addAdapters", "the network has adapters", {
      hint: "Pass all keys in one call, or fuse the adapters first",
    })
  const named = network.namedModules().map(([path, module]) => ({ path, name: pathInFiles(path), module }))
  const blocks = 1 + Math.max(-1, ...named.map(({ name }) => blockOf(name) ?? -1))
  const from = layers === undefined ? 0 : blocks - layers
  const chosen = new Map<string, nn.Module>()
  const names: string[] = []
  for (const { path, name, module } of named) {
    const block = blockOf(name)
    if (block === null || block < from || !isLinear(module)) continue
    if (!keys.some((key) => name === key || name.endsWith(`.${key}`))) continue
    chosen.set(path, new LoraLinear(module, rank, scale, dropout))
    names.push(name)
  }
  if (chosen.size === 0)
    throw new ArgumentError("addAdapters", `no linear layer's name ends in ${keys.join(", ")}`, {
      hint: "keys are ends of names, such as self_attn.q_proj",
    })
  network.freeze()
  replaceModules(network, chosen)
  // New layers would be in training mode, where dropout is random.
  network.train(network.training)
  return names
}

/** The sizes of a network's linear layers, with adapters or without, by their names in files. */
export function linearSizes(network: Network): Map<string, [out: number, inner: number]> {
  const adapted = adaptersOf(network)
  const found = network.namedModules().flatMap(([path, module]) => {
    const [name, layer] = [pathInFiles(path), module instanceof LoraLinear ? module.linear : module]
    const isInner = adapted.has(name.replace(/\.linear$/, "")) && !adapted.has(name)
    return isLinear(layer) && !isInner ? [[name, sizesOf(layer)] as const] : []
  })
  return new Map(found)
}

/** The adapters of a network, by their layers' names in files. */
export function adaptersOf(network: Network): Map<string, LoraLinear> {
  const found = network
    .namedModules()
    .filter((pair): pair is [string, LoraLinear] => pair[1] instanceof LoraLinear)
  return new Map(found.map(([path, layer]) => [pathInFiles(path), layer]))
}

/** Options of {@link fuseAdapters}. */
export interface FuseOptions {
  /** Quantize fused layers again as they were. This rounds away changes that are smaller than the codes' steps: see `lost`. */
  readonly requantize?: boolean
}

const checkFusing = optionsNamed<FuseOptions>({ requantize: FLAG })

/** The result of `fuseAdapters`. */
export interface FuseReport {
  /** The number of adapters. */
  readonly layers: number
  /** The number of their layers that were quantized and are dense now. */
  readonly dequantized: number
  /** The change of the fused weights by rounding, in proportion to that by the adapters: with 1, they may as well be left out. */
  readonly lost: number
}

/**
 * Merges adapters into the weights, and removes them. Quantized layers with adapters become dense, unless `requantize` is set.
 * @example
 * const { network } = await load('my-model')
 * addAdapters(network, { rank: 4 })
 * fuseAdapters(network).layers // => 4
 * network.modules().some((module) => module instanceof LoraLinear) // => false
 */
export function fuseAdapters(network: Network, options: FuseOptions = {}): FuseReport {
  checkNetwork("fuseAdapters", network)
  checkFusing("fuseAdapters", options)
  const layers = network
    .namedModules()
    .filter((pair): pair is [string, LoraLinear] => pair[1] instanceof LoraLinear)
  const fused = new Map<string, nn.Module>()
  const dtype = denseDtype(network)
  let [added, missed, dequantized] = [0, 0, 0]
  for (const [path, layer] of layers) {
    const made = layer.fused(options.requantize, dtype)
    fused.set(path, made)
    if (layer.linear instanceof nn.QuantizedLinear && made instanceof nn.Linear) dequantized++
    const { delta } = layer
    const error = weightOf(made).subtract(weightOf(layer.linear)).subtract(delta)
    added += delta.square().sum().item() as number
    missed += error.square().sum().item() as number
  }
  replaceModules(network, fused)
  mx.eval(network.parameters())
  return { layers: layers.length, dequantized, lost: added === 0 ? 0 : Math.sqrt(missed / added) }
}
