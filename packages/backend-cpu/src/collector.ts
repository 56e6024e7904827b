/**
 * The garbage collector, as far as this program may start it: JavaScript runs no finalizer in synchronous code, and handles that died
 * become visible to weak references only after a collection.
 */
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

type Collect = (options?: { type: "minor" | "major" }) => void

function findCollector(): Collect | undefined {
  if (typeof globalThis.gc === "function") return globalThis.gc as unknown as Collect
  try {
    setFlagsFromString("--expose-gc")
    return runInNewContext("gc") as Collect
  } catch {
    // Some embedders forbid flags; then memory follows V8's own collections.
    return undefined
  }
}

let collector: Collect | undefined | null = null

/** Collects young garbage, or all of it. Returns whether it could. */
export function collect(full: boolean): boolean {
  if (collector === null) collector = findCollector()
  if (!collector) return false
  collector(full ? undefined : { type: "minor" })
  return true
}
