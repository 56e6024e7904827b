/**
 * Detection of several copies of this package in one process. Each has its own classes, primitives and backends and cannot use another's
 * arrays; errors caused by that name both paths and the remedy.
 */
// The first statement of the package: without that function everything below would fail with an obscure error.
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

/** Marks the instances of a class as belonging to this copy. */
export function markCopy(prototype: object): void {
  Object.defineProperty(prototype, COPY, { value: CORE_COPY })
}

/** The copy that defines a value's class; undefined for other values. */
export const copyOf = (value: unknown): CoreCopy | undefined =>
  (value as { [COPY]?: CoreCopy } | null | undefined)?.[COPY]

/** True if a value is an array, dtype, etc. of another copy. */
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
  "Run `npm dedupe` to keep one; packages that build on @lazuli/core must list it under peerDependencies, not dependencies. " +
  "A package linked from another folder uses its own copy: install it with `npm install --install-links FOLDER`, or put both into one workspace"

/** The hint if a name of `source` is already taken. */
export const takenHint = (source: string): string =>
  `Two copies of a package in node_modules cause this (\`npm ls ${source}\` lists them), and so does a package that registers names of another package`

/** The description of another copy's value in errors. */
export function copyText(value: unknown, copy: CoreCopy): string {
  const kind = typeof value === "function" ? "Dtype" : value?.constructor?.name.replace(/^_+|\d+$/g, "")
  return `an mx.${kind} of another copy of @lazuli/core (${label(copy)}; this one is ${label(CORE_COPY)}). ${CURE}`
}

/** The hint of an error that several copies may have caused; undefined if there is only one. */
export function copiesHint(): string | undefined {
  if (all.length < 2) return undefined
  return `There are ${all.length} copies of @lazuli/core in this process, each with its own (${all.map(label).join("; ")}). ${CURE}`
}
