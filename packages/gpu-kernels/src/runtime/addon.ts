/**
 * Addons of GPU backends: loaded from a file, and held to the version that their package speaks.
 */
import { existsSync } from "node:fs"
import { createRequire } from "node:module"
import { binaryCure, DeviceError, PLATFORM } from "@lazuli/core/engine"

/** An addon as its package knows it. */
export interface Addon {
  /** The backend, as errors begin. */
  readonly backend: string
  /** Its name in the sentence "the addon for linux-x64 could not be loaded". */
  readonly name: string
  /** The package that carries it for a platform, without the platform's name. */
  readonly package: string
  /** The platforms that have such a package. */
  readonly platforms: readonly string[]
  /** Its name in the sentence "was built for protocol 1 of the CUDA backend". */
  readonly owner: string
  /** The version of its functions, and of the words that they read. */
  readonly protocol: number
  /** The cure where it cannot be loaded. */
  readonly hint: string
}

/** Refuses an addon of another version. @throws DeviceError that names both */
export function checkAddon(
  of: Addon,
  loaded: { readonly protocol?: (() => number) | undefined },
  path: string,
): void {
  const found = typeof loaded.protocol === "function" ? loaded.protocol() : 0
  if (found === of.protocol) return
  throw new DeviceError(
    of.backend,
    `${path} was built for protocol ${found} of ${of.owner}, but this package writes protocol ${of.protocol}`,
    { hint: "Build it again: npm run build in a clone of the repository" },
  )
}

/** Loads an addon: the file that a variable names, or what a build from source left, or the platform's package.
 * @throws DeviceError that says how to get it */
export function loadAddon<T extends { protocol(): number }>(
  of: Addon,
  chosen: string | undefined,
  built: string,
): T {
  const path = chosen || (existsSync(built) ? built : `${of.package}-${PLATFORM}`)
  let loaded: T
  try {
    // From the package that has it among its dependencies, which this one has not.
    loaded = createRequire(built)(path) as T
  } catch (cause) {
    const cure = of.platforms.includes(PLATFORM)
      ? binaryCure()
      : `Packages have it for ${of.platforms.join(" and ")}, or build from source: npm run build in a clone of the repository`
    throw new DeviceError(
      of.backend,
      `${of.name} for ${PLATFORM} could not be loaded: ${(cause as Error).message.split("\n")[0]}`,
      {
        cause,
        hint: `${cure}. ${of.hint}`,
      },
    )
  }
  checkAddon(of, loaded, path)
  return loaded
}
