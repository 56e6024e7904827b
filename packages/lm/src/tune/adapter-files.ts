/**
 * Saving and loading adapters in the formats of mlx-lm (adapters.safetensors) and PEFT (adapter_model.safetensors).
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { ArgumentError, FormatError } from "@lazuli/core/engine"
import { checkKind, type Kind, TEXT } from "../argument-kinds"
import { checkNetwork } from "../arguments"
import { readJson } from "../formats/folder"
import { pathInFiles } from "../formats/packed"
import { CausalNetwork, type Network } from "../models/network"
import { Settings } from "../models/settings"
import { adaptableLayers, adaptersOf, blockCount, blockOf, placeAdapters } from "./lora"
import { type Adaptable, adapterShapes, isLinear, LoraLinear } from "./lora-layers"

/** The file format of adapters. */
export type AdapterForm = "mlx" | "peft"

const FORM: Kind = { expected: "mlx or peft", accepts: (value) => value === "mlx" || value === "peft" }

const PREFIX = "base_model.model."
const FILES = { mlx: "adapters.safetensors", peft: "adapter_model.safetensors" } as const

/** The part of a layer's name after the block's number. */
const keyOf = (name: string): string => name.replace(/^(?:.*?\.)?(?:layers|h)\.\d+\./, "")
const lastOf = (name: string): string => name.slice(name.lastIndexOf(".") + 1)

/** PEFT's name of a layer. */
const peftName = ({ peft }: Network, name: string): string => peft?.nameOf(name) ?? name

/** True for PEFT's name of a layer that the network does not need. */
const isUnused = ({ peft }: Network, name: string): boolean =>
  peft?.unused?.includes(peft.plain?.(name) ?? name) ?? false

/** The names of a network's linear layers. */
const linearNames = (network: Network): string[] =>
  [...adaptableLayers(network)].flatMap(([name, { layer }]) => (isLinear(layer) ? [name] : []))

/** The layer's name of a name in PEFT's files, which may be that of a model with another head. */
function ownNames(network: Network): (name: string) => string {
  const { peft } = network
  const plain = (name: string): string => peft?.plain?.(name) ?? name
  const own = new Map(linearNames(network).map((name) => [plain(peftName(network, name)), name]))
  return (name) => own.get(plain(name)) ?? name
}

/**
 * PEFT's `target_modules`: the ends of names, or whole names if other layers have the same ends, which would get adapters too, without
 * weights in the file: linear ones, experts, and those that this network does not need.
 */
function targetsOf(network: Network, adapted: ReadonlySet<string>): string[] {
  const names = (list: readonly string[]): string[] => list.map((name) => peftName(network, name))
  const layers = network.namedModules().map(([path]) => pathInFiles(path))
  const unadapted = names(layers.filter((name) => !adapted.has(name)))
  const others = new Set([...unadapted, ...(network.peft?.unused ?? [])].map(lastOf))
  const own = names([...adapted])
  return own.some((name) => others.has(lastOf(name))) ? own : [...new Set(own.map(lastOf))]
}

/** An array with zeros after its elements, up to a size along an axis. */
function widened(x: mx.Array, axis: number, size: number): mx.Array {
  const missing = size - x.shape[axis]
  if (missing === 0) return x
  return mx.pad(
    x,
    x.shape.map((_, i) => [0, i === axis ? missing : 0]),
  )
}

/**
 * Saves a network's adapters to a folder. The files have one rank and scale: those of layers with others are expressed by them.
 * @example
 * const { network } = await load('my-model')
 * addAdapters(network, { rank: 4 })
 * saveAdapters(network, 'my-adapter', 'peft')
 * const other = await load('my-model')
 * loadAdapters(other.network, 'my-adapter')
 * other.network.modules().filter((module) => module instanceof LoraLinear).length // => 4
 */
export function saveAdapters(network: Network, folder: string, form: AdapterForm = "mlx"): void {
  checkNetwork("saveAdapters", network)
  checkKind("saveAdapters", "the folder", folder, TEXT)
  checkKind("saveAdapters", "the form", form, FORM)
  const adapters = adaptersOf(network)
  const [first] = adapters.values()
  if (!first) throw new ArgumentError("saveAdapters", "the network has no adapters")
  if (form === "peft")
    for (const [name, adapter] of adapters)
      if (!(adapter instanceof LoraLinear))
        throw new ArgumentError(
          "saveAdapters",
          `adapters of experts and embeddings, such as ${name}, are not supported in PEFT's format`,
          { hint: "Save them in mlx-lm's" },
        )
  const rank = Math.max(...Array.from(adapters.values(), (adapter) => adapter.rank))
  const keys = [...new Set([...adapters.keys()].map(keyOf))]
  const common = first.scale || 1
  const dropout = first.dropout ? first.dropout.p : 0
  mkdirSync(folder, { recursive: true })
  const arrays: Record<string, mx.Array> = {}
  for (const [name, { loraA, loraB, scale, rankAxes }] of adapters) {
    const a = widened(loraA, rankAxes[0], rank)
    const wide = widened(loraB, rankAxes[1], rank)
    const b = scale === common ? wide : wide.multiply(scale / common)
    if (form === "mlx") {
      arrays[`${name}.lora_a`] = a
      arrays[`${name}.lora_b`] = b
    } else {
      arrays[`${PREFIX}${peftName(network, name)}.lora_A.weight`] = a.T
      arrays[`${PREFIX}${peftName(network, name)}.lora_B.weight`] = b.T
    }
  }
  mx.saveSafetensors(join(folder, FILES[form]), arrays)
  const blocks = [...adapters.keys()].map(blockOf).filter((block) => block !== null)
  const count = blockCount(network)
  const config =
    form === "mlx"
      ? {
          fine_tune_type: "lora",
          // mlx-lm looks for adapters in this many blocks at the end.
          num_layers: count - Math.min(count - 1, ...blocks),
          lora_parameters: { rank, scale: common, dropout, keys },
        }
      : {
          peft_type: "LORA",
          // PEFT's task of classifiers has a head in the file.
          task_type:
            network instanceof CausalNetwork ? "CAUSAL_LM" : network.scores ? null : "FEATURE_EXTRACTION",
          r: rank,
          lora_alpha: common * rank,
          lora_dropout: dropout,
          bias: "none",
          fan_in_fan_out: network.peft?.isTransposed ?? false,
          target_modules: targetsOf(network, new Set(adapters.keys())),
        }
  writeFileSync(join(folder, "adapter_config.json"), `${JSON.stringify(config, null, 2)}\n`)
}

/**
 * Loads adapters from a folder in mlx-lm's or PEFT's format, and adds them to a network, in place of those that it has.
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
  checkNetwork(op, network)
  checkKind(op, "the folder", folder, TEXT)
  const forms = (["mlx", "peft"] as const).filter((each) => existsSync(join(folder, FILES[each])))
  if (forms.length === 0) throw new ArgumentError(op, `${folder} has neither ${FILES.mlx} nor ${FILES.peft}`)
  const config = new Settings(
    readJson(join(folder, "adapter_config.json")),
    join(folder, "adapter_config.json"),
  )
  // The config is that of the form that was saved last.
  const form = forms.find((each) => (each === "peft") === config.has("peft_type")) ?? forms[0]
  const arrays = mx.load(join(folder, FILES[form]), "safetensors")
  const pairs = pairsOf(arrays, form, form === "peft" ? ownNames(network) : (name) => name)
  const { dropout, layer: formOfLayer } = formOf(config, form, network)
  const layers = adaptableLayers(network)
  for (const name of pairs.keys()) if (isUnused(network, name)) pairs.delete(name)
  const loaded = [...pairs].map(([name, { a, b }]) => {
    const numbers = { ...formOfLayer(name), dropout }
    const layer = layers.get(name)?.layer
    if (form === "peft" && /\bexperts\b/.test(name))
      throw new FormatError(
        op,
        `${folder}: adapters of experts, such as ${name}, are not supported in PEFT's format`,
      )
    if (!layer || !a || !b || !fits(layer, numbers.rank, a, b))
      throw new FormatError(op, `${folder}: the adapter for ${JSON.stringify(name)} does not fit the model`)
    return { name, a, b, numbers }
  })
  placeAdapters(network, new Map(loaded.map(({ name, numbers }) => [name, numbers])))
  const adapters = adaptersOf(network)
  for (const { name, a, b } of loaded) Object.assign(adapters.get(name)!, { loraA: a, loraB: b })
  mx.eval(network.trainableParameters())
}

const sameShape = (array: mx.Array, shape: readonly number[]): boolean =>
  array.ndim === shape.length && array.shape.every((size, i) => size === shape[i])

function fits(layer: Adaptable, rank: number, a: mx.Array, b: mx.Array): boolean {
  const [ofA, ofB] = adapterShapes(layer, rank)
  return sameShape(a, ofA) && sameShape(b, ofB)
}

/** An adapter's rank and scale. */
interface LayerForm {
  readonly rank: number
  readonly scale: number
}

/** A file's dropout, and the rank and scale of each layer. */
interface FileForm {
  readonly dropout: number
  layer(name: string): LayerForm
}

/** Initializations after which PEFT changes the model's own weights, so that its files need that model. */
const CHANGES_BASE = /^(pissa|olora|corda|loftq)/i

function peftForm(config: Settings, network: Network): FileForm {
  const refuse = (what: string): never => {
    throw new FormatError("loadAdapters", `${config.source}: ${what} is not supported`)
  }
  const { values } = config
  if (config.string("peft_type") !== "LORA") refuse(`"peft_type" ${JSON.stringify(values.peft_type)}`)
  if (CHANGES_BASE.test(String(values.init_lora_weights)))
    refuse(`"init_lora_weights" ${JSON.stringify(values.init_lora_weights)}`)
  if (config.string("bias", "none") !== "none") refuse(`"bias" ${JSON.stringify(values.bias)}`)
  for (const key of OTHER_KINDS) {
    const value = values[key] ?? false
    if (value !== false && !(Array.isArray(value) && value.length === 0)) refuse(`"${key}"`)
  }
  const rank = config.count("r")
  const alpha = config.number("lora_alpha")
  const [ranks, alphas] = [patternsOf(config, "rank_pattern"), patternsOf(config, "alpha_pattern")]
  const rootScale = config.boolean("use_rslora", false)
  const layer = (name: string): LayerForm => {
    const theirs = peftName(network, name)
    const own = ranks(theirs) ?? rank
    return { rank: own, scale: (alphas(theirs) ?? alpha) / (rootScale ? Math.sqrt(own) : own) }
  }
  return { dropout: config.number("lora_dropout", 0), layer }
}

/** Options of PEFT that add or replace weights, or change their use. */
const OTHER_KINDS = [
  "use_dora",
  "modules_to_save",
  "lora_bias",
  "layer_replication",
  "trainable_token_indices",
  "target_parameters",
  "alora_invocation_tokens",
  "use_qalora",
] as const

/** The value of a config's first pattern that matches the end of a layer's name. */
function patternsOf(config: Settings, key: string): (name: string) => number | null {
  const part = config.part(key)
  const patterns = Object.keys(part?.values ?? {}).map((pattern) => {
    try {
      return { pattern, matches: new RegExp(`^(?:.*\\.)?(?:${pattern})$`) }
    } catch (cause) {
      throw new FormatError("loadAdapters", `${config.source}: "${key}" has the invalid pattern ${pattern}`, {
        cause,
      })
    }
  })
  return (name) => {
    const found = patterns.find(({ matches }) => matches.test(name))
    return found && part ? part.positive(found.pattern) : null
  }
}

function formOf(config: Settings, form: AdapterForm, network: Network): FileForm {
  if (form === "peft") return peftForm(config, network)
  if (config.string("fine_tune_type", "lora") !== "lora")
    throw new FormatError("loadAdapters", `${config.source}: only adapters of type lora are supported`)
  const given = config.part("lora_parameters") ?? config
  const all = { rank: given.count("rank"), scale: given.number("scale") }
  return { dropout: given.number("dropout", 0), layer: () => all }
}

function pairsOf(
  arrays: Readonly<Record<string, mx.Array>>,
  form: AdapterForm,
  ownName: (name: string) => string,
): Map<string, { a?: mx.Array; b?: mx.Array }> {
  const pairs = new Map<string, { a?: mx.Array; b?: mx.Array }>()
  const pattern =
    form === "mlx"
      ? /^(.*)\.lora_([ab])$/
      : /^(?:base_model\.model\.)?(.*)\.lora_([AB])(?:\.default)?\.weight$/
  for (const [name, array] of Object.entries(arrays)) {
    const [, given, which] = pattern.exec(name) ?? []
    if (!given)
      throw new FormatError(
        "loadAdapters",
        /lora_embedding_[AB]$/.test(name)
          ? `adapters of embeddings, such as ${name}, are not supported in PEFT's format`
          : `${JSON.stringify(name)} is not an adapter's weight`,
      )
    const layer = ownName(given)
    const pair = pairs.get(layer) ?? {}
    pair[which.toLowerCase() as "a" | "b"] = form === "mlx" ? array : mx.contiguous(array.T)
    pairs.set(layer, pair)
  }
  return pairs
}
