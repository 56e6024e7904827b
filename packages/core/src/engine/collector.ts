/**
 * The garbage collector, as far as this program may start it: JavaScript runs no finalizer in synchronous code, and handles that died
 * become visible to weak references only after a collection.
 */
type Collect = (options?: { type: "minor" | "major" }) => void

/** The process's own command line or environment, which a worker's execArgv and env do not show. */
function startedWith(file: "cmdline" | "environ"): string {
  try {
    return process.getBuiltinModule("node:fs").readFileSync(`/proc/self/${file}`, "latin1")
  } catch {
    return ""
  }
}

/** V8 ends the process where a flag is set after it was told to freeze them. */
const areFlagsFrozen = (): boolean =>
  /--freeze[-_]flags[-_]after[-_]init/.test(
    [...process.execArgv, process.env.NODE_OPTIONS, startedWith("cmdline"), startedWith("environ")].join(" "),
  )

/** `gc`, or where it cannot be exposed what makes V8 collect by itself, all of its garbage each time. Bun has a call of its own. */
function findCollector(press: () => void): Collect {
  const { Bun } = globalThis as { Bun?: { gc(waits: boolean): void } }
  if (Bun) return () => Bun.gc(true)
  if (typeof globalThis.gc === "function") return globalThis.gc as unknown as Collect
  if (!areFlagsFrozen())
    try {
      process.getBuiltinModule("node:v8").setFlagsFromString("--expose-gc")
      const gc: unknown = process.getBuiltinModule("node:vm").runInNewContext("gc")
      if (typeof gc === "function") return gc as Collect
    } catch {
      // Some embedders forbid flags or contexts.
    }
  return press
}

let collector: Collect | null = null

/** A function that collects young garbage, or all of it; `press` makes V8 collect by itself, where `gc` cannot be had. */
export const collectorOf =
  (press: () => void) =>
  (full: boolean): void => {
    collector ??= findCollector(press)
    collector(full ? undefined : { type: "minor" })
  }
