/**
 * The sources of the GPU kernels that MLX's recorded cases need, without compiling or running any: for compilers that only look.
 */

import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { createMetalBackend, HostRuntime } from "@lazuli/backend-metal"
import { replayGolden } from "@lazuli/conformance"
import { registerBackend } from "@lazuli/core/engine"
import { readMetalFile } from "@lazuli/gpu-kernels"
import { goldenSpaces } from "./golden-spaces"

/** A source in Metal Shading Language, and the name of its first kernel with that of its file. */
export interface KernelSource {
  readonly source: string
  readonly file: string
}

/** Keeps what it is asked to compile. */
class Collector extends HostRuntime {
  readonly sources: KernelSource[] = []
  override async prepare(sources: readonly KernelSource[]): Promise<void> {
    this.sources.push(...sources)
  }
}

/** All sources, of the recorded cases of these families or of all. */
export async function kernelSources(families?: readonly string[]): Promise<KernelSource[]> {
  const collector = new Collector()
  const backend = createMetalBackend(collector, "kernel-sources", -1)
  registerBackend(backend)
  await backend.rehearse(() => replayGolden({ spaces: goldenSpaces, backend: "kernel-sources", families }))
  return collector.sources
}

/** The `.metal` files of this repository's packages. */
export function packagedSources(): KernelSource[] {
  const packages = fileURLToPath(new URL("../packages/", import.meta.url))
  return readdirSync(packages).flatMap((name) => {
    const folder = join(packages, name, "native")
    const files = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith(".metal")) : []
    return files.map((file) => ({ source: readMetalFile(join(folder, file)).text, file }))
  })
}

/** Words of Metal that kernels share: types, functions, members of namespaces. */
const WORDS =
  /\b[a-z]\w*(?=\s*[(<])|\b(?:bfloat|half|float|u?int|u?long|u?short|u?char|bool)[234]?\b|\bcomplex\w*|\blz_\w+/g

/** Sources that between them have every kernel, and every word that any source has: one instance of each kernel, and a few more. */
export function instances(sources: readonly KernelSource[]): KernelSource[] {
  const seen = new Set<string>()
  // Large ones first, which have many words at once.
  return [...sources]
    .sort((a, b) => b.source.length - a.source.length || (a.source < b.source ? -1 : 1))
    .filter(({ source }) => {
      const words = new Set(source.match(WORDS))
      const before = seen.size
      for (const word of words) seen.add(word)
      return seen.size > before
    })
}
