/**
 * `load`: a model from a folder, a GGUF file or the hub, with its network, tokenizer and config.
 */
import { existsSync, statSync } from "node:fs"
import * as mx from "@lazuli/core"
import { ArgumentError, describe } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import type { Network, Weights } from "../models/network"
import { familyOf } from "../models/registry"
import { type Json, type JsonObject, Settings } from "../models/settings"
import type { Tokenizer } from "../text/tokenizer"
import { type Progress, readConfig, readTokenizer, readWeights } from "./folder"
import { readGgufModel } from "./gguf"
import { download, type HubOptions, isHubName } from "./hub"
import { packedLayers, pathInFiles } from "./packed"

/** A network and what is needed to use it. */
export interface LoadedModel<N extends Network = Network> {
  readonly network: N
  /** Null where the folder has none: prompts are then tokens. */
  readonly tokenizer: Tokenizer | null
  readonly config: Settings
  /** The folder or file that it came from. */
  readonly source: string
}

/** Options of {@link load}. */
export interface LoadModelOptions extends HubOptions {
  /** Told as weights are read. */
  readonly onProgress?: Progress
  /** The dtype of weights that are not quantized; as they lie by default. */
  readonly dtype?: mx.Dtype
  /** The rounding of what meets packed weights, as `mx.quantizedMatmul` takes it: `'int8'` is faster and less exact. None by default. */
  readonly activations?: mx.ProductActivations
}

/**
 * Loads a model from a folder in the hub's form, from a GGUF file, or by its name on the hub.
 * @throws ArgumentError for a folder without a model, or of a kind that is not known; FormatError for files that are not what they claim
 * @example
 * const model = await load('my-model')
 * model.config.string('model_type') // => 'llama'
 */
export async function load(source: string, options: LoadModelOptions = {}): Promise<LoadedModel> {
  if (typeof source !== "string" || source === "")
    throw new ArgumentError("load", `expected a folder, received ${describe(source)}`)
  if (!existsSync(source)) {
    if (isHubName(source)) return load(await download(source, options), { ...options, onProgress: undefined })
    throw new ArgumentError("load", `${source} is neither a folder or file nor a name on the hub`)
  }
  if (!statSync(source).isDirectory()) return loadGguf(source, options)
  const config = readConfig(source)
  const weights = readWeights(source, options.onProgress)
  const network = assemble(config, weights, options.dtype)
  setActivations(network, options.activations)
  return { network, tokenizer: readTokenizer(source, config), config, source }
}

/**
 * A model with random weights, of a config as config.json has it: to be trained, or to measure with.
 * @param dtype - that of its weights; float32 by default
 * @throws ArgumentError for a model_type that is not known; FormatError for a config that lacks something
 * @example
 * const config = { model_type: 'gpt2', vocab_size: 8, n_embd: 4, n_head: 2, n_layer: 1 }
 * fromConfig(config, mx.bfloat16).network.vocabulary // => 8
 */
export function fromConfig(config: JsonObject, dtype: mx.Dtype = mx.float32): LoadedModel {
  const settings = new Settings(config, "the config")
  const network = familyOf(settings).make(settings)
  network.setDtype(dtype)
  network.eval()
  // One after another: a weight in float32 goes as soon as it is what it becomes.
  for (const [, weight] of mx.treeFlatten(network.parameters()) as [string, mx.Array][]) mx.eval(weight)
  return { network, tokenizer: null, config: settings, source: "config" }
}

/** A model from a GGUF file, whose weights have one dtype: that of the option, or else that of its largest tensors. */
function loadGguf(source: string, { dtype, activations, onProgress }: LoadModelOptions): LoadedModel {
  if (!source.endsWith(".gguf"))
    throw new ArgumentError("load", `${source} is neither a folder nor a .gguf file`)
  const total = statSync(source).size
  onProgress?.(0, total, source)
  const { config, weights, tokenizer } = readGgufModel(source, onProgress)
  const all = dtype ?? commonDtype(weights)
  for (const [name, array] of Object.entries(weights))
    if (array.dtype.kind === "floating") weights[name] = array.astype(all)
  const network = assemble(config, weights)
  setActivations(network, activations)
  onProgress?.(total, total, source)
  return { network, tokenizer, config, source }
}

function setActivations(network: Network, activations: mx.ProductActivations = "exact"): void {
  for (const layer of packedLayers(network).values()) layer.activations = activations
}

/** Files have norms in float32 whatever the others are, which decide: 16 bits as they lie, or where weights are packed. */
function commonDtype(weights: Weights): mx.Dtype {
  const all = Object.entries(weights)
  if (all.some(([, { dtype }]) => dtype === mx.bfloat16)) return mx.bfloat16
  return all.some(([name, { dtype }]) => dtype === mx.float16 || name.endsWith(".scales"))
    ? mx.float16
    : mx.float32
}

/** A network of a config with these weights. */
export function assemble(config: Settings, given: Weights, dtype?: mx.Dtype): Network {
  const family = familyOf(config)
  const network = family.make(config)
  const weights = family.sanitize?.(given, config) ?? given
  quantizeAs(network, config, weights)
  for (const [name, array] of Object.entries(weights))
    if (dtype && array.dtype.kind === "floating" && !isPacked(name, weights))
      weights[name] = array.astype(dtype)
  network.loadWeights(weights)
  network.eval()
  mx.eval(network.parameters())
  return network
}

/** True for the scales and biases of a quantized weight. */
const isPacked = (name: string, weights: Weights): boolean =>
  /\.(scales|biases)$/.test(name) && `${name.replace(/\.\w+$/, "")}.weight` in weights

/** Makes the layers quantized whose weights are, as the config's `quantization` says: for all, and by name. */
function quantizeAs(network: Network, config: Settings, weights: Weights): void {
  const part = config.part("quantization") ?? null
  if (!part) return
  const formatOf = (given: typeof part): nn.QuantizationOptions => ({
    groupSize: given.count("group_size", 64),
    bits: given.count("bits", 4),
    mode: given.string("mode", "affine") as mx.QuantizationMode,
  })
  const common = formatOf(part)
  nn.quantize(network, {
    classPredicate: (path) => {
      const name = pathInFiles(path)
      if (!(`${name}.scales` in weights)) return false
      const own: Json | undefined = part.values[name]
      return typeof own === "object" && own !== null ? formatOf(part.part(name)!) : { ...common }
    },
  })
}
