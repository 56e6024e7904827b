/**
 * Kernels that were compiled ahead to PTX, for machines with the driver alone: dist/ptx, which `npm run ptx` makes after a build. Groups of
 * them are compressed together, and read when one of them is asked for.
 */
import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { brotliDecompressSync } from "node:zlib"
import type { CudaSource } from "@lazuli/gpu-kernels"
import type { GpuFacts } from "./native"

/** The compute capability that PTX of a group wants at least. */
export type Capability = 75 | 80

/** index.json: by key, the number of a group; by number, what its PTX wants. */
export interface PackIndex {
  readonly kernels: Readonly<Record<string, number>>
  readonly groups: readonly Capability[]
}

/** The folder: `LAZULI_CUDA_PTX`, or that of the package; src/ and dist/ are both one below it. */
const folder = (): string =>
  process.env.LAZULI_CUDA_PTX ?? fileURLToPath(new URL("../dist/ptx", import.meta.url))

/** A kernel's name in a pack: of everything that its PTX follows from. */
export function packedKey({
  source,
  headers,
  options,
}: Pick<CudaSource, "source" | "headers" | "options">): string {
  const hash = createHash("sha256")
    .update(JSON.stringify([headers, options]))
    .update(source)
  return hash.digest("hex").slice(0, 24)
}

interface Pack {
  readonly index: PackIndex
  readonly groups: Map<number, Readonly<Record<string, string>>>
}
const packs = new Map<string, Pack | null>()

function packIn(path: string): Pack | null {
  let pack = packs.get(path)
  if (pack === undefined) {
    try {
      pack = { index: JSON.parse(readFileSync(join(path, "index.json"), "utf8")), groups: new Map() }
    } catch {
      // A clone in which nobody made one.
      pack = null
    }
    packs.set(path, pack)
  }
  return pack
}

/** The PTX of a key, which ends with a zero; undefined where there is none, or the GPU is older than it wants. */
export function packedCode(key: string, { major, minor }: GpuFacts): Uint8Array | undefined {
  const path = folder()
  const pack = packIn(path)
  const number = pack?.index.kernels[key]
  if (!pack || number === undefined || pack.index.groups[number] > 10 * major + minor) return undefined
  let group = pack.groups.get(number)
  if (!group) {
    group = JSON.parse(
      brotliDecompressSync(readFileSync(join(path, `${number}.br`))).toString("utf8"),
    ) as Readonly<Record<string, string>>
    pack.groups.set(number, group)
  }
  return Buffer.from(`${group[key]}\0`, "latin1")
}
