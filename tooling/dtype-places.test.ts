/** docs/add-a-dtype.md lists every source that names a dtype of no special kind, and no other. */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { expect, test } from "vitest"

const root = fileURLToPath(new URL("..", import.meta.url))
const IGNORED = new Set(["node_modules", "dist", "build", "golden", "fuzz", "test", "tests", "out"])
/** Packages of third parties choose the dtypes that they take. */
const THIRD_PARTY = /^ext-/

function sourcesUnder(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory())
      return IGNORED.has(entry.name) || THIRD_PARTY.test(entry.name) || entry.name.startsWith("build")
        ? []
        : sourcesUnder(path)
    return /(?<!\.test)\.(ts|mjs|cc|h)$/.test(path) ? [path] : []
  })
}

test("the page about dtypes names the places that name int16", () => {
  const page = readFileSync(join(root, "docs/add-a-dtype.md"), "utf8")
  const listed = [...page.matchAll(/^\| `([^`]+)` \|/gm)].map(([, path]) => path)
  const found = [...sourcesUnder("packages"), ...sourcesUnder("tooling")].filter((file) =>
    /\b(int16|Int16Array|LZ_INT16)\b/.test(readFileSync(join(root, file), "utf8")),
  )
  expect(listed.sort()).toEqual(found.sort())
})
