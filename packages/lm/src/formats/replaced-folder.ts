/**
 * Folders that are replaced as a whole: a new one is written beside the old one, and both are renamed. A process that is killed between
 * the two renames leaves no folder of the name, but both others; the next one to ask finishes its work.
 */
import { existsSync, mkdirSync, readdirSync, realpathSync, renameSync, rmSync, statSync } from "node:fs"
import { basename, dirname, join, resolve } from "node:path"

/** The end of the names of folders that are being replaced, which nobody types, since they are removed. */
const OLD = "lazuli-old"
const ENDING = new RegExp(`^(\\d+)\\.${OLD}$`)

/** The path of a file or folder itself, where a link to it is given. */
export const realPlace = (place: string): string => (existsSync(place) ? realpathSync(place) : resolve(place))

/** Replaces a folder, or makes a new one, by what `write` puts into another one. */
export function replaceFolder(place: string, write: (folder: string) => void): void {
  const folder = realPlace(place)
  finishReplacing(folder)
  const beside = `${folder}.${process.pid}.tmp`
  rmSync(beside, { recursive: true, force: true })
  // In file systems that refuse folders, one recursive call for both would not end.
  mkdirSync(dirname(beside), { recursive: true })
  mkdirSync(beside)
  try {
    write(beside)
    const old = `${folder}.${process.pid}.${OLD}`
    try {
      renameSync(folder, old)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error
    }
    renameSync(beside, folder)
    rmSync(old, { recursive: true, force: true })
  } catch (error) {
    rmSync(beside, { recursive: true, force: true })
    throw error
  }
}

/** Finishes what processes that were killed had begun: puts the new folder in its place, or else the old one, and removes old ones. */
export function finishReplacing(folder: string): void {
  const [parent, prefix] = [dirname(folder), `${basename(folder)}.`]
  if (!existsSync(parent)) return
  const left = readdirSync(parent).flatMap((name) => {
    const [, pid] = (name.startsWith(prefix) && ENDING.exec(name.slice(prefix.length))) || []
    return pid === undefined || works(Number(pid)) ? [] : [join(parent, `${prefix}${pid}`)]
  })
  const changed = (path: string): number => statSync(`${path}.${OLD}`).ctimeMs
  const [last] = left.sort((a, b) => changed(b) - changed(a))
  if (last !== undefined && !existsSync(folder))
    // The new folder was complete before the old one was renamed.
    renameSync(existsSync(`${last}.tmp`) ? `${last}.tmp` : `${last}.${OLD}`, folder)
  for (const path of left) rmSync(`${path}.${OLD}`, { recursive: true, force: true })
}

/** True for another process that runs: it replaces the folder itself. */
function works(pid: number): boolean {
  if (pid === process.pid) return false
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM"
  }
}
