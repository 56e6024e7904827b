/**
 * Packages as they are written: the template's files under another name, and types that hold. `npm run registry` installs them and runs
 * their tests.
 */
import { readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { expect, test } from "vitest"
import { type Kernel, pluginFiles } from "./files"
import { kernelsOf, main } from "./main"

const sample = resolve(import.meta.dirname, "../../ext-axpby")
const template = (path: string): string => readFileSync(join(sample, path), "utf8")
const tools = { typescript: "6.0.3" }
const filesFor = (...kernels: Kernel[]) =>
  pluginFiles({ name: "@me/ops", kernels, version: "1.2.3", tools }, template)

test("with every kernel it is ext-axpby under another name", () => {
  const files = filesFor("cpp", "metal", "cuda")
  const shared = [...files.keys()].filter((path) => /^(src|native)\/|^benchmark/.test(path))
  expect(shared.sort()).toMatchInlineSnapshot(`
    [
      "benchmark.mjs",
      "native/axpby.cc",
      "native/axpby.cu",
      "native/axpby.metal",
      "native/params.h",
      "src/axpby.ts",
      "src/conformance.test.ts",
      "src/cuda-kernels.ts",
      "src/index.ts",
      "src/kernels.ts",
      "src/libraries.ts",
      "src/metal-kernels.ts",
      "src/native-kernels.ts",
      "src/params.test.ts",
    ]
  `)
  for (const path of shared) {
    const own = template(path)
      .replaceAll("@lazuli/ext-axpby", "@me/ops")
      .replaceAll("build/ext-axpby", "build/ops")
    expect(files.get(path), path).toBe(own)
  }
})

test.each([[[]], [["cpp"]], [["metal"]], [["cuda"]]] as [Kernel[]][])("kernels %j alone", (kernels) => {
  const files = filesFor(...kernels)
  const text = [...files.values()].join("\n")
  expect(text).not.toContain("@lazuli/ext-axpby")
  const manifest = JSON.parse(files.get("package.json") as string)
  expect(manifest.keywords).toContain("lazuli-plugin")
  expect(manifest.peerDependencies).toEqual({ "@lazuli/core": "1.x" })
  for (const version of Object.values(manifest.devDependencies)) expect(version).toMatch(/^\d+\.\d+\.\d+$/)
  // Everything imported is among the dependencies.
  for (const [path, code] of files)
    if (path.endsWith(".ts") && path.startsWith("src/"))
      for (const [, name] of code.matchAll(/(?:from|^import) "(@lazuli\/[\w-]+|lazuli|vitest)[/"]/gm))
        if (name !== "vitest") expect(Object.keys(manifest.devDependencies), path).toContain(name)
  for (const [path, code] of files)
    for (const [, file] of code.matchAll(/(?:from|^import) "\.\/([\w-]+)"/gm))
      expect([...files.keys()], path).toContain(`src/${file}.ts`)
})

test("names and languages that there are not", async () => {
  expect(kernelsOf("TypeScript, C++")).toEqual(["cpp"])
  expect(() => kernelsOf("cpp,rust")).toThrow(
    '"rust" is not a language for kernels; expected any of ts, cpp, metal, cuda',
  )
  const said: string[] = []
  const before = console.error
  console.error = (text: string) => said.push(text)
  try {
    expect(await main(["Bad Name"])).toBe(1)
    expect(await main(["a", "b", "c"])).toBe(2)
  } finally {
    console.error = before
  }
  expect(said[0]).toBe('"Bad Name" is not a valid npm package name; a valid one looks like @me/ops or my-ops')
})
