/**
 * Renaming files, before which a test may do something: end the process, or throw. To be imported before what renames.
 */
import fs from "node:fs"
import { syncBuiltinESMExports } from "node:module"

/** The fault to inject. */
export const renames: { before: (to: string) => void } = { before: () => {} }

const { renameSync } = fs
fs.renameSync = (from, to) => {
  renames.before(String(to))
  renameSync(from, to)
}
syncBuiltinESMExports()
