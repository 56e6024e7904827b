/**
 * Saving and loading adapters in the formats of mlx-lm (adapters.safetensors) and PEFT (adapter_model.safetensors).
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { ArgumentError, FormatError } from "@lazuli/core/engine"
import { readJson } from "../formats/folder"
import type { Network } from "../models/network"
import { Settings } from "../models/settings"
import { adaptersOf, addAdapters, type LoraLinear } from "./lora"

/** The file format of adapters. */
export type AdapterForm = "mlx" | "peft"

const PREFIX = "base_model.model."
const FILES = { mlx: "adapters.safetensors", peft: "adapter_model.safetensors" } as const

/** The part of a layer's name after the block's number. */
const keyOf = (name: string): string => name.replace(/^.*?\.(?:layers|h)\.\d+\./, "")

/**
 * Saves a network's adapters to a folder.
 * @example
 * const { network } = await load('my-model')
 * addAdapters(network, { rank: 4 })
 * saveAdapters(network, 'my-adapter', 'peft')
 * const other = await load('my-model')
 * loadAdapters(other.network, 'my-adapter')
 * other.network.modules().filter((module) => module instanceof LoraLinear).length // => 4
 */
export function saveAdapters(network: Network, folder: string, form: AdapterForm = "mlx"): void {
  const adapters = adaptersOf(network)
  const [first] = adapters.values()
  if (!first) throw new ArgumentError("saveAdapters", "the network has no adapters")
  const rank = first.loraA.shape[1]
  const keys = [...new Set([...adapters.keys()].map(keyOf))]
  const dropout = first.dropout ? first.dropout.p : 0
  mkdirSync(folder, { recursive: true })
  const arrays: Record<string, mx.Array> = {}
  for (const [name, { loraA, loraB }] of adapters)
    if (form === "mlx") {
      arrays[`${name}.lora_a`] = loraA
      arrays[`${name}.lora_b`] = loraB
    } else {
      arrays[`${PREFIX}${name}.lora_A.weight`] = loraA.T
      arrays[`${PREFIX}${name}.lora_B.weight`] = loraB.T
    }
  mx.saveSafetensors(join(folder, FILES[form]), arrays)
  const blocks = new Set([...adapters.keys()].map((name) => /\.(?:layers|h)\.(\d+)\./.exec(name)?.[1]))
  const config =
    form === "mlx"
      ? {
          fine_tune_type: "lora",
          num_layers: blocks.size,
          lora_parameters: { rank, scale: first.scale, dropout, keys },
        }
      : {
          peft_type: "LORA",
          task_type: "CAUSAL_LM",
          r: rank,
          lora_alpha: first.scale * rank,
          lora_dropout: dropout,
          bias: "none",
          target_modules: [...new Set(keys.map((key) => key.slice(key.lastIndexOf(".") + 1)))],
        }
  writeFileSync(join(folder, "adapter_config.json"), `${JSON.stringify(config, null, 2)}\n`)
}

/**
 * Loads adapters from a folder in mlx-lm's or PEFT's format, and adds them to a network.
 * @throws FormatError if they do not fit the network, or are of another type
 * @example
 * const { network } = await load('my-model')
 * addAdapters(network, { rank: 4 })
 * saveAdapters(network, 'my-adapter')
 * const other = await load('my-model')
 * loadAdapters(other.network, 'my-adapter')
 * other.network.modules().filter((module) => module instanceof LoraLinear).length // => 4
 */
export function loadAdapters(network: Network, folder: string): void {
  const op = "loadAdapters"
  const form = (["mlx", "peft"] as const).find((each) => existsSync(join(folder, FILES[each])))
  if (!form) throw new ArgumentError(op, `${folder} has neither ${FILES.mlx} nor ${FILES.peft}`)
  const config = new Settings(
    readJson(join(folder, "adapter_config.json")),
    join(folder, "adapter_config.json"),
  )
  const arrays = mx.load(join(folder, FILES[form]), "safetensors")
  const pairs = pairsOf(arrays, form)
  const { rank, scale, dropout } = formOf(config, form)
  const before = new Set(adaptersOf(network).keys())
  if (before.size === 0)
    addAdapters(network, { rank, scale, dropout, keys: [...new Set([...pairs.keys()].map(keyOf))] })
  const adapters = adaptersOf(network)
  for (const [name, { a, b }] of pairs) {
    const layer = adapters.get(name)
    if (!layer || !a || !b || !fits(layer, a, b))
      throw new FormatError(op, `${folder}: the adapter for ${JSON.stringify(name)} does not fit the model`)
    layer.loraA = a
    layer.loraB = b
    layer.scale = scale
  }
  for (const [name, layer] of adapters)
    if (!pairs.has(name)) {
      // Disables adapters that are not in the file.
      layer.loraB = mx.zerosLike(layer.loraB)
    }
  mx.eval(network.trainableParameters())
}

const fits = ({ loraA, loraB }: LoraLinear, a: mx.Array, b: mx.Array): boolean =>
  a.ndim === 2 &&
  b.ndim === 2 &&
  a.shape[0] === loraA.shape[0] &&
  a.shape[1] === b.shape[0] &&
  b.shape[1] === loraB.shape[1]

function formOf(config: Settings, form: AdapterForm): { rank: number; scale: number; dropout: number } {
  if (form === "peft") {
    if (config.string("peft_type") !== "LORA" || config.boolean("use_dora", false))
      throw new FormatError("loadAdapters", `${config.source}: only adapters of type LORA are supported`)
    const rank = config.count("r")
    const alpha = config.number("lora_alpha")
    const scale = alpha / (config.boolean("use_rslora", false) ? Math.sqrt(rank) : rank)
    return { rank, scale, dropout: config.number("lora_dropout", 0) }
  }
  if (config.string("fine_tune_type", "lora") !== "lora")
    throw new FormatError("loadAdapters", `${config.source}: only adapters of type lora are supported`)
  const given = config.part("lora_parameters") ?? config
  return { rank: given.count("rank"), scale: given.number("scale"), dropout: given.number("dropout", 0) }
}

function pairsOf(
  arrays: Readonly<Record<string, mx.Array>>,
  form: AdapterForm,
): Map<string, { a?: mx.Array; b?: mx.Array }> {
  const pairs = new Map<string, { a?: mx.Array; b?: mx.Array }>()
  const pattern =
    form === "mlx"
      ? /^(.*)\.lora_([ab])$/
      : /^(?:base_model\.model\.)?(.*)\.lora_([AB])(?:\.default)?\.weight$/
  for (const [name, array] of Object.entries(arrays)) {
    const [, layer, which] = pattern.exec(name) ?? []
    if (!layer) throw new FormatError("loadAdapters", `${JSON.stringify(name)} is not an adapter's weight`)
    const pair = pairs.get(layer) ?? {}
    pair[which.toLowerCase() as "a" | "b"] = form === "mlx" ? array : mx.contiguous(array.T)
    pairs.set(layer, pair)
  }
  return pairs
}
