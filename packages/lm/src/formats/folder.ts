/**
 * Model folders in Hugging Face format: config.json, safetensors weights, and tokenizer files.
 */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs"
import { basename, join } from "node:path"
import type * as mx from "@lazuli/core"
import { ArgumentError, FormatError, isPlainObject, readSafetensors, withFile } from "@lazuli/core/engine"
import type { Weights } from "../models/network"
import { type JsonObject, Settings } from "../models/settings"
import { Tokenizer } from "../text/tokenizer"

/** Called during loading or saving, with bytes done and total. */
export type Progress = (done: number, total: number, name: string) => void

/** Reads any value of a JSON file. @throws FormatError if it is not JSON */
export function readJsonValue(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, "utf8"))
  } catch (cause) {
    throw new FormatError("load", `${file} is not valid JSON`, { cause })
  }
}

/** Reads a JSON file. @throws FormatError if it is not a JSON object */
export function readJson(file: string): JsonObject {
  if (!existsSync(file)) throw new ArgumentError("load", `${file} does not exist`)
  const value = readJsonValue(file)
  if (!isPlainObject(value)) throw new FormatError("load", `${file} must be a JSON object`)
  return value as JsonObject
}

const readIfThere = (file: string): JsonObject | null => (existsSync(file) ? readJson(file) : null)

/** Reads config.json. */
export function readConfig(folder: string): Settings {
  const file = join(folder, "config.json")
  if (!existsSync(file))
    throw new ArgumentError("load", `${folder} has no config.json`, {
      hint: "A model is a folder, a .gguf file or a name on the Hub",
    })
  return new Settings(readJson(file), file)
}

/** The weight files of a folder, in order. */
export function weightFiles(folder: string): string[] {
  const index = readIfThere(join(folder, "model.safetensors.index.json"))
  if (index) {
    const map = index.weight_map
    if (!isPlainObject(map))
      throw new FormatError("load", `${folder}: model.safetensors.index.json has no weight_map`)
    const names = [...new Set(Object.values(map as Record<string, unknown>))].sort()
    return names.map((name) => {
      // Names must not escape the folder.
      if (typeof name !== "string" || name !== basename(name))
        throw new FormatError(
          "load",
          `${folder}: model.safetensors.index.json lists ${JSON.stringify(name)}, which is not a file in the folder`,
        )
      const file = join(folder, name)
      if (!existsSync(file))
        throw new FormatError(
          "load",
          `${folder}: ${name}, listed in model.safetensors.index.json, is missing`,
        )
      return file
    })
  }
  const found = readdirSync(folder).filter((name) => /^(model|weights).*\.safetensors$/.test(name))
  if (found.length === 0)
    throw new ArgumentError("load", `${folder} has no model*.safetensors`, {
      hint: "PyTorch checkpoints (.bin) are not supported, because loading them can run code",
    })
  return found.sort().map((name) => join(folder, name))
}

/** Maximum number of progress reports while reading a file. */
const REPORTS = 200

/** Calls `report` with the bytes done while a file is read. */
export function reportReading(
  file: { readonly size: number; readInto(offset: number, out: Uint8Array): void },
  report: (done: number) => void,
): void {
  const read = file.readInto.bind(file)
  let reported = 0
  file.readInto = (offset, out) => {
    read(offset, out)
    const done = offset + out.length
    if (done - reported < file.size / REPORTS && done < file.size) return
    reported = done
    report(done)
  }
}

/**
 * Reads the weights of a folder.
 * @param take - what is kept of each as soon as it is read
 */
export async function readWeights(
  folder: string,
  onProgress: Progress | undefined,
  take: (name: string, array: mx.Array) => mx.Array,
): Promise<Weights> {
  const files = weightFiles(folder)
  const total = files.reduce((sum, file) => sum + statSync(file).size, 0)
  const weights: Weights = {}
  let done = 0
  onProgress?.(0, total, "")
  for (const file of files) {
    const before = done
    const { arrays } = withFile("load", file, (open) => {
      reportReading(open, (bytes) => onProgress?.(before + bytes, total, basename(file)))
      return readSafetensors(open, take)
    })
    Object.assign(weights, arrays)
    done += statSync(file).size
    onProgress?.(done, total, basename(file))
    // An abort is seen between files.
    await new Promise((resolve) => setImmediate(resolve))
  }
  return weights
}

/** Reads generation_config.json; null if there is none. */
export const readGenerationConfig = (folder: string): JsonObject | null =>
  readIfThere(join(folder, "generation_config.json"))

/** End-of-text tokens from generation_config.json or config.json. */
export function eosIds(folder: string, config: Settings): number[] {
  const given = readGenerationConfig(folder)?.eos_token_id ?? config.values.eos_token_id
  const list: unknown[] = [given ?? []].flat()
  const isId = (id: unknown): id is number => Number.isSafeInteger(id)
  if (list.every(isId)) return list
  throw new FormatError("load", `${folder}: "eos_token_id" must be a token id or a list of them`)
}

/** The folder of chat templates other than the default. */
export const TEMPLATES_FOLDER = "additional_chat_templates"

function readTemplates(folder: string): Record<string, string> {
  const names = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".jinja")) : []
  return Object.fromEntries(
    names.map((name) => [basename(name, ".jinja"), readFileSync(join(folder, name), "utf8")]),
  )
}

/** Reads a folder's tokenizer; null if it has none. */
export function readTokenizer(folder: string, config: Settings): Tokenizer | null {
  const tokenizer = readIfThere(join(folder, "tokenizer.json"))
  if (!tokenizer) return null
  const template = join(folder, "chat_template.jinja")
  return new Tokenizer({
    tokenizer,
    // Older folders have the special tokens in a file of their own.
    config: {
      ...readIfThere(join(folder, "special_tokens_map.json")),
      ...readIfThere(join(folder, "tokenizer_config.json")),
    },
    template: existsSync(template) ? readFileSync(template, "utf8") : null,
    templates: readTemplates(join(folder, TEMPLATES_FOLDER)),
    eosIds: eosIds(folder, config),
  })
}
