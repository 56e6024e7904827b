/**
 * Models from the Hugging Face Hub: downloads to the Hub's own cache by `@huggingface/hub`, resumed after interruptions and verified by
 * checksums. Cached models load offline.
 */
import { createHash } from "node:crypto"
import {
  createReadStream,
  createWriteStream,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from "node:fs"
import { mkdir, rename, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { Readable, Transform } from "node:stream"
import { pipeline } from "node:stream/promises"
import type { ReadableStream } from "node:stream/web"
import {
  downloadFile,
  downloadFileToCacheDir,
  getHFHubCachePath,
  getRepoFolderName,
  type ListFileEntry,
  listFiles,
  modelInfo,
} from "@huggingface/hub"
import { ArgumentError, describe, FormatError } from "@lazuli/core/engine"
import { type Progress, weightFiles } from "./folder"
import { ggufModels } from "./gguf-parts"

/** Options of models on the Hub. */
export interface HubOptions {
  /** A branch, a tag or a commit; `main` by default. */
  readonly revision?: string
  /** The Hub's URL; by default HF_ENDPOINT. */
  readonly hubUrl?: string
  /** The cache folder; by default that of Hugging Face's tools. */
  readonly cacheDir?: string
  /** Access token for private and gated models; by default HF_TOKEN. */
  readonly token?: string
  /** Use only the cache; true by default with HF_HUB_OFFLINE=1. */
  readonly offline?: boolean
}

/** A model on the Hub: a repository's name, and the GGUF file of it that is meant, if the name goes on with one. */
interface HubModel {
  readonly name: string
  readonly file: string | null
}

/** The model that a name means: `owner/name`, or `owner/name/file.gguf`; null if it is not of this form. */
export function hubModel(source: string): HubModel | null {
  const [, name, file = null] = /^(\w[\w.-]*\/\w[\w.-]*)(?:\/(\w[^\\\s\p{Cc}]*\.gguf))?$/u.exec(source) ?? []
  return name === undefined || source.includes("..") || source.includes("//") ? null : { name, file }
}

/** True for the files of a repository that `load` reads beside weights in other formats. */
const isOfFolder = (path: string): boolean =>
  /^(\d+_Pooling\/config\.json|additional_chat_templates\/[^/]+\.jinja)$/.test(path) ||
  (!path.includes("/") && /\.(safetensors|json|jinja)$/.test(path) && !/^(consolidated|adapter)/.test(path))

/**
 * The files that `load` reads of a repository: those of the GGUF model that is asked for, or a folder's, or those of the only GGUF model.
 * @throws ArgumentError if there is no such model, or several; FormatError if a part of it is missing
 */
function wantedFiles({ name, file }: HubModel, paths: readonly string[]): readonly string[] {
  const found = ggufModels(paths)
  const folder = paths.filter(isOfFolder)
  const isFolder = folder.includes("config.json") && folder.some((path) => path.endsWith(".safetensors"))
  const list = found.map(([first]) => first).join(", ")
  const whole = (names: readonly string[]): readonly string[] => {
    const missing = names.find((path) => !paths.includes(path))
    if (missing === undefined) return names
    throw new FormatError("load", `${name} has no ${missing}, one of the ${names.length} parts of a model`)
  }
  if (file !== null) {
    const named = found.find((names) => names.includes(file))
    if (paths.includes(file)) return whole(named ?? [file])
    throw new ArgumentError("load", `${name} has no ${file}`, {
      hint: list === "" ? "It has no GGUF file" : `It has ${list}`,
    })
  }
  if (isFolder) return folder
  if (found.length === 1) return whole(found[0])
  if (found.length > 1)
    throw new ArgumentError("load", `${name} has several GGUF files: ${list}`, {
      hint: `Name one of them, as ${name}/${found[0][0]}`,
    })
  if (!folder.includes("config.json")) throw new ArgumentError("load", `${name} has no config.json`)
  return folder
}

/** The files in a folder of the cache, by their paths in the repository. */
const filesIn = (folder: string): string[] =>
  readdirSync(folder, { recursive: true }).map((path) => String(path).replaceAll("\\", "/"))

/** The folder or file to load of a cached revision, null if it is not complete. */
function cached(model: HubModel, folder: string): string | null {
  if (!existsSync(folder)) return null
  try {
    const path = placeOf(folder, wantedFiles(model, filesIn(folder)))
    // config.json is downloaded last: with it, the other files are there.
    return path !== folder || weightFiles(folder).length > 0 ? path : null
  } catch {
    return null
  }
}

/** The path to load of a folder in the cache: a GGUF file, the first of several parts, or the folder. */
const placeOf = (folder: string, [first]: readonly string[]): string =>
  first.endsWith(".gguf") ? join(folder, first) : folder

/**
 * Downloads a model unless it is cached. Resolves to its folder or GGUF file. If the Hub cannot be reached, this is the cached version.
 * @throws ArgumentError if the model is neither cached nor available; FormatError if a checksum does not match
 */
export async function download(
  model: HubModel,
  options: HubOptions & { onProgress?: Progress; signal?: AbortSignal } = {},
): Promise<string> {
  const { name } = model
  const { revision = "main", cacheDir = getHFHubCachePath() } = options
  const hubUrl = options.hubUrl ?? process.env.HF_ENDPOINT
  const accessToken = options.token ?? process.env.HF_TOKEN
  // A path in the cache.
  if (!/^[^./\\\s][^\\\s\p{Cc}~^:?*[]*$/u.test(revision) || revision.includes(".."))
    throw new ArgumentError("load", `expected a branch, a tag or a commit, received ${describe(revision)}`)
  const storage = join(cacheDir, getRepoFolderName({ type: "model", name }))
  const snapshot = (commit: string): string => join(storage, "snapshots", commit)
  const ref = join(storage, "refs", revision)
  const known = cached(model, snapshot(commitOf(ref) ?? revision))
  const offline = options.offline ?? process.env.HF_HUB_OFFLINE === "1"
  if (offline) {
    if (known) return known
    throw new ArgumentError("load", `${name} is not in the cache, and offline is set`)
  }
  const hub = { hubUrl, accessToken }
  let commit: string
  let wanted: readonly string[]
  const files: ListFileEntry[] = []
  try {
    const info = await modelInfo({ name, revision, additionalFields: ["sha", "filePaths"], ...hub })
    commit = info.sha
    wanted = wantedFiles(model, info.filePaths)
    const folder = snapshot(commit)
    if (wanted.every((path) => existsSync(join(folder, path)))) {
      // A complete cache may be read-only.
      if (revision !== commit) await writeRef(ref, commit).catch(() => {})
      return placeOf(folder, wanted)
    }
    for await (const file of listFiles({ repo: name, revision: commit, recursive: true, ...hub }))
      if (file.type === "file" && wanted.includes(file.path)) files.push(file)
  } catch (cause) {
    if (cause instanceof ArgumentError || cause instanceof FormatError) throw cause
    if (known) return known
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new ArgumentError(
      "load",
      `${name} is not a folder, and downloading it from the Hub failed: ${reason}`,
      {
        cause,
      },
    )
  }
  // Last, so that it is there only when all others are.
  files.sort((a, b) => Number(a.path === "config.json") - Number(b.path === "config.json"))
  const total = files.reduce((sum, file) => sum + file.size, 0)
  let done = 0
  options.onProgress?.(0, total, name)
  for (const file of files) {
    options.signal?.throwIfAborted()
    const from = { repo: name, path: file.path, revision: commit, ...hub }
    const before = done
    // With the blob in place, this only links it.
    await fetchBlob(from, file, join(storage, "blobs"), {
      onBytes: (bytes) => options.onProgress?.(before + bytes, total, file.path),
      signal: options.signal,
    })
    await downloadFileToCacheDir({ ...from, cacheDir })
    done += file.size
    options.onProgress?.(done, total, file.path)
  }
  await writeRef(ref, commit)
  return placeOf(snapshot(commit), wanted)
}

/** True if a revision's file cannot be: its name goes on in another one's, or the other way round. */
const isInTheWay = (error: unknown): boolean =>
  ["EISDIR", "ENOTDIR", "EEXIST"].includes((error as NodeJS.ErrnoException).code ?? "")

/** A revision's commit as noted, null if it is not. */
function commitOf(ref: string): string | null {
  try {
    return readFileSync(ref, "utf8").trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT" || isInTheWay(error)) return null
    throw error
  }
}

/** Notes a revision's commit, for when the Hub cannot be reached. */
async function writeRef(ref: string, commit: string): Promise<void> {
  if (commitOf(ref) === commit) return
  try {
    await mkdir(dirname(ref), { recursive: true })
    await writeFile(ref, commit)
  } catch (error) {
    if (!isInTheWay(error)) throw error
  }
}

type FileAt = Parameters<typeof downloadFile>[0]

/** The name of a file's blob in the cache. */
const etagOf = (file: ListFileEntry): string => file.lfs?.oid ?? file.xetHash ?? file.oid ?? ""

/** Maximum number of consecutive attempts without progress. */
const TRIES = 4

/**
 * Downloads a file's blob to the cache, unless it is there. Resumes partial downloads, and verifies the checksum.
 * @throws FormatError if the checksum does not match
 */
async function fetchBlob(
  from: FileAt,
  file: ListFileEntry,
  folder: string,
  { onBytes, signal }: { onBytes: (bytes: number) => void; signal?: AbortSignal },
): Promise<void> {
  const etag = etagOf(file)
  // The name of a file in the cache.
  if (!/^[\da-f]+$/i.test(etag)) throw new FormatError("load", `the Hub has no checksum of ${file.path}`)
  const target = join(folder, etag)
  if (existsSync(target)) return
  await mkdir(folder, { recursive: true })
  const partial = `${target}.incomplete`
  const sizeOf = (): number => statSync(partial, { throwIfNoEntry: false })?.size ?? 0
  for (let failures = 0; sizeOf() < file.size || !existsSync(partial); ) {
    const have = sizeOf()
    try {
      const content = await downloadFile(from)
      if (!content) throw new ArgumentError("load", `${file.path} was not found on the Hub`)
      const rest = Readable.fromWeb(content.slice(have).stream() as ReadableStream)
      const counted = new Transform({
        transform(part: Buffer, _encoding, callback) {
          onBytes(sizeOf())
          callback(null, part)
        },
      })
      await pipeline(rest, counted, createWriteStream(partial, { flags: "a" }), { signal })
      if (sizeOf() === have && have < file.size)
        throw new FormatError("load", `${file.path} ends after ${have} of ${file.size} bytes`)
    } catch (error) {
      signal?.throwIfAborted()
      if (error instanceof ArgumentError) throw error
      failures = sizeOf() > have ? 0 : failures + 1
      if (failures === TRIES) throw error
      if (failures > 0) await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** failures))
    }
  }
  if (await isWhole(partial, file)) return rename(partial, target)
  rmSync(partial, { force: true })
  throw new FormatError("load", `${from.path} does not match the Hub's checksum`, { hint: "Try again" })
}

/** True if size and checksum match: SHA-256 for LFS files, and git's SHA-1 for others. */
async function isWhole(path: string, file: ListFileEntry): Promise<boolean> {
  const { size } = statSync(path)
  if (size !== file.size) return false
  const hash = createHash(file.lfs ? "sha256" : "sha1")
  if (!file.lfs) hash.update(`blob ${size}\0`)
  for await (const part of createReadStream(path)) hash.update(part as Buffer)
  return hash.digest("hex") === (file.lfs?.oid ?? file.oid)
}
