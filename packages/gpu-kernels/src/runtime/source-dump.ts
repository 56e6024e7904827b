/**
 * Writes the Metal source of every kernel that was made ready into the folder `LAZULI_METAL_DUMP`, for people and for other compilers:
 * CI has Apple's read what tests generate on Linux.
 */
import { createHash } from "node:crypto"
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"

/** Writes one source, under its kernel's name and a hash. */
export function dumpSource(name: string, source: string, folder = process.env.LAZULI_METAL_DUMP): void {
  if (!folder) return
  mkdirSync(folder, { recursive: true })
  const digest = createHash("sha256").update(source).digest("hex").slice(0, 16)
  writeFileSync(join(folder, `${name.slice(0, 80)}-${digest}.metal`), source)
}
