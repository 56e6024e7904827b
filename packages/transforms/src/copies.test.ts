/** Two copies of core in one process: what comes of it says so, with both paths and the cure. */
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import * as mx from "@lazuli/core"
import { build } from "vite"
import { afterAll, beforeAll, expect, test } from "vitest"
import { customFunction, grad, hessian, jacfwd, jacrev, linearize } from "./index"

const folder = mkdtempSync(join(tmpdir(), "lazuli-copies-"))
const second = join(folder, "node_modules/@lazuli/core")
let other: typeof mx

beforeAll(async () => {
  mkdirSync(join(second, "dist"), { recursive: true })
  cpSync(fileURLToPath(new URL("../../core/package.json", import.meta.url)), join(second, "package.json"))
  writeFileSync(join(folder, "package.json"), "{}")
  await build({
    configFile: false,
    logLevel: "error",
    build: {
      ssr: fileURLToPath(new URL("../../core/src/index.ts", import.meta.url)),
      outDir: join(second, "dist"),
      rollupOptions: { output: { entryFileNames: "index.js" } },
    },
  })
  other = (await import(/* @vite-ignore */ pathToFileURL(join(second, "dist/index.js")).href)) as typeof mx
})
afterAll(() => rmSync(folder, { recursive: true }))

function messageOf(call: () => unknown): string {
  try {
    call()
  } catch (error) {
    expect(error).toBeInstanceOf(mx.LazuliError)
    return (error as Error).message
  }
  return "nothing was thrown"
}

const sum = (x: mx.Array): mx.Array => x.sum()
const foreign = (_x?: mx.Array): mx.Array => other.ones([2]) as never
const cases: Record<string, [name: string, call: () => unknown]> = {
  "grad of an array": ["grad", () => grad(sum)(other.ones([2]) as never)],
  "grad of a tree": ["grad", () => grad((p: { w: mx.Array }) => sum(p.w))({ w: other.ones([2]) as never })],
  "what a custom function gives": ["customFunction", () => customFunction(foreign)(mx.ones([2]))],
  "a Jacobian by rows": ["jacrev", () => jacrev(foreign)(mx.ones([2]))],
  "a Jacobian by columns": ["jacfwd", () => jacfwd(foreign)(mx.ones([2]))],
  "a Hessian": ["hessian", () => hessian(foreign)(mx.ones([2]))],
  "a tangent": ["linearize", () => linearize(sum, [mx.ones([2])])[1](other.ones([2]) as never)],
  "what is tidied": ["tidy", () => mx.tidy(foreign)],
  "an operand": ["add", () => mx.add(mx.ones([2]), other.ones([2]) as never)],
  "an array among several": ["concatenate", () => mx.concatenate([mx.ones([2]), other.ones([2]) as never])],
  "an element of a list": ["array", () => mx.array([other.ones([2]) as never])],
  "a dtype": ["zeros", () => mx.zeros([2], other.float32 as never)],
  "a device": ["add", () => mx.add(mx.ones([2]), 1, { stream: other.cpu as never })],
  "an index": ["index", () => mx.ones([2]).index(other.array([0], other.int32) as never)],
  "what is evaluated": ["eval", () => mx.eval({ x: other.ones([2]) })],
  "what is saved": ["save", () => mx.save(join(folder, "x.npy"), other.ones([2]) as never)],
}
test.each(Object.entries(cases))("%s", (_title, [name, call]) => {
  const message = messageOf(call)
  expect(message).toMatch(new RegExp(`^\\[${name}\\] `))
  expect(message).toContain(second)
  expect(message).toContain(fileURLToPath(new URL("../../core", import.meta.url)))
  expect(message).toContain("npm dedupe")
  expect(message).toContain("peerDependencies")
})
