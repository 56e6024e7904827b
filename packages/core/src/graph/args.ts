/**
 * How public functions take arguments: positional in MLX's order, or in one trailing plain object by name; unknown names are
 * errors that point to the nearest known one.
 */
import { calls, nameCall } from "./calls"
import { onStream, type StreamLike } from "./device"
import { ArgumentError, describe, nearest } from "./errors"
import { Array } from "./graph"
import type { Axes, Scalar, StreamOptions } from "./option-types"

export type { Axes, Scalar, StreamOptions }
/** An array, or a scalar that takes its dtype from what it stands beside. */
export type Operand = Array | Scalar

/** Whether a value is a plain object, which as a last argument means options. */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null) return false
  const proto = Object.getPrototypeOf(value) as unknown
  return proto === Object.prototype || proto === null
}

/** A list of the right element type is a JavaScript array; `mx.Array` is not one. */
export const isList = (value: unknown): value is readonly unknown[] => globalThis.Array.isArray(value)

/**
 * Makes the body of a public function. `names` are the parameters in order; `body` receives them in that order, undefined where none was
 * given. A trailing plain object fills in the rest, and `stream` is taken out of it.
 * `call` names it in recorded programs, where `op`, which errors name, is not unique; null keeps it out of files, as what takes code.
 */
export function operation<A extends unknown[], R>(
  op: string,
  names: readonly string[],
  body: (...args: A) => R,
  call: string | null = op,
): (args: readonly unknown[]) => R {
  const count = names.length
  if (call !== null) nameCall(call, body as (...args: never[]) => unknown)
  const run = (values: A): R =>
    calls.recorder === null ? body(...values) : calls.recorder.call(call ?? op, body, values)
  return (args) => {
    const last = args[args.length - 1]
    if (args.length === 0 || !isPlainObject(last)) {
      if (args.length > count && args.slice(count).some((extra) => extra !== undefined))
        throw new ArgumentError(
          op,
          `takes at most ${count} arguments (${names.join(", ")}), received ${args.length}`,
        )
      return run(args as A)
    }
    const values = args.slice(0, -1)
    let stream: StreamLike = null
    for (const key of Object.keys(last)) {
      if (key === "stream") {
        stream = (last.stream ?? null) as StreamLike
        continue
      }
      const position = names.indexOf(key)
      if (position < 0) {
        const near = nearest(key, [...names, "stream"])
        throw new ArgumentError(
          op,
          `has no parameter "${key}"; it takes ${[...names, "stream"].join(", ")}`,
          near ? { hint: `Did you mean "${near}"?` } : {},
        )
      }
      if (position < args.length - 1)
        throw new ArgumentError(op, `parameter "${key}" is given twice, by position and by name`)
      values[position] = last[key]
    }
    // No holes: what is remembered of a call has a value for every parameter.
    for (let i = 0; i < values.length; i++) if (!(i in values)) values[i] = undefined
    return stream === null ? run(values as A) : onStream(stream, () => run(values as A))
  }
}

/** Refuses options that `op` does not know. @throws ArgumentError */
export function checkOptions(op: string, options: object, known: readonly string[]): void {
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
    hint: "mx.array(data) makes one",
  })
}
