/**
 * Padding with a constant, or with values of the array.
 */
import { isList, type Operand, operation, type StreamOptions } from "../graph/args"
import { storeWidth } from "../graph/dtype"
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import { Array } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { contiguousStrides, sizeOf } from "../graph/shape"
import { forEachPosition } from "../reference/reference"
import { arange } from "./arange"
import { maximum, minimum, multiply, remainder, subtract, where } from "./binary"
import { scalarOf, toDtype, weakDtype } from "./constant"
import { array, full, zeros } from "./creation"
import { broadcastTo, sum } from "./reduce"
import { sliceRange, updateRange } from "./slice"
import { take } from "./take"
import { moveToFront } from "./view"

type Params = { low: readonly number[]; high: readonly number[] }

/** The original part of a padded array. */
const inside = (y: Array, { low, high }: Params): Array =>
  sliceRange(
    y,
    low,
    y.shape.map((n, i) => n - high[i]),
  )

/** x with `low` and `high` elements of the value around it. Inputs: x, value (0-d). */
const surround: Apply<Params> = definePrimitive({
  name: "pad",
  params: { low: "i64[]", high: "i64[]" },
  infer: ([x], { low, high }) => ({ shape: x.shape.map((n, i) => low[i] + n + high[i]), dtype: x.dtype }),
  reference: ([x, value], [out], { low }) => {
    const width = storeWidth(x.dtype)
    for (let i = 0; i < out.data.length; i++) out.data[i] = value.data[i % width]
    if (sizeOf(x.shape) === 0) return
    const strides = contiguousStrides(out.shape)
    const start = low.reduce((at, n, i) => at + n * strides[i], 0)
    forEachPosition(x.shape, strides, start, (i, position) => {
      for (let part = 0; part < width; part++) out.data[width * position + part] = x.data[width * i + part]
    })
  },
  vjp: ({ inputs: [x, value], cotangents: [g], params, wanted }) => {
    const outside = (): Array => {
      const stop = g.shape.map((n, i) => n - params.high[i])
      const range = { start: params.low, stop, strides: params.low.map(() => 1) }
      return updateRange(g, zeros(x.shape, g.dtype), range, "set")
    }
    return [inside(g, params), wanted[1] ? sum(outside()).reshape(value.shape) : null]
  },
  jvp: ({ inputs: [x, value], tangents: [tx, tv], params }) => [
    surround([tx ?? zeros(x.shape, x.dtype), tv ?? zeros(value.shape, value.dtype)], params),
  ],
  vmap: ({ inputs: [x, value], axes: [axis, valueAxis], params: { low, high }, size }) => {
    const batch = { low: [0, ...low], high: [0, ...high] }
    const moved = axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)
    if (valueAxis === null) return { outputs: [surround([moved, value], batch)], axes: [0] }
    const zero = zeros([], x.dtype)
    const y = surround([moved, zero], batch)
    const fill = full(moved.shape, 1, x.dtype)
    const own = moveToFront(value, valueAxis).reshape(moved.shape.map((n, i) => (i === 0 ? n : 1)))
    return { outputs: [where(surround([fill, zero], batch).equal(0), own, y)], axes: [0] }
  },
})

/** A list of numbers as it is written; anything else in words. */
const listed = (value: unknown): string =>
  isList(value) && value.length > 0 && value.every((n) => typeof n === "number")
    ? `[${value.join(",")}]`
    : describe(value)

/** Normalizes the widths: a number, a pair for all axes, or a pair for each. */
function widths(value: unknown, ndim: number): [number, number][] {
  const isCount = (n: unknown): n is number => Number.isInteger(n) && (n as number) >= 0
  const fail = (): never => {
    throw new ArgumentError("pad", `the widths must be non-negative integers, received ${listed(value)}`, {
      hint: "Pass a number, a pair for all axes, or a pair for each axis",
    })
  }
  const pair = (v: unknown): [number, number] => {
    if (isCount(v)) return [v, v]
    if (isList(v) && v.length === 1 && isCount(v[0])) return [v[0], v[0]]
    if (isList(v) && v.length === 2 && isCount(v[0]) && isCount(v[1])) return [v[0], v[1]]
    return fail()
  }
  if (isList(value) && value.length > 0 && value.every(isList)) {
    if (value.length === 1 || value.length === ndim)
      return globalThis.Array.from({ length: ndim }, (_, i) => pair(value[value.length === 1 ? 0 : i]))
    throw new ShapeError("pad", `${value.length} pairs of widths for an array of ${ndim} dimensions`)
  }
  const all = pair(value)
  return globalThis.Array.from({ length: ndim }, () => all)
}

/** The index of the element at each position of a padded axis of n elements. */
function sources(mode: string, n: number, low: number, high: number): Array {
  const at = arange(-low, n + high)
  if (mode === "edge") return minimum(maximum(at, 0), n - 1)
  // Mirrored: the period is 2n − 2 if the edge is not repeated, otherwise 2n.
  const period = mode === "reflect" ? 2 * n - 2 : 2 * n
  if (period === 0) return multiply(at, 0)
  const phase = remainder(at, period)
  return minimum(phase, subtract(mode === "reflect" ? period : period - 1, phase))
}

const padArgs = operation(
  "pad",
  {
    a: "array",
    padWidth: "any",
    mode: ["constant", "edge", "reflect", "symmetric"],
    constantValues: "operand?",
  },
  (
    given: Array,
    padWidth: number | readonly number[] | readonly (readonly number[])[],
    mode: "constant" | "edge" | "reflect" | "symmetric" = "constant",
    constant: Operand = 0,
  ): Array => {
    const pairs = widths(padWidth, given.ndim)
    const [low, high] = [pairs.map((p) => p[0]), pairs.map((p) => p[1])]
    if (mode === "constant") {
      if (constant instanceof Array) {
        if (constant.size !== 1)
          throw new ShapeError(
            "pad",
            `the value must have one element, received shape (${constant.shape.join(", ")})`,
          )
        return surround([given, toDtype(constant, given.dtype).reshape([])], { low, high })
      }
      const exact = weakDtype(constant, given.dtype) === given.dtype
      const value = exact ? scalarOf("pad", constant, given.dtype) : toDtype(array(constant), given.dtype)
      return surround([given, value], { low, high })
    }
    let y = given
    pairs.forEach(([before, after], axis) => {
      if (before === 0 && after === 0) return
      const n = given.shape[axis]
      if (n === 0) throw new ShapeError("pad", `axis ${axis} is empty: there are no values to pad with`)
      if (mode === "reflect" && Math.max(before, after) >= n && n > 1)
        throw new ShapeError(
          "pad",
          `axis ${axis} of size ${n} cannot be reflected by ${Math.max(before, after)}`,
        )
      y = take(y, sources(mode, n, before, after), axis)
    })
    return y
  },
)
/**
 * Pads an array: with a constant, the edge values, or the array mirrored without (`'reflect'`) or with (`'symmetric'`) repeating the edge.
 * @throws ShapeError if there are not enough widths or elements; ArgumentError for an unknown mode
 * @example
 * mx.pad(mx.array([1, 2]), [1, 2]).tolist() // => [0, 1, 2, 0, 0]
 */
export function pad(
  a: Array,
  padWidth: number | readonly number[] | readonly (readonly number[])[],
  mode?: "constant" | "edge" | "reflect" | "symmetric",
  constantValues?: Operand,
  options?: StreamOptions,
): Array
export function pad(
  a: Array,
  padWidth: number | readonly number[] | readonly (readonly number[])[],
  mode: "constant" | "edge" | "reflect" | "symmetric",
  options: { constantValues?: Operand } & StreamOptions,
): Array
export function pad(
  a: Array,
  padWidth: number | readonly number[] | readonly (readonly number[])[],
  options: { mode?: "constant" | "edge" | "reflect" | "symmetric"; constantValues?: Operand } & StreamOptions,
): Array
export function pad(...args: unknown[]): Array {
  return padArgs(args)
}
