/**
 * Renaming files, which kills the process where a test says so. To be imported before what renames.
 */
import fs from "node:fs"
import { syncBuiltinESMExports } from "node:module"

/** The fault to inject. */
export const renames: { isFatal: (to: string) => boolean } = { isFatal: () => false }

const { renameSync } = fs
fs.renameSync = (from, to) => {
  if (renames.isFatal(String(to))) process.kill(process.pid, "SIGKILL")
  renameSync(from, to)
}
syncBuiltinESMExports()
