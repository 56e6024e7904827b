/**
 * The definition of each scalar instruction on JavaScript values, which every backend's kernels are held to.
 * Numbers stand for all dtypes but the 64-bit integers (bigint) and complex64 (see complex.ts).
 */
import { type Dtype, int64, isInteger, uint64 } from "../graph/dtype"
import type { BinaryOp, UnaryOp } from "../graph/scalar-program"
import { erf, erfinv, roundHalfEven } from "./special"

type N = number
/** As in MLX, NaN has the sign 0. */
const sign = (x: N): N => (x > 0 ? 1 : x < 0 ? -1 : 0)
const floorMod = (x: N, y: N): N => {
  const r = x % y
  return r !== 0 && r < 0 !== y < 0 ? r + y : r
}

const floatUnary: Record<UnaryOp, (x: N) => N> = {
  negative: (x) => -x,
  abs: Math.abs,
  sign,
  floor: Math.floor,
  ceil: Math.ceil,
  round: roundHalfEven,
  sqrt: Math.sqrt,
  rsqrt: (x) => 1 / Math.sqrt(x),
  square: (x) => x * x,
  reciprocal: (x) => 1 / x,
  exp: Math.exp,
  expm1: Math.expm1,
  log: Math.log,
  log2: Math.log2,
  log10: Math.log10,
  log1p: Math.log1p,
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  arcsin: Math.asin,
  arccos: Math.acos,
  arctan: Math.atan,
  sinh: Math.sinh,
  cosh: Math.cosh,
  tanh: Math.tanh,
  arcsinh: Math.asinh,
  arccosh: Math.acosh,
  arctanh: Math.atanh,
  erf,
  erfinv,
  sigmoid: (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x))),
  bitwiseInvert: (x) => ~x,
  // NaN is not zero, so it is true.
  logicalNot: (x) => (x === 0 ? 1 : 0),
  conjugate: (x) => x,
  real: (x) => x,
  imag: () => 0,
}

/** NaN wins over everything, as in NumPy's maximum. */
const maximum = (x: N, y: N): N => (Number.isNaN(x) || x > y ? x : y)
const minimum = (x: N, y: N): N => (Number.isNaN(x) || x < y ? x : y)

const floatBinary: Record<BinaryOp, (x: N, y: N) => N> = {
  add: (x, y) => x + y,
  subtract: (x, y) => x - y,
  multiply: (x, y) => x * y,
  divide: (x, y) => x / y,
  floorDivide: (x, y) => Math.floor(x / y),
  remainder: floorMod,
  power: (x, y) => (x === 1 ? 1 : x === -1 && Math.abs(y) === Number.POSITIVE_INFINITY ? 1 : x ** y),
  maximum,
  minimum,
  arctan2: Math.atan2,
  logaddexp: (x, y) => {
    const high = maximum(x, y)
    const low = minimum(x, y)
    if (low === Number.NEGATIVE_INFINITY || high === Number.POSITIVE_INFINITY) return high
    return high + Math.log1p(Math.exp(low - high))
  },
  bitwiseAnd: (x, y) => x & y,
  bitwiseOr: (x, y) => x | y,
  bitwiseXor: (x, y) => x ^ y,
  leftShift: (x, y) => (y >= 0 && y < 32 ? x << y : 0),
  rightShift: (x, y) => (y >= 0 && y < 32 ? x >> y : x < 0 ? -1 : 0),
  logicalAnd: (x, y) => (x !== 0 && y !== 0 ? 1 : 0),
  logicalOr: (x, y) => (x !== 0 || y !== 0 ? 1 : 0),
  equal: (x, y) => (x === y ? 1 : 0),
  notEqual: (x, y) => (x !== y ? 1 : 0),
  less: (x, y) => (x < y ? 1 : 0),
  lessEqual: (x, y) => (x <= y ? 1 : 0),
  greater: (x, y) => (x > y ? 1 : 0),
  greaterEqual: (x, y) => (x >= y ? 1 : 0),
  complex: () => {
    throw new Error("unreachable: complex has its own path")
  },
}

/** Integers: an overflow wraps when the result is stored, products at once; a division by zero gives 0. */
const integerBinary: Partial<Record<BinaryOp, (x: N, y: N) => N>> = {
  multiply: Math.imul,
  // As in MLX, integers are divided towards zero.
  floorDivide: (x, y) => (y === 0 ? 0 : Math.trunc(x / y)),
  remainder: (x, y) => (y === 0 ? 0 : floorMod(x, y)),
  power: (x, y) => {
    // As in MLX, a negative power of an integer is 0, of 1 too.
    if (y < 0) return 0
    let result = 1
    for (let base = x, n = y; n > 0; n = Math.floor(n / 2), base = Math.imul(base, base))
      if (n % 2) result = Math.imul(result, base)
    return result
  },
}

/** Shifts of unsigned dtypes bring in zeros, and a shift by the width or more leaves nothing. */
function shift(op: "leftShift" | "rightShift", dtype: Dtype): (x: N, y: N) => N {
  const bits = dtype.size * 8
  if (op === "leftShift") return (x, y) => (y >= 0 && y < bits ? x << y : 0)
  if (dtype.kind === "signed") return (x, y) => x >> (y >= 0 && y < bits ? y : bits - 1)
  return (x, y) => (y >= 0 && y < bits ? x >>> y : 0)
}

type B = bigint
const bigMod = (x: B, y: B): B => {
  if (y === 0n) return 0n
  const r = x % y
  return r !== 0n && r < 0n !== y < 0n ? r + y : r
}
const bool = (b: boolean): N => (b ? 1 : 0)

const bigUnary: Partial<Record<UnaryOp, (x: B) => B | N>> = {
  negative: (x) => -x,
  abs: (x) => (x < 0n ? -x : x),
  sign: (x) => (x > 0n ? 1n : x < 0n ? -1n : 0n),
  floor: (x) => x,
  ceil: (x) => x,
  round: (x) => x,
  square: (x) => x * x,
  bitwiseInvert: (x) => ~x,
  logicalNot: (x) => bool(x === 0n),
  conjugate: (x) => x,
  real: (x) => x,
  imag: () => 0n,
}
const bigBinary: Partial<Record<BinaryOp, (x: B, y: B) => B | N>> = {
  add: (x, y) => x + y,
  subtract: (x, y) => x - y,
  multiply: (x, y) => x * y,
  floorDivide: (x, y) => (y === 0n ? 0n : x / y),
  remainder: bigMod,
  power: (x, y) => {
    if (y < 0n) return 0n
    let result = 1n
    for (let base = x, n = y; n > 0n; n /= 2n, base = BigInt.asIntN(64, base * base))
      if (n % 2n) result = BigInt.asIntN(64, result * base)
    return result
  },
  maximum: (x, y) => (x > y ? x : y),
  minimum: (x, y) => (x < y ? x : y),
  bitwiseAnd: (x, y) => x & y,
  bitwiseOr: (x, y) => x | y,
  bitwiseXor: (x, y) => x ^ y,
  leftShift: (x, y) => (y >= 0n && y < 64n ? x << y : 0n),
  rightShift: (x, y) => (y >= 0n && y < 64n ? x >> y : x < 0n ? -1n : 0n),
  logicalAnd: (x, y) => bool(x !== 0n && y !== 0n),
  logicalOr: (x, y) => bool(x !== 0n || y !== 0n),
  equal: (x, y) => bool(x === y),
  notEqual: (x, y) => bool(x !== y),
  less: (x, y) => bool(x < y),
  lessEqual: (x, y) => bool(x <= y),
  greater: (x, y) => bool(x > y),
  greaterEqual: (x, y) => bool(x >= y),
}

/** A function of one or two stored values; undefined where the dtype has no such operation. */
export type ScalarFunction = (x: never, y: never) => number | bigint

/** Computes `op` on values of `dtype` (the arguments' dtype; not complex64). */
export function scalarFunction(op: UnaryOp | BinaryOp, dtype: Dtype): ScalarFunction | undefined {
  if (op === "bitwiseInvert" && dtype.kind === "bool")
    return floatUnary.logicalNot as unknown as ScalarFunction
  const found: unknown =
    dtype === int64 || dtype === uint64
      ? ((bigUnary as Record<string, unknown>)[op] ?? (bigBinary as Record<string, unknown>)[op])
      : isInteger(dtype) || dtype.kind === "bool"
        ? op === "square"
          ? (x: N) => Math.imul(x, x)
          : op === "leftShift" || op === "rightShift"
            ? shift(op, dtype)
            : ((integerBinary as Record<string, unknown>)[op] ??
              (floatUnary as Record<string, unknown>)[op] ??
              (floatBinary as Record<string, unknown>)[op])
        : ((floatUnary as Record<string, unknown>)[op] ?? (floatBinary as Record<string, unknown>)[op])
  return found as ScalarFunction | undefined
}
