/** Programs in C++ that are measured or measure, built for this machine where it has a compiler. */
import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

/**
 * Builds a program from one source, and removes it when this process ends. Gives its path; null where building does not work, as without a
 * compiler or a library.
 */
export function buildProgram(source: string, ...libraries: readonly string[]): string | null {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-benchmarks-"))
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, "program")
  const args = ["-O3", "-march=native", "-pthread", source, "-o", path, ...libraries]
  return spawnSync("g++", args).status === 0 ? path : null
}
