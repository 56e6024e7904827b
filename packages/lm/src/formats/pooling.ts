/**
 * The way an embedder's folder says that states become an embedding, in sentence-transformers' format: modules.json lists the steps.
 */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { ArgumentError, FormatError, isPlainObject } from "@lazuli/core/engine"
import { readJson, readJsonValue } from "./folder"

/** Poolings that `embed` knows, by the names of their settings. */
const POOLINGS: Readonly<Record<string, string>> = {
  pooling_mode_mean_tokens: "mean",
  pooling_mode_cls_token: "first",
  pooling_mode_lasttoken: "last",
}
/** The folder of the pooling's settings, as `save` has it. */
export const POOLING_FOLDER = "1_Pooling"
/** Steps of which `embed` computes the like. */
const STEPS = /\.(Transformer|Pooling|Normalize)$/

/** The pooling that a folder asks for, or the name of what is not supported; undefined if it says nothing. */
export function readPooling(folder: string): string | undefined {
  const list = join(folder, "modules.json")
  if (!existsSync(list)) return undefined
  const steps = readJsonValue(list)
  if (!Array.isArray(steps)) throw new FormatError("load", `${list} must be a list`)
  let pooling: string | undefined
  for (const step of steps as unknown[]) {
    const { type, path } = isPlainObject(step) ? (step as Record<string, unknown>) : {}
    if (typeof type !== "string" || typeof path !== "string")
      throw new FormatError("load", `${list} must list a type and a path for each step`)
    if (!STEPS.test(type)) return type
    if (!type.endsWith(".Pooling")) continue
    // Paths must not escape the folder.
    if (!/^\w+$/.test(path)) throw new FormatError("load", `${list} lists ${JSON.stringify(path)}`)
    const settings = readJson(join(folder, path, "config.json"))
    const modes = Object.keys(settings).filter(
      (key) => key.startsWith("pooling_mode_") && settings[key] === true,
    )
    pooling = modes.length === 1 ? (POOLINGS[modes[0]] ?? modes[0]) : modes.join(" and ")
  }
  return pooling
}

/**
 * The files of a folder, by their paths, whose embeddings have this pooling.
 * @param size - number of features of an embedding
 * @throws ArgumentError for one that `embed` does not support
 */
export function poolingFiles(pooling: string, size: number): Record<string, unknown> {
  if (!Object.values(POOLINGS).includes(pooling))
    throw new ArgumentError("save", `embeddings by ${pooling} are not supported`, {
      hint: "Save { ...model, pooling: undefined }, which says nothing of embeddings",
    })
  const modes = Object.entries(POOLINGS).map(([key, name]) => [key, name === pooling])
  const steps = Object.entries({ Transformer: "", Pooling: POOLING_FOLDER, Normalize: "2_Normalize" })
  return {
    "modules.json": steps.map(([name, path], idx) => ({
      idx,
      name: String(idx),
      path,
      type: `sentence_transformers.models.${name}`,
    })),
    [`${POOLING_FOLDER}/config.json`]: { word_embedding_dimension: size, ...Object.fromEntries(modes) },
  }
}
