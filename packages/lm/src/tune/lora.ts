/**
 * Adding low-rank adapters to a network, and merging them into its weights.
 */
import * as mx from "@lazuli/core"
import { ArgumentError } from "@lazuli/core/engine"
import type * as nn from "@lazuli/nn"
import { COUNT, FINITE, FLAG, FRACTION, STRINGS } from "../argument-kinds"
import { checkNetwork, optionsNamed } from "../arguments"
import { isPacked, pathInFiles } from "../formats/packed"
import { CausalNetwork, type Network } from "../models/network"
import { type Adaptable, Adapter, adapted, isAdaptable, weightOf } from "./lora-layers"

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
  /**
   * Layers to adapt, by the ends of their names; by default query and value projections. Those of experts are `switch_mlp.gate_proj`,
   * `switch_mlp.up_proj` and `switch_mlp.down_proj`. Layers outside of blocks need their whole names: `lm_head`, `model.embed_tokens`.
   */
  readonly keys?: readonly string[]
}

const checkNames = optionsNamed<LoraOptions>({
  rank: COUNT,
  scale: FINITE,
  dropout: FRACTION,
  layers: COUNT,
  keys: STRINGS,
})

/** @throws ArgumentError for unknown options, and those out of range */
export const checkLora = (options: LoraOptions): void => checkNames("addAdapters", options)

const KEYS = [
  "self_attn.q_proj",
  "self_attn.v_proj",
  "self_attn.qkv_proj",
  "attn.c_attn",
  "attention.query",
  "attention.value",
]

/** The dtype of a network's norms, or else of its other weights that are not quantized. */
function denseDtype(network: Network): mx.Dtype {
  const weights = mx.treeFlatten(network.parameters()) as [string, mx.Array][]
  const dense = weights.filter(([path, { dtype }]) => dtype.kind === "floating" && !/lora[AB]$/.test(path))
  return (dense.find(([path]) => /norm/i.test(path)) ?? dense[0])?.[1].dtype ?? mx.bfloat16
}

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

/** The number of blocks that a network has. */
export const blockCount = (network: Network): number =>
  1 + Math.max(-1, ...network.namedModules().map(([path]) => blockOf(pathInFiles(path)) ?? -1))

/**
 * Freezes a network, and adds adapters to its layers. Returns the names of the layers in files.
 * @throws ArgumentError for options out of range, or if no layer is selected
 * @example
 * const { network } = await load('my-model')
 * addAdapters(network, { rank: 4, layers: 1 }) // => ['model.layers.1.self_attn.v_proj', 'model.layers.1.self_attn.q_proj']
 */
export function addAdapters(network: Network, options: LoraOptions = {}): string[] {
  checkNetwork("addAdapters", network)
  checkLora(options)
  const { rank = 8, scale = 20, dropout = 0, layers, keys = KEYS } = options
  if (adaptersOf(network).size > 0)
    throw new ArgumentError("addAdapters", "the network has adapters", {
      hint: "Pass all keys in one call, or fuse the adapters first",
    })
  const from = layers === undefined ? 0 : blockCount(network) - layers
  const names = [...adaptableLayers(network).keys()].filter((name) => {
    const block = blockOf(name)
    // Layers outside of blocks, such as heads, are named in full.
    if (block === null) return network instanceof CausalNetwork && keys.includes(name)
    return block >= from && keys.some((key) => name === key || name.endsWith(`.${key}`))
  })
  if (names.length === 0)
    throw new ArgumentError("addAdapters", `no layer's name ends in ${keys.join(", ")}`, {
      hint: "keys are ends of names, such as self_attn.q_proj",
    })
  placeAdapters(network, new Map(names.map((name) => [name, { rank, scale, dropout }])))
  return names
}

/** An adapter's numbers. */
export interface AdapterNumbers {
  readonly rank: number
  readonly scale: number
  readonly dropout: number
}

/** Freezes a network, and adds adapters to these layers in place of those that it has. */
export function placeAdapters(network: Network, numbers: ReadonlyMap<string, AdapterNumbers>): void {
  const layers = adaptableLayers(network)
  const placed = new Map<string, nn.Module>()
  for (const { path, layer } of layers.values()) placed.set(path, layer)
  for (const [name, { rank, scale, dropout }] of numbers) {
    const { path, layer } = layers.get(name)!
    placed.set(path, adapted(layer, rank, scale, dropout))
  }
  network.freeze()
  replaceModules(network, placed)
  // New layers would be in training mode, where dropout is random.
  network.train(network.training)
}

/** The layers of a network that have adapters or may have them, by their names in files. */
export function adaptableLayers(network: Network): Map<string, { path: string; layer: Adaptable }> {
  const found = new Map<string, { path: string; layer: Adaptable }>()
  const modules = network.namedModules()
  const inner = new Set(modules.flatMap(([, module]) => (module instanceof Adapter ? [module.layer] : [])))
  for (const [path, module] of modules) {
    const layer = module instanceof Adapter ? module.layer : module
    if (isAdaptable(layer) && !inner.has(module as Adaptable)) found.set(pathInFiles(path), { path, layer })
  }
  return found
}

/** The adapters of a network, by their layers' names in files. */
export function adaptersOf(network: Network): Map<string, Adapter> {
  const found = network.namedModules().filter((pair): pair is [string, Adapter] => pair[1] instanceof Adapter)
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
  const adapters = network
    .namedModules()
    .filter((pair): pair is [string, Adapter] => pair[1] instanceof Adapter)
  const fused = new Map<string, nn.Module>()
  const dtype = denseDtype(network)
  let [added, missed, dequantized] = [0, 0, 0]
  for (const [path, adapter] of adapters) {
    const { layer, delta } = adapter
    const change = delta.square().sum().item() as number
    // A layer that is not changed keeps its codes.
    const made = change === 0 ? layer : adapter.fused(options.requantize, dtype)
    fused.set(path, made)
    if (change === 0) continue
    if (isPacked(layer) && !isPacked(made)) dequantized++
    const error = weightOf(made).subtract(weightOf(layer)).subtract(delta)
    added += change
    missed += error.square().sum().item() as number
  }
  replaceModules(network, fused)
  mx.eval(network.parameters())
  return { layers: adapters.length, dequantized, lost: added === 0 ? 0 : Math.sqrt(missed / added) }
}
