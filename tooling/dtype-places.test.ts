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

const page = readFileSync(join(root, "docs/add-a-dtype.md"), "utf8")
const sources = [...sourcesUnder("packages"), ...sourcesUnder("tooling")]

/** The files in the table under a heading. */
const listed = (heading: string): string[] =>
  [
    ...page
      .split(`| file | ${heading} |`)[1]
      .split("\n\n")[0]
      .matchAll(/^\| `([^`]+)` \|/gm),
  ].map(([, path]) => path)

const matching = (pattern: RegExp): string[] =>
  sources.filter((file) => pattern.test(readFileSync(join(root, file), "utf8")))

test("the page about dtypes names the files that name int16", () => {
  expect(listed("entry").sort()).toEqual(matching(/\b(int16|Int16Array|LZ_INT16)\b/).sort())
})

test("the page about dtypes names the files that count them", () => {
  const tables = "packages/backend-cpu/native/simd/"
  const counting = matching(/Dtypes = 14\b|\bcode \* 14\b|\bdtype < 14\b|\bdtype\)? % 14\b/)
  const sized = matching(/(?:\w{2}|\])\[14\]/).map((file) => (file.startsWith(tables) ? tables : file))
  expect(listed("count").sort()).toEqual([...new Set([...counting, ...sized])].sort())
})
