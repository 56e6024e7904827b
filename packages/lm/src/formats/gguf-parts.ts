/**
 * The files of a GGUF model: one, or several parts, of which the first has the metadata. What a part is, its metadata and its name say.
 */
import { existsSync, statSync } from "node:fs"
import { basename } from "node:path"
import { asPath, type GgufHeader, readGgufHeader, withFile } from "@lazuli/core/engine"
import { blockFormats } from "./gguf-blocks"
import { GgufMetadata } from "./gguf-metadata"

/** True for GGUF files of language models: others beside them encode pictures. */
const isGguf = (path: string): boolean => path.endsWith(".gguf") && !/(^|\/)mmproj/.test(path)

/** All parts of a model by the name of one, in order; a name that is not a part's is alone. */
function namesOf(file: string): readonly string[] {
  const [, name, , count] = /^(.*-)(\d{5})-of-(\d{5})\.gguf$/s.exec(file) ?? []
  if (!(Number(count) > 1)) return [file]
  const place = (at: number): string => String(at).padStart(5, "0")
  return Array.from({ length: Number(count) }, (_, i) => `${name}${place(i + 1)}-of-${count}.gguf`)
}

/** The GGUF models of a folder or repository: the names of each one's files, of which some may be missing. */
export function ggufModels(paths: readonly string[]): (readonly string[])[] {
  const models = paths.filter(isGguf).map(namesOf)
  return [...new Map(models.map((names) => [names[0], names])).values()]
}

/** A file of a model. */
interface Part extends GgufHeader {
  readonly path: string
  readonly bytes: number
}

function readPart(path: string): Part {
  const header = withFile("load", path, (file) => readGgufHeader(file, blockFormats))
  return { ...header, path, bytes: statSync(path).size }
}

/**
 * Reads the headers of a model's files, of which one is given.
 * @throws FormatError if a part is missing, or is not what its name says
 */
export function readParts(file: string): readonly Part[] {
  const given = readPart(asPath("load", file))
  const metadata = new GgufMetadata(given.metadata, file)
  const count = metadata.number("split.count") ?? 1
  if (count <= 1) return [given]
  const names = namesOf(given.path)
  if (names.length !== count)
    throw metadata.error(
      `the file is one of ${count} parts of a model, which its name does not say`,
      `Name the parts as NAME-00001-of-${String(count).padStart(5, "0")}.gguf`,
    )
  const missing = names.find((name) => !existsSync(name))
  if (missing !== undefined)
    throw metadata.error(`${basename(missing)}, another of the ${count} parts of the model, is missing`)
  const parts = names.map((name) => (name === given.path ? given : readPart(name)))
  parts.forEach((part, i) => {
    const own = new GgufMetadata(part.metadata, part.path)
    const [at, of] = [own.number("split.no"), own.number("split.count")]
    if (at !== i || of !== count)
      throw own.error(
        `the file is part ${(at ?? 0) + 1} of ${of ?? 1}, not ${i + 1} of ${count} as its name says`,
      )
  })
  const total = new GgufMetadata(parts[0].metadata, parts[0].path).number("split.tensors.count")
  const found = parts.reduce((sum, { tensors }) => sum + tensors.length, 0)
  if (total !== null && total !== found)
    throw metadata.error(`the parts have ${found} tensors in all, not ${total}`)
  return parts
}
