/**
 * Arguments of public functions: positional in MLX's order, or by name in a trailing plain object. Unknown names are errors that suggest
 * the nearest known one.
 */
import { renamed } from "./boundary"
import { calls, nameCall } from "./calls"
import { onStream, type StreamLike } from "./device"
import { ArgumentError, describe, hintFor, nearest, TransformError } from "./errors"
import { Array, boundPending, handles } from "./graph"
import { checkArguments, type Parameter, parametersOf, type Signature } from "./kinds"
import type { Axes, Scalar, StreamOptions } from "./option-types"

export type { Axes, Scalar, StreamOptions }
/** An array, or a weakly typed scalar, which adopts the dtype of the other operand. */
export type Operand = Array | Scalar

/** True if a value is a plain object; as the last argument, that is the options. */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  // Most last arguments are arrays or lists, which are told apart without asking for their prototype.
  if (typeof value !== "object" || value === null || value instanceof Array || isList(value)) return false
  const proto = Object.getPrototypeOf(value) as unknown
  return proto === Object.prototype || proto === null
}

/** True for JavaScript arrays, not for `mx.Array`. */
export const isList = (value: unknown): value is readonly unknown[] => globalThis.Array.isArray(value)

/**
 * Wraps the body of a public function. `signature` lists the parameters with their kinds, which are checked here; `body` receives the
 * arguments in that order, undefined where omitted. A trailing plain object supplies the rest by name, and `stream`. Errors of functions
 * that the body calls are reported under the name `op`. `call` is its name in recorded programs if `op` is not unique; null excludes it
 * from files, for functions that take code.
 */
export function operation<A extends unknown[], R>(
  op: string,
  signature: Signature | readonly string[],
  body: (...args: A) => R,
  call: string | null = op,
  version: string | null = null,
): (args: readonly unknown[]) => R {
  // Computed at the first call: a program calls few of the functions that it imports.
  let parameters: readonly Parameter[] | undefined
  const checked = (values: A): R => {
    try {
      checkArguments(op, (parameters ??= parametersOf(signature)), values)
      return withOwnHandles(body(...values), values)
    } catch (error) {
      throw renamed(error, op)
    }
  }
  const named = (...values: A): R => checked(values)
  if (call !== null) nameCall(call, named as (...args: never[]) => unknown, version)
  const run = (values: A): R =>
    calls.recorder === null ? checked(values) : calls.recorder.call(call ?? op, named, values)
  return (args) => {
    const last = args[args.length - 1]
    parameters ??= parametersOf(signature)
    if (args.length === 0 || !isPlainObject(last)) {
      if (args.length > parameters.length) refuseExtra(op, parameters, args)
      return run(args as A)
    }
    const values = args.slice(0, -1)
    const stream = takeOptions(op, parameters, values, last)
    return stream === null ? run(values as A) : onStream(stream, () => run(values as A), op)
  }
}

/**
 * The same for a body that makes arrays on the way: only the result has a handle. One on a part would keep the part's memory until it is
 * found dead.
 */
export const composition = <A extends unknown[]>(
  op: string,
  signature: Signature,
  body: (...args: A) => Array,
): ((args: readonly unknown[]) => Array) =>
  operation(op, signature, (...args: A) => {
    // As `composed` does, without a function for each call.
    boundPending()
    const before = handles.tracking
    handles.tracking = false
    let made: Array
    try {
      made = body(...args)
    } finally {
      handles.tracking = before
    }
    return new Array(made.node)
  })

function refuseExtra(op: string, parameters: readonly Parameter[], args: readonly unknown[]): void {
  const count = parameters.length
  if (args.slice(count).every((extra) => extra === undefined)) return
  const names = parameters.map(({ name }) => name).join(", ")
  throw new ArgumentError(op, `takes at most ${count} arguments (${names}), received ${args.length}`)
}

/** Moves named arguments to their positions and returns the stream. */
function takeOptions(
  op: string,
  parameters: readonly Parameter[],
  values: unknown[],
  options: Record<string, unknown>,
): StreamLike {
  const positional = values.length
  let stream: StreamLike = null
  for (const key of Object.keys(options)) {
    if (key === "stream") {
      stream = (options.stream ?? null) as StreamLike
      continue
    }
    let position = parameters.length - 1
    while (position >= 0 && parameters[position].name !== key) position--
    if (position < 0) {
      const names = [...parameters.map(({ name }) => name), "stream"]
      const near = nearest(key, names)
      throw new ArgumentError(
        op,
        `has no parameter "${key}"; it takes ${names.join(", ")}`,
        near ? { hint: `Did you mean "${near}"?` } : {},
      )
    }
    if (position < positional)
      throw new ArgumentError(op, `parameter "${key}" is given twice, by position and by name`)
    values[position] = options[key]
  }
  if (positional > parameters.length) refuseExtra(op, parameters, values)
  // No holes: a recorded call has a value for every parameter.
  for (let i = 0; i < values.length; i++) if (!(i in values)) values[i] = undefined
  return stream
}

/**
 * Wraps a public function without options and stream: checks its arguments by kind and reports errors under its name, except those thrown
 * by user functions that {@link ofUser} runs.
 */
export function publicFunction<A extends unknown[], R>(
  op: string,
  signature: Signature,
  body: (...args: A) => R,
): (...args: A) => R {
  let parameters: readonly Parameter[] | undefined
  return (...args) => {
    try {
      checkArguments(op, (parameters ??= parametersOf(signature)), args)
      return body(...args)
    } catch (error) {
      throw renamed(error, op)
    }
  }
}

/**
 * The result of a public function, with new handles for arguments that the body returned unchanged, as conversions to the same dtype do.
 * `set` or `dispose` on one handle then does not affect the other.
 */
export function withOwnHandles<R>(result: R, args: readonly unknown[]): R {
  if (result instanceof Array) return isAmong(result, args) ? (new Array(result.node) as R) : result
  if (!isList(result)) return result
  const given = new Set(args.flat())
  return result.map((x) => (x instanceof Array && given.has(x) ? new Array(x.node) : x)) as R
}

function isAmong(handle: Array, args: readonly unknown[]): boolean {
  for (let i = 0; i < args.length; i++) {
    const arg = args[i]
    if (arg === handle || (isList(arg) && isAmong(handle, arg))) return true
  }
  return false
}

/** Rejects unknown options. @throws ArgumentError */
export function checkOptions(op: string, options: object, known: readonly string[]): void {
  if (typeof (options as unknown) !== "object" || options === null || isList(options))
    throw new ArgumentError(
      op,
      `options must be an object with ${known.join(", ")}, received ${describe(options)}`,
    )
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue
    const near = nearest(key, known)
    throw new ArgumentError(
      op,
      `has no option "${key}"; it takes ${known.join(", ")}`,
      near ? { hint: `Did you mean "${near}"?` } : {},
    )
  }
}

/** An argument that must be an array. @throws ArgumentError */
export function asArrayArgument(op: string, name: string, value: unknown): Array {
  if (value instanceof Array) return value
  throw new ArgumentError(op, `${name} must be an array, received ${describe(value)}`, {
    hint: hintFor(value, "mx.array(data) makes one"),
  })
}

/** Checks that an argument of a transform is a function. @throws TransformError */
export function checkFunction(op: string, f: unknown): void {
  if (typeof f === "function") return
  const isModel = typeof (f as { forward?: unknown } | null)?.forward === "function"
  throw new TransformError(op, `expected a function, received ${describe(f)}`, {
    hint: isModel ? "Call the model in one: (x) => model.forward(x)" : undefined,
  })
}
