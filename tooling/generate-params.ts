// Writes the headers by which C++ kernels read their parameters, from the schemas of this repository's primitives. With `--check` it names
// those that are not what it would write. Part of `npm run generate`; packages elsewhere have the command `lazuli-kernel params`.
import { readFileSync, writeFileSync } from "node:fs"
import "@lazuli/ext-axpby"
import "@lazuli/ext-pointcloud"
import { paramsHeader } from "@lazuli/kernel-build"

const HEADERS = [
  ["@lazuli/core", "packages/backend-cpu/native/kernels/params.h"],
  ["@lazuli/ext-axpby", "packages/ext-axpby/native/params.h"],
  ["@lazuli/ext-pointcloud", "packages/ext-pointcloud/native/params.h"],
] as const

for (const [source, file] of HEADERS) {
  const text = paramsHeader({ source })
  if (!process.argv.includes("--check")) writeFileSync(file, text)
  else if (readFileSync(file, "utf8") !== text) console.log(file)
}
