/**
 * Arrays by formula: linspace, identity, fullLike and window functions.
 */
import { type Operand, operation, type StreamOptions } from "../graph/args"
import { asDtype, type Dtype, float32, float64 } from "../graph/dtype"
import { ArgumentError, describe } from "../graph/errors"
import type { Array, ArrayOf } from "../graph/graph"
import type { ValueIn } from "../graph/option-types"
import { arange } from "./arange"
import { isScalar, scalarArray, toDtype } from "./constant"
import { array, eye, full } from "./creation"
import { broadcastTo } from "./reduce"

const linspaceArgs = operation(
  "linspace",
  { start: "number", stop: "number", num: "integer?", endpoint: "any?", dtype: "dtype?" },
  (
    start: number,
    stop: number,
    points?: number | null,
    endpoint: boolean = true,
    dtype?: Dtype | null,
  ): Array => {
    const num = points ?? 50
    for (const v of [start, stop])
      if (typeof v !== "number")
        throw new ArgumentError("linspace", `start and stop must be numbers, received ${describe(v)}`)
    if (!Number.isInteger(num) || num < 0)
      throw new ArgumentError("linspace", `num must be a non-negative integer, received ${describe(num)}`)
    if (typeof endpoint !== "boolean")
      throw new ArgumentError("linspace", `endpoint must be true or false, received ${describe(endpoint)}`, {
        hint: "The dtype comes after it, or by name: mx.linspace(0, 1, 5, { dtype })",
      })
    const type = dtype ? asDtype("linspace", dtype) : float32
    const work = type === float64 ? float64 : float32
    const t = arange(num, { dtype: work }).divide(Math.max(1, endpoint ? num - 1 : num))
    return toDtype(t.subtract(1).multiply(-start).add(t.multiply(stop)), type)
  },
)
/**
 * `num` (50) evenly spaced numbers from `start` to `stop`, which `endpoint: false` excludes; float32 by default.
 * @throws ArgumentError unless num is a non-negative integer
 * @example
 * mx.linspace(0, 1, 3).tolist() // => [0, 0.5, 1]
 */
export function linspace<D extends Dtype = Dtype<number>>(
  start: number,
  stop: number,
  num?: number | null,
  endpoint?: boolean,
  dtype?: D | null,
  options?: StreamOptions,
): ArrayOf<ValueIn<D>>
export function linspace<D extends Dtype = Dtype<number>>(
  start: number,
  stop: number,
  num: number | null,
  options: { endpoint?: boolean; dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
export function linspace<D extends Dtype = Dtype<number>>(
  start: number,
  stop: number,
  options: { num?: number | null; endpoint?: boolean; dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
// By hand: the value type depends on the dtype.
export function linspace(...args: unknown[]): Array {
  return linspaceArgs(args)
}

const identityArgs = operation(
  "identity",
  { n: "size", dtype: "dtype?" },
  (n: number, dtype?: Dtype | null): Array => eye(n, { dtype: dtype ?? null }),
)
/**
 * The n×n identity matrix.
 * @example
 * mx.identity(2).tolist() // => [[1, 0], [0, 1]]
 */
export function identity<D extends Dtype = Dtype<number>>(
  n: number,
  dtype?: D | null,
  options?: StreamOptions,
): ArrayOf<ValueIn<D>>
export function identity<D extends Dtype = Dtype<number>>(
  n: number,
  options: { dtype?: D | null } & StreamOptions,
): ArrayOf<ValueIn<D>>
// By hand: the value type depends on the dtype.
export function identity(...args: unknown[]): Array {
  return identityArgs(args)
}

const fullLikeArgs = operation(
  "fullLike",
  { a: "array", vals: "operand", dtype: "dtype?" },
  (x: Array, vals: Operand, dtype?: Dtype | null): Array => {
    const type = dtype ? asDtype("fullLike", dtype) : x.dtype
    if (isScalar(vals)) return full(x.shape, vals, type)
    return broadcastTo(toDtype(array(vals), type), x.shape)
  },
)
/**
 * An array of the shape and, by default, the dtype of `a`, filled with a value.
 * @example
 * mx.fullLike(mx.zeros([2]), 7).tolist() // => [7, 7]
 */
export function fullLike(a: Array, vals: Operand, dtype?: Dtype | null, options?: StreamOptions): Array
export function fullLike(a: Array, vals: Operand, options: { dtype?: Dtype | null } & StreamOptions): Array
export function fullLike(...args: unknown[]): Array {
  return fullLikeArgs(args)
}

/** The body of window functions: `shape(2π·i/(M−1))` at M points. */
function window_(name: string, shape: (angle: number) => number): WindowFunction {
  const args = operation(name, { M: "points" }, (m: number): Array => {
    if (m < 1) return array(new Float32Array(0))
    if (m === 1) return scalarArray(1, float32).reshape([1])
    const values = new Float32Array(m)
    for (let i = 0; i < m; i++) values[i] = shape((2 * Math.PI * i) / (m - 1))
    return array(values)
  })
  return (...rest: unknown[]) => args(rest)
}
// By hand: the required argument may be given by name.
/** The type of window functions: M points, float32. */
export interface WindowFunction {
  (M: number, options?: StreamOptions): ArrayOf<number>
  (options: { M: number } & StreamOptions): ArrayOf<number>
}

/**
 * The Bartlett window, a triangle from 0 to 1 to 0.
 * @example
 * mx.bartlett(3).tolist() // => [0, 1, 0]
 */
export const bartlett: WindowFunction = window_("bartlett", (angle) => 1 - Math.abs(angle / Math.PI - 1))

/**
 * The Hann window, 0.5 − 0.5 cos.
 * @example
 * mx.hanning(3).tolist() // => [0, 1, 0]
 */
export const hanning: WindowFunction = window_("hanning", (angle) => 0.5 - 0.5 * Math.cos(angle))

/**
 * The Hamming window, 0.54 − 0.46 cos.
 * @example
 * mx.hamming(3).index(1).item() // => 1
 */
export const hamming: WindowFunction = window_("hamming", (angle) => 0.54 - 0.46 * Math.cos(angle))

/**
 * The Blackman window, 0.42 − 0.5 cos + 0.08 cos 2.
 * @example
 * mx.blackman(5).shape // => [5]
 */
export const blackman: WindowFunction = window_(
  "blackman",
  (angle) => 0.42 - 0.5 * Math.cos(angle) + 0.08 * Math.cos(2 * angle),
)
