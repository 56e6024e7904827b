/**
 * `mx.random`: distributions, drawn by the keys of random-keys.ts. It is long because there are many distributions, each readable on its
 * own.
 */
import { type Operand, operation, type StreamOptions } from "../graph/args"
import {
  asDtype,
  bfloat16,
  bool_,
  complex64,
  type Dtype,
  float16,
  float32,
  float64,
  int32,
  isInexact,
} from "../graph/dtype"
import { ArgumentError, DTypeError, describe, ShapeError } from "../graph/errors"
import { type Array, Array as ArrayClass } from "../graph/graph"
import { asShape, broadcastShapes, format, normalizeAxis, sameShape } from "../graph/shape"
import { argmax } from "../ops/arg-reduce"
import { maximum, minimum } from "../ops/binary"
import { asOperand, scalarArray, scalarOf, toDtype } from "../ops/constant"
import { svd } from "../ops/linalg/svd"
import { randomBits } from "../ops/random-bits"
import { softmax } from "../ops/softmax"
import { argsort, searchsorted } from "../ops/sort"
import { take } from "../ops/take"
import { keyOrNext } from "./random-keys"

export { key, seed, split, state } from "./random-keys"

type ShapeArgument = number | readonly number[]
/** Options common to the distributions. */
export interface DrawOptions extends StreamOptions {
  /** The shape of the result; a scalar by default. */
  shape?: ShapeArgument
  /** float32 by default. */
  dtype?: Dtype | null
  /** The PRNG key; by default split off the global state. */
  key?: Array | null
}

const bitsArgs = operation(
  "random.bits",
  { shape: "shape?", width: "integer?", key: "array?" },
  (shape: ShapeArgument = [], width: 1 | 2 | 4 = 4, k?: Array | null) => {
    if (width !== 1 && width !== 2 && width !== 4)
      throw new ArgumentError("random.bits", `width must be 1, 2 or 4 bytes, received ${describe(width)}`)
    const to = asShape("random.bits", shape)
    return randomBits([keyOrNext("random.bits", k)], { width, shape: to })
  },
)
/**
 * Uniform unsigned integers of `width` bytes: uint32, uint16 or uint8.
 * @example
 * mx.random.bits([3]).dtype // => mx.uint32
 */
export function bits(
  shape?: ShapeArgument,
  width?: 1 | 2 | 4,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function bits(
  shape: ShapeArgument,
  options: { width?: 1 | 2 | 4; key?: Array | null } & StreamOptions,
): Array
export function bits(options?: { width?: 1 | 2 | 4 } & Omit<DrawOptions, "dtype">): Array
export function bits(...args: unknown[]): Array {
  return bitsArgs(args)
}

function floating(op: string, dtype: Dtype | null | undefined): Dtype {
  const type = dtype ? asDtype(op, dtype) : float32
  if (type.kind !== "floating") throw new DTypeError(op, `expected a floating dtype, received ${type.name}`)
  return type
}

/** The spacing of a dtype's numbers just below 1. */
const spacing = (dtype: Dtype): number =>
  dtype === float16 ? 2 ** -11 : dtype === bfloat16 ? 2 ** -8 : dtype === float64 ? 2 ** -53 : 2 ** -24

/** Uniform on [low, high): low + (high − low) · min(bits / (2³² − 1), the largest number below 1). */
function uniformOn(
  op: string,
  low: Operand,
  high: Operand,
  shape: readonly number[],
  dtype: Dtype,
  k: Array,
): Array {
  const lo = convert(op, low, dtype)
  const range = convert(op, high, dtype).subtract(lo)
  checkFits(op, range, shape)
  const words = toDtype(randomBits([k], { width: 4, shape }), float32)
  const unit = words.divide(4294967295).minimum(dtype === float64 ? 1 - 2 ** -24 : 1 - spacing(dtype))
  return range.multiply(toDtype(unit, dtype)).add(lo)
}

const convert = (op: string, value: unknown, dtype: Dtype): Array => {
  if (value instanceof ArrayClass) return toDtype(value, dtype)
  if (typeof value === "number") return scalarArray(value, dtype)
  return toDtype(asOperand(op, value), dtype)
}

function checkFits(op: string, bounds: Array, shape: readonly number[]): void {
  if (!sameShape(broadcastShapes(op, bounds.shape, shape), shape))
    throw new ShapeError(
      op,
      `parameters of shape ${format(bounds.shape)} do not broadcast to the shape ${format(shape)}`,
    )
}

const uniformArgs = operation(
  "random.uniform",
  { low: "numbers?", high: "numbers?", shape: "shape?", dtype: "dtype?", key: "array?" },
  (
    low: Operand = 0,
    high: Operand = 1,
    shape: ShapeArgument = [],
    dtype?: Dtype | null,
    k?: Array | null,
  ) => {
    const op = "random.uniform"
    const type = floating(op, dtype)
    return uniformOn(op, low, high, asShape(op, shape), type, keyOrNext(op, k))
  },
)
/**
 * Uniform samples from [low, high); the bounds broadcast to the shape.
 * @throws DTypeError unless the dtype is floating; ShapeError if the bounds do not broadcast
 * @example
 * mx.random.uniform({ shape: [2, 3] }).shape // => [2, 3]
 */
export function uniform(
  low: Operand,
  high: Operand,
  shape?: ShapeArgument,
  dtype?: Dtype | null,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function uniform(low: Operand, high: Operand, options: DrawOptions): Array
export function uniform(options?: { low?: Operand; high?: Operand } & DrawOptions): Array
// By hand: both bounds are given or neither.
export function uniform(...args: unknown[]): Array {
  return uniformArgs(args)
}

/** Uniform on (−1, 1), in float32 whatever the dtype of the samples made from it: halves have few numbers for the tails. */
const symmetric = (op: string, shape: readonly number[], k: Array): Array =>
  uniformOn(op, -1 + spacing(float32), 1, shape, float32, k)

const normalArgs = operation(
  "random.normal",
  { shape: "shape?", dtype: "dtype?", loc: "numbers?", scale: "numbers?", key: "array?" },
  (
    shape: ShapeArgument = [],
    dtype?: Dtype | null,
    loc?: Operand | null,
    scale?: Operand | null,
    k?: Array | null,
  ) => {
    const op = "random.normal"
    const to = asShape(op, shape)
    const type = dtype ? asDtype(op, dtype) : float32
    const shift = (x: Array): Array => (loc === undefined || loc === null ? x : convert(op, loc, type).add(x))
    if (type === complex64) {
      // Real and imaginary part have variance 1/2 each.
      const parts = symmetric(op, [...to, 2], keyOrNext(op, k)).erfinv()
      const [re, im] = [take(parts, 0, -1), take(parts, 1, -1)]
      const z = joinParts(re, im)
      return shift(scale === undefined || scale === null ? z : convert(op, scale, type).multiply(z))
    }
    const root = scalarArray(Math.SQRT2, floating(op, type))
    const factor = scale === undefined || scale === null ? root : root.multiply(convert(op, scale, type))
    return shift(factor.multiply(toDtype(symmetric(op, to, keyOrNext(op, k)).erfinv(), type)))
  },
)
/**
 * Normal samples with mean `loc` (0) and standard deviation `scale` (1); also complex64.
 * @throws DTypeError unless the dtype is floating or complex
 * @example
 * mx.random.normal([2, 3]).shape // => [2, 3]
 */
export function normal(
  shape?: ShapeArgument,
  dtype?: Dtype | null,
  loc?: Operand | null,
  scale?: Operand | null,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function normal(
  shape: ShapeArgument,
  options: { loc?: Operand | null; scale?: Operand | null } & Omit<DrawOptions, "shape">,
): Array
export function normal(options?: { loc?: Operand | null; scale?: Operand | null } & DrawOptions): Array
export function normal(...args: unknown[]): Array {
  return normalArgs(args)
}

const I = { re: 0, im: 1 }
const joinParts = (re: Array, im: Array): Array =>
  toDtype(re, complex64).add(toDtype(im, complex64).multiply(scalarArray(I, complex64)))

const bernoulliArgs = operation(
  "random.bernoulli",
  { p: "probabilities?", shape: "shape?", key: "array?" },
  (p: Operand = 0.5, shape?: ShapeArgument | null, k?: Array | null) => {
    const op = "random.bernoulli"
    const chance = asOperand(op, p)
    if (chance.dtype.kind !== "floating")
      throw new DTypeError(op, `p must be floating, received ${chance.dtype.name}`)
    const to = shape === undefined || shape === null ? chance.shape : asShape(op, shape)
    checkFits(op, chance, to)
    return uniformOn(op, 0, 1, to, float32, keyOrNext(op, k)).less(chance)
  },
)
/**
 * Bernoulli samples: true with probability `p`, of the shape of `p` by default.
 * @throws ShapeError if p does not broadcast to the shape
 * @example
 * mx.random.bernoulli(1, [2]).tolist() // => [true, true]
 */
export function bernoulli(
  p?: Operand,
  shape?: ShapeArgument | null,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function bernoulli(
  p: Operand,
  options: { shape?: ShapeArgument | null; key?: Array | null } & StreamOptions,
): Array
export function bernoulli(
  options?: { p?: Operand; shape?: ShapeArgument | null; key?: Array | null } & StreamOptions,
): Array
export function bernoulli(...args: unknown[]): Array {
  return bernoulliArgs(args)
}

/** The integer bound − below, in the dtype of the result. */
function boundOf(op: string, bound: Operand, below: number, dtype: Dtype): Array {
  if (bound instanceof ArrayClass) {
    const integers = bound.dtype === bool_ ? toDtype(bound, int32) : bound
    return toDtype(below === 0 ? integers : integers.subtract(below), dtype)
  }
  const value = typeof bound === "bigint" ? bound - BigInt(below) : Math.trunc(Number(bound) - below)
  return dtype === bool_ ? scalarArray(Number(value) === 0 ? 0 : 1, bool_) : scalarOf(op, value, dtype)
}

const randintArgs = operation(
  "random.randint",
  { low: "operand", high: "operand", shape: "shape?", dtype: "dtype?", key: "array?" },
  (low: Operand, high: Operand, shape: ShapeArgument = [], dtype?: Dtype | null, k?: Array | null) => {
    const op = "random.randint"
    const type = dtype ? asDtype(op, dtype) : int32
    if (isInexact(type)) throw new DTypeError(op, `expected an integer dtype or bool_, received ${type.name}`)
    const u = uniformOn(op, convert(op, low, float32), high, asShape(op, shape), float32, keyOrNext(op, k))
    // float32 rounds large bounds, so samples may exceed them: clip in the dtype of the result.
    return maximum(minimum(toDtype(u.floor(), type), boundOf(op, high, 1, type)), boundOf(op, low, 0, type))
  },
)
/**
 * Uniform integers from [low, high), or bools. Sampled in float32 as in MLX, so ranges of more than 2²⁴ integers are not fully covered.
 * @throws DTypeError for a floating or complex dtype
 * @example
 * mx.random.randint(5, 6, [2]).tolist() // => [5, 5]
 */
export function randint(
  low: Operand,
  high: Operand,
  shape?: ShapeArgument,
  dtype?: Dtype | null,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function randint(
  low: Operand,
  high: Operand,
  shape: ShapeArgument,
  options: Omit<DrawOptions, "shape">,
): Array
export function randint(low: Operand, high: Operand, options: DrawOptions): Array
export function randint(...args: unknown[]): Array {
  return randintArgs(args)
}

const truncatedNormalArgs = operation(
  "random.truncatedNormal",
  { lower: "numbers", upper: "numbers", shape: "shape?", dtype: "dtype?", key: "array?" },
  (lower: Operand, upper: Operand, shape?: ShapeArgument | null, dtype?: Dtype | null, k?: Array | null) => {
    const op = "random.truncatedNormal"
    const type = floating(op, dtype)
    const [lo, hi] = [convert(op, lower, type), convert(op, upper, type)]
    const root = scalarArray(Math.SQRT2, type)
    const to =
      shape === undefined || shape === null ? broadcastShapes(op, lo.shape, hi.shape) : asShape(op, shape)
    const u = uniformOn(op, lo.divide(root).erf(), hi.divide(root).erf(), to, type, keyOrNext(op, k))
    return maximum(minimum(hi, root.multiply(u.erfinv())), lo)
  },
)
/**
 * Samples of the normal distribution truncated to [lower, upper].
 * @throws DTypeError unless the dtype is floating; ShapeError if the bounds do not broadcast to the shape
 * @example
 * mx.random.truncatedNormal(-1, 1, [4]).abs().max().item() <= 1 // => true
 */
export function truncatedNormal(
  lower: Operand,
  upper: Operand,
  shape?: ShapeArgument | null,
  dtype?: Dtype | null,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function truncatedNormal(
  lower: Operand,
  upper: Operand,
  shape: ShapeArgument | null,
  options: Omit<DrawOptions, "shape">,
): Array
export function truncatedNormal(
  lower: Operand,
  upper: Operand,
  options: { shape?: ShapeArgument | null } & Omit<DrawOptions, "shape">,
): Array
export function truncatedNormal(...args: unknown[]): Array {
  return truncatedNormalArgs(args)
}

const gumbelOf = (op: string, shape: readonly number[], dtype: Dtype, k: Array): Array =>
  uniformOn(op, 0, 1, shape, dtype, k).log().negative().log().negative()

const gumbelArgs = operation(
  "random.gumbel",
  { shape: "shape?", dtype: "dtype?", key: "array?" },
  (shape: ShapeArgument = [], dtype?: Dtype | null, k?: Array | null) => {
    const op = "random.gumbel"
    const type = floating(op, dtype)
    return gumbelOf(op, asShape(op, shape), type, keyOrNext(op, k))
  },
)
/**
 * Samples of the standard Gumbel distribution, −log(−log u).
 * @throws DTypeError unless the dtype is floating
 * @example
 * mx.random.gumbel([2]).shape // => [2]
 */
export function gumbel(
  shape?: ShapeArgument,
  dtype?: Dtype | null,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function gumbel(shape: ShapeArgument, options: Omit<DrawOptions, "shape">): Array
export function gumbel(options?: DrawOptions): Array
export function gumbel(...args: unknown[]): Array {
  return gumbelArgs(args)
}

const categoricalArgs = operation(
  "random.categorical",
  { logits: "array", axis: "axis?", shape: "shape?", numSamples: "size?", key: "array?" },
  (
    logits: Array,
    axis: number = -1,
    shape?: ShapeArgument | null,
    numSamples?: number | null,
    k?: Array | null,
  ) => {
    const op = "random.categorical"
    const along = normalizeAxis(op, axis, logits.ndim)
    const rest = logits.shape.filter((_, i) => i !== along)
    const hasShape = shape !== undefined && shape !== null
    if (hasShape && numSamples !== undefined && numSamples !== null)
      throw new ArgumentError(op, "takes shape or numSamples, not both")
    if (numSamples !== undefined && numSamples !== null) {
      const [n] = asShape(op, numSamples)
      return draw(op, logits.expandDims(-1), along, [...rest, n], k)
    }
    const to = hasShape ? asShape(op, shape) : rest
    if (!sameShape(broadcastShapes(op, to, rest), to))
      throw new ShapeError(op, `logits of shape ${format(logits.shape)} do not broadcast to ${format(to)}`)
    return draw(op, logits, along, to, k)
  },
)
/** Samples along an axis of the logits; the other axes broadcast to the shape `to`. */
function draw(
  op: string,
  logits: Array,
  along: number,
  to: readonly number[],
  k: Array | null | undefined,
): Array {
  const n = logits.shape[along]
  if (n === 0) throw new ShapeError(op, `needs at least one category, received shape ${format(logits.shape)}`)
  const key = keyOrNext(op, k)
  if (logits.size === n && to.length > 0) {
    // One distribution, many samples: inverse transform sampling.
    const cumulative = softmax(toDtype(logits.flatten(), float32)).cumsum(0)
    const u = uniformOn(op, 0, 1, to, float32, key).multiply(take(cumulative, n - 1, 0))
    return searchsorted(cumulative, u, "right").minimum(n - 1)
  }
  const axis = along + to.length - logits.ndim + 1
  const full = [...to.slice(0, axis), n, ...to.slice(axis)]
  return argmax(gumbelOf(op, full, float32, key).add(logits), axis)
}
/**
 * Samples categories, as uint32 indices along an axis of unnormalized log-probabilities. The other axes broadcast to `shape`, the shape of
 * the result; alternatively, `numSamples` appends an axis.
 * @throws ShapeError if the logits do not broadcast
 * @example
 * mx.random.categorical(mx.array([0, -Infinity])).item() // => 0
 */
export function categorical(
  logits: Array,
  axis?: number,
  shape?: ShapeArgument | null,
  numSamples?: number | null,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function categorical(
  logits: Array,
  axis: number,
  options: { shape?: ShapeArgument | null; numSamples?: number | null; key?: Array | null } & StreamOptions,
): Array
export function categorical(
  logits: Array,
  options: {
    axis?: number
    shape?: ShapeArgument | null
    numSamples?: number | null
    key?: Array | null
  } & StreamOptions,
): Array
export function categorical(...args: unknown[]): Array {
  return categoricalArgs(args)
}

const laplaceArgs = operation(
  "random.laplace",
  { shape: "shape?", dtype: "dtype?", loc: "number?", scale: "number?", key: "array?" },
  (shape: ShapeArgument = [], dtype?: Dtype | null, loc: number = 0, scale: number = 1, k?: Array | null) => {
    const op = "random.laplace"
    const type = floating(op, dtype)
    const u = symmetric(op, asShape(op, shape), keyOrNext(op, k))
    let x = toDtype(u.sign().multiply(u.abs().negative().log1p()), type)
    if (scale !== 1) x = x.multiply(scale)
    return loc !== 0 ? x.add(loc) : x
  },
)
/**
 * Samples of the Laplace distribution with the given location and scale.
 * @throws DTypeError unless the dtype is floating
 * @example
 * mx.random.laplace([2]).shape // => [2]
 */
export function laplace(
  shape?: ShapeArgument,
  dtype?: Dtype | null,
  loc?: number,
  scale?: number,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function laplace(
  shape: ShapeArgument,
  options: { loc?: number; scale?: number } & Omit<DrawOptions, "shape">,
): Array
export function laplace(options?: { loc?: number; scale?: number } & DrawOptions): Array
export function laplace(...args: unknown[]): Array {
  return laplaceArgs(args)
}

const multivariateNormalArgs = operation(
  "random.multivariateNormal",
  { mean: "array", cov: "array", shape: "shape?", dtype: "dtype?", key: "array?" },
  (mean: Array, cov: Array, shape: ShapeArgument = [], dtype?: Dtype | null, k?: Array | null) => {
    const op = "random.multivariateNormal"
    const type = dtype ? asDtype(op, dtype) : float32
    if (type !== float32 && type !== float64)
      throw new DTypeError(op, `the dtype must be float32 or float64, received ${type.name}`)
    const center = toDtype(mean, type)
    const spread = toDtype(cov, type)
    const n = center.shape[center.ndim - 1]
    if (center.ndim < 1) throw new ShapeError(op, "the mean needs at least 1 dimension, received a 0-d array")
    if (spread.ndim < 2 || spread.shape[spread.ndim - 1] !== n || spread.shape[spread.ndim - 2] !== n)
      throw new ShapeError(
        op,
        `the covariance must be ${n}×${n} matrices for a mean of shape ${format(center.shape)}, received shape ${format(spread.shape)}`,
      )
    const given = broadcastShapes(op, center.shape.slice(0, -1), spread.shape.slice(0, -2))
    const to = broadcastShapes(op, asShape(op, shape), given)
    // The symmetric square root of the covariance, which does not depend on the choice of singular vectors.
    const [u, s, vt] = svd(spread)
    const root = u.multiply(s.sqrt().expandDims(-2)).matmul(vt)
    const z = normal({ shape: [...to, n], dtype: type, key: keyOrNext(op, k) })
    return center.add(z.expandDims(-2).matmul(root).squeeze(-2))
  },
)
/**
 * Samples of the multivariate normal distribution with mean [..., N] and positive semidefinite covariance [..., N, N]. The result has shape
 * [...shape, N], where `shape` broadcasts with the leading axes of mean and covariance.
 * @throws ShapeError if the shapes are incompatible; DTypeError unless the dtype is float32 or float64
 * @example
 * mx.random.multivariateNormal(mx.zeros([2]), mx.eye(2), [3]).shape // => [3, 2]
 */
export function multivariateNormal(
  mean: Array,
  cov: Array,
  shape?: ShapeArgument,
  dtype?: Dtype | null,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function multivariateNormal(
  mean: Array,
  cov: Array,
  shape: ShapeArgument,
  options: Omit<DrawOptions, "shape">,
): Array
export function multivariateNormal(mean: Array, cov: Array, options: DrawOptions): Array
export function multivariateNormal(...args: unknown[]): Array {
  return multivariateNormalArgs(args)
}

const permutationArgs = operation(
  "random.permutation",
  { x: "any", axis: "axis?", key: "array?" },
  (x: number | Array, axis: number = 0, k?: Array | null) => {
    const op = "random.permutation"
    const order = (n: number): Array => argsort(randomBits([keyOrNext(op, k)], { width: 4, shape: [n] }))
    if (Number.isSafeInteger(x) && (x as number) >= 0) return order(x as number)
    if (!(x instanceof ArrayClass))
      throw new ArgumentError(op, `x must be an array or a non-negative integer, received ${describe(x)}`)
    const a = x
    const along = normalizeAxis(op, axis, a.ndim)
    return take(a, order(a.shape[along]), along)
  },
)
/**
 * A random permutation of 0 … x−1 (uint32), or of the slices of an array along an axis.
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.sort(mx.random.permutation(4)).tolist() // => [0, 1, 2, 3]
 */
export function permutation(
  x: number | Array,
  axis?: number,
  key?: Array | null,
  options?: StreamOptions,
): Array
export function permutation(
  x: number | Array,
  axis: number,
  options: { key?: Array | null } & StreamOptions,
): Array
export function permutation(
  x: number | Array,
  options: { axis?: number; key?: Array | null } & StreamOptions,
): Array
export function permutation(...args: unknown[]): Array {
  return permutationArgs(args)
}
