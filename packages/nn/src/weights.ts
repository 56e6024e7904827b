/**
 * Saving and loading weights by name, and matching them with a module's parameters.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  describe,
  format,
  isList,
  isPlainObject,
  type Kind,
  nearest,
  renamed,
  ShapeError,
  sameShape,
  setOwn,
} from "@lazuli/core/engine"

/** A parameter's names, and its replacement. */
export interface NamedParameter {
  /** The dotted name in checkpoints. */
  readonly name: string
  /** The dotted path of fields. */
  readonly field: string
  readonly value: mx.Array
  set(value: mx.Array): void
}

export const aFile: Kind = {
  expected: "a path or a file: URL",
  accepts: (value: unknown) => (typeof value === "string" && value !== "") || value instanceof URL,
}

/** Saves parameters to a file. @throws ArgumentError for another extension */
export function writeWeights(parameters: readonly NamedParameter[], file: mx.FilePath): void {
  const op = "saveWeights"
  const weights: Record<string, mx.Array> = {}
  for (const { name, value } of parameters) setOwn(weights, name, value)
  const path = String(file)
  if (!path.endsWith(".safetensors") && !path.endsWith(".npz"))
    throw new ArgumentError(op, `the file must end in .safetensors or .npz, received ${describe(path)}`)
  try {
    if (path.endsWith(".npz")) mx.savez(file, weights)
    else mx.saveSafetensors(file, weights)
  } catch (error) {
    throw renamed(error, op)
  }
}

/** Weights by name, from a file, pairs, or an object. @throws ArgumentError otherwise */
export function weightsOf(source: unknown): ReadonlyMap<string, mx.Array> {
  const op = "loadWeights"
  const entries =
    typeof source === "string" || source instanceof URL ? readWeights(source) : entriesOf(source)
  const weights = new Map<string, mx.Array>()
  for (const entry of entries) {
    const [name, value] = (isList(entry) && entry.length === 2 ? entry : []) as [unknown, unknown]
    if (typeof name !== "string")
      throw new ArgumentError(
        op,
        `expected pairs of a name and an array, received ${describe(entry)} among them`,
      )
    if (!(value instanceof mx.Array))
      throw new ArgumentError(op, `"${name}" must be an array, received ${describe(value)}`)
    weights.set(name, value)
  }
  return weights
}

function entriesOf(source: unknown): readonly unknown[] {
  if (isPlainObject(source)) return Object.entries(source)
  const isObject = typeof source === "object" && source !== null && !(source instanceof mx.Array)
  if (isObject && Symbol.iterator in source) return [...(source as Iterable<unknown>)]
  throw new ArgumentError(
    "loadWeights",
    `expected a file, pairs of a name and an array, or an object of arrays, received ${describe(source)}`,
  )
}

const WEIGHT_FILES = [".safetensors", ".npz", ".gguf"]

function readWeights(file: mx.FilePath): readonly unknown[] {
  const op = "loadWeights"
  const path = String(file)
  if (!WEIGHT_FILES.some((ending) => path.endsWith(ending)))
    throw new ArgumentError(
      op,
      `expected a weight file, with the extension ${WEIGHT_FILES.join(", ")}, received ${describe(path)}`,
    )
  try {
    return Object.entries(mx.load(file) as Record<string, mx.Array>)
  } catch (error) {
    throw renamed(error, op)
  }
}

/** The weights of parameters. @throws if they do not match and `strict` is set */
export function matched(
  parameters: readonly NamedParameter[],
  weights: ReadonlyMap<string, mx.Array>,
  strict: boolean,
): ReadonlyMap<NamedParameter, mx.Array> {
  const byName = new Map<string, NamedParameter>()
  for (const parameter of parameters) byName.set(parameter.field, parameter)
  for (const parameter of parameters) byName.set(parameter.name, parameter)
  const given = new Map<NamedParameter, mx.Array>()
  const unknown: string[] = []
  for (const [name, value] of weights) {
    const parameter = byName.get(name)
    if (parameter) given.set(parameter, value)
    else unknown.push(name)
  }
  if (strict) checkWeights(parameters, given, unknown, byName)
  return given
}

/** `1 parameter`, `3 parameters`. */
const counted = (n: number): string => `${n} parameter${n === 1 ? "" : "s"}`

function checkWeights(
  parameters: readonly NamedParameter[],
  given: ReadonlyMap<NamedParameter, mx.Array>,
  unknown: readonly string[],
  known: ReadonlyMap<string, NamedParameter>,
): void {
  const op = "loadWeights"
  const list = (names: readonly string[]): string =>
    `${names.slice(0, 10).join(", ")}${names.length > 10 ? ", …" : ""}`
  if (unknown.length > 0) {
    const near = nearest(unknown[0], known.keys())
    throw new ArgumentError(
      op,
      `received ${counted(unknown.length)} that the module does not have: ${list(unknown)}`,
      near ? { hint: `Did you mean "${near}"?` } : { hint: "With strict: false they are ignored" },
    )
  }
  const missing = parameters.filter((parameter) => !given.has(parameter)).map((parameter) => parameter.name)
  if (missing.length > 0)
    throw new ArgumentError(
      op,
      `the weights lack ${counted(missing.length)} of the module: ${list(missing)}`,
      { hint: "With strict: false the module keeps its own" },
    )
  for (const [{ name, value }, next] of given) {
    if (!sameShape(value.shape, next.shape))
      throw new ShapeError(
        op,
        `"${name}" must have shape ${format(value.shape)}, received ${format(next.shape)}`,
      )
  }
}
