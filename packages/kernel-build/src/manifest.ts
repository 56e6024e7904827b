/**
 * The package whose kernels are built: its name, the sources in native/, and what its manifest says under `lazuliKernels`.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"

/** `lazuliKernels` of a package.json; all of it optional. */
export interface KernelOptions {
  /** C++ sources, instead of every .c, .cc and .cpp file in native/. */
  readonly sources?: readonly string[]
  /** Further words for the C++ compiler. */
  readonly flags?: readonly string[]
  /** Further words for the linker, such as "-lfftw3". */
  readonly libraries?: readonly string[]
  /** The TypeScript file that finds the kernels, `src/libraries.ts` by default. */
  readonly loadCode?: string
}

/** A package with kernels. */
export interface KernelPackage {
  readonly folder: string
  readonly name: string
  readonly version: string
  /** The package's name without its scope, which its files carry. */
  readonly stem: string
  readonly options: KernelOptions
  /** Paths from the folder on. */
  readonly cpp: readonly string[]
  readonly metal: readonly string[]
  readonly cuda: readonly string[]
}

const KEYS: readonly (keyof KernelOptions)[] = ["sources", "flags", "libraries", "loadCode"]

/** Reads the package in a folder. @throws Error that says what is wrong with it */
export function readPackage(folder: string): KernelPackage {
  const path = join(folder, "package.json")
  if (!existsSync(path))
    throw new Error(`${resolve(folder)} has no package.json: run lazuli-kernel in the folder of a package`)
  const manifest = JSON.parse(readFileSync(path, "utf8")) as {
    name?: string
    version?: string
    lazuliKernels?: KernelOptions
  }
  const { name, version = "0.0.0", lazuliKernels: options = {} } = manifest
  if (!name) throw new Error(`${path} has no name`)
  for (const key of Object.keys(options))
    if (!KEYS.includes(key as keyof KernelOptions))
      throw new Error(`${path}: lazuliKernels has no "${key}"; there are ${KEYS.join(", ")}`)
  const native = join(folder, "native")
  const files = existsSync(native) ? readdirSync(native).sort() : []
  const having = (pattern: RegExp) =>
    files.filter((file) => pattern.test(file)).map((file) => `native/${file}`)
  const cpp = options.sources ?? having(/\.(c|cc|cpp|cxx)$/)
  for (const source of cpp)
    if (!existsSync(join(folder, source))) throw new Error(`${path}: the source ${source} does not exist`)
  const metal = having(/\.metal$/)
  const cuda = having(/\.cu$/)
  if (cpp.length + metal.length + cuda.length === 0)
    throw new Error(`${resolve(folder)} has no kernels: expected .cc, .metal or .cu files in native/`)
  return { folder, name, version, stem: name.slice(name.lastIndexOf("/") + 1), options, cpp, metal, cuda }
}
