/**
 * Runs every `@example` of the packages' doc comments, and holds what `// =>` promises.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, relative } from "node:path"
import { fileURLToPath } from "node:url"
import { metalBackend } from "@lazuli/backend-metal"
import { backendSuite, opCheck } from "@lazuli/conformance"
import * as distributed from "@lazuli/distributed"
import { launch } from "@lazuli/distributed/launch"
import * as distributedTraining from "@lazuli/distributed/nn"
import * as pointcloud from "@lazuli/ext-pointcloud"
import * as pointcloudNetworks from "@lazuli/ext-pointcloud/nn"
import * as lazuli from "lazuli"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { examplesOf, promises, runSnippets } from "../../../tooling/snippets"

const packages = fileURLToPath(new URL("../..", import.meta.url))
const here = process.cwd()
const scratch = mkdtempSync(join(tmpdir(), "lazuli-examples-"))

// Examples may write files: they do it in a folder of their own.
beforeAll(() => process.chdir(scratch))
afterAll(() => {
  process.chdir(here)
  rmSync(scratch, { recursive: true })
})

/** `mx.exp` and `exp` alike; names that JavaScript has itself stay JavaScript's. */
const names = {
  ...Object.fromEntries(
    Object.entries(lazuli.mx).filter(([name]) => !(name in globalThis) && name !== "var" && name !== "eval"),
  ),
  ...lazuli,
  ...pointcloud,
  ...pointcloudNetworks,
  ...distributed,
  ...distributedTraining,
  launch,
  backendSuite,
  opCheck,
  metalBackend,
}

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return sources(path)
    return /\.ts$/.test(entry.name) && !/\.test(-d)?\.ts$/.test(entry.name) ? [path] : []
  })
}

/** The runtime that Metal kernels need is for Linux. */
const runs = ({ code }: { code: string }): boolean =>
  process.platform === "linux" || !code.includes("metalKernel(")

// Examples of language models need checkpoints: they are run by their package's own test.
const files = readdirSync(packages)
  .filter((name) => name !== "lm")
  .map((name) => join(packages, name, "src"))
  .flatMap(sources)
  .map((path) => ({ path, examples: examplesOf(readFileSync(path, "utf8")).filter(runs) }))
  .filter(({ examples }) => examples.length > 0)

describe.each(files)("$path", ({ path, examples }) => {
  test.each(examples.map((example) => [example.line, example] as const))(
    "line %i",
    async (_line, example) => {
      const { problems, checked } = await runSnippets([example], { modules: { lazuli }, names })
      expect(problems, relative(packages, path)).toEqual([])
      expect(checked, "every // => is behind or below a statement").toBe(promises([example]))
    },
  )
})
