/** Runs the `@example` of every export on tiny checkpoints, and checks the results after `// =>`. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import * as nn from "@lazuli/nn"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { examplesOf, promises, runSnippets } from "../../../tooling/snippets"
import { writeCheckpoint } from "../test/checkpoints"

const sources = fileURLToPath(new URL(".", import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-examples-"))
const here = process.cwd()
beforeAll(() => {
  process.chdir(scratch)
  writeCheckpoint("llama", "my-model")
  writeCheckpoint("bert-reranker", "my-reranker")
  const lines = [
    { prompt: "in the", completion: "beginning" },
    { text: "the beginning in the end" },
    { text: "the end" },
  ]
  writeFileSync("train.jsonl", lines.map((line) => JSON.stringify(line)).join("\n"))
})
afterAll(() => {
  process.chdir(here)
  rmSync(scratch, { recursive: true })
})

const files = readdirSync(sources, { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"))
  .map((path) => ({ path, source: readFileSync(join(sources, path), "utf8") }))

test("every export has an example", () => {
  const without = Object.keys(lm).filter((name) => {
    const head = new RegExp(
      `@example(?:(?!\\*/)[\\s\\S])*\\*/\nexport (?:abstract |async )*(?:function\\*?|class|const) ${name}\\b`,
    )
    return !files.some(({ source }) => head.test(source))
  })
  expect(without).toEqual([])
})

const examples = files.flatMap(({ path, source }) =>
  examplesOf(source).map((example) => [`${path}:${example.line}`, example] as const),
)

test.each(examples)("%s", async (_at, example) => {
  const { problems, checked } = await runSnippets([example], { modules: {}, names: { ...lm, mx, nn } })
  expect(problems).toEqual([])
  expect(checked).toBe(promises([example]))
  expect(checked).toBeGreaterThan(0)
})
