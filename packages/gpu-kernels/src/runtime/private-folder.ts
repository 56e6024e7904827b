/**
 * Folders from which code is loaded: nobody but the user may be able to put a file there, or another folder in its place.
 */
import { chmodSync, lstatSync, mkdirSync, mkdtempSync, realpathSync, rmSync, type Stats } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"

/** Permission to write for the group or for everybody. */
const WRITABLE = 0o022
const STICKY = 0o1000
const ROOT = 0

/** This process's user; null where the system has none. */
const user = (): number | null => process.geteuid?.() ?? null

/** True if it is this user's and nobody else may write to it. */
export const isOwn = ({ uid, mode }: Stats): boolean =>
  user() === null || (uid === user() && (mode & WRITABLE) === 0)

/** Why others can write to a folder or to the path that leads there; null when they cannot. `path` has no links. */
function weaknessOf(path: string): string | null {
  if (user() === null) return null
  const found = lstatSync(path)
  if (found.uid !== user()) return `${path} is another user's`
  if (found.mode & WRITABLE) return `others may write to ${path}`
  for (let at = dirname(path); ; at = dirname(at)) {
    const { uid, mode } = lstatSync(at)
    if (uid !== ROOT && uid !== user()) return `${at} is another user's`
    // In a sticky folder everybody makes files, and nobody moves those of others.
    if (mode & WRITABLE && !(mode & STICKY)) return `others may write to ${at}`
    if (at === dirname(at)) return null
  }
}

/** A folder, made if need be, that is this user's alone. Gives its path without links, or why it cannot be used. */
export function privateFolder(path: string): { path: string } | { problem: string } {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 })
    if (lstatSync(path).isSymbolicLink()) return { problem: `${path} is a link` }
    const real = realpathSync(path)
    const problem = weaknessOf(real)
    if (problem !== null) return { problem }
    if (user() !== null && lstatSync(real).mode & 0o077) chmodSync(real, 0o700)
    return { path: real }
  } catch (error) {
    return { problem: (error as Error).message }
  }
}

/** A new folder of this process among the temporary files, which goes with it, or why there is none. */
export function temporaryFolder(): { path: string } | { problem: string } {
  try {
    const path = realpathSync(mkdtempSync(join(tmpdir(), "lazuli-")))
    process.on("exit", () => rmSync(path, { recursive: true, force: true }))
    const problem = weaknessOf(path)
    return problem === null ? { path } : { problem }
  } catch (error) {
    return { problem: (error as Error).message }
  }
}
