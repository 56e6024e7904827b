/**
 * `load`: models from folders, GGUF files and the Hugging Face Hub.
 */
import { existsSync, readdirSync, statSync } from "node:fs"
import { basename, join, resolve } from "node:path"
import * as mx from "@lazuli/core"
import { ArgumentError, describe, FormatError } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { CALLBACK, checkKind, FLAG, type Kind, OBJECT, STRING, TEXT } from "../argument-kinds"
import { checkSignal, optionsNamed } from "../arguments"
import type { Family, Network, Weights } from "../models/network"
import { completed, familyOf, networkOf } from "../models/registry"
import { inDtype } from "../models/replaced"
import { type Json, type JsonObject, Settings } from "../models/settings"
import type { Tokenizer } from "../text/tokenizer"
import { eosIds, type Progress, readConfig, readGenerationConfig, readTokenizer, readWeights } from "./folder"
import { readGgufModel } from "./gguf"
import { ggufModels } from "./gguf-parts"
import type { StoredFormat } from "./gguf-stored"
import { download, type HubOptions, hubModel } from "./hub"
import { packedLayers, pathInFiles, weightsOf } from "./packed"
import { readPooling } from "./pooling"
import { finishReplacing } from "./replaced-folder"

/** A network with its tokenizer and config. */
export interface LoadedModel<N extends Network = Network> {
  readonly network: N
  /** Null if the folder has none; prompts must then be token ids. */
  readonly tokenizer: Tokenizer | null
  /** End-of-text tokens; by default the tokenizer's. */
  readonly eosIds?: ReadonlySet<number>
  readonly config: Settings
  /**
   * The folder's generation_config.json, which `save` keeps. Of its values only `eos_token_id` is used: sampling is what the options of
   * `stream` say, with every model.
   */
  readonly generationConfig?: JsonObject
  /** Its name on the Hub, or that of its folder or file. */
  readonly name: string
  /** The folder or file that it was loaded from. */
  readonly source: string
  /** The pooling of embeddings that its files ask for: "mean", "first", "last", or the name of one that `embed` does not support. */
  readonly pooling?: string
  /** For a GGUF file: which types of tensors are held as they are stored, and which were converted. */
  readonly stored?: readonly StoredFormat[]
}

/** Options of {@link load}. */
export interface LoadModelOptions extends HubOptions {
  /** Called as weights are loaded. */
  readonly onProgress?: Progress
  /** Dtype of weights that are not quantized; by default that of the file. */
  readonly dtype?: mx.Dtype
  /** `activations` of `mx.quantizedMatmul` for quantized layers: `'int8'` is faster and less exact than the default, `'exact'`. */
  readonly activations?: mx.ProductActivations
  /** Aborts the download, or the loading, for instance in `onProgress`. */
  readonly signal?: AbortSignal
}

const FLOATING: Kind = {
  expected: "a floating-point dtype",
  accepts: (value) => (value as Partial<mx.Dtype> | null)?.kind === "floating",
}

const checkNames = optionsNamed<LoadModelOptions>({
  revision: STRING,
  hubUrl: TEXT,
  cacheDir: TEXT,
  token: STRING,
  offline: FLAG,
  onProgress: CALLBACK,
  dtype: true,
  activations: true,
  signal: true,
})

/**
 * Loads a model from a folder in Hugging Face format, a GGUF file, or the Hugging Face Hub.
 * @throws ArgumentError if there is no model, or its type is not supported; FormatError for invalid files
 * @example
 * const model = await load('my-model')
 * model.config.string('model_type') // => 'llama'
 */
export async function load(source: string, options: LoadModelOptions = {}): Promise<LoadedModel> {
  if (typeof source !== "string" || source === "")
    throw new ArgumentError("load", `expected a folder, a .gguf file or a name, received ${describe(source)}`)
  checkNames("load", options)
  const { dtype, activations, signal } = options
  checkSignal("load", signal)
  signal?.throwIfAborted()
  if (dtype !== undefined) checkKind("load", "dtype", dtype, FLOATING)
  if (activations !== undefined && !["exact", "int8"].includes(activations))
    throw new ArgumentError("load", `activations must be exact or int8, received ${describe(activations)}`)
  if (!existsSync(source)) recover(source)
  if (!existsSync(source)) {
    const model = hubModel(source)
    if (model) {
      const path = await download(model, options)
      return { ...(await load(path, { ...options, onProgress: undefined })), name: source }
    }
    throw new ArgumentError("load", `${source} is neither a folder, a file nor a name on the Hub`)
  }
  if (!statSync(source).isDirectory()) return loadGguf(source, options)
  const file = ggufIn(source)
  if (file !== null) return { ...loadGguf(file, options), name: nameOf(source) }
  const config = readConfig(source)
  const isQuantized = config.has("quantization")
  const weights = await readWeights(source, options.onProgress, (name, array) => {
    signal?.throwIfAborted()
    return dtype && !(isQuantized && /\.(scales|biases)$/.test(name)) ? inDtype(array, dtype) : array
  })
  signal?.throwIfAborted()
  const network = assemble(config, weights)
  setActivations(network, options.activations)
  const [tokenizer, pooling] = [readTokenizer(source, config), readPooling(source)]
  const ends = new Set(tokenizer?.eosIds ?? eosIds(source, config))
  const generationConfig = readGenerationConfig(source) ?? undefined
  const name = nameOf(source)
  return { network, tokenizer, eosIds: ends, config, generationConfig, name, source, pooling }
}

/**
 * Creates a model with random weights, for training or benchmarks.
 * @param config - as in config.json
 * @param dtype - dtype of the weights; float32 by default
 * @throws ArgumentError for a model_type that is not supported; FormatError for missing values
 * @example
 * const config = { model_type: 'gpt2', vocab_size: 8, n_embd: 4, n_head: 2, n_layer: 1 }
 * fromConfig(config, mx.bfloat16).network.vocabulary // => 8
 */
export function fromConfig(config: JsonObject, dtype: mx.Dtype = mx.float32): LoadedModel {
  checkKind("fromConfig", "the config", config, OBJECT)
  checkKind("fromConfig", "dtype", dtype, FLOATING)
  const settings = new Settings(config, "the config")
  const network = networkOf(familyOf(settings), settings)
  network.setDtype(dtype)
  network.eval()
  // One by one, to free each float32 weight as soon as it is converted.
  for (const [, weight] of mx.treeFlatten(network.parameters()) as [string, mx.Array][]) mx.eval(weight)
  return { network, tokenizer: null, config: settings, name: "config", source: "config" }
}

/** `.` has a name too. */
const nameOf = (source: string): string => basename(resolve(source))

/** Puts a folder in its place that a killed process was about to replace, unless the file system is read-only. */
function recover(source: string): void {
  try {
    finishReplacing(resolve(source))
  } catch {}
}

/** The GGUF file to load of a folder without config.json, null if it has none. @throws ArgumentError if it has several models */
function ggufIn(folder: string): string | null {
  if (existsSync(join(folder, "config.json"))) return null
  const [first, ...others] = ggufModels(readdirSync(folder)).map(([name]) => name)
  if (others.length > 0)
    throw new ArgumentError("load", `${folder} has several GGUF files: ${[first, ...others].join(", ")}`, {
      hint: "Load one of them by its path",
    })
  return first === undefined ? null : join(folder, first)
}

/** Loads a GGUF file. */
function loadGguf(source: string, { dtype, activations, onProgress, signal }: LoadModelOptions): LoadedModel {
  if (!source.endsWith(".gguf"))
    throw new ArgumentError("load", `${source} is neither a folder nor a .gguf file`)
  const read = readGgufModel(source, dtype, onProgress, () => signal?.throwIfAborted())
  const { config, weights, tokenizer, stored, pooling, bytes } = read
  const network = assemble(config, weights)
  setActivations(network, activations)
  onProgress?.(bytes, bytes, source)
  return { network, tokenizer, config, name: nameOf(source), source, stored, pooling }
}

function setActivations(network: Network, activations: mx.ProductActivations = "exact"): void {
  for (const layer of packedLayers(network).values()) layer.activations = activations
}

/** Creates a config's network with these weights. */
function assemble(config: Settings, given: Weights): Network {
  const family = familyOf(config)
  const network = networkOf(family, config)
  const weights = family.sanitize?.(given, completed(family, config)) ?? given
  quantizeAs(network, family, config, weights)
  checkKinds(network, weights)
  network.loadWeights(weights)
  network.eval()
  mx.eval(network.parameters())
  return network
}

/** @throws FormatError for integers in place of floating-point weights */
function checkKinds(network: Network, weights: Weights): void {
  for (const [name, { dtype }] of Object.entries(weightsOf({ network }))) {
    const given = weights[name]?.dtype ?? dtype
    if (dtype.kind === "floating" && given.kind !== "floating")
      throw new FormatError("load", `the weights "${name}" are ${given.name}, not floating-point numbers`)
  }
}

/** Replaces layers with quantized weights, by the config's `quantization`, which may have entries for single layers. */
function quantizeAs(network: Network, family: Family, config: Settings, weights: Weights): void {
  const part = config.part("quantization")
  if (!part) {
    const method = config.part("quantization_config")?.values.quant_method
    if (typeof method !== "string") return
    throw new ArgumentError("load", `weights quantized by ${method} are not supported`, {
      hint: "Load the original model, or a version for MLX or GGUF",
    })
  }
  const formatOf = (given: typeof part): nn.QuantizationOptions => ({
    groupSize: given.optionalCount("group_size"),
    bits: given.optionalCount("bits"),
    mode: given.string("mode", "affine") as mx.QuantizationMode,
  })
  const common = formatOf(part)
  // Formats have the checkpoint's names of layers.
  const named = Object.entries(part.values).map(([name, own]) => [family.layerName?.(name) ?? name, own])
  const formats = new Settings(Object.fromEntries(named) as JsonObject, part.source)
  nn.quantize(network, {
    classPredicate: (path) => {
      const name = pathInFiles(path)
      if (!(`${name}.scales` in weights)) return false
      const own: Json | undefined = formats.values[name]
      return typeof own === "object" && own !== null ? formatOf(formats.part(name)!) : { ...common }
    },
  })
}
