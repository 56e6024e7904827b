/**
 * Addons of GPU backends: loaded from a file, and held to the version that their package speaks.
 */
import { createRequire } from "node:module"
import { DeviceError } from "@lazuli/core/engine"

/** An addon as its package knows it. */
export interface Addon {
  /** The backend, as errors begin. */
  readonly backend: string
  /** Its name in the sentence "the addon for linux-x64 could not be loaded". */
  readonly name: string
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
    `${path} was built for protocol ${found} of ${of.owner}, and this package writes protocol ${of.protocol}`,
    { hint: "Build it again: npm run build in a clone of the repository" },
  )
}

/** Loads an addon. @throws DeviceError that says how to get it */
export function loadAddon<T extends { protocol(): number }>(of: Addon, path: string): T {
  let loaded: T
  try {
    loaded = createRequire(import.meta.url)(path) as T
  } catch (cause) {
    throw new DeviceError(
      of.backend,
      `${of.name} for ${process.platform}-${process.arch} could not be loaded: ${(cause as Error).message.split("\n")[0]}`,
      { cause, hint: of.hint },
    )
  }
  checkAddon(of, loaded, path)
  return loaded
}
