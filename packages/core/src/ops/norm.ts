/**
 * The `mx.fast` functions behind nn's normalization and positional layers. All operate on the last axis, and compute 16-bit floats in
 * float32.
 */
import { asArrayArgument, composition, operation, type StreamOptions } from "../graph/args"
import { float32, float64, int32, isInteger, promote } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, ShapeError } from "../graph/errors"
import type { Array, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, SCALAR, type Shape, sizeOf } from "../graph/shape"
import { arange } from "./arange"
import { toDtype, wide } from "./constant"
import { array } from "./creation"
import { concatenate, stack } from "./join"
import { broadcastTo, mean, sum } from "./reduce"
import { sliceRange } from "./slice"
import { moveToFront, reshapeLike } from "./view"

/** All axes but the last. */
const rows = (x: Array): number[] => globalThis.Array.from({ length: x.ndim - 1 }, (_, i) => i)
const sumRows = (x: Array): Array => (x.ndim > 1 ? sum(x, rows(x)) : x)
const row = (x: Meta): Meta => ({ shape: x.shape.slice(-1), dtype: x.dtype })
/** Checks that the dtype is real floating. */
function floating(op: string, x: Meta): Meta {
  if (x.dtype.kind === "floating") return x
  throw new DTypeError(op, `needs a floating dtype, received ${x.dtype.name}`)
}

/** Aligns a per-column parameter, and its batch axis if any, with rows whose batch axis is in front. */
function beside(parameter: Array, axis: number | null, ndim: number): Array {
  if (axis === null) return parameter
  const moved = moveToFront(parameter, axis)
  return moved.reshape([moved.shape[0], ...new globalThis.Array<number>(ndim - 2).fill(1), moved.shape[1]])
}

const batchOfRows = (x: Array, axis: number | null, size: number): Array =>
  axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)

/** x − mean x, and 1/√(var x + ε), with the last axis kept, in at least float32. */
function standardize(x: Array, eps: number): { normal: Array; rate: Array } {
  const w = toDtype(x, wide(x.dtype))
  const centered = w.subtract(mean(w, -1, true))
  const rate = mean(centered.square(), -1, true).add(eps).rsqrt()
  return { normal: centered.multiply(rate), rate }
}

type NormParams = { eps: number; hasWeight: boolean; hasBias: boolean }

/** Rows are independent if weight and bias have no batch axis. */
const parametersServeAll = <P>([, ...rest]: readonly Meta[], params: P): P | null =>
  rest.every(({ shape }) => shape.length === 1) ? params : null

/** y = (x − mean x) / √(var x + ε) · weight + bias, over the last axis. Inputs: x, weight?, bias?. */
const layerNormPrimitive: Apply<NormParams> = definePrimitive({
  name: "layerNorm",
  params: { eps: "f64", hasWeight: "bool", hasBias: "bool" },
  infer: ([x]) => floating("layerNorm", x),
  rows: parametersServeAll,
  decompose: ([x, ...rest], { eps, hasWeight, hasBias }) => {
    let { normal } = standardize(x, eps)
    if (hasWeight) normal = normal.multiply(rest[0])
    if (hasBias) normal = normal.add(rest[hasWeight ? 1 : 0])
    return toDtype(normal, x.dtype)
  },
  vjp: ({ inputs, cotangents: [g], params: { eps, hasWeight, hasBias } }) => {
    const [x, weight] = inputs
    const parts = layerNormVjp.all(hasWeight ? [x, weight, g] : [x, g], { eps, hasWeight })
    const dbias = parts[parts.length - 1]
    return [parts[0], ...(hasWeight ? [parts[1]] : []), ...(hasBias ? [dbias] : [])]
  },
  jvp: ({ inputs: [x, ...rest], tangents: [tx, ...tangents], params: { eps, hasWeight, hasBias } }) => {
    const { normal, rate } = standardize(x, eps)
    let t: Array | null = null
    if (tx) {
      const d = toDtype(tx, normal.dtype)
      t = d
        .subtract(mean(d, -1, true))
        .subtract(normal.multiply(mean(d.multiply(normal), -1, true)))
        .multiply(rate)
      if (hasWeight) t = t.multiply(rest[0])
    }
    if (hasWeight && tangents[0]) t = plus(t, normal.multiply(tangents[0]))
    const tb = hasBias ? tangents[hasWeight ? 1 : 0] : null
    if (tb) t = plus(t, broadcastTo(tb, x.shape))
    return [t && toDtype(t, x.dtype)]
  },
  vmap: ({ inputs: [x, ...rest], axes: [axis, ...batches], params, size }) => {
    const moved = batchOfRows(x, axis, size)
    if (batches.every((b) => b === null))
      return { outputs: [layerNormPrimitive([moved, ...rest], params)], axes: [0] }
    let y = layerNormPrimitive([moved], { eps: params.eps, hasWeight: false, hasBias: false })
    if (params.hasWeight) y = y.multiply(beside(rest[0], batches[0], moved.ndim))
    if (params.hasBias) {
      const at = params.hasWeight ? 1 : 0
      y = y.add(beside(rest[at], batches[at], moved.ndim))
    }
    return { outputs: [y], axes: [0] }
  },
})
const plus = (a: Array | null, b: Array): Array => (a ? a.add(b) : b)

/** Inputs x, weight?, g. Outputs dx, dweight (if there is a weight), dbias. */
const layerNormVjp: Apply<{ eps: number; hasWeight: boolean }> = definePrimitive({
  name: "layerNormVjp",
  params: { eps: "f64", hasWeight: "bool" },
  infer: ([x], { hasWeight }) => [floating("layerNormVjp", x), ...(hasWeight ? [row(x)] : []), row(x)],
  // With the normalized x̂ and h = g·weight: dx = (h − mean h − x̂ · mean(h·x̂)) / σ.
  decompose: ([x, ...rest], { eps, hasWeight }) => {
    const { normal, rate } = standardize(x, eps)
    const g = toDtype(rest[rest.length - 1], normal.dtype)
    const h = hasWeight ? g.multiply(rest[0]) : g
    const dx = h
      .subtract(mean(h, -1, true))
      .subtract(normal.multiply(mean(h.multiply(normal), -1, true)))
      .multiply(rate)
    const outputs = hasWeight ? [dx, sumRows(g.multiply(normal)), sumRows(g)] : [dx, sumRows(g)]
    return outputs.map((y) => toDtype(y, x.dtype))
  },
})

/** x / √(mean x² + ε) and the factor, with the last axis kept, in at least float32. */
function scaleRows(x: Array, eps: number): { normal: Array; rate: Array } {
  const w = toDtype(x, wide(x.dtype))
  const rate = mean(w.square(), -1, true).add(eps).rsqrt()
  return { normal: w.multiply(rate), rate }
}

/** y = x / √(mean x² + ε) · weight, over the last axis. Inputs: x, weight?. */
const rmsNormPrimitive: Apply<{ eps: number; hasWeight: boolean }> = definePrimitive({
  name: "rmsNorm",
  params: { eps: "f64", hasWeight: "bool" },
  infer: (inputs) => floating("rmsNorm", inputs[0]),
  rows: parametersServeAll,
  decompose: ([x, weight], { eps }) => {
    const { normal } = scaleRows(x, eps)
    return toDtype(weight ? normal.multiply(weight) : normal, x.dtype)
  },
  vjp: ({ inputs, cotangents: [g], params }) => rmsNormVjp.all([...inputs, g], params),
  jvp: ({ inputs: [x, weight], tangents: [tx, tw], params: { eps } }) => {
    const { normal, rate } = scaleRows(x, eps)
    let t: Array | null = null
    if (tx) {
      const d = toDtype(tx, normal.dtype)
      t = d.subtract(normal.multiply(mean(d.multiply(normal), -1, true))).multiply(rate)
      if (weight) t = t.multiply(weight)
    }
    if (tw) t = plus(t, normal.multiply(tw))
    return [t && toDtype(t, x.dtype)]
  },
  vmap: ({ inputs: [x, weight], axes: [axis, batch], params, size }) => {
    const moved = batchOfRows(x, axis, size)
    if (!weight || batch === null)
      return { outputs: [rmsNormPrimitive(weight ? [moved, weight] : [moved], params)], axes: [0] }
    const y = rmsNormPrimitive([moved], { eps: params.eps, hasWeight: false })
    return { outputs: [y.multiply(beside(weight, batch, moved.ndim))], axes: [0] }
  },
})

/** Inputs x, weight?, g. Outputs dx, and with a weight dweight. */
const rmsNormVjp: Apply<{ eps: number; hasWeight: boolean }> = definePrimitive({
  name: "rmsNormVjp",
  params: { eps: "f64", hasWeight: "bool" },
  infer: ([x], { hasWeight }) => [floating("rmsNormVjp", x), ...(hasWeight ? [row(x)] : [])],
  // With the normalized x̂, r the factor and h = g·weight: dx = r · (h − x̂ · mean(h·x̂)).
  decompose: ([x, ...rest], { eps, hasWeight }) => {
    const { normal, rate } = scaleRows(x, eps)
    const g = toDtype(rest[rest.length - 1], normal.dtype)
    const h = hasWeight ? g.multiply(rest[0]) : g
    const dx = h.subtract(normal.multiply(mean(h.multiply(normal), -1, true))).multiply(rate)
    return (hasWeight ? [dx, sumRows(g.multiply(normal))] : [dx]).map((y) => toDtype(y, x.dtype))
  },
})

/** A parameter with one element for each column of arrays of a shape. @throws ShapeError */
function columnsOf(op: string, name: string, value: unknown, rows: Shape): Array {
  const parameter = asArrayArgument(op, name, value)
  const { shape } = parameter.node
  if (shape.length === 1 && shape[0] === rows[rows.length - 1]) return parameter
  throw new ShapeError(
    op,
    `${name} must have shape ${format(rows.slice(-1))} like the last axis of x, received ${format(shape)}`,
  )
}

/** Validates the arguments of a norm and promotes them. A bias without a weight is converted to the dtype of x. @throws ShapeError */
function rowsWith(op: string, a: unknown, weight: unknown, bias?: unknown): Array[] {
  const x = asArrayArgument(op, "x", a)
  const { shape } = x.node
  if (shape.length === 0) throw new ShapeError(op, "x must have at least one dimension, received a 0-d array")
  const rows = [x]
  const hasWeight = weight !== null && weight !== undefined
  if (hasWeight) rows.push(columnsOf(op, "weight", weight, shape))
  if (bias !== null && bias !== undefined) rows.push(columnsOf(op, "bias", bias, shape))
  let { dtype } = x.node
  if (hasWeight) for (let i = 1; i < rows.length; i++) dtype = promote(dtype, rows[i].node.dtype)
  for (let i = 0; i < rows.length; i++) rows[i] = toDtype(rows[i], dtype)
  return rows
}

function checkEps(op: string, eps: unknown): number {
  if (typeof eps === "number") return eps
  throw new ArgumentError(op, `eps must be a number, received ${describe(eps)}`)
}

const layerNormArgs = operation(
  "layerNorm",
  { x: "array", weight: "array?", bias: "array?", eps: "number" },
  (x: Array, weight: Array | null, bias: Array | null, eps: number): Array => {
    const inputs = rowsWith("layerNorm", x, weight, bias)
    return layerNormPrimitive(inputs, {
      eps: checkEps("layerNorm", eps),
      hasWeight: weight !== null && weight !== undefined,
      hasBias: bias !== null && bias !== undefined,
    })
  },
)
/**
 * (x − mean x) / √(var x + eps) · weight + bias over the last axis. Without a weight the result has the dtype of x.
 * Ba, Kiros and Hinton, "Layer normalization", 2016.
 * @method false
 * @throws ShapeError unless weight and bias have the size of the last axis; DTypeError unless x, promoted with the weight and then the
 * bias, is floating
 * @example
 * mx.fast.layerNorm(mx.array([1, -1]), null, null, 0).tolist() // => [1, -1]
 */
export function layerNorm(
  x: Array,
  weight: Array | null,
  bias: Array | null,
  eps: number,
  options?: StreamOptions,
): Array
export function layerNorm(
  x: Array,
  weight: Array | null,
  options: { bias?: Array | null; eps: number } & StreamOptions,
): Array
export function layerNorm(
  x: Array,
  options: { weight?: Array | null; bias?: Array | null; eps: number } & StreamOptions,
): Array
export function layerNorm(...args: unknown[]): Array {
  return layerNormArgs(args)
}

const rmsNormArgs = operation(
  "rmsNorm",
  { x: "array", weight: "array?", eps: "number" },
  (x: Array, weight: Array | null, eps: number): Array => {
    const inputs = rowsWith("rmsNorm", x, weight)
    return rmsNormPrimitive(inputs, { eps: checkEps("rmsNorm", eps), hasWeight: inputs.length > 1 })
  },
)
/**
 * x / √(mean x² + eps) · weight over the last axis.
 * Zhang and Sennrich, "Root mean square layer normalization", 2019.
 * @method false
 * @throws ShapeError unless the weight has the size of the last axis; DTypeError unless x, promoted with the weight, is floating
 * @example
 * mx.fast.rmsNorm(mx.array([3, -3]), null, 0).tolist() // => [1, -1]
 */
export function rmsNorm(x: Array, weight: Array | null, eps: number, options?: StreamOptions): Array
export function rmsNorm(x: Array, weight: Array | null, options: { eps: number } & StreamOptions): Array
export function rmsNorm(x: Array, options: { weight?: Array | null; eps: number } & StreamOptions): Array
export function rmsNorm(...args: unknown[]): Array {
  return rmsNormArgs(args)
}

type RopeParams = {
  dims: number
  traditional: boolean
  base: number | null
  scale: number
  inverse: boolean
}

/**
 * Rotates pairs of the first `dims` features by the angle position · scale / frequency. Inputs: x [B, …, T, D], offset (int32, 0-d or [B]),
 * and frequencies [dims/2] where there is no base. A rotation's transpose is its inverse.
 */
const ropePrimitive: Apply<RopeParams> = definePrimitive({
  name: "rope",
  params: { dims: "i64", traditional: "bool", base: "f64?", scale: "f64", inverse: "bool" },
  infer: (inputs, { dims }) => {
    const x = inputs[0]
    if (x.shape[x.shape.length - 1] < dims)
      throw new ShapeError("rope", `dims ${dims} exceeds the last axis of shape ${format(x.shape)}`)
    return floating("rope", x)
  },
  decompose: ([x, offset, freqs], { dims, traditional, base, scale, inverse }) => {
    const half = dims / 2
    const w = toDtype(x, wide(x.dtype))
    // Angles are computed in at least float32.
    const exact = x.dtype === float64 ? float64 : float32
    const steps = arange(x.shape[x.ndim - 2], { dtype: exact })
    // [B, 1, …, T, 1] or [T, 1]
    const start = toDtype(offset, exact)
    const begins = offset.ndim === 0 ? start : start.reshape([-1, ...x.shape.slice(1).map(() => 1)])
    const positions = steps.reshape([-1, 1]).add(begins).multiply(scale)
    const rates =
      base === null
        ? toDtype(freqs, exact).reciprocal()
        : arange(half, { dtype: exact })
            .multiply(-Math.log(base) / half)
            .exp()
    const angles = positions.multiply(rates)
    const cos = toDtype(angles.cos(), w.dtype)
    const sin = toDtype(inverse ? angles.sin().negative() : angles.sin(), w.dtype)
    const part = (from: number, to: number, step = 1): Array => {
      const last = x.ndim - 1
      return sliceRange(
        w,
        x.shape.map((_, i) => (i === last ? from : 0)),
        x.shape.map((n, i) => (i === last ? to : n)),
        x.shape.map((_, i) => (i === last ? step : 1)),
      )
    }
    const [p, q] = traditional ? [part(0, dims, 2), part(1, dims, 2)] : [part(0, half), part(half, dims)]
    const [a, b] = [p.multiply(cos).subtract(q.multiply(sin)), p.multiply(sin).add(q.multiply(cos))]
    const turned = traditional ? stack([a, b], -1).flatten(-2) : concatenate([a, b], -1)
    const rest = x.shape[x.ndim - 1] > dims ? [part(dims, x.shape[x.ndim - 1])] : []
    return toDtype(concatenate([turned, ...rest], -1), x.dtype)
  },
  vjp: ({ inputs: [, ...rest], cotangents: [g], params }) => [
    ropePrimitive([g, ...rest], { ...params, inverse: !params.inverse }),
    ...rest.map(() => null),
  ],
  jvp: ({ inputs: [, ...rest], tangents: [t], params }) => [t && ropePrimitive([t, ...rest], params)],
  vmap: ({ inputs: [x, offset, ...freqs], axes: [axis, batch, freqAxis], params, size }) => {
    if (freqs.length > 0 && freqAxis !== null)
      throw new ArgumentError("rope", "cannot be mapped over its frequencies")
    // Merges the batch with x's first axis; each example keeps its offsets.
    const moved = batchOfRows(x, axis, size)
    const count = moved.shape[1]
    let begins = offset
    if (offset.ndim > (batch === null ? 0 : 1)) begins = batchOfRows(offset, batch, size).flatten()
    else if (batch !== null)
      begins = broadcastTo(moveToFront(offset, batch).reshape([size, 1]), [size, count]).flatten()
    const y = ropePrimitive([moved.flatten(0, 1), begins, ...freqs], params)
    return { outputs: [y.unflatten(0, [size, count])], axes: [0] }
  },
})

const ropeArgs = composition(
  "rope",
  {
    a: "array",
    dims: "integer",
    traditional: "bool?",
    base: "number?",
    scale: "number?",
    offset: "any?",
    freqs: "array?",
  },
  (
    x: Array,
    dims: number,
    traditional: boolean = false,
    base?: number | null,
    scale: number = 1,
    offset: number | Array = 0,
    freqs: Array | null = null,
  ): Array => {
    const op = "rope"
    const { shape, dtype } = x.node
    if (dtype.kind !== "floating") throw new DTypeError(op, `a must be floating, received ${dtype.name}`)
    if (shape.length < 3)
      throw new ShapeError(op, `a must have at least 3 dimensions, received shape ${format(shape)}`)
    const last = shape[shape.length - 1]
    if (!Number.isInteger(dims) || dims < 2 || dims % 2 !== 0 || dims > last)
      throw new ShapeError(
        op,
        `dims must be an even number up to the last axis's ${last}, received ${describe(dims)}`,
      )
    const hasBase = base !== null && base !== undefined
    if (hasBase === (freqs !== null && freqs !== undefined))
      throw new ArgumentError(op, `needs either base or freqs, received ${hasBase ? "both" : "neither"}`)
    const start = typeof offset === "number" ? array(offset, int32) : asArrayArgument(op, "offset", offset)
    const { shape: starts, dtype: whole } = start.node
    if (!isInteger(whole)) throw new DTypeError(op, `offset must be an integer, received ${whole.name}`)
    if (starts.length > 1 || (starts.length === 1 && starts[0] !== shape[0] && starts[0] !== 1))
      throw new ShapeError(
        op,
        `offset must be one number or one for each of ${shape[0]} examples, received shape ${format(starts)}`,
      )
    const inputs = [x, sizeOf(starts) === 1 ? reshapeLike(start, SCALAR) : start]
    if (!hasBase) {
      const f = asArrayArgument(op, "freqs", freqs)
      if (f.ndim !== 1 || f.shape[0] !== dims / 2)
        throw new ShapeError(op, `freqs must have shape (${dims / 2},), received ${format(f.shape)}`)
      inputs.push(toDtype(f, float32))
    }
    const params = {
      dims,
      traditional: Boolean(traditional),
      base: hasBase ? base : null,
      scale,
      inverse: false,
    }
    return ropePrimitive(inputs, params)
  },
)
/** The parameters of {@link rope}. */
export interface RopeOptions extends StreamOptions {
  /** Rotate adjacent pairs (2i, 2i+1) instead of (i, i + dims/2); false by default. */
  traditional?: boolean
  /** Frequency i is base^(2i/dims); null if `freqs` is given. */
  base?: number | null
  /** The scale of positions; 1 by default. */
  scale?: number
  /** The first position: an integer, or an integer array, 0-d or with one element per example of the first axis. */
  offset?: number | Array
  /** Custom frequencies, of shape [dims/2]. */
  freqs?: Array | null
}
/**
 * Rotary position embedding of an array [batch, …, positions, features]: pairs of the first `dims` features are rotated by
 * position · scale / frequency. Su et al., "RoFormer", 2021.
 * @method false
 * @named traditional base scale offset freqs
 * @throws ShapeError unless dims is even and fits; ArgumentError unless exactly one of base and freqs is given
 * @example
 * mx.fast.rope(mx.ones([1, 1, 2]), 2, { base: 10000 }).tolist() // => [[[1, 1]]]
 */
export function rope(a: Array, dims: number, options: RopeOptions): Array
// By hand: exactly one of `base` and `freqs` must be given.
export function rope(...args: unknown[]): Array {
  return ropeArgs(args)
}
