/**
 * Models by their name on the hub: downloaded into the hub's own cache by `@huggingface/hub`, checked, and found there again without a
 * network.
 */
import { createHash } from "node:crypto"
import { createReadStream, existsSync, readFileSync, rmSync } from "node:fs"
import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import {
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
 * @throws ArgumentError where it is neither there nor to be had; FormatError for a file that is not what the hub says
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
    throw new ArgumentError("load", `${name} is no folder, and the hub does not give it: ${reason}`, {
      cause,
    })
  }
  const total = files.reduce((sum, file) => sum + file.size, 0)
  let done = 0
  options.onProgress?.(0, total, name)
  let folder = ""
  for (const file of files) {
    const path = await downloadFileToCacheDir({
      repo: name,
      path: file.path,
      revision: commit,
      cacheDir,
      ...hub,
    })
    if (file.lfs && (await sha256(path)) !== file.lfs.oid) {
      // Neither the link nor what it leads to may be taken for the file again.
      rmSync(join(storage, "blobs", file.lfs.oid), { force: true })
      rmSync(path, { force: true })
      throw new FormatError("load", `${name}: ${file.path} is not what the hub says`, { hint: "Try again" })
    }
    folder = path.slice(0, -file.path.length - 1)
    done += file.size
    options.onProgress?.(done, total, file.path)
  }
  if (!existsSync(join(folder, "config.json"))) throw new ArgumentError("load", `${name} has no config.json`)
  await mkdir(join(storage, "refs"), { recursive: true })
  await writeFile(join(storage, "refs", revision.replaceAll("/", "--")), commit)
  return folder
}

async function sha256(file: string): Promise<string> {
  const hash = createHash("sha256")
  for await (const part of createReadStream(file)) hash.update(part as Buffer)
  return hash.digest("hex")
}
