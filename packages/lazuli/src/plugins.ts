/**
 * The packages that brought primitives or kernels into this process.
 */
import { kernelOffers, listPrimitives, primitiveByName, registrantFile } from "@lazuli/core/engine"

const { existsSync, readFileSync } = process.getBuiltinModule("node:fs")
const { dirname, join } = process.getBuiltinModule("node:path")

/** One package, as {@link plugins} describes it. */
export interface PluginInfo {
  /** Its npm name. */
  readonly package: string
  /** Null where it is not known: of a package that is bundled, or no installed one. */
  readonly version: string | null
  /** The names of its primitives. */
  readonly primitives: readonly string[]
  /**
   * Its kernels: their forms, the file that has them, and the primitives that they are for; a native library's are not known before it
   * runs.
   */
  readonly kernels: readonly {
    readonly form: "native" | "metal" | "cuda" | "js" | "wasm"
    readonly library: string | null
    readonly primitives: readonly string[] | null
  }[]
}

/** The version in the manifest above a file. */
function versionAbove(file: string, name: string): string | null {
  for (let folder = dirname(file); folder !== dirname(folder); folder = dirname(folder)) {
    const path = join(folder, "package.json")
    if (!existsSync(path)) continue
    const manifest = JSON.parse(readFileSync(path, "utf8")) as { name?: string; version?: string }
    if (manifest.name === name) return manifest.version ?? null
  }
  return null
}

/**
 * The packages that registered primitives or brought kernels, with their versions, in the order in which they came. `mx.listPrimitives`
 * describes the primitives.
 *
 * @example
 * mx.plugins().map((plugin) => plugin.package).includes('@lazuli/core')
 * // => false
 */
export function plugins(): PluginInfo[] {
  const found = new Map<
    string,
    { primitives: string[]; version: string | null; kernels: PluginInfo["kernels"][number][] }
  >()
  const entry = (name: string) => {
    let known = found.get(name)
    if (!known) found.set(name, (known = { primitives: [], version: null, kernels: [] }))
    return known
  }
  for (const { name, source } of listPrimitives()) {
    if (source === "@lazuli/core") continue
    const plugin = entry(source)
    plugin.primitives.push(name)
    const file = registrantFile(name)
    plugin.version ??= primitiveByName(name).version ?? (file === null ? null : versionAbove(file, source))
  }
  for (const offer of kernelOffers()) {
    const library = "library" in offer && offer.library !== undefined ? String(offer.library) : null
    const primitives = "kernels" in offer ? Object.keys(offer.kernels) : null
    entry(offer.package).kernels.push({ form: offer.form, library, primitives })
  }
  return [...found].map(([name, { version, primitives, kernels }]) => ({
    package: name,
    version,
    primitives,
    kernels,
  }))
}
