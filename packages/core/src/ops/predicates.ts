/**
 * Predicates of elements and arrays (isnan, isclose, arrayEqual, …), and the related nanToNum and clip.
 */

import { largest } from "../api/dtype-info"
import { type Axes, type Operand, operation, type StreamOptions } from "../graph/args"
import { bool_, complex64, float32 as FLOAT, int32, isInexact } from "../graph/dtype"
import { ArgumentError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { sameShape } from "../graph/shape"
import { type BinaryFunction, where } from "./binary"
import { asOperand, promoteOperands, scalarArray, toDtype } from "./constant"
import { broadcastTo, sum } from "./reduce"
import type { UnaryFunction } from "./unary"

/** A bool array of the shape of x that is false everywhere. */
const never = (x: Array): Array => broadcastTo(scalarArray(false, bool_), x.shape)

/** An elementwise predicate; true for complex numbers if it is for either part, and false for integers. */
function question(name: string, ask: (x: Array) => Array): UnaryFunction {
  const args = operation(name, { a: "operand" }, (a: unknown) => {
    const x = asOperand(name, a)
    if (!isInexact(x.dtype)) return never(x)
    return x.dtype === complex64 ? ask(x.real).logicalOr(ask(x.imag)) : ask(x)
  })
  return (...rest: unknown[]) => args(rest)
}

/**
 * True where an element is NaN.
 * @example
 * mx.isnan(mx.array([1, NaN])).tolist() // => [false, true]
 */
export const isnan: UnaryFunction = question("isnan", (x) => x.notEqual(x))

/**
 * True where an element is infinite.
 * @example
 * mx.isinf(mx.array([1, -Infinity])).tolist() // => [false, true]
 */
export const isinf: UnaryFunction = question("isinf", (x) => x.abs().equal(Number.POSITIVE_INFINITY))

/**
 * True where an element is +∞.
 * @example
 * mx.isposinf(mx.array([Infinity, -Infinity])).tolist() // => [true, false]
 */
export const isposinf: UnaryFunction = question("isposinf", (x) => x.equal(Number.POSITIVE_INFINITY))

/**
 * True where an element is −∞.
 * @example
 * mx.isneginf(mx.array([Infinity, -Infinity])).tolist() // => [false, true]
 */
export const isneginf: UnaryFunction = question("isneginf", (x) => x.equal(Number.NEGATIVE_INFINITY))

const isUnbounded: UnaryFunction = question("isfinite", (x) => x.subtract(x).notEqual(0))
/**
 * True where an element is neither infinite nor NaN.
 * @example
 * mx.isfinite(mx.array([1, NaN, Infinity])).tolist() // => [true, false, false]
 */
export const isfinite: UnaryFunction = (a, options) => isUnbounded(a, options).logicalNot(options)

const logicalXorArgs = operation("logicalXor", { a: "operand", b: "operand" }, (a: unknown, b: unknown) =>
  toDtype(asOperand("logicalXor", a), bool_).notEqual(toDtype(asOperand("logicalXor", b), bool_)),
)
/**
 * Logical XOR: true where exactly one of both is nonzero.
 * @example
 * mx.logicalXor(mx.array([true, true]), mx.array([true, false])).tolist() // => [false, true]
 */
export const logicalXor: BinaryFunction = (...args) => logicalXorArgs(args)

/** |a − b| ≤ atol + rtol · |b|, equal infinities, and optionally NaN equal to NaN. */
function near(op: string, a: unknown, b: unknown, rtol: number, atol: number, equalNan: boolean): Array {
  let [x, y] = promoteOperands(op, a, b)
  if (!isInexact(x.dtype)) [x, y] = [x.multiply(scalarArray(1, FLOAT)), y.multiply(scalarArray(1, FLOAT))]
  const close = x.subtract(y).abs().lessEqual(y.abs().multiply(rtol).add(atol))
  // The difference to an infinity is within rtol · ∞, so the comparison applies only to finite numbers.
  const answer = close.logicalAnd(isfinite(x)).logicalAnd(isfinite(y)).logicalOr(x.equal(y))
  return equalNan ? answer.logicalOr(isnan(x).logicalAnd(isnan(y))) : answer
}

const iscloseArgs = operation(
  "isclose",
  { a: "operand", b: "operand", rtol: "number?", atol: "number?", equalNan: "bool?" },
  (a: Operand, b: Operand, rtol: number = 1e-5, atol: number = 1e-8, equalNan: boolean = false) =>
    near("isclose", a, b, rtol, atol, equalNan),
)
/**
 * Elementwise |a − b| ≤ atol + rtol · |b|; infinities are close if equal.
 * @named equalNan
 * @example
 * mx.isclose(mx.array([1, 2]), mx.array([1, 2.1])).tolist() // => [true, false]
 */
export function isclose(
  a: Operand,
  b: Operand,
  rtol?: number,
  atol?: number,
  options?: { equalNan?: boolean } & StreamOptions,
): Array
export function isclose(
  a: Operand,
  b: Operand,
  rtol: number,
  options: { atol?: number; equalNan?: boolean } & StreamOptions,
): Array
export function isclose(
  a: Operand,
  b: Operand,
  options: { rtol?: number; atol?: number; equalNan?: boolean } & StreamOptions,
): Array
export function isclose(...args: unknown[]): Array {
  return iscloseArgs(args)
}

const allcloseArgs = operation(
  "allclose",
  { a: "operand", b: "operand", rtol: "number?", atol: "number?", equalNan: "bool?" },
  (a: Operand, b: Operand, rtol: number = 1e-5, atol: number = 1e-8, equalNan: boolean = false) =>
    near("allclose", a, b, rtol, atol, equalNan).all(),
)
/**
 * True if all elements are close, by {@link isclose}.
 * @named equalNan
 * @example
 * mx.allclose(mx.array([1, 2]), mx.array([1, 2.000001])).item() // => true
 */
export function allclose(
  a: Operand,
  b: Operand,
  rtol?: number,
  atol?: number,
  options?: { equalNan?: boolean } & StreamOptions,
): Array
export function allclose(
  a: Operand,
  b: Operand,
  rtol: number,
  options: { atol?: number; equalNan?: boolean } & StreamOptions,
): Array
export function allclose(
  a: Operand,
  b: Operand,
  options: { rtol?: number; atol?: number; equalNan?: boolean } & StreamOptions,
): Array
export function allclose(...args: unknown[]): Array {
  return allcloseArgs(args)
}

const arrayEqualArgs = operation(
  "arrayEqual",
  { a: "operand", b: "operand", equalNan: "bool?" },
  (a: Operand, b: Operand, equalNan: boolean = false) => {
    const [x, y] = promoteOperands("arrayEqual", a, b)
    if (!sameShape(x.shape, y.shape)) return scalarArray(false, bool_)
    const same = x.equal(y)
    return (equalNan ? same.logicalOr(isnan(x).logicalAnd(isnan(y))) : same).all()
  },
)
/**
 * True if two arrays have the same shape and equal elements.
 * @example
 * mx.arrayEqual(mx.array([1, 2]), mx.array([1, 2])).item() // => true
 */
export function arrayEqual(a: Operand, b: Operand, equalNan?: boolean, options?: StreamOptions): Array
export function arrayEqual(a: Operand, b: Operand, options: { equalNan?: boolean } & StreamOptions): Array
export function arrayEqual(...args: unknown[]): Array {
  return arrayEqualArgs(args)
}

const countNonzeroArgs = operation(
  "countNonzero",
  { a: "operand", axis: "axes?", keepdims: "bool?" },
  (a: Array, axis?: Axes, keepdims: boolean = false) => {
    const x = asOperand("countNonzero", a)
    // A scalar's sum stays a bool.
    return toDtype(sum(x.notEqual(scalarArray(0, x.dtype)), { axis, keepdims }), int32)
  },
)
/**
 * The number of nonzero elements over the axes (all by default), as int32.
 * @named axis keepdims
 * @example
 * mx.countNonzero(mx.array([0, 3, 5])).item() // => 2
 */
export function countNonzero(a: Array, options?: { axis?: Axes; keepdims?: boolean } & StreamOptions): Array
export function countNonzero(...args: unknown[]): Array {
  return countNonzeroArgs(args)
}

const nanToNumArgs = operation(
  "nanToNum",
  { a: "operand", nan: "number?", posinf: "number?", neginf: "number?" },
  (a: Operand, nan: number = 0, posinf?: number | null, neginf?: number | null): Array => {
    const x = asOperand("nanToNum", a)
    if (!isInexact(x.dtype)) return x
    if (x.dtype === complex64) {
      const [re, im] = [nanToNum(x.real, nan, posinf, neginf), nanToNum(x.imag, nan, posinf, neginf)]
      return toDtype(re, complex64).add(
        toDtype(im, complex64).multiply(scalarArray({ re: 0, im: 1 }, complex64)),
      )
    }
    const high = largest(x.dtype)
    let y = where(isnan(x), nan, x)
    y = where(isposinf(x), posinf ?? high, y)
    return where(isneginf(x), neginf ?? -high, y)
  },
)
/**
 * Replaces NaN by `nan` (0) and infinities by `posinf` and `neginf` (the largest and smallest finite values of the dtype).
 * @example
 * mx.nanToNum(mx.array([1, NaN])).tolist() // => [1, 0]
 */
export function nanToNum(
  a: Operand,
  nan?: number,
  posinf?: number | null,
  neginf?: number | null,
  options?: StreamOptions,
): Array
export function nanToNum(
  a: Operand,
  nan: number,
  options: { posinf?: number | null; neginf?: number | null } & StreamOptions,
): Array
export function nanToNum(
  a: Operand,
  options: { nan?: number; posinf?: number | null; neginf?: number | null } & StreamOptions,
): Array
export function nanToNum(...args: unknown[]): Array {
  return nanToNumArgs(args)
}

const clipArgs = operation(
  "clip",
  { a: "operand", aMin: "operand?", aMax: "operand?" },
  (a: Operand, low?: Operand | null, high?: Operand | null): Array => {
    let x = asOperand("clip", a)
    if ((low === null || low === undefined) && (high === null || high === undefined))
      throw new ArgumentError("clip", "needs at least one of aMin and aMax")
    if (low !== null && low !== undefined) x = x.maximum(low)
    return high !== null && high !== undefined ? x.minimum(high) : x
  },
)
/**
 * Clips the elements to the range [aMin, aMax]; null means no limit.
 * @throws ArgumentError if both limits are null
 * @example
 * mx.clip(mx.array([-1, 2, 5]), 0, 3).tolist() // => [0, 2, 3]
 */
export function clip(a: Operand, aMin: Operand | null, aMax?: Operand | null, options?: StreamOptions): Array
export function clip(
  a: Operand,
  options: { aMin?: Operand | null; aMax?: Operand | null } & StreamOptions,
): Array
// By hand: both limits must be given, possibly as null.
export function clip(...args: unknown[]): Array {
  return clipArgs(args)
}
