/**
 * `load`: a model from a folder, with its network, tokenizer and config.
 */
import { existsSync, statSync } from "node:fs"
import * as mx from "@lazuli/core"
import { ArgumentError, describe } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import type { Network, Weights } from "../models/network"
import { familyOf } from "../models/registry"
import type { Json, Settings } from "../models/settings"
import type { Tokenizer } from "../text/tokenizer"
import { type Progress, readConfig, readTokenizer, readWeights } from "./folder"

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
export interface LoadModelOptions {
  /** Told as weights are read. */
  readonly onProgress?: Progress
  /** The dtype of weights that are not quantized; as they lie by default. */
  readonly dtype?: mx.Dtype
}

/**
 * Loads a model from a folder in the hub's form.
 * @throws ArgumentError for a folder without a model, or of a kind that is not known; FormatError for files that are not what they claim
 */
export async function load(source: string, options: LoadModelOptions = {}): Promise<LoadedModel> {
  if (typeof source !== "string" || source === "")
    throw new ArgumentError("load", `expected a folder, received ${describe(source)}`)
  if (!existsSync(source) || !statSync(source).isDirectory())
    throw new ArgumentError("load", `${source} is no folder`)
  const config = readConfig(source)
  const weights = readWeights(source, options.onProgress)
  const network = assemble(config, weights, options.dtype)
  return { network, tokenizer: readTokenizer(source, config), config, source }
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

/** `model.layers.0.selfAttn.qProj` as files name it. */
export const pathInFiles = (path: string): string =>
  path.replace(
    /([a-z0-9])([A-Z])/g,
    (_, before: string, letter: string) => `${before}_${letter.toLowerCase()}`,
  )

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
