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

/** True if a flag of this program's command line or environment matches. */
const isStartedWith = (flag: RegExp): boolean =>
  flag.test(
    [...process.execArgv, process.env.NODE_OPTIONS, startedWith("cmdline"), startedWith("environ")].join(" "),
  )

/** V8 ends the process where a flag is set after it was told to freeze them. */
const areFlagsFrozen = (): boolean => isStartedWith(/--freeze[-_]flags[-_]after[-_]init/)

/** `gc`, or where it cannot be exposed what makes V8 collect by itself, all of its garbage each time. Bun has a call of its own. */
function findCollector(press: () => void): Collect {
  const { Bun } = globalThis as { Bun?: { gc(waits: boolean): void } }
  if (Bun) return () => Bun.gc(true)
  const exposed = globalThis.gc as unknown as Collect | undefined
  if (!areFlagsFrozen())
    try {
      const { setFlagsFromString } = process.getBuiltinModule("node:v8")
      setFlagsFromString("--expose-gc")
      const gc: unknown = exposed ?? process.getBuiltinModule("node:vm").runInNewContext("gc")
      if (typeof gc === "function") return aloneWhereShort(gc as Collect, setFlagsFromString)
    } catch {
      // Some embedders forbid flags or contexts.
    }
  return typeof exposed === "function" ? exposed : press
}

/** A collection of young garbage that took less time than this is run by one thread the next time. */
const SHORT_MS = 0.4

/**
 * V8 wakes threads for each collection, which takes as long again as what a short one does, and takes processors from work of ours. The
 * flag says what the next collection does, and is back before V8 begins one by itself.
 */
function aloneWhereShort(collect: Collect, setFlag: (flag: string) => void): Collect {
  if (isStartedWith(/parallel[-_]scavenge|single[-_]threaded/)) return collect
  let last = 0
  return (options) => {
    if (options === undefined) return collect()
    const start = performance.now()
    const alone = last < SHORT_MS
    if (alone) setFlag("--no-parallel-scavenge")
    try {
      collect(options)
    } finally {
      if (alone) setFlag("--parallel-scavenge")
    }
    last = performance.now() - start
  }
}

let collector: Collect | null = null

/** A function that collects young garbage, or all of it; `press` makes V8 collect by itself, where `gc` cannot be had. */
export const collectorOf =
  (press: () => void) =>
  (full: boolean): void => {
    collector ??= findCollector(press)
    collector(full ? undefined : { type: "minor" })
  }
