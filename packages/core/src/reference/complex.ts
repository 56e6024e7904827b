/**
 * Complex arithmetic on (re, im) pairs, for the reference implementations of complex64. Principal branches, as in C99's annex G.
 */
import type { BinaryOp, UnaryOp } from "../graph/scalar-program"
import { roundHalfEven } from "./special"

/** A complex number as a pair. */
export type Pair = readonly [number, number]

const mul = ([a, b]: Pair, [c, d]: Pair): Pair => [a * c - b * d, a * d + b * c]
const div = ([a, b]: Pair, [c, d]: Pair): Pair => {
  // A division by zero is infinite in the direction of the numerator.
  if (c === 0 && d === 0) {
    const infinity = Object.is(c, -0) ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY
    return [infinity * a, infinity * b]
  }
  // Smith's method: scales by the larger part of the divisor, so that squares do not overflow.
  if (Math.abs(c) >= Math.abs(d)) {
    const r = d / c
    const den = c + d * r
    return [(a + b * r) / den, (b - a * r) / den]
  }
  const r = c / d
  const den = c * r + d
  return [(a * r + b) / den, (b * r - a) / den]
}
const { NaN: nan, POSITIVE_INFINITY: infinity } = Number
const isInfinite = (x: number): boolean => Math.abs(x) === infinity
const withSignOf = (size: number, x: number): number => (x < 0 || Object.is(x, -0) ? -size : size)
/** A product in which an infinite factor is infinite in its direction, whatever is NaN beside it. */
const directedMul = (x: Pair, y: Pair): Pair => {
  const plain = mul(x, y)
  if (!Number.isNaN(plain[0]) || !Number.isNaN(plain[1])) return plain
  const isBoundless = (z: Pair): boolean => isInfinite(z[0]) || isInfinite(z[1])
  if (!isBoundless(x) && !isBoundless(y)) {
    const terms = [x[0] * y[0], x[1] * y[1], x[0] * y[1], x[1] * y[0]]
    if (!terms.some(isInfinite)) return plain
  }
  const direction = ([a, b]: Pair, boundless: boolean): Pair => {
    const part = (t: number): number =>
      boundless ? withSignOf(isInfinite(t) ? 1 : 0, t) : Number.isNaN(t) ? withSignOf(0, t) : t
    return [part(a), part(b)]
  }
  const [p, q] = mul(direction(x, isBoundless(x)), direction(y, isBoundless(y)))
  return [infinity * p, infinity * q]
}
const exp = ([a, b]: Pair): Pair => {
  if (!Number.isFinite(b)) {
    if (a === -infinity) return [0, withSignOf(0, b)]
    if (a === infinity) return [infinity, nan]
  }
  const e = Math.exp(a)
  return b === 0 ? [e, b] : [e * Math.cos(b), e * Math.sin(b)]
}
const log = ([a, b]: Pair): Pair => [Math.log(Math.hypot(a, b)), Math.atan2(b, a)]
const sqrt = ([a, b]: Pair): Pair => {
  if (isInfinite(b)) return [infinity, b]
  if (a === infinity) return [infinity, Number.isNaN(b) ? nan : withSignOf(0, b)]
  if (a === -infinity) return Number.isNaN(b) ? [nan, infinity] : [0, withSignOf(infinity, b)]
  const m = Math.hypot(a, b)
  if (m === 0) return [0, b]
  const t = Math.sqrt((m + Math.abs(a)) / 2)
  return a >= 0 ? [t, b / (2 * t)] : [Math.abs(b) / (2 * t), b < 0 || Object.is(b, -0) ? -t : t]
}
const add = ([a, b]: Pair, [c, d]: Pair): Pair => [a + c, b + d]
const sub = ([a, b]: Pair, [c, d]: Pair): Pair => [a - c, b - d]
const scale = ([a, b]: Pair, k: number): Pair => [a * k, b * k]
const ONE: Pair = [1, 0]
const timesI = ([a, b]: Pair): Pair => [-b, a]
/** An infinite part times a sine or cosine, which a zero argument makes zero. */
const times = (size: number, part: number): number => (part === 0 ? withSignOf(0, size) * part : size * part)
const sinh = ([a, b]: Pair): Pair => {
  if (!Number.isFinite(b)) return a === 0 || isInfinite(a) ? [a, nan] : [nan, nan]
  if (b === 0) return [Math.sinh(a), b]
  return [times(Math.sinh(a), Math.cos(b)), times(Math.cosh(a), Math.sin(b))]
}
const cosh = ([a, b]: Pair): Pair => {
  if (!Number.isFinite(b)) return a === 0 ? [nan, 0] : isInfinite(a) ? [infinity, nan] : [nan, nan]
  if (b === 0) return [Math.cosh(a), withSignOf(1, a) * b]
  return [times(Math.cosh(a), Math.cos(b)), times(Math.sinh(a), Math.sin(b))]
}
const tanh = ([a, b]: Pair): Pair => {
  if (isInfinite(a)) return [Math.sign(a), Number.isFinite(b) ? 0 * Math.sin(2 * b) : withSignOf(0, b)]
  if (!Number.isFinite(b)) return [a === 0 ? a : nan, nan]
  if (Number.isNaN(a)) return [nan, b === 0 ? b : nan]
  if (Math.abs(a) > 20) return [Math.sign(a), 0 * Math.sin(2 * b)]
  const den = Math.cosh(2 * a) + Math.cos(2 * b)
  return [Math.sinh(2 * a) / den, Math.sin(2 * b) / den]
}
// Kahan, "Branch cuts for complex elementary functions", 1987: no cancellation, and signs of zero choose the side of a cut.
const below = ([x, y]: Pair): Pair => sqrt([1 - x, -y])
const above = ([x, y]: Pair): Pair => sqrt([1 + x, y])
const arctanh = ([x, y]: Pair): Pair => {
  if (isInfinite(y)) return [withSignOf(0, x), withSignOf(Math.PI / 2, y)]
  if (isInfinite(x)) return [withSignOf(0, x), Number.isNaN(y) ? nan : withSignOf(Math.PI / 2, y)]
  if (Number.isNaN(y)) return [x === 0 ? x : nan, nan]
  if (Number.isNaN(x)) return [nan, nan]
  if (Math.abs(x) === 1 && y === 0) return [withSignOf(infinity, x), y]
  if (Math.abs(x) > 1e150 || Math.abs(y) > 1e150)
    return [x / (x * x + y * y), y < 0 ? -Math.PI / 2 : Math.PI / 2]
  const gap = (1 - x) * (1 - x) + y * y
  return [0.25 * Math.log1p((4 * x) / gap), 0.5 * Math.atan2(2 * y, (1 - x) * (1 + x) - y * y)]
}
const notI = (z: Pair): Pair => [z[1], -z[0]]
/** Of numbers with an infinite or NaN part. */
const boundlessArcsinh = ([x, y]: Pair): Pair => {
  if (isInfinite(x)) return [x, Number.isNaN(y) ? nan : withSignOf(isInfinite(y) ? Math.PI / 4 : 0, y)]
  if (isInfinite(y)) return [withSignOf(infinity, x), Number.isNaN(x) ? nan : withSignOf(Math.PI / 2, y)]
  return Number.isNaN(x) && y === 0 ? [nan, y] : [nan, nan]
}
const boundlessArccos = ([x, y]: Pair): Pair => {
  if (isInfinite(x)) {
    if (Number.isNaN(y)) return [nan, infinity]
    const angle = isInfinite(y) ? Math.PI / 4 : 0
    return [x > 0 ? angle : Math.PI - angle, withSignOf(infinity, -y)]
  }
  if (isInfinite(y)) return [Number.isNaN(x) ? nan : Math.PI / 2, -y]
  return [x === 0 ? Math.PI / 2 : nan, nan]
}
const arcsin = (z: Pair): Pair => {
  if (!Number.isFinite(z[0]) || !Number.isFinite(z[1])) return notI(boundlessArcsinh(timesI(z)))
  const [p, q] = [below(z), above(z)]
  return [Math.atan2(z[0], p[0] * q[0] - p[1] * q[1]), Math.asinh(p[0] * q[1] - p[1] * q[0])]
}
const arccos = (z: Pair): Pair => {
  if (!Number.isFinite(z[0]) || !Number.isFinite(z[1])) return boundlessArccos(z)
  const [p, q] = [below(z), above(z)]
  return [2 * Math.atan2(p[0], q[0]), Math.asinh(q[0] * p[1] - q[1] * p[0])]
}
const arcsinh = (z: Pair): Pair =>
  Number.isFinite(z[0]) && Number.isFinite(z[1]) ? notI(arcsin(timesI(z))) : boundlessArcsinh(z)
const arccosh = ([x, y]: Pair): Pair => {
  if (!Number.isFinite(x) || !Number.isFinite(y)) {
    const [re, im] = boundlessArccos([x, y])
    return [Math.abs(im), Number.isNaN(re) ? nan : withSignOf(re, y)]
  }
  const [p, q] = [sqrt([x - 1, y]), sqrt([x + 1, y])]
  return [Math.asinh(p[0] * q[0] + p[1] * q[1]), 2 * Math.atan2(p[1], q[0])]
}
const less = (x: Pair, y: Pair): boolean => x[0] < y[0] || (x[0] === y[0] && x[1] < y[1])
const isNaNPair = (x: Pair): boolean => Number.isNaN(x[0]) || Number.isNaN(x[1])
const isZero = (x: Pair): boolean => x[0] === 0 && x[1] === 0
const bool = (b: boolean): number => (b ? 1 : 0)

/** Unary functions; a number is a real result. */
export const complexUnary: Partial<Record<UnaryOp, (x: Pair) => Pair | number>> = {
  negative: ([a, b]) => [-a, -b],
  abs: ([a, b]) => Math.hypot(a, b),
  sign: (x) => (isZero(x) ? x : scale(x, 1 / Math.hypot(x[0], x[1]))),
  sqrt,
  rsqrt: (x) => div(ONE, sqrt(x)),
  square: (x) => mul(x, x),
  reciprocal: (x) => div(ONE, x),
  exp,
  expm1: (x) => sub(exp(x), ONE),
  log,
  log2: (x) => scale(log(x), Math.LOG2E),
  log10: (x) => scale(log(x), Math.LOG10E),
  log1p: (x) => log(add(ONE, x)),
  sin: (x) => notI(sinh(timesI(x))),
  cos: (x) => cosh(timesI(x)),
  tan: (x) => notI(tanh(timesI(x))),
  arcsin,
  arccos,
  arctan: (x) => notI(arctanh(timesI(x))),
  sinh,
  cosh,
  tanh,
  arcsinh,
  arccosh,
  arctanh,
  sigmoid: (x) => div(ONE, add(ONE, exp([-x[0], -x[1]]))),
  round: ([a, b]) => [roundHalfEven(a), roundHalfEven(b)],
  floor: ([a, b]) => [Math.floor(a), Math.floor(b)],
  ceil: ([a, b]) => [Math.ceil(a), Math.ceil(b)],
  logicalNot: (x) => bool(isZero(x)),
  conjugate: ([a, b]) => [a, -b],
  real: ([a]) => a,
  imag: ([, b]) => b,
}

/** Binary functions; a number is a bool result. Order is lexicographic. */
export const complexBinary: Partial<Record<BinaryOp, (x: Pair, y: Pair) => Pair | number>> = {
  add,
  subtract: sub,
  multiply: mul,
  divide: div,
  power: (x, y) => {
    if (isZero(y)) return ONE
    if (!isZero(x)) return exp(directedMul(y, log(x)))
    return isNaNPair(y) ? [Number.NaN, Number.NaN] : [0, 0]
  },
  maximum: (x, y) => (isNaNPair(x) || less(y, x) ? x : y),
  minimum: (x, y) => (isNaNPair(x) || less(x, y) ? x : y),
  logaddexp: (x, y) => {
    const [high, low] = less(x, y) ? [y, x] : [x, y]
    // Two infinities of one sign have no difference.
    if (Math.abs(high[0]) === Number.POSITIVE_INFINITY && high[0] === low[0]) return high
    return add(high, log(add(ONE, exp(sub(low, high)))))
  },
  logicalAnd: (x, y) => bool(!isZero(x) && !isZero(y)),
  logicalOr: (x, y) => bool(!isZero(x) || !isZero(y)),
  equal: (x, y) => bool(x[0] === y[0] && x[1] === y[1]),
  notEqual: (x, y) => bool(x[0] !== y[0] || x[1] !== y[1]),
  less: (x, y) => bool(less(x, y)),
  lessEqual: (x, y) => bool(less(x, y) || (x[0] === y[0] && x[1] === y[1])),
  greater: (x, y) => bool(less(y, x)),
  greaterEqual: (x, y) => bool(less(y, x) || (x[0] === y[0] && x[1] === y[1])),
}
