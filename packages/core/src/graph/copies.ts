/**
 * Copies of this package in one process. Each has classes, primitives and backends of its own, so that one copy's arrays mean nothing to
 * the other; errors that come of it say so, with both paths and the cure.
 */
// The first statement of the package: without that function nothing here would run, and the error would not say why.
if (!process.getBuiltinModule)
  throw new Error(`@lazuli/core needs Node.js 20.19, 22.12 or newer; this is Node.js ${process.version}`)
const { existsSync, readFileSync } = process.getBuiltinModule("node:fs")
const { dirname, join } = process.getBuiltinModule("node:path")
const { fileURLToPath } = process.getBuiltinModule("node:url")

/** One copy of @lazuli/core. */
export interface CoreCopy {
  /** The file it was loaded from. */
  readonly url: string
}

const COPIES = Symbol.for("@lazuli/core/copies")
const COPY = Symbol.for("@lazuli/core/copy")

/** This copy. */
export const CORE_COPY: CoreCopy = { url: import.meta.url }

const all = ((globalThis as { [COPIES]?: CoreCopy[] })[COPIES] ??= [])
all.push(CORE_COPY)

/** Marks a class's instances as this copy's. */
export function markCopy(prototype: object): void {
  Object.defineProperty(prototype, COPY, { value: CORE_COPY })
}

/** The copy whose class a value is of; undefined for what is no copy's. */
export const copyOf = (value: unknown): CoreCopy | undefined =>
  (value as { [COPY]?: CoreCopy } | null | undefined)?.[COPY]

/** True if a value is an array, a dtype or the like of another copy. */
export function isForeign(value: unknown): boolean {
  const copy = copyOf(value)
  return copy !== undefined && copy !== CORE_COPY
}

/** `@lazuli/core 0.1.0 at <folder>`. */
function label({ url }: CoreCopy): string {
  let folder = dirname(fileURLToPath(url))
  for (let up = folder; up !== dirname(up); up = dirname(up)) {
    const file = join(up, "package.json")
    if (!existsSync(file)) continue
    folder = up
    try {
      return `${(JSON.parse(readFileSync(file, "utf8")) as { version?: string }).version ?? "?"} at ${up}`
    } catch {
      break
    }
  }
  return `at ${folder}`
}

const CURE =
  "`npm dedupe` leaves one; packages that build on @lazuli/core list it under peerDependencies, not dependencies. " +
  "A package linked from its own folder brings its own: `npm install --install-links FOLDER` copies it instead, or make both workspaces of one"

/** The hint for a name of `source` that is taken already. */
export const takenHint = (source: string): string =>
  `Two copies of one package in node_modules do this (\`npm ls ${source}\` shows them); so does a package that uses another package's name`

/** The name that an error gives a value of another copy. */
export function copyText(value: unknown, copy: CoreCopy): string {
  const kind = typeof value === "function" ? "Dtype" : value?.constructor?.name.replace(/^_+|\d+$/g, "")
  return `an mx.${kind} of another copy of @lazuli/core (${label(copy)}; this one is ${label(CORE_COPY)}). ${CURE}`
}

/** The hint of an error that may come of several copies; undefined where there is one. */
export function copiesHint(): string | undefined {
  if (all.length < 2) return undefined
  return `There are ${all.length} copies of @lazuli/core in this process, each with its own (${all.map(label).join("; ")}). ${CURE}`
}
