/**
 * `quantize` and `save`.
 */
import { existsSync, mkdirSync, readdirSync, statSync, writeFileSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import * as mx from "@lazuli/core"
import { ArgumentError, describe, FormatError, isPlainObject, resolveFormat } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { CALLBACK, checkKind, POSITIVE } from "../argument-kinds"
import { checkModel, optionsNamed } from "../arguments"
import { SparseFeedForward } from "../models/experts"
import type { Weights } from "../models/network"
import { type JsonObject, Settings } from "../models/settings"
import { type Progress, TEMPLATES_FOLDER } from "./folder"
import { type GgufType, writeGgufModel } from "./gguf-write"
import type { LoadedModel } from "./load"
import { isPacked, type PackedLayer, packedLayers, pathInFiles, weightsOf } from "./packed"
import { POOLING_FOLDER, poolingFiles } from "./pooling"
import { replaceFolder } from "./replaced-folder"

/** Options of {@link quantize}. */
export interface QuantizeModelOptions extends nn.QuantizationOptions {
  /** Selects layers and their formats by name (`model.layers.0.mlp.down_proj`), as in `nn.quantize`. */
  readonly choose?: (name: string) => boolean | nn.QuantizationOptions
}

const checkQuantizing = optionsNamed<QuantizeModelOptions>({
  groupSize: true,
  bits: true,
  mode: true,
  choose: CALLBACK,
})

/** The format that options choose. @throws ArgumentError for one that does not exist */
export const formatFor = ({ groupSize, bits, mode = "affine" }: nn.QuantizationOptions) =>
  resolveFormat("quantize", groupSize, bits, mode)

/** A layer's format, as in config.json. */
const formatOf = ({ groupSize, bits, mode }: PackedLayer): JsonObject => ({
  group_size: groupSize,
  bits,
  mode,
})

/** The format of routers, which are small: with fewer bits, tokens would get other experts. mlx-lm has the same for Qwen 3. */
const ROUTER: nn.QuantizationOptions = { groupSize: 64, bits: 8, mode: "affine" }

const routersOf = (network: nn.Module): ReadonlySet<nn.Module> =>
  new Set(network.modules().flatMap((module) => (module instanceof SparseFeedForward ? module.routers : [])))

/**
 * Quantizes a model's linear layers, embeddings and experts in place. Returns it with an updated config. Routers of experts keep 8 bits,
 * unless `choose` returns another format. Layers whose input size is not a multiple of the group size are skipped.
 * @throws ArgumentError if the model is already quantized, or no layer can be
 * @example
 * const small = quantize(await load('my-model'), { bits: 4 })
 * small.config.part('quantization').values // => { group_size: 64, bits: 4, mode: 'affine' }
 */
export function quantize(model: LoadedModel, options: QuantizeModelOptions = {}): LoadedModel {
  checkModel("quantize", model)
  checkQuantizing("quantize", options)
  const { choose = () => true } = options
  const { groupSize, mode } = formatFor(options)
  const common = { groupSize, bits: options.bits, mode }
  checkWhole("quantize", model)
  const { network } = model
  if (network.modules().some(isPacked))
    throw new ArgumentError("quantize", "the model is already quantized", {
      hint: "Load the original model",
    })
  const routers = routersOf(network)
  nn.quantize(network, {
    classPredicate: (path, module) => {
      const { weight } = module as { weight?: mx.Array }
      if (!("toQuantized" in module) || !weight) return false
      const chosen = choose(pathInFiles(path))
      if (chosen === false) return false
      const own = routers.has(module) ? ROUTER : common
      const format = chosen === true ? own : { ...common, ...chosen }
      return weight.shape[weight.ndim - 1] % (format.groupSize ?? groupSize) === 0 ? format : false
    },
  })
  if (!network.modules().some(isPacked))
    throw new ArgumentError(
      "quantize",
      `no chosen layer's inputs are a multiple of the group size ${groupSize}`,
    )
  mx.eval(network.parameters())
  return { ...model, config: withQuantization(model) }
}

/** @throws ArgumentError for a model with adapters, or of which this process has a part: its config describes another one */
function checkWhole(op: string, model: LoadedModel): void {
  if (Object.keys(weightsOf(model)).some((name) => /\.lora_[ab]$/.test(name)))
    throw new ArgumentError(op, "the model has adapters", { hint: "Fuse adapters first" })
  const isPart = (module: nn.Module): boolean =>
    Object.keys((module as Partial<nn.ShardedParameters>)._shards ?? {}).length > 0
  if (model.network.modules().some(isPart))
    throw new ArgumentError(op, "this process has a part of the model", {
      hint: "Save it before it is sharded, or with saveSharded of @lazuli/distributed/nn",
    })
}

/** The model's config with the formats of its layers. */
function withQuantization({ network, config }: LoadedModel): Settings {
  const layers = [...packedLayers(network)]
  const first = formatOf(layers[0][1])
  const quantization: Record<string, JsonObject[string]> = { ...first }
  for (const [name, layer] of layers) {
    const format = formatOf(layer)
    if (JSON.stringify(format) !== JSON.stringify(first)) quantization[name] = format
  }
  return new Settings({ ...config.values, quantization }, config.source)
}

/** Options of {@link save}. */
export interface SaveOptions {
  /** Maximum size of a weight file in bytes; 5 GB by default. */
  readonly maxShardBytes?: number
  /** Called as weights are written. */
  readonly onProgress?: Progress
  /** Type of matrices in a GGUF file; by default that of the weights. Quantized weights are copied if GGUF has their format. */
  readonly type?: GgufType
}

const checkSaving = optionsNamed<SaveOptions>({
  maxShardBytes: POSITIVE,
  onProgress: CALLBACK,
  type: true,
})

/**
 * Saves a model as a folder for `load` and mlx-lm, or, if the name ends in `.gguf`, as a GGUF file for `load` and llama.cpp. An existing
 * folder or file is replaced only once the new one is complete, and so is the one that a link leads to.
 * @throws FormatError for models that GGUF files cannot represent; ArgumentError for a folder with other files, and for models that are
 * sharded or have adapters that are not fused
 * @example
 * save(await load('my-model'), 'my-model.gguf', { type: 'Q8_0' })
 * const again = await load('my-model.gguf')
 * again.config.string('model_type') // => 'llama'
 */
export function save(model: LoadedModel, place: string, options: SaveOptions = {}): void {
  checkModel("save", model)
  checkSaving("save", options)
  checkPlace(place, options)
  checkWhole("save", model)
  const { maxShardBytes = 5e9, onProgress, type } = options
  if (place.endsWith(".gguf")) {
    writeGgufModel(model, place, type, onProgress)
    return
  }
  const files = filesOf(model)
  replaceFolder(place, (folder) => {
    writeWeights(weightsOf(model), folder, maxShardBytes, onProgress)
    for (const [path, content] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, path)), { recursive: true })
      writeFileSync(join(folder, path), content)
    }
  })
}

/** The dtype of most numbers of a model that are not quantized. */
function dtypeOf(model: LoadedModel): mx.Dtype {
  const packed = packedLayers(model.network)
  const sizes = new Map<mx.Dtype, number>()
  for (const [name, { dtype, size }] of Object.entries(weightsOf(model))) {
    const [, layer, leaf] = /^(?:(.*)\.)?(\w+)$/.exec(name) ?? []
    if (dtype.kind !== "floating" || (packed.has(layer) && leaf !== "bias")) continue
    sizes.set(dtype, (sizes.get(dtype) ?? 0) + size)
  }
  const [first] = [...sizes].sort(([, a], [, b]) => b - a)
  return first?.[0] ?? mx.float32
}

const DTYPE_KEYS = ["torch_dtype", "dtype"]

/** A config, and those within it, with this dtype in place of the one that the weights had before. */
function withDtype(config: JsonObject, { name }: mx.Dtype): JsonObject {
  const written = (values: JsonObject): JsonObject =>
    Object.fromEntries(
      Object.entries(values).map(([key, value]) => {
        if (DTYPE_KEYS.includes(key) && typeof value === "string") return [key, name]
        return [key, key === "text_config" && isPlainObject(value) ? written(value as JsonObject) : value]
      }),
    )
  const known = written(config)
  return DTYPE_KEYS.some((key) => key in known) ? known : { ...known, torch_dtype: name }
}

/** The contents of a folder's files other than weights, by their paths. */
function filesOf(model: LoadedModel): Record<string, string> {
  const { config, tokenizer, pooling, generationConfig } = model
  const values: Record<string, unknown> = { "config.json": withDtype(config.values, dtypeOf(model)) }
  const { files } = tokenizer ?? {}
  if (files) {
    values["tokenizer.json"] = files.tokenizer
    values["tokenizer_config.json"] = files.config
  }
  const ends = files?.eosIds?.length ? { eos_token_id: files.eosIds } : {}
  const generation = { ...ends, ...generationConfig }
  if (Object.keys(generation).length > 0) values["generation_config.json"] = generation
  if (pooling !== undefined) {
    const sizes = config.within("text_config")
    Object.assign(values, poolingFiles(pooling, sizes.count(sizes.has("n_embd") ? "n_embd" : "hidden_size")))
  }
  const texts = Object.entries(values).map(([path, value]) => [path, `${JSON.stringify(value, null, 2)}\n`])
  return {
    ...Object.fromEntries(texts),
    ...(typeof files?.template === "string" ? { "chat_template.jinja": files.template } : {}),
    ...Object.fromEntries(
      Object.entries(files?.templates ?? {}).map(([name, text]) => [templateFile(name), text]),
    ),
  }
}

/** The file of a named chat template. @throws FormatError for a name that is not a file's */
function templateFile(name: string): string {
  if (name !== "" && name === basename(name)) return `${TEMPLATES_FOLDER}/${name}.jinja`
  throw new FormatError("save", `${JSON.stringify(name)} cannot be the name of a chat template's file`)
}

/** @throws ArgumentError unless a model can be saved in this place with these options */
export function checkPlace(folder: string, { maxShardBytes, type }: SaveOptions): void {
  if (typeof folder !== "string" || folder === "")
    throw new ArgumentError("save", `expected a folder or a .gguf file, received ${describe(folder)}`)
  if (maxShardBytes !== undefined) checkKind("save", "maxShardBytes", maxShardBytes, POSITIVE)
  if (folder.endsWith(".gguf")) {
    if (maxShardBytes === undefined) return
    throw new ArgumentError("save", "maxShardBytes is only supported for folders")
  }
  if (type !== undefined) throw new ArgumentError("save", "type is only supported for .gguf files")
  if (isOther(folder))
    throw new ArgumentError("save", `${folder} has other files than a model's, and would be replaced`, {
      hint: "Choose another folder",
    })
}

/** The names of a model's files, as `save` and the Hub have them. */
const MODEL_FILE =
  /^(((generation_)?config|modules|special_tokens_map|added_tokens|vocab|tokenizer\w*)\.json|tokenizer\.model|vocab\.txt|merges\.txt|model.*\.safetensors(\.index\.json)?|.*\.jinja)$/

/** True where something lies that is not a folder with a model's files only. */
const isOther = (folder: string): boolean =>
  existsSync(folder) &&
  !(
    statSync(folder).isDirectory() &&
    readdirSync(folder).every(
      (name) =>
        MODEL_FILE.test(name) ||
        ([POOLING_FOLDER, TEMPLATES_FOLDER].includes(name) && !isOther(join(folder, name))),
    )
  )

function writeWeights(weights: Weights, folder: string, maxBytes: number, onProgress?: Progress): void {
  const shards: Weights[] = [{}]
  let size = 0
  for (const [name, array] of Object.entries(weights)) {
    if (size > 0 && size + array.nbytes > maxBytes) {
      shards.push({})
      size = 0
    }
    shards[shards.length - 1][name] = array
    size += array.nbytes
  }
  const total = Object.values(weights).reduce((sum, array) => sum + array.nbytes, 0)
  const map: Record<string, string> = {}
  let done = 0
  shards.forEach((shard, i) => {
    const at = `${String(i + 1).padStart(5, "0")}-of-${String(shards.length).padStart(5, "0")}`
    const file = shards.length === 1 ? "model.safetensors" : `model-${at}.safetensors`
    mx.saveSafetensors(join(folder, file), shard, { format: "mlx" })
    for (const [name, array] of Object.entries(shard)) {
      map[name] = file
      done += array.nbytes
    }
    onProgress?.(done, total, file)
  })
  if (shards.length === 1) return
  const index = { metadata: { total_size: total }, weight_map: map }
  writeFileSync(join(folder, "model.safetensors.index.json"), `${JSON.stringify(index, null, 2)}\n`)
}
