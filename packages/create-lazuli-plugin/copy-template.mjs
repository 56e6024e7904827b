// The template is ext-axpby: what is published of this package has a copy of its files, and the versions of the tools that it works with.
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"

const from = new URL("../ext-axpby/", import.meta.url)
const to = new URL("./template/", import.meta.url)
const FILES = [
  ...[
    "axpby.ts",
    "conformance.test.ts",
    "params.test.ts",
    "index.ts",
    "native-kernels.ts",
    "metal-kernels.ts",
    "cuda-kernels.ts",
  ].map((file) => `src/${file}`),
  ...["axpby.cc", "axpby.cu", "axpby.metal", "params.h"].map((file) => `native/${file}`),
  "benchmark.mjs",
  "LICENSE",
]

rmSync(to, { recursive: true, force: true })
for (const folder of ["src", "native"]) mkdirSync(new URL(folder, to), { recursive: true })
for (const file of FILES) cpSync(new URL(file, from), new URL(file, to))
const { devDependencies } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"))
const tools = Object.fromEntries(
  ["@types/node", "tsup", "typescript", "vitest"].map((name) => [
    name,
    devDependencies[name].replace(/^\^/, ""),
  ]),
)
writeFileSync(new URL("tools.json", to), `${JSON.stringify(tools, null, 2)}\n`)
