import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { afterEach, beforeEach, expect, it } from "vitest"
import { checkLayers } from "./check-layers.mjs"

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "layers-"))
  for (const folder of ["core", "transforms", "nn", "backend-x", "conformance", "lazuli"]) {
    const name = folder === "lazuli" ? "lazuli" : `@lazuli/${folder}`
    const extra = folder === "nn" ? { "./optimizers": { default: "./dist/optimizers.js" } } : {}
    const exports = { ".": { default: "./dist/index.js" }, ...extra }
    plant(`${folder}/package.json`, JSON.stringify({ name, exports }))
    plant(`${folder}/src/index.ts`, "export {}")
  }
  plant("nn/src/optimizers/index.ts", "export {}")
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

function plant(path: string, text: string) {
  const file = join(root, "packages", path)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
}

function problems() {
  const { layers, circles } = checkLayers(root)
  return [...layers, ...circles]
}

it("is content with allowed arrows", () => {
  plant("core/src/graph.ts", `export type A = 1`)
  plant(
    "core/src/index.ts",
    `export * from './graph'; import { readFileSync } from 'node:fs'; import ts from 'typescript'`,
  )
  plant("transforms/src/index.ts", `import { a } from '@lazuli/core'`)
  plant("nn/src/index.ts", `import type { A } from '@lazuli/core'; import { grad } from '@lazuli/transforms'`)
  plant("backend-x/src/index.ts", `import { a } from '@lazuli/core'`)
  plant("lazuli/src/index.ts", `import '@lazuli/backend-x'; export * as optim from '@lazuli/nn/optimizers'`)
  expect(problems()).toEqual([])
})

it.each([
  ["a value import", `import { nn } from '@lazuli/nn'`],
  ["a type import", `\nimport type { Module } from '@lazuli/nn'`],
  ["a re-export", `export * from '@lazuli/nn'`],
  ["an import() call", `const load = () => import('@lazuli/nn')`],
  ["an import() type", `export type M = import('@lazuli/nn').Module`],
  ["an augmentation", `declare module '@lazuli/nn' { interface Module {} }`],
])("reports %s against the arrows", (_, text) => {
  plant("core/src/index.ts", text)
  const line = text.startsWith("\n") ? 2 : 1
  expect(problems()).toEqual([
    `packages/core/src/index.ts:${line}: core → nn ("@lazuli/nn"): core imports no other package`,
  ])
})

it("names what a package may import", () => {
  plant("backend-x/src/index.ts", `import { grad } from '@lazuli/transforms'`)
  expect(problems()).toMatchInlineSnapshot(`
    [
      "packages/backend-x/src/index.ts:1: backend-x → transforms ("@lazuli/transforms"): backend-x may import core only",
    ]
  `)
})

it("lets tests use the conformance kit and the engines, but no backend", () => {
  plant(
    "core/src/sum.test.ts",
    `import '@lazuli/conformance'; import '@lazuli/transforms'; import '@lazuli/backend-x'`,
  )
  expect(problems()).toMatchInlineSnapshot(`
    [
      "packages/core/src/sum.test.ts:1: core → backend-x ("@lazuli/backend-x"): core may import core, transforms, compile, conformance only in tests",
    ]
  `)
})

it("finds a circle inside a package, type imports included, and shows its shortest form", () => {
  plant("core/src/a.ts", `import type { B } from './b'`)
  plant("core/src/b.ts", `import { c } from './c'; import { d } from './d'`)
  plant("core/src/c.ts", `import { d } from './d'`)
  plant("core/src/d.ts", `export type { A } from './a'`)
  expect(problems()).toEqual([
    "import circle: packages/core/src/a.ts → packages/core/src/b.ts → packages/core/src/d.ts → packages/core/src/a.ts",
  ])
})

it("finds a circle across packages and one through a folder index", () => {
  plant("core/src/index.ts", `import { grad } from '@lazuli/transforms'`)
  plant("transforms/src/index.ts", `import { a } from '@lazuli/core'`)
  plant("nn/src/optimizers/index.ts", `export * from './adam'`)
  plant("nn/src/optimizers/adam.ts", `import { x } from '.'`)
  expect(checkLayers(root).circles).toEqual([
    "import circle: packages/core/src/index.ts → packages/transforms/src/index.ts → packages/core/src/index.ts",
    "import circle: packages/nn/src/optimizers/adam.ts → packages/nn/src/optimizers/index.ts → packages/nn/src/optimizers/adam.ts",
  ])
})

it("finds a file that imports itself", () => {
  plant("core/src/a.ts", `import { a } from './a'`)
  expect(problems()).toEqual(["import circle: packages/core/src/a.ts → packages/core/src/a.ts"])
})

it("rejects deep imports, by name and by path", () => {
  plant("transforms/src/a.ts", `import { x } from '@lazuli/core/src/graph'`)
  plant("core/src/graph.ts", "export {}")
  plant("transforms/src/b.ts", `import { x } from '../../core/src/graph'`)
  expect(problems()).toMatchInlineSnapshot(`
    [
      "packages/transforms/src/a.ts:1: "@lazuli/core/src/graph" is a deep import: @lazuli/core exports @lazuli/core",
      "packages/transforms/src/b.ts:1: "../../core/src/graph" reaches into packages/core/src/graph.ts; import "@lazuli/core" instead",
    ]
  `)
})

it.each(["utils.ts", "helpers.test.ts", "misc/sum.ts", "ops/common.ts"])("rejects the name %s", (name) => {
  plant(`core/src/${name}`, "export {}")
  expect(problems()).toEqual([expect.stringMatching(/does not say what lives in it; name the thing$/)])
})

it("asks for a row in the table when a package is new", () => {
  plant("novelty/package.json", JSON.stringify({ name: "@lazuli/novelty" }))
  plant("novelty/src/index.ts", `import '@lazuli/core'`)
  expect(problems).toThrow(/packages\/novelty has no row/)
})
