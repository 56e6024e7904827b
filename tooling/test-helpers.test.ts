/** Folders of sources hold no helpers of tests: what only tests import stands in `test/` of its package. */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { expect, test } from "vitest"

const packages = fileURLToPath(new URL("../packages", import.meta.url))
const isTest = (file: string): boolean => /\.test(-d)?\.ts$/.test(file)

/** The sources that a package's `exports` name. */
function entriesOf(folder: string): Set<string> {
  const { exports = {} } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"))
  const stems = [...JSON.stringify(exports).matchAll(/\.\/dist\/([\w/-]+)\.js/g)].map(([, stem]) => stem)
  return new Set(
    stems.flatMap((stem) => [join(folder, "src", `${stem}.ts`), join(folder, "src", stem!, "index.ts")]),
  )
}

test("every source is used by sources", () => {
  const unused: string[] = []
  for (const name of readdirSync(packages)) {
    const folder = join(packages, name)
    if (!existsSync(join(folder, "src"))) continue
    const files = readdirSync(join(folder, "src"), { recursive: true, encoding: "utf8" })
      .filter((file) => file.endsWith(".ts"))
      .map((file) => join(folder, "src", file))
    const used = entriesOf(folder)
    for (const file of files.filter((file) => !isTest(file)))
      for (const [, name] of readFileSync(file, "utf8").matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g))
        for (const end of [".ts", "/index.ts"]) used.add(join(dirname(file), name + end))
    unused.push(...files.filter((file) => !isTest(file) && !used.has(file)))
  }
  expect(unused).toEqual([])
})
