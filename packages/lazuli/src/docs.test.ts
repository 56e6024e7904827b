/**
 * Runs the `ts` blocks of the README and of every page in docs/, each page's in order and in one scope, and holds what `// =>` promises.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as lazuli from "lazuli"
import { afterAll, beforeAll, expect, test } from "vitest"
import { blocksOf, promises, runSnippets } from "../../../tooling/snippets"

const root = fileURLToPath(new URL("../../..", import.meta.url))
const here = process.cwd()
const scratch = mkdtempSync(join(tmpdir(), "lazuli-docs-"))

// Pages may save files: they do it in a folder of their own.
beforeAll(() => process.chdir(scratch))
afterAll(() => {
  process.chdir(here)
  rmSync(scratch, { recursive: true })
})

const pages = [
  "README.md",
  ...readdirSync(join(root, "docs"))
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
].filter((page) => existsSync(join(root, page)))

const modules = {
  lazuli,
  "@lazuli/core": await import("@lazuli/core"),
  "@lazuli/core/engine": await import("@lazuli/core/engine"),
  "@lazuli/core/plugin": await import("@lazuli/core/plugin"),
  "@lazuli/backend-metal": await import("@lazuli/backend-metal"),
  "@lazuli/backend-cuda": await import("@lazuli/backend-cuda"),
  "@lazuli/lm": await import("@lazuli/lm"),
  "@lazuli/distributed": await import("@lazuli/distributed"),
  "@lazuli/distributed/nn": await import("@lazuli/distributed/nn"),
  "@lazuli/ext-pointcloud": await import("@lazuli/ext-pointcloud"),
  "@lazuli/ext-pointcloud/nn": await import("@lazuli/ext-pointcloud/nn"),
  "@lazuli/conformance": await import("@lazuli/conformance"),
  "@lazuli/transforms": await import("@lazuli/transforms"),
  "@lazuli/compile": await import("@lazuli/compile"),
  "@lazuli/nn": await import("@lazuli/nn"),
  "@lazuli/nn/optimizers": await import("@lazuli/nn/optimizers"),
}

/** The runtime that Metal kernels need is for Linux. */
const runs = (page: string): boolean =>
  process.platform === "linux" || !/^import .*backend-metal'/m.test(readFileSync(join(root, page), "utf8"))

test.each(pages.filter(runs))("%s", async (page) => {
  const text = readFileSync(join(root, page), "utf8")
  const blocks = blocksOf(text)
  expect(blocks.length, "every block is found").toBe(text.split("\n```ts\n").length - 1)
  const { problems, checked } = await runSnippets(blocks, { modules })
  expect(problems).toEqual([])
  expect(checked, "every // => is behind or below a statement").toBe(promises(blocks))
})
