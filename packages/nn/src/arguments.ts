/**
 * Arguments of constructors and calls of layers: positional in MLX's order, or by name in a trailing plain object, validated by kind.
 * Functions of arrays use `operation` of @lazuli/core instead, which also handles streams.
 */
import * as mx from "@lazuli/core"
import {
  ArgumentError,
  checkArguments,
  describe,
  type ErrorDetails,
  format,
  isList,
  isListOf,
  isPlainObject,
  type Kind,
  type LazuliError,
  nearest,
  type Parameter,
  parametersOf,
  renamed,
  ShapeError,
  type Signature,
} from "@lazuli/core/engine"

/**
 * The arguments in the order of the signature; null becomes undefined for optional ones. `A` is their type as passed by callers, with null
 * for MLX's None.
 * @throws ArgumentError for unknown names, and for repeated, missing, extra or invalid arguments
 */
export function named<A extends unknown[]>(
  op: string,
  signature: Signature | readonly Parameter[],
  args: readonly unknown[],
): { [Position in keyof A]: Exclude<A[Position], null> } {
  const parameters = parametersIn(signature)
  const last = args[args.length - 1]
  // An object may also be a positional argument, such as a tree.
  const isByName = args.length > 0 && isPlainObject(last)
  const byName = isByName ? last : {}
  const values = isByName ? args.slice(0, -1) : args.slice()
  if (isByName || values.length > parameters.length) placeByName(op, parameters, values, byName)
  checkArguments(op, parameters, values)
  return values as { [Position in keyof A]: Exclude<A[Position], null> }
}

/** Puts named arguments in their positions, behind those that were given by position. */
function placeByName(
  op: string,
  parameters: readonly Parameter[],
  values: unknown[],
  byName: Readonly<Record<string, unknown>>,
): void {
  const positional = values.length
  const names = parameters.map(({ name }) => name)
  if (positional > names.length && values.slice(names.length).some((extra) => extra !== undefined))
    throw new ArgumentError(
      op,
      `takes at most ${names.length} arguments (${names.join(", ")}), received ${positional}`,
    )
  for (const key of Object.keys(byName)) {
    const position = names.indexOf(key)
    if (position < 0) {
      const near = nearest(key, names)
      throw new ArgumentError(
        op,
        `has no parameter "${key}"; it takes ${names.join(", ") || "none"}`,
        near ? { hint: `Did you mean "${near}"?` } : {},
      )
    }
    if (position < positional)
      throw new ArgumentError(op, `parameter "${key}" is given twice, by position and by name`)
    values[position] = byName[key]
  }
}

/** Validates positional arguments. @throws ArgumentError */
export function check(op: string, signature: Signature | readonly Parameter[], ...args: unknown[]): void {
  checkArguments(op, parametersIn(signature), args)
}

/** Frequently called functions pass precomputed parameters. */
const parametersIn = (signature: Signature | readonly Parameter[]): readonly Parameter[] =>
  isList(signature) ? (signature as readonly Parameter[]) : parametersOf(signature as Signature)

/** Makes a kind optional. */
export const optional = (kind: Kind): Kind => ({ ...kind, optional: true })

/** One integer for all axes, or one per axis. */
export const perAxisOf = (axes: number, least: number): Kind => {
  const fits = (n: unknown): boolean => Number.isSafeInteger(n) && (n as number) >= least
  return {
    expected: `an integer of at least ${least}${axes > 1 ? ` or a list of ${axes}` : ""}`,
    accepts: (value: unknown) =>
      fits(value) || (isListOf(value, fits) && (value as unknown[]).length === axes),
  }
}

/** A module, recognized by its methods, so that other copies of the class are accepted. */
export const aModule: Kind = {
  expected: "a module",
  accepts: (value: unknown) =>
    typeof value === "object" &&
    value !== null &&
    typeof (value as { leafModules?: unknown }).leafModules === "function",
}

/** A tree of arrays: objects, lists, a module, or a single array. */
export const aTree: Kind = {
  expected: "a tree of arrays",
  accepts: (value: unknown) => typeof value === "object" && value !== null,
}

/** A module with `forward`. */
export const callable: Kind = {
  expected: "a module with a forward",
  accepts: (value: unknown) =>
    typeof value === "object" &&
    value !== null &&
    typeof (value as { forward?: unknown }).forward === "function",
}

/** A dropout probability, or a momentum. */
export const belowOne: Kind = {
  expected: "a number in [0, 1)",
  accepts: (value: unknown) => typeof value === "number" && value >= 0 && value < 1,
}

/**
 * Runs a layer's `forward`. Errors are reported under the name of its class, and a wrong number of features in terms of the layer.
 * @param arrays - arguments that must be arrays, by name
 * @param features - the expected features of arguments; only checked after an error
 */
export function called<R>(
  layer: object,
  arrays: Readonly<Record<string, unknown>>,
  body: () => R,
  features?: () => Readonly<Record<string, number>>,
): R {
  for (const name in arrays) if (!(arrays[name] instanceof mx.Array)) refuseArray(layer, name, arrays[name])
  try {
    return body()
  } catch (error) {
    if (error instanceof ShapeError && features) checkFeatures(layer, arrays, features())
    throw renamed(error, layer.constructor.name)
  }
}

/** Runs the body of a function and reports errors under its name. */
export function under<R>(op: string, body: () => R): R {
  try {
    return body()
  } catch (error) {
    throw renamed(error, op)
  }
}

/** The same error under another name, with a subject before its text. */
export function about(error: LazuliError, op: string, subject: string): LazuliError {
  const Class = error.constructor as new (op: string, fact: string, details: ErrorDetails) => LazuliError
  return new Class(op, `${subject}: ${error.message.slice(error.op.length + 3)}`, { cause: error })
}

/** Checks the number of features along the last axis of arrays. @throws ShapeError */
export function checkFeatures(
  layer: object,
  arrays: Readonly<Record<string, unknown>>,
  features: Readonly<Record<string, number>>,
): void {
  for (const [name, count] of Object.entries(features)) {
    const { shape } = (arrays[name] as mx.Array).node
    if (shape[shape.length - 1] !== count)
      throw new ShapeError(
        layer.constructor.name,
        `${name} must have ${count} features along its last axis, received shape ${format(shape)}`,
      )
  }
}

/** Checks that arguments of a layer's call are arrays. @throws ArgumentError */
export function checkArrays(layer: object, arrays: Readonly<Record<string, unknown>>): void {
  for (const name in arrays) if (!(arrays[name] instanceof mx.Array)) refuseArray(layer, name, arrays[name])
}

/** An optional array argument of a layer's call. @throws ArgumentError */
export function arrayOrNone(layer: object, name: string, value: unknown): mx.Array | null {
  if (value === undefined || value === null) return null
  return value instanceof mx.Array ? value : refuseArray(layer, name, value)
}

function refuseArray(layer: object, name: string, value: unknown): never {
  throw new ArgumentError(layer.constructor.name, `${name} must be an array, received ${describe(value)}`, {
    hint: "mx.array(data) makes one",
  })
}
