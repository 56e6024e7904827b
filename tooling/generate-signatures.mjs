// Writes the overloads of public functions into their sources (signatures.mjs says from where). Part of `npm run generate`.
import { spawnSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { generateSignatures } from "./signatures.mjs"

const root = join(dirname(fileURLToPath(import.meta.url)), "..")
const { changed, problems, functions, overloads, byHand } = generateSignatures(root)
for (const [file, text] of changed) writeFileSync(join(root, file), text)
if (changed.size)
  spawnSync(join(root, "node_modules/.bin/biome"), ["check", "--write", ...changed.keys()], { cwd: root })
for (const problem of problems) console.error(problem)
console.log(`${overloads} overloads of ${functions - byHand} functions, ${byHand} functions by hand`)
process.exitCode = problems.length ? 1 : 0
