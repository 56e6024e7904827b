#!/usr/bin/env node
// Writes the header that this package's C++ kernels read their parameters by:
//
//   lazuli-params MODULE HEADER            imports MODULE, which defines the primitives, and writes HEADER
//   lazuli-params MODULE HEADER --check    fails unless HEADER is what would be written
import { readFileSync, writeFileSync } from "node:fs"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"
import { paramsHeader } from "@lazuli/conformance"

const [module, header, ...options] = process.argv.slice(2)
if (!module || !header) {
  console.error("usage: lazuli-params MODULE HEADER [--check], in the folder of a package")
  process.exit(2)
}
const { name } = JSON.parse(readFileSync("package.json", "utf8"))
await import(pathToFileURL(resolve(module)).href)
const text = paramsHeader({ source: name })
if (!options.includes("--check")) writeFileSync(header, text)
else if (readFileSync(header, "utf8") !== text) {
  console.error(`${header} is not what lazuli-params writes of the primitives of ${name}`)
  process.exitCode = 1
}
