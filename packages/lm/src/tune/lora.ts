/**
 * Low-rank adapters (LoRA): y = W x + scale · B A x, with frozen W, quantized or not. Hu et al., 2021: https://arxiv.org/abs/2106.09685
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { optionsNamed } from "../arguments"
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
  rank: true,
  scale: true,
  dropout: true,
  layers: true,
  keys: true,
})

const KEYS = ["self_attn.q_proj", "self_attn.v_proj", "self_attn.qkv_proj", "attn.c_attn"]

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

  /** The linear layer with the adapter merged into its weight; quantized again if it was. */
  fused(): nn.Module {
    const { linear, loraA, loraB, scale } = this
    const delta = mx.matmul(loraA, loraB).T.multiply(scale)
    const isQuantized = linear instanceof nn.QuantizedLinear
    const weight = isQuantized ? dequantized(linear) : linear.weight
    const dense = new nn.Linear(weight.shape[1], weight.shape[0], false)
    dense.weight = weight.add(delta.astype(weight.dtype))
    if (linear.bias) dense.bias = linear.bias
    if (!isQuantized) return dense
    const { groupSize, bits, mode } = linear
    return nn.QuantizedLinear.fromLinear(dense, { groupSize, bits, mode })
  }
}

function dequantized({ weight, scales, biases, groupSize, bits, mode }: nn.QuantizedLinear): mx.Array {
  return mx.dequantize(weight, scales, biases, { groupSize, bits, mode })
}

function sizesOf(linear: nn.Linear | nn.QuantizedLinear): [out: number, inner: number] {
  const [out, columns] = linear.weight.shape
  return [out, linear instanceof nn.QuantizedLinear ? (columns * 32) / linear.bits : columns]
}

const isLinear = (module: nn.Module): module is nn.Linear | nn.QuantizedLinear =>
  module instanceof nn.Linear || module instanceof nn.QuantizedLinear

/** The block's number in a layer's name, or null. */
function blockOf(name: string): number | null {
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
  checkNames("addAdapters", options)
  const { rank = 8, scale = 20, dropout = 0, layers, keys = KEYS } = options
  if (!(dropout >= 0 && dropout < 1))
    throw new ArgumentError("lora", `dropout must be a number in [0, 1), received ${describe(dropout)}`)
  for (const [name, value] of Object.entries({ rank, layers }))
    if (value !== undefined && (!Number.isSafeInteger(value) || value < 1))
      throw new ArgumentError("lora", `${name} must be a positive integer, received ${describe(value)}`)
  if (!Number.isFinite(scale))
    throw new ArgumentError("lora", `scale must be a finite number, received ${describe(scale)}`)
  network.freeze()
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
    throw new ArgumentError("lora", `no linear layer's name ends in ${keys.join(", ")}`, {
      hint: "keys are ends of names, such as self_attn.q_proj",
    })
  replaceModules(network, chosen)
  // New layers would be in training mode, where dropout is random.
  network.train(network.training)
  return names
}

/** The adapters of a network, by their layers' names in files. */
export function adaptersOf(network: Network): Map<string, LoraLinear> {
  const found = network
    .namedModules()
    .filter((pair): pair is [string, LoraLinear] => pair[1] instanceof LoraLinear)
  return new Map(found.map(([path, layer]) => [pathInFiles(path), layer]))
}

/**
 * Merges adapters into the weights, and removes them.
 * @example
 * const { network } = await load('my-model')
 * addAdapters(network, { rank: 4 })
 * fuseAdapters(network)
 * network.modules().some((module) => module instanceof LoraLinear) // => false
 */
export function fuseAdapters(network: Network): void {
  const layers = network
    .namedModules()
    .filter((pair): pair is [string, LoraLinear] => pair[1] instanceof LoraLinear)
  replaceModules(network, new Map(layers.map(([path, layer]) => [path, layer.fused()])))
  mx.eval(network.parameters())
}
