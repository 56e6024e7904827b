/**
 * Functions, methods and classes by their names in MLX, and recorded calls of them.
 */
import * as mx from "@lazuli/core"
import type { Through } from "./through"
import { camelCase, type GoldenCall, type Json, type JsonObject, Missing } from "./format"
import { arrayOf, besideScalars, type Decoding, decode, literalDtype } from "./values"

/** Any function. */
export type AnyFunction = (...args: unknown[]) => unknown

/**
 * Where recorded names are looked up, by the part before the dot: `core`, and `nn` and `optimizers` where they are to be replayed.
 * `compile` is what cases of compiled functions run through, and `through` how the functions of all cases are run.
 */
export type Spaces = Readonly<Record<string, unknown>> & {
  readonly core: object
  readonly compile?: (f: (...xs: mx.Array[]) => mx.Array[]) => (...xs: mx.Array[]) => mx.Array[]
  readonly through?: Through
}

const filters: Record<string, AnyFunction> = {
  "filter.ndim_ge_2": (_path, w) => (w as mx.Array).ndim >= 2,
  "filter.name_has_b": (path) => (path as string).includes("b"),
}

/** The function of a recorded name. @throws Missing */
export function lookup(name: string, spaces: Spaces): AnyFunction {
  if (name in filters) return filters[name]
  const [space, ...rest] = name.split(".")
  if (space === "array") return method(camelCase(rest.join(".")))
  // `mx` holds the functions of mlx.utils, and the namespaces random, linalg, fft and fast.
  const core = spaces.core as Record<string, unknown>
  let found: unknown = space === "utils" ? (spaces.utils ?? core) : (spaces[space] ?? core[space])
  for (const part of rest) found = (found as Record<string, unknown> | undefined)?.[camelCase(part)]
  if (found === undefined) throw new Missing(name)
  if (name === "core.finfo" || name === "core.iinfo") {
    return (dtype) => {
      const { min, max, eps, dtype: of } = (found as AnyFunction)(dtype) as Record<string, unknown>
      return name === "core.finfo" ? [min, max, eps, of] : [min, max, of]
    }
  }
  return typeof found === "function" ? (found as AnyFunction) : () => found
}

function method(name: string): AnyFunction {
  if (name === "array") return (...args) => mx.array(...(args as Parameters<typeof mx.array>))
  if (name === "len") return (a) => (a as mx.Array).length
  if (name === "getitem") return (a, index) => (a as mx.Array).index(...(index as mx.IndexSpec[]))
  if (name === "setitem")
    return (a, index, value) => {
      const copy = mx.array(a as mx.Array)
      copy.set(index as mx.IndexSpec[], value as mx.Operand)
      return copy
    }
  const update = /^at([A-Z]\w*)$/.exec(name)?.[1].toLowerCase()
  if (update)
    return (a, index, value) => {
      const at = (a as mx.Array).at(...(index as mx.IndexSpec[])) as unknown as Record<string, AnyFunction>
      return at[update](value)
    }
  if (!(name in mx.Array.prototype)) throw new Missing(`array.${name}`)
  return (a, ...args) => {
    const value = (a as Record<string, unknown>)[name]
    if (typeof value !== "function" || name === "dtype") return value
    // Python's reshape and transpose also take their numbers one by one.
    const spread = (name === "reshape" || name === "transpose") && typeof args[0] === "number"
    return (value as AnyFunction).apply(a, spread ? [args] : args)
  }
}

/** The values of `{"fn": name}` and `{"call": …}`. */
export function namedValue(spaces: Spaces): Decoding["named"] {
  return (v) => {
    if ("fn" in v) return lookup(v.fn as string, spaces)
    if ("call" in v) return invoke(v.call as unknown as GoldenCall, spaces)
    throw new Missing(`value ${Object.keys(v)}`)
  }
}

/** Keyword arguments as the options object that takes their place; nothing where there are none. */
export function optionsOf(kwargs: JsonObject | undefined, how: Decoding): Record<string, unknown>[] {
  const entries = Object.entries(kwargs ?? {})
  if (entries.length === 0) return []
  return [Object.fromEntries(entries.map(([key, v]) => [camelCase(key), decode(v, how)]))]
}

/** Runs a recorded call, or makes an instance of a class: classes begin with a capital. `leaf` supplies the arrays of `args`. */
export function invoke(call: GoldenCall, spaces: Spaces, leaf: Decoding["leaf"] = arrayOf): unknown {
  const { fn, args = [] } = call
  const found = lookup(fn, spaces)
  const named = namedValue(spaces)
  const beside = besideScalars(fn, args)
  const decoded = args.map((v, i) =>
    decode(v, { beside: fn === "core.full" && i === 0 ? "not an operand" : beside, named, leaf }),
  )
  const [options] = optionsOf(call.kwargs, {
    beside: beside === "not an operand" ? beside : "floats",
    named,
  })
  const kwargs = { ...options, ...literalOptions(call, args, decoded, options ?? {}) }
  if (fn === "core.broadcast_to" && typeof decoded[0] === "number")
    decoded[0] = decode(args[0], { beside: "no array", named })
  const all = Object.keys(kwargs).length > 0 ? [...decoded, kwargs] : decoded
  const isClass = /^[A-Z]/.test(fn.split(".").pop() as string) && found.prototype
  return isClass ? new (found as unknown as new (...a: unknown[]) => unknown)(...all) : found(...all)
}

/** The dtype that Python's literals imply, where JavaScript's numbers do not. */
function literalOptions(
  { fn }: GoldenCall,
  args: readonly Json[],
  decoded: readonly unknown[],
  options: Record<string, unknown>,
): Record<string, unknown> {
  if ("dtype" in options) return {}
  if (fn === "core.arange" && JSON.stringify(args).includes('"float"')) return { dtype: mx.float32 }
  if ((fn === "array.array" || fn === "core.asarray") && decoded.length < 2) {
    const dtype = literalDtype(args[0])
    return dtype ? { dtype } : {}
  }
  return {}
}
