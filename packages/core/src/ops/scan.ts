/**
 * Cumulative sums, products, extremes and logsumexp along an axis, and the linear recurrence of which their derivatives consist. It is long
 * because the scans, each short, share that recurrence.
 */
import { operation, type StreamOptions } from "../graph/args"
import { asDtype, complex64, type Dtype, int32, isInexact, uint32 } from "../graph/dtype"
import { DTypeError } from "../graph/errors"
import type { Array, HostArray, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { normalizeAxis, type Shape, sizeOf } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { toDtype } from "./constant"
import { full, ones, zeros } from "./creation"
import { gatherAlong, scatterAlong } from "./gather-along"
import { concatenate } from "./join"
import { broadcastTo } from "./reduce"
import { sliceRange } from "./slice"
import { moveToFront } from "./view"

type Params = { axis: number; reverse: boolean; inclusive: boolean }
const schema = { axis: "i64", reverse: "bool", inclusive: "bool" } as const

/** Walks each line along the axis in scan order with the positions of its elements. */
function eachLine(shape: Shape, axis: number, reverse: boolean, visit: (positions: number[]) => void): void {
  const outer = sizeOf(shape.slice(0, axis))
  const inner = sizeOf(shape.slice(axis + 1))
  const n = shape[axis]
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      const at = (k: number): number => (o * n + (reverse ? n - 1 - k : k)) * inner + i
      visit(globalThis.Array.from({ length: n }, (_, k) => at(k)))
    }
  }
}

type Value = number | bigint
type Scan = (inputs: readonly Array[], params: Params) => Array

/** A reference loop that folds each line with `combine`, writing before or after each step. Complex numbers are pairs. */
function scanHost(
  start: (dtype: Dtype) => Value | [number, number],
  combine: (a: never, b: never) => unknown,
  complex?: (a: [number, number], b: [number, number]) => [number, number],
) {
  return ([x]: readonly HostArray[], [out]: readonly HostArray[], params: Params): void => {
    const f = combine as (a: unknown, b: unknown) => unknown
    eachLine(x.shape, params.axis, params.reverse, (positions) => {
      let total = start(out.dtype) as unknown
      for (const p of positions) {
        const write = (): void => {
          if (x.dtype === complex64) [out.data[2 * p], out.data[2 * p + 1]] = total as [number, number]
          else out.data[p] = total as number
        }
        if (!params.inclusive) write()
        total =
          x.dtype === complex64 && complex
            ? complex(total as [number, number], [x.data[2 * p], x.data[2 * p + 1]])
            : f(total, x.data[p])
        if (params.inclusive) write()
      }
    })
  }
}

const isBig = (dtype: Dtype): boolean =>
  dtype.size === 8 && (dtype.kind === "signed" || dtype.kind === "unsigned")
/** A neutral element in the dtype's representation. */
const neutral =
  (value: number) =>
  (dtype: Dtype): Value | [number, number] =>
    dtype === complex64 ? [value, 0] : isBig(dtype) ? BigInt(value) : value

const inFront =
  (apply: Apply<Params>) =>
  (c: { inputs: readonly Array[]; axes: readonly (number | null)[]; params: Params }) => ({
    outputs: [
      apply([moveToFront(c.inputs[0], c.axes[0] as number)], { ...c.params, axis: c.params.axis + 1 }),
    ],
    axes: [0],
  })

/** Shifts `x` by one position along an axis, forward or backward, and fills the gap. */
function shifted(x: Array, axis: number, forward: boolean, filler: number): Array {
  const n = x.shape[axis]
  if (n === 0) return x
  const edge = full(
    x.shape.map((size, i) => (i === axis ? 1 : size)),
    filler,
    x.dtype,
  )
  const part = (from: number, to: number): Array =>
    sliceRange(
      x,
      x.shape.map((_, i) => (i === axis ? from : 0)),
      x.shape.map((size, i) => (i === axis ? to : size)),
    )
  return concatenate(forward ? [edge, part(0, n - 1)] : [part(1, n), edge], axis)
}
/** The previous element of each position, in scan order. */
const previous = (x: Array, { axis, reverse }: Pick<Params, "axis" | "reverse">, filler: number): Array =>
  shifted(x, axis, !reverse, filler)
/** The next element of each position, in scan order. */
const next = (x: Array, { axis, reverse }: Pick<Params, "axis" | "reverse">, filler: number): Array =>
  shifted(x, axis, reverse, filler)

/**
 * h[i] = a[i] · h[i−1] + b[i] along an axis, from h = 0. The derivatives of running products and log-sums, and its own, are such
 * recurrences. It decomposes by doubling: after step k, each position knows the composition of the 2ᵏ maps up to it.
 */
const recurrence: Apply<{ axis: number; reverse: boolean }> = definePrimitive({
  name: "linearRecurrence",
  params: { axis: "i64", reverse: "bool" },
  infer: ([, b]) => b,
  decompose: ([a, b], { axis, reverse }) => {
    const n = b.shape[axis]
    let [factor, sum] = [a, b]
    const before = (x: Array, by: number, filler: number): Array => {
      const edge = full(
        x.shape.map((size, i) => (i === axis ? by : size)),
        filler,
        x.dtype,
      )
      const start = x.shape.map((_, i) => (i === axis && reverse ? by : 0))
      const stop = x.shape.map((size, i) => (i === axis && !reverse ? n - by : size))
      const rest = sliceRange(x, start, stop)
      return concatenate(reverse ? [rest, edge] : [edge, rest], axis)
    }
    for (let by = 1; by < n; by *= 2) {
      sum = sum.add(factor.multiply(before(sum, by, 0)))
      factor = factor.multiply(before(factor, by, 1))
    }
    return sum
  },
  // λ[i] = g[i] + a[i+1] · λ[i+1] runs in the opposite direction; then db = λ and da = λ · h[i−1].
  vjp: ({ inputs: [a], outputs: [h], cotangents: [g], params, wanted }) => {
    const lambda = recurrence([next(a, params, 0).conjugate(), g], { ...params, reverse: !params.reverse })
    return [wanted[0] ? lambda.multiply(previous(h, params, 0).conjugate()) : null, lambda]
  },
  jvp: ({ inputs: [a, b], outputs: [h], tangents: [ta, tb], params }) => {
    const change = ta ? ta.multiply(previous(h, params, 0)) : zeros(b.shape, b.dtype)
    return [recurrence([a, tb ? change.add(tb) : change], params)]
  },
  vmap: ({ inputs, axes, params: { axis, reverse }, size }) => {
    const moved = inputs.map((x, i) =>
      axes[i] === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axes[i]),
    )
    return { outputs: [recurrence(moved, { axis: axis + 1, reverse })], axes: [0] }
  },
})

/** As in MLX, bool and small integers are summed and multiplied in 32 bits by default. */
const sumDtype = (x: Meta): Meta => (x.dtype.kind === "bool" ? { shape: x.shape, dtype: int32 } : x)

const sumAlong: Apply<Params> = definePrimitive({
  name: "cumsum",
  params: schema,
  infer: ([x]) => sumDtype(x),
  reference: (inputs, outputs, params) => {
    const loop = scanHost(
      neutral(0),
      (a: number, b: number) => a + b,
      (a, b) => [a[0] + b[0], a[1] + b[1]],
    )
    loop(inputs, outputs, params)
  },
  vjp: ({ cotangents: [g], params }) => [sumAlong([g], { ...params, reverse: !params.reverse })],
  jvp: ({ tangents: [t], params }) => [t && sumAlong([t], params)],
  vmap: (c) => inFront(sumAlong)(c),
})

const productAlong: Apply<Params> = definePrimitive({
  name: "cumprod",
  params: schema,
  infer: ([x]) => x,
  reference: (inputs, outputs, params) => {
    const { dtype } = inputs[0]
    // Products of integers wrap at 32 bits, so that no digit is lost.
    const times = isInexact(dtype) || isBig(dtype) ? (a: number, b: number) => a * b : Math.imul
    const loop = scanHost(neutral(1), times, (a, b) => [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]])
    loop(inputs, outputs, params)
  },
  // y[i] = x₀ ⋯ x[i]: dx[k] = (x₀ ⋯ x[k−1]) · Σ_{i≥k} g[i] · x[k+1] ⋯ x[i], and the sum is a recurrence. There are no divisions, so zeros
  // need no special case.
  vjp: ({ inputs: [x], outputs: [y], cotangents: [g], params }) => {
    const before = params.inclusive ? previous(y, params, 1) : y
    const later = params.inclusive ? g : next(g, params, 0)
    const sums = recurrence([next(x, params, 0).conjugate(), later], {
      axis: params.axis,
      reverse: !params.reverse,
    })
    return [before.conjugate().multiply(sums)]
  },
  jvp: ({ inputs: [x], outputs: [y], tangents: [t], params }) => {
    if (!t) return [null]
    const before = params.inclusive ? previous(y, params, 1) : y
    const { axis, reverse } = params
    const change = recurrence([x, t.multiply(before)], { axis, reverse })
    return [params.inclusive ? change : previous(change, params, 0)]
  },
  vmap: (c) => inFront(productAlong)(c),
})

const lowest = (dtype: Dtype): Value | [number, number] => {
  if (dtype === complex64) return [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY]
  if (isInexact(dtype)) return Number.NEGATIVE_INFINITY
  if (dtype.kind !== "signed") return isBig(dtype) ? 0n : 0
  return isBig(dtype) ? -(2n ** 63n) : -(2 ** (dtype.size * 8 - 1))
}
const highest = (dtype: Dtype): Value | [number, number] => {
  if (dtype === complex64) return [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
  if (isInexact(dtype)) return Number.POSITIVE_INFINITY
  const bits = dtype.kind === "bool" ? 1 : dtype.size * 8 - (dtype.kind === "signed" ? 1 : 0)
  return isBig(dtype) ? 2n ** BigInt(bits) - 1n : 2 ** bits - 1
}

function extremeAlong(
  name: "cummax" | "cummin",
  start: (dtype: Dtype) => Value | [number, number],
  better: (a: Value, b: Value) => boolean,
): Apply<Params> {
  const pick = (a: Value, b: Value): Value => (Number.isNaN(a) || (!Number.isNaN(b) && !better(b, a)) ? a : b)
  const apply: Apply<Params> = definePrimitive({
    name,
    params: schema,
    infer: ([x]) => x,
    // NaN, in either part of a complex number, propagates.
    reference: scanHost(start, pick as (a: never, b: never) => unknown, (a, b) =>
      !a.some(Number.isNaN) &&
      (b.some(Number.isNaN) || better(b[0], a[0]) || (b[0] === a[0] && better(b[1], a[1])))
        ? b
        : a,
    ),
    // Each result is one of the elements, to which its cotangent goes and from which its tangent comes.
    vjp: ({ inputs: [x], outputs: [y], cotangents: [g], params }) => {
      const { source, exists } = sources(x, y, params, name)
      const zero = zeros(x.shape, x.dtype)
      return [scatterAlong([zero, source, where(exists, g, 0)], { axis: params.axis, mode: "add" })]
    },
    jvp: ({ inputs: [x], outputs: [y], tangents: [t], params }) => {
      if (!t) return [null]
      const { source, exists } = sources(x, y, params, name)
      return [where(exists, gatherAlong([t, source], { axis: params.axis }), 0)]
    },
    vmap: (c) => inFront(apply)(c),
  })
  return apply
}
/** The index of the element that equals each cumulative extreme (the last of equal ones); invalid before the first element. */
function sources(
  x: Array,
  y: Array,
  params: Params,
  name: "cummax" | "cummin",
): { source: Array; exists: Array } {
  const { axis, reverse, inclusive } = params
  const n = x.shape[axis]
  const positions = arange(n).reshape(x.shape.map((_, i) => (i === axis ? n : 1)))
  const order = reverse ? positions.negative().add(n - 1) : positions
  const here = inclusive ? y : name === "cummax" ? y.maximum(x) : y.minimum(x)
  // NaN propagates; its source is the NaN itself.
  const hit = x.equal(here).logicalOr(x.notEqual(x))
  let last = maxAlong([where(hit, order, 0)], { axis, reverse, inclusive: true })
  let exists = ones(x.shape, x.dtype).notEqual(0)
  if (!inclusive) {
    last = previous(last, params, 0)
    exists = broadcastTo(order.greater(0), x.shape)
  }
  const source = reverse ? last.negative().add(n - 1) : last
  return { source: toDtype(source, uint32), exists }
}
const maxAlong = extremeAlong("cummax", lowest, (a, b) => a > b)
const minAlong = extremeAlong("cummin", highest, (a, b) => a < b)

const addExponents = (a: number, b: number): number => {
  const [high, low] = a > b || Number.isNaN(a) ? [a, b] : [b, a]
  if (low === Number.NEGATIVE_INFINITY || high === Number.POSITIVE_INFINITY) return high
  return high + Math.log1p(Math.exp(low - high))
}
const addComplexExponents = (a: [number, number], b: [number, number]): [number, number] => {
  const [high, low] = a[0] > b[0] ? [a, b] : [b, a]
  if (low[0] === Number.NEGATIVE_INFINITY) return high
  const size = Math.exp(low[0] - high[0])
  const [re, im] = [1 + size * Math.cos(low[1] - high[1]), size * Math.sin(low[1] - high[1])]
  return [high[0] + Math.log(Math.hypot(re, im)), high[1] + Math.atan2(im, re)]
}
const logSumAlong: Apply<Params> = definePrimitive({
  name: "logcumsumexp",
  params: schema,
  infer: ([x]) => {
    if (!isInexact(x.dtype))
      throw new DTypeError(
        "logcumsumexp",
        `a must be of a floating or complex dtype, received ${x.dtype.name}`,
      )
    return x
  },
  reference: (inputs, outputs, params) => {
    const loop = scanHost(neutral(Number.NEGATIVE_INFINITY), addExponents, addComplexExponents)
    loop(inputs, outputs, params)
  },
  // With inclusive y: dx[k] = e^(x[k]−y[k]) · T[k], T[k] = g[k] + e^(y[k]−y[k+1]) · T[k+1]. No exponent is positive.
  vjp: ({ inputs: [x], outputs: [y], cotangents: [g], params }) => {
    const own = params.inclusive ? y : y.logaddexp(x)
    const sums = recurrence(
      [next(decay(own, params), params, 0).conjugate(), params.inclusive ? g : next(g, params, 0)],
      { axis: params.axis, reverse: !params.reverse },
    )
    return [share(x, own).conjugate().multiply(sums)]
  },
  // ẏ[i] = e^(y[i−1]−y[i]) · ẏ[i−1] + e^(x[i]−y[i]) · ẋ[i].
  jvp: ({ inputs: [x], outputs: [y], tangents: [t], params }) => {
    if (!t) return [null]
    const own = params.inclusive ? y : y.logaddexp(x)
    const { axis, reverse } = params
    const change = recurrence([decay(own, params), share(x, own).multiply(t)], { axis, reverse })
    return [params.inclusive ? change : previous(change, params, 0)]
  },
  vmap: (c) => inFront(logSumAlong)(c),
})
/** In whole numbers log(1 + e⁻ᵈ) is 0, as in MLX: what is left of the sum is its largest exponent. */
const logSum: Scan = (inputs, params) => (isInexact(inputs[0].dtype) ? logSumAlong : maxAlong)(inputs, params)
/** e^(x−y), 0 where both are −∞. */
const share = (x: Array, y: Array): Array => where(y.equal(Number.NEGATIVE_INFINITY), 0, x.subtract(y).exp())
/** e^(y[i−1]−y[i]). */
const decay = (y: Array, params: Params): Array => share(previous(y, params, Number.NEGATIVE_INFINITY), y)

/** The public body: along one axis, or over the flattened array. */
function scan(name: string, apply: Scan): (args: readonly unknown[]) => Array {
  return operation(
    name,
    { a: "array", axis: "axis?", reverse: "bool?", inclusive: "bool?" },
    (a: Array, axis?: number | null, reverse: boolean = false, inclusive: boolean = true) =>
      along(name, apply, a, axis, { reverse, inclusive }),
  )
}

/** The same with a `dtype` argument. */
function scanIn(name: string, apply: Apply<Params>): (args: readonly unknown[]) => Array {
  return operation(
    name,
    { a: "array", axis: "axis?", reverse: "bool?", inclusive: "bool?", dtype: "dtype?" },
    (
      a: Array,
      axis?: number | null,
      reverse: boolean = false,
      inclusive: boolean = true,
      dtype?: Dtype | null,
    ) => along(name, apply, dtype ? toDtype(a, asDtype(name, dtype)) : a, axis, { reverse, inclusive }),
  )
}

function along(
  name: string,
  apply: Scan,
  x: Array,
  axis: number | null | undefined,
  direction: Omit<Params, "axis">,
): Array {
  const whole = axis === undefined || axis === null
  return apply([whole ? x.flatten() : x], {
    axis: whole ? 0 : normalizeAxis(name, axis, x.ndim),
    ...direction,
  })
}

const cumsumArgs = scanIn("cumsum", sumAlong)
/**
 * Cumulative sum along an axis, or over the flattened array. bool sums to int32; `dtype` converts first. `inclusive: false` excludes each
 * element itself.
 * @named dtype
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.cumsum(mx.array([1, 2, 3])).tolist() // => [1, 3, 6]
 */
export function cumsum(
  a: Array,
  axis?: number | null,
  reverse?: boolean,
  inclusive?: boolean,
  options?: { dtype?: Dtype | null } & StreamOptions,
): Array
export function cumsum(
  a: Array,
  axis: number | null,
  options: { reverse?: boolean; inclusive?: boolean; dtype?: Dtype | null } & StreamOptions,
): Array
export function cumsum(
  a: Array,
  options: {
    axis?: number | null
    reverse?: boolean
    inclusive?: boolean
    dtype?: Dtype | null
  } & StreamOptions,
): Array
export function cumsum(...args: unknown[]): Array {
  return cumsumArgs(args)
}

const cumprodArgs = scanIn("cumprod", productAlong)
/**
 * Cumulative product along an axis, or over the flattened array; `dtype` converts first.
 * @named dtype
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.cumprod(mx.array([1, 2, 3])).tolist() // => [1, 2, 6]
 */
export function cumprod(
  a: Array,
  axis?: number | null,
  reverse?: boolean,
  inclusive?: boolean,
  options?: { dtype?: Dtype | null } & StreamOptions,
): Array
export function cumprod(
  a: Array,
  axis: number | null,
  options: { reverse?: boolean; inclusive?: boolean; dtype?: Dtype | null } & StreamOptions,
): Array
export function cumprod(
  a: Array,
  options: {
    axis?: number | null
    reverse?: boolean
    inclusive?: boolean
    dtype?: Dtype | null
  } & StreamOptions,
): Array
export function cumprod(...args: unknown[]): Array {
  return cumprodArgs(args)
}

const cummaxArgs = scan("cummax", maxAlong)
/**
 * Cumulative maximum along an axis, or over the flattened array.
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.cummax(mx.array([1, 3, 2])).tolist() // => [1, 3, 3]
 */
export function cummax(
  a: Array,
  axis?: number | null,
  reverse?: boolean,
  inclusive?: boolean,
  options?: StreamOptions,
): Array
export function cummax(
  a: Array,
  axis: number | null,
  options: { reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function cummax(
  a: Array,
  options: { axis?: number | null; reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function cummax(...args: unknown[]): Array {
  return cummaxArgs(args)
}

const cumminArgs = scan("cummin", minAlong)
/**
 * Cumulative minimum along an axis, or over the flattened array.
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.cummin(mx.array([2, 3, 1])).tolist() // => [2, 2, 1]
 */
export function cummin(
  a: Array,
  axis?: number | null,
  reverse?: boolean,
  inclusive?: boolean,
  options?: StreamOptions,
): Array
export function cummin(
  a: Array,
  axis: number | null,
  options: { reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function cummin(
  a: Array,
  options: { axis?: number | null; reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function cummin(...args: unknown[]): Array {
  return cumminArgs(args)
}

const logcumsumexpArgs = scan("logcumsumexp", logSum)
/**
 * Cumulative log Σ exp along an axis, or over the flattened array, without overflow. Integers keep their dtype, in which the largest
 * exponent is all of the sum.
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.logcumsumexp(mx.array([0, -Infinity])).tolist() // => [0, 0]
 */
export function logcumsumexp(
  a: Array,
  axis?: number | null,
  reverse?: boolean,
  inclusive?: boolean,
  options?: StreamOptions,
): Array
export function logcumsumexp(
  a: Array,
  axis: number | null,
  options: { reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function logcumsumexp(
  a: Array,
  options: { axis?: number | null; reverse?: boolean; inclusive?: boolean } & StreamOptions,
): Array
export function logcumsumexp(...args: unknown[]): Array {
  return logcumsumexpArgs(args)
}
