/**
 * Folders of compiled kernels: where they are, and their bound. What was not used for longest goes first; what was used within a day stays,
 * so that no process loses what it is about to load. A library that is loaded stays loaded when its file goes.
 */
import { existsSync, readdirSync, renameSync, rmSync, statSync, utimesSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { threadId } from "node:worker_threads"
import { DeviceError, integerFrom } from "@lazuli/core/engine"
import { isOwn, privateFolder, temporaryFolder } from "./private-folder"

const DAY = 24 * 3600 * 1000
/** Bytes that the folder may have: `LAZULI_CACHE_BYTES`, or 1 GB. */
const MOST_BYTES = 2 ** 30

const folders = new Map<string, { readonly wanted: string; readonly path: string }>()

/**
 * Where compiled kernels of a kind are kept: `LAZULI_CACHE_DIR`, or `lazuli` in the user's cache folder. They are code that is loaded, so
 * where others could write to it, or it cannot be made, it is a new folder of this process.
 */
export function kernelFolder(kind: string): string {
  const base =
    process.env.LAZULI_CACHE_DIR ?? join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "lazuli")
  const wanted = join(base, kind)
  const known = folders.get(kind)
  if (known?.wanted === wanted && existsSync(known.path)) return known.path
  const kept = privateFolder(wanted)
  const used = "path" in kept ? kept : temporaryFolder()
  if ("problem" in used)
    throw new DeviceError(
      kind.split("-")[0],
      `has no folder for compiled kernels that is yours alone: ${used.problem}`,
      {
        hint: "Set LAZULI_CACHE_DIR to one that only you can write to",
      },
    )
  if ("problem" in kept)
    process.emitWarning(`compiled kernels are not kept for other processes: ${kept.problem}`, {
      code: "LAZULI_CACHE",
      detail: "Set LAZULI_CACHE_DIR to a folder that only you can write to",
    })
  folders.set(kind, { wanted, path: used.path })
  return used.path
}

/** True if a file is there, and the user's own; then it counts as used now. */
export function isKept(path: string, now = Date.now()): boolean {
  const found = statSync(path, { throwIfNoEntry: false })
  if (!found || !isOwn(found)) return false
  // Once a day is often enough, and spares the disk.
  if (now - found.mtimeMs > DAY / 2) {
    try {
      utimesSync(path, now / 1000, now / 1000)
    } catch {
      // It has just gone, or is another user's.
      return statSync(path, { throwIfNoEntry: false }) !== undefined
    }
  }
  return true
}

/** Removes files until the folder has at most `most` bytes, and what crashed processes left. Returns how many it removed. */
export function prune(folder: string, most = integerFrom("LAZULI_CACHE_BYTES", 1) ?? MOST_BYTES): number {
  const now = Date.now()
  const files: { path: string; bytes: number; used: number }[] = []
  let total = 0
  for (const name of readdirSync(folder)) {
    const path = join(folder, name)
    const found = statSync(path, { throwIfNoEntry: false })
    if (!found || found.isDirectory()) continue
    // Kernels that were compiled together are one file under several names.
    const bytes = found.size / found.nlink
    total += bytes
    files.push({ path, bytes, used: found.mtimeMs })
  }
  let removed = 0
  files.sort((a, b) => a.used - b.used)
  for (const { path, bytes, used } of files) {
    if (now - used < DAY) break
    if (total <= most && !path.endsWith(".tmp")) continue
    // Another process may prune as well.
    rmSync(path, { force: true })
    total -= bytes
    removed++
  }
  return removed
}

const pruned = new Set<string>()

/** Prunes a folder, once a process, and never fails: the cache is only there to save time. */
export function pruneOnce(folder: string): void {
  if (pruned.has(folder)) return
  pruned.add(folder)
  try {
    prune(folder)
  } catch {}
}

let files = 0
/** A name for a file on its way to `path`, which nobody else uses. */
export const besideOf = (path: string): string => `${path}.${process.pid}-${threadId}-${++files}.tmp`

/** Puts a file in its place in one step. */
export function publish(path: string, write: (beside: string) => void): void {
  const beside = besideOf(path)
  try {
    write(beside)
    renameSync(beside, path)
  } finally {
    rmSync(beside, { force: true })
  }
}
