/**
 * Scaled dot-product attention: softmax(scale · q kᵀ + mask) v with grouped heads, as one primitive, so that a backend need not materialize
 * the scores. Vaswani et al., "Attention is all you need", 2017.
 */
import { asArrayArgument, composition, type StreamOptions } from "../graph/args"
import { bool_, float32, promote } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, ShapeError } from "../graph/errors"
import { type Array, Array as ArrayClass } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { broadcastShapes, format, sameShape } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { scalarArray, toDtype, wide } from "./constant"
import { matmul } from "./matmul"
import { broadcastTo, max, sum, sumTo } from "./reduce"
import { moveToFront, reshapeLike } from "./view"

type Params = { scale: number; causal: boolean; hasMask: boolean; hasSinks: boolean }
const schema = { scale: "f64", causal: "bool", hasMask: "bool", hasSinks: "bool" } as const

/** The optional inputs: a 4-d mask; sinks of shape [1 or batch, heads]. */
type Extras = { mask?: Array; sinks?: Array }
const extrasOf = (inputs: readonly Array[], { hasMask, hasSinks }: Params): Extras => ({
  mask: hasMask ? inputs[3] : undefined,
  sinks: hasSinks ? inputs[hasMask ? 4 : 3] : undefined,
})

const swap = (x: Array): Array => x.swapaxes(-1, -2)

/** Query heads [B, H, L, D] grouped by the key head they share: [B, Hk, H/Hk, L, D]. */
const grouped = (x: Array, keyHeads: number): Array =>
  x.unflatten(1, [keyHeads, keyHeads === 0 ? 1 : x.shape[1] / keyHeads])

/** The masked scores, [B, Hk, H/Hk, L, S], in at least float32. */
function scores(q: Array, k: Array, mask: Array | undefined, { scale, causal }: Params): Array {
  const dtype = wide(q.dtype)
  const [heads, keyHeads] = [q.shape[1], k.shape[1]]
  const [length, keys] = [q.shape[2], k.shape[2]]
  const queries = grouped(toDtype(q, dtype).multiply(scale), keyHeads)
  let s = matmul(queries, swap(toDtype(k, dtype)).expandDims(2))
  if (causal) {
    // The ends are aligned: row i sees columns j ≤ i + S − L.
    const visible = arange(length)
      .add(keys - length)
      .reshape([-1, 1])
      .greaterEqual(arange(keys))
    s = where(visible, s, Number.NEGATIVE_INFINITY)
  }
  if (mask) {
    const full = broadcastTo(mask, [mask.shape[0] ?? 1, heads, length, keys])
    const m = grouped(full, keyHeads)
    s = mask.dtype === bool_ ? where(m, s, Number.NEGATIVE_INFINITY) : s.add(toDtype(m, dtype))
  }
  return s
}

/**
 * The softmax and logsumexp of rows of scores, and the probability of the sink, an additional score of each row. Zeros and −∞ for a fully
 * masked query.
 */
function probabilities(
  s: Array,
  sinks: Array | undefined,
): { p: Array; lse: Array; sunk: Array | undefined } {
  const [, keyHeads, several] = s.shape
  const sink = sinks ? toDtype(sinks, s.dtype).reshape([-1, keyHeads, several, 1, 1]) : undefined
  // Rows of −∞, and rows without keys, must not give −∞ − (−∞) or a division by 0.
  const none = s.shape[s.ndim - 1] === 0
  let top = none ? scalarArray(-3e38, s.dtype) : max(s, -1, true).maximum(-3e38)
  if (sink) top = top.maximum(sink)
  const e = s.subtract(top).exp()
  const more = sink?.subtract(top).exp()
  const sums = sum(e, -1, true)
  const total = more ? sums.add(more) : sums
  const divisor = total.maximum(1e-30)
  return { p: e.divide(divisor), lse: total.log().add(top), sunk: more?.divide(divisor) }
}

/** Expands a mask to four axes. */
function fourAxes(mask: Array): Array {
  const { shape } = mask.node
  const four = [1, 1, 1, 1]
  for (let i = 0; i < shape.length; i++) four[4 - shape.length + i] = shape[i]
  return reshapeLike(mask, four)
}

/**
 * Inputs q [B,H,L,D], k [B,Hk,S,D], v [B,Hk,S,E], mask?, sinks?; outputs o [B,H,L,E] and lse float32 [B,H,L], the logsumexp of the scores
 * and the sink.
 */
const attend: Apply<Params> = definePrimitive({
  name: "scaledDotProductAttention",
  params: schema,
  infer: (inputs) => {
    const { shape, dtype } = inputs[0]
    if (dtype.kind !== "floating")
      throw new DTypeError("scaledDotProductAttention", `needs a floating dtype, received ${dtype.name}`)
    const [batch, heads, length] = shape
    return [
      { shape: [batch, heads, length, inputs[2].shape[3]], dtype },
      { shape: [batch, heads, length], dtype: float32 },
    ]
  },
  decompose: (inputs, params) => {
    const [q, k, v] = inputs
    const { mask, sinks } = extrasOf(inputs, params)
    const { p, lse } = probabilities(scores(q, k, mask, params), sinks)
    const o = matmul(p, toDtype(v, p.dtype).expandDims(2))
    return [toDtype(o.flatten(1, 2), q.dtype), toDtype(lse.flatten(1, 2).squeeze(-1), float32)]
  },
  // Only the backward kernel uses lse, so it never has a cotangent.
  vjp: ({ inputs, outputs: [o, lse], cotangents: [g], params, wanted }) => {
    const { mask } = extrasOf(inputs, params)
    const [dq, dk, dv, ...dsinks] = attendVjp.all([...inputs, o, lse, g], params)
    if (!mask) return [dq, dk, dv, ...dsinks]
    return [
      dq,
      dk,
      dv,
      wanted[3] && mask.dtype !== bool_ ? maskVjp(inputs, mask, g, params) : null,
      ...dsinks,
    ]
  },
  vmap: ({ inputs, axes, params, size }) => {
    const outputs = attend.all(joinBatches(inputs, axes, size, params), params)
    return { outputs: outputs.map((y) => y.unflatten(0, [size, -1])), axes: [0, 0] }
  },
})

/**
 * The probabilities p, the cotangents of the scores ds = p · (dp − shares) with dp = g vᵀ and shares = Σ p·dp, those of the sinks, and g
 * with grouped heads.
 */
function backward(
  inputs: readonly Array[],
  g: Array,
  params: Params,
): { p: Array; ds: Array; sunk: Array | undefined; gs: Array } {
  const [q, k, v] = inputs
  const { mask, sinks } = extrasOf(inputs, params)
  const { p, sunk } = probabilities(scores(q, k, mask, params), sinks)
  const gs = grouped(toDtype(g, p.dtype), k.shape[1])
  const dp = matmul(gs, swap(toDtype(v, p.dtype)).expandDims(2))
  const shares = sum(p.multiply(dp), -1, true)
  return { p, ds: p.multiply(dp.subtract(shares)), sunk: sunk?.multiply(shares).negative(), gs }
}

function maskVjp(inputs: readonly Array[], mask: Array, g: Array, params: Params): Array {
  const { ds } = backward(inputs, g, params)
  return toDtype(sumTo(ds.flatten(1, 2), mask.shape), mask.dtype)
}

/**
 * Inputs q, k, v, mask?, sinks?, o, lse, g; outputs dq, dk, dv, dsinks?. Kernels recompute the probabilities from lse; the decomposition
 * starts from q and k, so that second derivatives do not involve o and lse.
 */
const attendVjp: Apply<Params> = definePrimitive({
  name: "scaledDotProductAttentionVjp",
  params: schema,
  infer: ([q, k, v, ...rest], { hasMask, hasSinks }) => [
    ...[q, k, v],
    ...(hasSinks ? [rest[hasMask ? 1 : 0]] : []),
  ],
  decompose: (inputs, params) => {
    const [q, k, v] = inputs
    const { p, ds, sunk, gs } = backward(inputs, inputs[inputs.length - 1], params)
    const w = ds.dtype
    const queries = grouped(toDtype(q, w), k.shape[1])
    const dq = matmul(ds, toDtype(k, w).expandDims(2)).multiply(params.scale).flatten(1, 2)
    // Sums over the query heads that share a key head.
    const dk = sum(matmul(swap(ds), queries), 2).multiply(params.scale)
    const dv = sum(matmul(swap(p), gs), 2)
    const results = [toDtype(dq, q.dtype), toDtype(dk, k.dtype), toDtype(dv, v.dtype)]
    const { sinks } = extrasOf(inputs, params)
    if (!sinks || !sunk) return results
    const each = sum(sunk, [-2, -1]).flatten(1, 2)
    return [...results, toDtype(sumTo(each, sinks.shape), sinks.dtype)]
  },
  vmap: ({ inputs, axes, params, size }) => {
    const joined = joinBatches(inputs, axes, size, params)
    const at = params.hasMask ? 4 : 3
    const { sinks } = extrasOf(joined, params)
    // Each example needs its own sum.
    if (sinks) joined[at] = broadcastTo(sinks, [joined[0].shape[0], sinks.shape[1]])
    const outputs = attendVjp.all(joined, params).map((y) => y.unflatten(0, [size, -1]))
    if (sinks && inputs[at].shape[axes[at] === 0 ? 1 : 0] === 1) outputs[3] = sum(outputs[3], 1, true)
    return { outputs, axes: outputs.map(() => 0) }
  },
})

/** Merges the batch axis of a vmap with the arrays' own first axis. */
function joinBatches(
  inputs: readonly Array[],
  axes: readonly (number | null)[],
  size: number,
  { hasMask, hasSinks }: Params,
): Array[] {
  const batch = inputs[0].shape[axes[0] === 0 ? 1 : 0]
  return inputs.map((x, i) => {
    const axis = axes[i]
    if (i >= 3 && i < 3 + Number(hasMask) + Number(hasSinks)) {
      if (axis === null && x.shape[0] === 1) return x
      const moved = axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)
      return broadcastTo(moved, [size, batch, ...moved.shape.slice(2)]).flatten(0, 1)
    }
    return (axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)).flatten(0, 1)
  })
}

function checkOne(op: string, name: string, { node: { shape } }: Array): void {
  if (shape.length !== 4)
    throw new ShapeError(op, `${name} must have 4 dimensions, received shape ${format(shape)}`, {
      hint: "The dimensions are batch, heads, positions, features",
    })
}

function check(q: Array, k: Array, v: Array): void {
  const op = "scaledDotProductAttention"
  checkOne(op, "q", q)
  checkOne(op, "k", k)
  checkOne(op, "v", v)
  const { shape: queries } = q.node
  const { shape: keys } = k.node
  const { shape: values } = v.node
  const shapes = (): string => `q ${format(queries)}, k ${format(keys)}, v ${format(values)}`
  if (queries[0] !== keys[0] || keys[0] !== values[0])
    throw new ShapeError(op, `the batches differ: ${shapes()}`)
  if (queries[3] !== keys[3]) throw new ShapeError(op, `the features of q and k differ: ${shapes()}`)
  if (keys[1] !== values[1] || keys[2] !== values[2])
    throw new ShapeError(op, `the heads and positions of k and v differ: ${shapes()}`)
  if (keys[1] === 0 ? queries[1] > 0 : queries[1] % keys[1] !== 0)
    throw new ShapeError(op, `the heads of q are not a multiple of those of k: ${shapes()}`)
}

const attentionArgs = composition(
  "scaledDotProductAttention",
  { q: "array", k: "array", v: "array", scale: "number", mask: "any?", sinks: "array?", forceFused: "bool?" },
  (
    q: Array,
    k: Array,
    v: Array,
    scale: number,
    mask?: Array | "causal" | null,
    sinks?: Array | null,
    _forceFused?: boolean,
  ): Array => {
    const op = "scaledDotProductAttention"
    check(q, k, v)
    if (typeof scale !== "number")
      throw new ArgumentError(op, `scale must be a number, received ${describe(scale)}`)
    const dtype = promote(promote(q.node.dtype, k.node.dtype), v.node.dtype)
    const query = toDtype(q, dtype)
    const keys = toDtype(k, dtype)
    const values = toDtype(v, dtype)
    const causal = mask === "causal"
    let additive: Array | undefined
    if (mask instanceof ArrayClass) {
      const { shape, dtype: own } = mask.node
      const [batch, heads, length] = query.node.shape
      const full = [batch, heads, length, keys.node.shape[2]]
      if (!sameShape(broadcastShapes(op, shape, full), full))
        throw new ShapeError(op, `a mask of shape ${format(shape)} does not broadcast to ${format(full)}`)
      if (own !== bool_ && promote(own, dtype) !== dtype)
        throw new DTypeError(op, `a mask of ${own.name} does not fit arrays of ${dtype.name}`)
      additive = fourAxes(own === bool_ ? mask : toDtype(mask, dtype))
    } else if (!causal && mask !== null && mask !== undefined)
      throw new ArgumentError(op, `mask must be an array, "causal" or null, received ${describe(mask)}`)
    let sunk: Array | undefined
    if (sinks !== null && sinks !== undefined) {
      const s = asArrayArgument(op, "sinks", sinks)
      if (s.ndim !== 1 || s.shape[0] !== query.shape[1])
        throw new ShapeError(op, `sinks must have shape (${query.shape[1]},), received ${format(s.shape)}`)
      if (promote(s.dtype, dtype) !== dtype)
        throw new DTypeError(op, `sinks of ${s.dtype.name} do not fit arrays of ${dtype.name}`)
      sunk = toDtype(s, wide(dtype)).reshape([1, -1])
    }
    const inputs = [query, keys, values]
    if (additive) inputs.push(additive)
    if (sunk) inputs.push(sunk)
    return attend.all(inputs, {
      scale,
      causal,
      hasMask: additive !== undefined,
      hasSinks: sunk !== undefined,
    })[0]
  },
)
/** The parameters of {@link scaledDotProductAttention}. */
export interface AttentionOptions extends StreamOptions {
  /** The scale of the scores, usually 1/√features. */
  scale: number
  /**
   * A bool array, true where a query may attend to a key, or a floating one, which is added to the scores; both broadcast to [batch, heads,
   * queries, keys]. Or `'causal'`: a query does not attend to later keys, where the last query and the last key are aligned.
   */
  mask?: Array | "causal" | null
  /** An additional score for each head, which takes part in the softmax but contributes no value. */
  sinks?: Array | null
  /** Accepted for compatibility with MLX; a fused kernel is always used if there is one. */
  forceFused?: boolean
}
/**
 * softmax(scale · q kᵀ + mask) v. Shapes are [batch, heads, positions, features]; the number of heads of the queries must be a multiple of
 * that of keys and values. Scores are computed in at least float32. A query that may attend to no key gives zeros.
 * @method false
 * @named scale mask sinks forceFused
 * @throws ShapeError if the shapes are incompatible; DTypeError unless the arrays are promoted to a floating dtype
 * @example
 * mx.fast.scaledDotProductAttention(mx.ones([1, 1, 1, 2]), mx.ones([1, 1, 3, 2]), mx.ones([1, 1, 3, 2]), { scale: 1 }).tolist()
 * // => [[[[1, 1]]]]
 */
export function scaledDotProductAttention(q: Array, k: Array, v: Array, options: AttentionOptions): Array
export function scaledDotProductAttention(...args: unknown[]): Array {
  return attentionArgs(args)
}
