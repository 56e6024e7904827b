/**
 * The debug mode: every node remembers the line that built it, and each runs by itself, so that an error of an evaluation names it.
 */
import { flagFrom } from "../graph/environment"
import { building, type Node } from "../graph/graph"

const { dirname } = process.getBuiltinModule("node:path")
const { fileURLToPath } = process.getBuiltinModule("node:url")

const sites = new WeakMap<Node, string>()
const told = new WeakSet<Error>()
/** The line of the node whose decomposition is being built. */
let inherited: string | undefined

/** Where this library's files are: its packages lie side by side, in a workspace and in node_modules. */
const here = dirname(fileURLToPath(import.meta.url))
const home = /^(.*[\\/](?:packages|@lazuli)[\\/])core[\\/](?:src|dist)(?:[\\/].*)?$/.exec(here)?.[1] ?? here

/** The first line of a stack that is not this library's; its own tests count as users. */
function callSite(): string | undefined {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 100
  const { stack = "" } = new Error()
  Error.stackTraceLimit = limit
  for (const line of stack.split("\n").slice(1)) {
    const site = /\(?((?:file:|[\\/]|[A-Za-z]:).*:\d+:\d+)\)?$/.exec(line)?.[1]
    if (site === undefined) continue
    const path = site.startsWith("file:") ? fileURLToPath(site) : site
    if (!path.startsWith(home) || /\.test\.[jt]s:/.test(path)) return path
  }
  return undefined
}

/**
 * Enables or disables the debug mode, and returns whether it was enabled. In debug mode, errors during evaluation name the line that
 * created the failing operation; everything is slower. The environment variable `LAZULI_DEBUG=1` enables it from the start.
 * @example
 * const before = mx.setDebug(true)
 * mx.setDebug(before) // => true
 */
export function setDebug(on: boolean): boolean {
  const before = building.note !== null
  building.note = on
    ? (node) => {
        const site = inherited ?? callSite()
        if (site !== undefined) sites.set(node, site)
      }
    : null
  return before
}

/** True if the debug mode is on. */
export const isDebugging = (): boolean => building.note !== null

/** Builds a node's decomposition, which is of the line that built the node. */
export function inheritingSite<T>(node: Node, body: () => T): T {
  if (building.note === null) return body()
  const before = inherited
  inherited = sites.get(node)
  try {
    return body()
  } finally {
    inherited = before
  }
}

/** Lets an error name the line that built the node whose work failed. */
export function nameSite(error: unknown, node: Node): void {
  const site = sites.get(node)
  if (!(error instanceof Error) || site === undefined || told.has(error)) return
  told.add(error)
  error.message += `. Built at ${site}`
}

if (flagFrom("LAZULI_DEBUG") === true) setDebug(true)
