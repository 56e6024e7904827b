/**
 * Metal's scalars, vectors and functions as C++ headers, for runtimes whose compiler does not know Metal.
 */
import { readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

/** Where `scalar.h`, `vector.h` and `math.h` are, and CUDA's in `cuda/`. */
export const preludeFolder = fileURLToPath(new URL("../prelude/", import.meta.url))

/** Declarations of Metal's library for the clang that checks address spaces. */
export const strictHeader = fileURLToPath(new URL("../checks/strict.h", import.meta.url))

let cuda: string | undefined

/** The prelude for CUDA as one text, because its compiler is given texts and not files. */
export function cudaPrelude(): string {
  cuda ??= joined(join(preludeFolder, "cuda/prelude.h"), new Set())
  return cuda
}

/** CUDA's headers that kernels in its own language may include: all name one text, in place of CUDA's. */
const NAMES = [
  "cooperative_groups.h",
  "cooperative_groups/reduce.h",
  "cuda_bf16.h",
  "cuda_fp16.h",
  "cuda_runtime.h",
  "stdint.h",
]
let headers: { name: string; text: string }[] | undefined

/** The headers for kernels in CUDA's own language, the one that they begin with first. */
export function cudaHeaders(): readonly { readonly name: string; readonly text: string }[] {
  headers ??= [
    {
      name: "lazuli_kernel.h",
      text: `#pragma once\n${joined(join(preludeFolder, "cuda/kernel.h"), new Set())}`,
    },
    ...NAMES.map((name) => ({ name, text: '#include "lazuli_kernel.h"\n' })),
    { name: "ahead.h", text: readFileSync(join(preludeFolder, "cuda/ahead.h"), "utf8") },
  ]
  return headers
}

/** A header with those that it includes, each once. */
function joined(path: string, seen: Set<string>): string {
  if (seen.has(path)) return ""
  seen.add(path)
  return readFileSync(path, "utf8")
    .replace(/^#pragma once$/gm, "")
    .replace(/^#include "(.*)"$/gm, (_, name: string) => joined(join(dirname(path), name), seen))
}
