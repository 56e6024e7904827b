/**
 * Every file that a page or a comment names exists: `graph/graph.ts`, from its folder or by the end of its path. Files move, and what
 * speaks of them must follow.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { expect, test } from "vitest"

const root = fileURLToPath(new URL("..", import.meta.url))
/** Folders without sources, and texts about a day that is over. */
const IGNORED = new Set(["node_modules", "dist", "build", ".git", ".turbo", ".changeset", "coverage", "out"])
/** Headers of other projects, one that exists in memory alone, and the examples that stand for any file. */
const NOT_OURS =
  /^(node_api\.h|lazuli_cuda\.h|hwy\/highway\.h|cblas\.h|main\.cc|node_modules\/.*|src\/x\.ts|src\/x\/index\.ts|NNNN-subject\.md)$/

const files = sourcesUnder("")
/** Files of the reader's own package that a guide shows: their names stand behind the fences. */
const shown = files
  .filter((file) => file.endsWith(".md"))
  .flatMap((page) =>
    [...readFileSync(join(root, page), "utf8").matchAll(/^```\w+ ([\w./-]+)$/gm)].map(([, name]) => name),
  )
const known = [...files, ...shown]
const names = new Set(known.map((file) => basename(file)))

function sourcesUnder(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder ? `${folder}/${entry.name}` : entry.name
    if (IGNORED.has(entry.name) || entry.name.startsWith("build-")) return []
    return entry.isDirectory() ? sourcesUnder(path) : [path]
  })
}

/** A page, or the lines of a source that are comments. */
function proseOf(file: string): string {
  const text = readFileSync(join(root, file), "utf8")
  if (file.endsWith(".md")) return text
  const isComment = (line: string): boolean => /^\s*(\/\/|\/\*|\*)/.test(line) || / \/\/ /.test(line)
  return text.split("\n").filter(isComment).join("\n")
}

const exists = (name: string, from: string): boolean =>
  name.includes("/")
    ? known.some((file) => file === name || file.endsWith(`/${name}`)) ||
      existsSync(join(root, dirname(from), name))
    : names.has(name)

test("every file that pages and comments name exists", () => {
  const missing: string[] = []
  let found = 0
  for (const file of files.filter((file) => /\.(md|ts|mjs|cc|h)$/.test(file))) {
    for (const [, name] of proseOf(file).matchAll(
      /(?<![\w./@-])((?:\.\.?\/)*(?:[\w.-]+\/)*[\w-]+\.(?:ts|mjs|cc|h|md))\b/g,
    )) {
      if (NOT_OURS.test(name)) continue
      if (exists(name, file)) found++
      else missing.push(`${file}: ${name}`)
    }
  }
  expect(missing).toEqual([])
  expect(found).toBeGreaterThan(500)
})
