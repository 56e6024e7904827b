/**
 * Models by their name on the hub: downloaded into the hub's own cache by `@huggingface/hub`, gone on with after a cut, checked, and found
 * there again without a network.
 */
import { createHash } from "node:crypto"
import { createReadStream, createWriteStream, existsSync, readFileSync, rmSync, statSync } from "node:fs"
import { mkdir, rename, writeFile } from "node:fs/promises"
import { join } from "node:path"
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
import { ArgumentError, FormatError } from "@lazuli/core/engine"
import { type Progress, weightFiles } from "./folder"

/** Options of a model from the hub. */
export interface HubOptions {
  /** A branch, a tag or a commit; `main` by default. */
  readonly revision?: string
  /** The hub's address; HF_ENDPOINT is another way to give it. */
  readonly hubUrl?: string
  /** The folder of the cache; that of Hugging Face's own tools by default. */
  readonly cacheDir?: string
  /** For models that need one; HF_TOKEN is another way to give it. */
  readonly token?: string
  /** Only what is in the cache. HF_HUB_OFFLINE=1 is another way to say it. */
  readonly offline?: boolean
}

/** True for what can be a model's name on the hub. */
export const isHubName = (name: string): boolean => /^[\w.-]+\/[\w.-]+$/.test(name) && !name.startsWith(".")

/** The files of a repository that a model is loaded from. */
const isNeeded = (path: string): boolean =>
  !path.includes("/") && /\.(safetensors|json|jinja)$/.test(path) && !/^(consolidated|adapter)/.test(path)

/** The folder of a commit in the cache, where it is complete. */
function cached(storage: string, revision: string): string | null {
  const ref = join(storage, "refs", revision.replaceAll("/", "--"))
  const commit = existsSync(ref) ? readFileSync(ref, "utf8").trim() : revision
  const folder = join(storage, "snapshots", commit)
  if (!existsSync(join(folder, "config.json"))) return null
  try {
    return weightFiles(folder).length > 0 ? folder : null
  } catch {
    return null
  }
}

/**
 * The folder of a model in the hub's cache; downloaded where it is not there yet. Without a network the last one that was there.
 * @throws ArgumentError where it is neither there nor to be had; FormatError for a file that does not match the hub's checksum
 */
export async function download(
  name: string,
  options: HubOptions & { onProgress?: Progress } = {},
): Promise<string> {
  const { revision = "main", cacheDir = getHFHubCachePath() } = options
  const hubUrl = options.hubUrl ?? process.env.HF_ENDPOINT
  const accessToken = options.token ?? process.env.HF_TOKEN
  const storage = join(cacheDir, getRepoFolderName({ type: "model", name }))
  const known = cached(storage, revision)
  const offline = options.offline ?? process.env.HF_HUB_OFFLINE === "1"
  if (offline) {
    if (known) return known
    throw new ArgumentError("load", `${name} is not in the hub's cache, and offline is set`)
  }
  const hub = { hubUrl, accessToken }
  let commit: string
  let files: ListFileEntry[]
  try {
    commit = (await modelInfo({ name, revision, additionalFields: ["sha"], ...hub })).sha
    if (known && known === join(storage, "snapshots", commit)) return known
    files = []
    for await (const file of listFiles({ repo: name, revision: commit, ...hub }))
      if (file.type === "file" && isNeeded(file.path)) files.push(file)
  } catch (cause) {
    if (known) return known
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new ArgumentError(
      "load",
      `${name} is not a folder, and fetching it from the hub failed: ${reason}`,
      {
        cause,
      },
    )
  }
  const total = files.reduce((sum, file) => sum + file.size, 0)
  let done = 0
  options.onProgress?.(0, total, name)
  let folder = ""
  for (const file of files) {
    const from = { repo: name, path: file.path, revision: commit, ...hub }
    const before = done
    // With its content in place the hub's own function only links it.
    await fetchBlob(from, file, join(storage, "blobs"), (bytes) =>
      options.onProgress?.(before + bytes, total, file.path),
    )
    const path = await downloadFileToCacheDir({ ...from, cacheDir })
    folder = path.slice(0, -file.path.length - 1)
    done += file.size
    options.onProgress?.(done, total, file.path)
  }
  if (!existsSync(join(folder, "config.json"))) throw new ArgumentError("load", `${name} has no config.json`)
  await mkdir(join(storage, "refs"), { recursive: true })
  await writeFile(join(storage, "refs", revision.replaceAll("/", "--")), commit)
  return folder
}

type FileAt = Parameters<typeof downloadFile>[0]

/** The name of a file's content in the cache. */
const etagOf = (file: ListFileEntry): string => file.lfs?.oid ?? file.xetHash ?? file.oid ?? ""

/** Tries in a row that brought nothing before a download is given up. */
const TRIES = 4

/**
 * Brings a file's content into the cache, where it is not there. What an earlier run or a cut connection left is gone on from, and the
 * whole is compared with the hub's sum.
 * @throws FormatError where it does not match the hub's checksum
 */
async function fetchBlob(
  from: FileAt,
  file: ListFileEntry,
  folder: string,
  onBytes: (bytes: number) => void,
): Promise<void> {
  const target = join(folder, etagOf(file))
  if (existsSync(target)) return
  await mkdir(folder, { recursive: true })
  const partial = `${target}.incomplete`
  const sizeOf = (): number => statSync(partial, { throwIfNoEntry: false })?.size ?? 0
  for (let failures = 0; sizeOf() < file.size || !existsSync(partial); ) {
    const have = sizeOf()
    try {
      const content = await downloadFile(from)
      if (!content) throw new ArgumentError("load", `the hub has no ${file.path}`)
      const rest = Readable.fromWeb(content.slice(have).stream() as ReadableStream)
      const counted = new Transform({
        transform(part: Buffer, _encoding, callback) {
          onBytes(sizeOf())
          callback(null, part)
        },
      })
      await pipeline(rest, counted, createWriteStream(partial, { flags: "a" }))
    } catch (error) {
      if (error instanceof ArgumentError) throw error
      failures = sizeOf() > have ? 0 : failures + 1
      if (failures === TRIES) throw error
      if (failures > 0) await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** failures))
    }
  }
  if (await isWhole(partial, file)) return rename(partial, target)
  rmSync(partial, { force: true })
  throw new FormatError("load", `${from.path} does not match the hub's checksum`, { hint: "Try again" })
}

/** True for a file of the size and sum that the hub says: SHA-256, or for small files git's. */
async function isWhole(path: string, file: ListFileEntry): Promise<boolean> {
  const { size } = statSync(path)
  if (size !== file.size) return false
  const hash = createHash(file.lfs ? "sha256" : "sha1")
  if (!file.lfs) hash.update(`blob ${size}\0`)
  for await (const part of createReadStream(path)) hash.update(part as Buffer)
  return hash.digest("hex") === (file.lfs?.oid ?? file.oid)
}
