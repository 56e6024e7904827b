/**
 * Bounds the folder of compiled kernels. What was not used for longest goes first; what was used within a day stays, so that no process
 * loses what it is about to load. A library that is loaded stays loaded when its file goes.
 */
import { readdirSync, rmSync, statSync, utimesSync } from "node:fs"
import { join } from "node:path"
import { isOwn } from "./private-folder"

const DAY = 24 * 3600 * 1000
/** Bytes that the folder may have: `LAZULI_CACHE_BYTES`, or 1 GB. */
const MOST_BYTES = 2 ** 30

/** Whether a file is there, and the user's own; then it counts as used now. */
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
export function prune(folder: string, most = Number(process.env.LAZULI_CACHE_BYTES) || MOST_BYTES): number {
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

let pruned = false

/** Prunes, once a process, and never fails: the cache is only there to save time. */
export function pruneOnce(folder: string): void {
  if (pruned) return
  pruned = true
  try {
    prune(folder)
  } catch {}
}
