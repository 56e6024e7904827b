/**
 * The GPU kernels. Both kinds are compiled when they first run, so that here they are checked; Metal is compiled ahead where Apple's tools
 * are.
 */
import { spawnSync } from "node:child_process"
import { createRequire } from "node:module"
import { resolve } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import type { KernelPackage } from "./manifest"

/** `@lazuli/backend-metal/metallib`. */
interface Metallib {
  /** Compiles a file by Apple's tools; gives the library's path. */
  compileMetalFile(path: string): string
  /** Compiles a file for the CPU; null, or why it could not be tried. */
  checkMetalFile(path: string): string | null
}

/** The outcome for one file: where its library is, that it was read, or why nobody could. */
export interface GpuResult {
  readonly source: string
  readonly said: string
}

const runs = (command: string, ...words: string[]): boolean =>
  spawnSync(command, words, { stdio: "ignore" }).status === 0

/** @throws Error for a file that does not compile */
export async function buildMetal(of: KernelPackage): Promise<GpuResult[]> {
  if (of.metal.length === 0) return []
  const metallib = await metalTools(of.folder)
  if (metallib === null)
    return of.metal.map((source) => ({
      source,
      said: "not checked: that needs npm install --save-dev @lazuli/backend-metal",
    }))
  const hasApples = process.platform === "darwin" && runs("xcrun", "-sdk", "macosx", "--find", "metal")
  return of.metal.map((source) => {
    const path = resolve(of.folder, source)
    if (hasApples) return { source, said: metallib.compileMetalFile(path) }
    const reason = metallib.checkMetalFile(path)
    return { source, said: reason === null ? "compiles for the CPU" : `not checked: ${reason}` }
  })
}

/** Those of the package's own @lazuli/backend-metal. */
async function metalTools(folder: string): Promise<Metallib | null> {
  const from = createRequire(resolve(folder, "package.json"))
  let path: string
  try {
    path = from.resolve("@lazuli/backend-metal/metallib")
  } catch {
    return null
  }
  return (await import(/* @vite-ignore */ pathToFileURL(path).href)) as Metallib
}

/** src/ and dist/ are both one below the package. */
const CUDA_WORDS = fileURLToPath(new URL("../cuda/lazuli_check.h", import.meta.url))

/** @throws Error for a file that does not compile */
export function buildCuda({ folder, cuda }: KernelPackage): GpuResult[] {
  if (cuda.length === 0) return []
  if (!runs("nvcc", "--version"))
    return cuda.map((source) => ({
      source,
      said: "not checked: there is no nvcc; it is compiled when it runs",
    }))
  return cuda.map((source) => {
    const words = [
      "-std=c++17",
      "-include",
      CUDA_WORDS,
      "-ptx",
      "-o",
      process.platform === "win32" ? "NUL" : "/dev/null",
      source,
    ]
    const { status, stdout, stderr } = spawnSync("nvcc", words, { cwd: folder, encoding: "utf8" })
    if (status !== 0) throw new Error(`nvcc rejects ${source}:\n${stderr}${stdout}`)
    return { source, said: "compiles with nvcc" }
  })
}
