/**
 * Broadcasting and its transpose: reductions over axes (sum, mean, max, …). A reduction's primitive keeps the reduced axes with size 1; the
 * public function removes them unless `keepdims` is set. It is long because reductions and broadcasting are each other's transposes.
 */
import { type Axes, type Operand, operation, type StreamOptions } from "../graph/args"
import { bool_, complex64, type Dtype, int32, isInexact, uint32 } from "../graph/dtype"
import { DTypeError, ShapeError } from "../graph/errors"
import type { Array, HostArray, Meta, VmapContext, VmapResult } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import {
  asShape,
  broadcastShapes,
  broadcastStrides,
  format,
  normalizeAxes,
  type Shape,
  sameShape,
  sizeOf,
} from "../graph/shape"
import { where as select } from "./binary"
import { asOperand, floatOperand, scalarOf, toDtype, wide } from "./constant"
import { moveToFront, reshapeLike } from "./view"

const broadcast: Apply<{ shape: readonly number[] }> = definePrimitive({
  name: "broadcastTo",
  params: { shape: "i64[]" },
  infer: ([x], { shape }) => {
    const full = broadcastShapes("broadcastTo", x.shape, shape)
    if (!sameShape(full, shape))
      throw new ShapeError(
        "broadcastTo",
        `an array of shape ${format(x.shape)} cannot be broadcast to ${format(shape)}`,
      )
    return { shape, dtype: x.dtype }
  },
  view: ({ shape, strides, offset }, { shape: to }) => ({
    offset,
    strides: broadcastStrides(shape, strides, to),
  }),
  vjp: ({ inputs: [x], cotangents: [g] }) => [sumTo(g, x.shape)],
  jvp: ({ tangents: [t], params }) => [t && broadcast([t], params)],
  vmap: ({ inputs: [x], axes: [axis], params: { shape }, size }) => {
    const front = moveToFront(x, axis as number)
    const padded = reshapeLike(front, [
      size,
      ...new globalThis.Array<number>(shape.length + 1 - front.ndim).fill(1),
      ...front.shape.slice(1),
    ])
    return { outputs: [broadcast([padded], { shape: [size, ...shape] })], axes: [0] }
  },
  facts: { broadcasts: true },
})
const broadcastToArgs = operation(
  "broadcastTo",
  { a: "operand", shape: "shape" },
  (a: Operand, shape: number | readonly number[]) => {
    const x = asOperand("broadcastTo", a)
    const to = asShape("broadcastTo", shape)
    return sameShape(x.shape, to) ? x : broadcast([x], { shape: to })
  },
)
/**
 * Broadcasts an array to a shape, without copying.
 * @throws ShapeError if the array does not broadcast to the shape
 * @example
 * mx.broadcastTo(mx.array([1, 2]), [2, 2]).tolist() // => [[1, 2], [1, 2]]
 */
export function broadcastTo(a: Operand, shape: number | readonly number[], options?: StreamOptions): Array
export function broadcastTo(...args: unknown[]): Array {
  return broadcastToArgs(args)
}

/** Sums over the axes that were broadcast from `shape`: the transpose of broadcasting. */
export function sumTo(x: Array, shape: Shape): Array {
  if (sameShape(x.shape, shape)) return x
  const leading = x.ndim - shape.length
  const axes: number[] = []
  for (let i = 0; i < x.ndim; i++)
    if (i < leading || (shape[i - leading] === 1 && x.shape[i] !== 1)) axes.push(i)
  return reshapeLike(axes.length > 0 ? sumAxes([x], { axes }) : x, shape)
}

/** The shape after a reduction that keeps the axes. */
function reduced(x: Meta, axes: readonly number[]): number[] {
  return x.shape.map((n, i) => (axes.includes(i) ? 1 : n))
}

/** Calls `visit(element, cell)` for each element of `x`, with the index of its cell in the reduced output. */
function eachCell(
  x: HostArray,
  axes: readonly number[],
  visit: (element: number, cell: number) => void,
): void {
  const shape = x.shape
  const n = sizeOf(shape)
  const step = new globalThis.Array<number>(shape.length).fill(0)
  let stride = 1
  for (let i = shape.length - 1; i >= 0; i--) {
    if (axes.includes(i)) continue
    step[i] = stride
    stride *= shape[i]
  }
  const index = new globalThis.Array<number>(shape.length).fill(0)
  let cell = 0
  for (let i = 0; i < n; i++) {
    visit(i, cell)
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      index[axis]++
      cell += step[axis]
      if (index[axis] < shape[axis]) break
      cell -= step[axis] * shape[axis]
      index[axis] = 0
    }
  }
}

type Fold = (a: never, b: never) => unknown
const numbers = (f: (a: number, b: number) => number): Fold => f as Fold

/** A reference loop that folds every element into its cell, starting from `initial`. Half types accumulate in double. */
function fold(initial: (dtype: Dtype) => number | bigint, number: Fold, bigint: Fold) {
  return (
    [x]: readonly HostArray[],
    [out]: readonly HostArray[],
    { axes }: { axes: readonly number[] },
  ): void => {
    const big = out.data instanceof BigInt64Array || out.data instanceof BigUint64Array
    const f = (big ? bigint : number) as (a: unknown, b: unknown) => never
    const start = initial(out.dtype)
    const cells = new globalThis.Array<unknown>(sizeOf(out.shape)).fill(big ? BigInt(start) : start)
    const toBig = big && typeof x.data[0] === "number"
    eachCell(x, axes, (i, cell) => {
      cells[cell] = f(cells[cell], toBig ? BigInt(x.data[i]) : x.data[i])
    })
    for (let i = 0; i < cells.length; i++) out.data[i] = cells[i] as number
  }
}

const vmapAxes =
  (apply: (inputs: readonly Array[], params: { axes: readonly number[] }) => Array) =>
  ({
    inputs: [x],
    axes: [axis],
    params: { axes },
  }: VmapContext<{ axes: readonly number[] }>): VmapResult => ({
    outputs: [apply([moveToFront(x, axis as number)], { axes: axes.map((a) => a + 1) })],
    axes: [0],
  })

/** Rows are independent in reductions over the last axis. */
const rowsAlone = ([x]: readonly Meta[], { axes }: { axes: readonly number[] }): { axes: number[] } | null =>
  axes.length === 1 && axes[0] === x.shape.length - 1 ? { axes: [1] } : null

/** As in MLX, bool and small signed integers are summed in int32, small unsigned ones in uint32; others keep their dtype. @internal */
export function sumDtype(dtype: Dtype): Dtype {
  return dtype.kind === "bool" || (dtype.kind === "signed" && dtype.size < 4)
    ? int32
    : dtype.kind === "unsigned" && dtype.size < 4
      ? uint32
      : dtype
}

const sumReal = fold(
  () => 0,
  numbers((a, b) => a + b),
  ((a: bigint, b: bigint) => a + b) as Fold,
)
const sumAxes: Apply<{ axes: readonly number[] }> = definePrimitive({
  name: "sum",
  params: { axes: "i64[]" },
  infer: ([x], { axes }) => ({ shape: reduced(x, axes), dtype: sumDtype(x.dtype) }),
  reference: ([x], [out], params) => {
    if (x.dtype !== complex64) return sumReal([x], [out], params)
    eachCell(x, params.axes, (i, cell) => {
      out.data[2 * cell] += x.data[2 * i]
      out.data[2 * cell + 1] += x.data[2 * i + 1]
    })
  },
  vjp: ({ inputs: [x], cotangents: [g] }) => [broadcastTo(toDtype(g, x.dtype), x.shape)],
  jvp: ({ tangents: [t], params }) => [t && sumAxes([t], params)],
  vmap: (c) => vmapAxes(sumAxes)(c),
  rows: rowsAlone,
})
const times = ((a: bigint, b: bigint) => a * b) as Fold
const mulReal = fold(
  () => 1,
  numbers((a, b) => a * b),
  times,
)
/** Integer products wrap to 32 bits, so that they are exact modulo 2³². */
const mulInteger = fold(() => 1, numbers(Math.imul), times)
const prodAxes: Apply<{ axes: readonly number[] }> = definePrimitive({
  name: "prod",
  params: { axes: "i64[]" },
  infer: ([x], { axes }) => ({ shape: reduced(x, axes), dtype: sumDtype(x.dtype) }),
  reference: ([x], [out], params) => {
    if (x.dtype !== complex64) return (isInexact(x.dtype) ? mulReal : mulInteger)([x], [out], params)
    for (let i = 0; i < sizeOf(out.shape); i++) out.data[2 * i] = 1
    eachCell(x, params.axes, (i, cell) => {
      const [a, b, c, d] = [out.data[2 * cell], out.data[2 * cell + 1], x.data[2 * i], x.data[2 * i + 1]]
      out.data[2 * cell] = a * c - b * d
      out.data[2 * cell + 1] = a * d + b * c
    })
  },
  // d(out)/d(xᵢ) is the product of the others: exclusive products from both ends, which need no division by zero.
  vjp: ({ inputs: [x], cotangents: [g], params: { axes } }) => [
    broadcastTo(g, x.shape).multiply(productOfOthers(x, axes).conjugate()),
  ],
  jvp: ({ inputs: [x], tangents: [t], params }) => [
    t && sumAxes([t.multiply(productOfOthers(x, params.axes))], params),
  ],
  vmap: (c) => vmapAxes(prodAxes)(c),
  rows: rowsAlone,
})
function productOfOthers(x: Array, axes: readonly number[]): Array {
  const kept = x.shape.map((_, i) => i).filter((i) => !axes.includes(i))
  const order = [...kept, ...axes]
  const inverse = order.map((_, i) => order.indexOf(i))
  const moved = x.transpose(order)
  const flat = moved.reshape([...kept.map((i) => x.shape[i]), sizeOf(axes.map((i) => x.shape[i]))])
  const axis = kept.length
  const before = flat.cumprod(axis, { inclusive: false })
  const after = flat.cumprod(axis, { reverse: true, inclusive: false })
  return before.multiply(after).reshape(moved.shape).transpose(inverse)
}

/** The identity of max. @internal */
export const lowest = (dtype: Dtype): number | bigint => {
  if (isInexact(dtype)) return Number.NEGATIVE_INFINITY
  if (dtype.kind !== "signed") return dtype.size === 8 ? 0n : 0
  return dtype.size === 8 ? -(2n ** 63n) : -(2 ** (dtype.size * 8 - 1))
}
/** The identity of min. @internal */
export const highest = (dtype: Dtype): number | bigint => {
  if (isInexact(dtype)) return Number.POSITIVE_INFINITY
  const bits = dtype.kind === "bool" ? 1 : dtype.size * 8 - (dtype.kind === "signed" ? 1 : 0)
  return dtype.size === 8 ? 2n ** BigInt(bits) - 1n : 2 ** bits - 1
}

/** max and min: the cotangent is shared among equal extremes. */
function extreme(
  name: "max" | "min",
  initial: (dtype: Dtype) => number | bigint,
  first: (a: number | bigint, b: number | bigint) => boolean,
) {
  const pick = (a: number | bigint, b: number | bigint): number | bigint =>
    first(a, b) || Number.isNaN(a) ? a : b
  const real = fold(initial, pick as unknown as Fold, pick as unknown as Fold)
  const apply: Apply<{ axes: readonly number[] }> = definePrimitive({
    name,
    params: { axes: "i64[]" },
    infer: ([x], { axes }) => {
      if (axes.some((axis) => x.shape[axis] === 0))
        throw new ShapeError(name, `has no value over an empty axis, received shape ${format(x.shape)}`)
      return { shape: reduced(x, axes), dtype: x.dtype }
    },
    reference: ([x], [out], params) => {
      if (x.dtype !== complex64) return real([x], [out], params)
      const seen = new Uint8Array(sizeOf(out.shape))
      eachCell(x, params.axes, (i, cell) => {
        const [re, im, a, b] = [x.data[2 * i], x.data[2 * i + 1], out.data[2 * cell], out.data[2 * cell + 1]]
        // NaN wins, in either part.
        const wins = Number.isNaN(re) || Number.isNaN(im) || (re === a ? first(im, b) : first(re, a))
        if (seen[cell] && (Number.isNaN(a) || Number.isNaN(b) || !wins)) return
        seen[cell] = 1
        out.data[2 * cell] = re
        out.data[2 * cell + 1] = im
      })
    },
    vjp: ({ inputs: [x], outputs: [y], cotangents: [g], params }) => [spreadToExtremes([x, y, g], params)],
    jvp: ({ inputs: [x], outputs: [y], tangents: [t], params }) => [
      t && averageOfExtremes(x, y, t, params.axes),
    ],
    vmap: (c) => vmapAxes(apply)(c),
    rows: rowsAlone,
  })
  return apply
}
/** The number of elements of a cell that equal its extreme, in a sufficiently wide dtype. */
const countOfExtremes = (hit: Array, axes: readonly number[], dtype: Dtype): Array =>
  toDtype(sumAxes([hit], { axes }), wide(dtype))

/** The transpose of {@link spreadToExtremes}: the mean of t over the elements that equal the extreme. */
function averageOfExtremes(x: Array, y: Array, t: Array, axes: readonly number[]): Array {
  const hit = x.equal(y)
  const total = sumAxes([select(hit, t, 0)], { axes })
  return toDtype(total.divide(countOfExtremes(hit, axes, t.dtype)), t.dtype)
}

/**
 * x, its extremes y and their cotangents g: distributes a cell's cotangent equally over the elements that equal its extreme. NaN gives NaN.
 */
const spreadToExtremes: Apply<{ axes: readonly number[] }> = definePrimitive({
  name: "extremeVjp",
  params: { axes: "i64[]" },
  infer: ([x, y, g], { axes }) => {
    if (!isInexact(x.dtype))
      throw new DTypeError("extremeVjp", `needs a floating dtype, received ${x.dtype.name}`)
    const cells = reduced(x, axes)
    if (!sameShape(y.shape, cells) || !sameShape(g.shape, cells))
      throw new ShapeError(
        "extremeVjp",
        `needs one extreme and one cotangent for each cell of shape ${format(cells)}, received ${format(y.shape)} and ${format(g.shape)}`,
      )
    return x
  },
  decompose: ([x, y, g], { axes }) => {
    const hit = x.equal(y)
    const share = toDtype(g.divide(countOfExtremes(hit, axes, g.dtype)), g.dtype)
    return select(hit, share, share.multiply(0))
  },
  vjp: ({ inputs: [x, y], cotangents: [c], params: { axes } }) => [
    null,
    null,
    averageOfExtremes(x, y, c, axes),
  ],
  jvp: ({ inputs: [x, y], tangents: [, , t], params }) => [t && spreadToExtremes([x, y, t], params)],
  vmap: ({ inputs, axes: batch, params: { axes }, size }) => {
    const moved = inputs.map((x, i) =>
      batch[i] === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, batch[i]),
    )
    return { outputs: [spreadToExtremes(moved, { axes: axes.map((a) => a + 1) })], axes: [0] }
  },
})
const maxAxes = extreme("max", lowest, (a, b) => a > b)
const minAxes = extreme("min", highest, (a, b) => a < b)

/** NaN is not zero, so it is true. */
const isZero = (value: number | bigint): boolean => value === 0 || value === 0n
function truth(name: "all" | "any") {
  const start = name === "all" ? 1 : 0
  const apply: Apply<{ axes: readonly number[] }> = definePrimitive({
    name,
    params: { axes: "i64[]" },
    infer: ([x], { axes }) => ({ shape: reduced(x, axes), dtype: bool_ }),
    reference: ([x], [out], { axes }) => {
      const width = x.dtype === complex64 ? 2 : 1
      out.data.fill(start)
      eachCell(x, axes, (i, cell) => {
        const zero = isZero(x.data[width * i]) && (width === 1 || isZero(x.data[2 * i + 1]))
        const holds = zero ? 0 : 1
        if (holds !== start) out.data[cell] = holds
      })
    },
    vjp: () => [null],
    jvp: () => [null],
    vmap: (c) => vmapAxes(apply)(c),
    rows: rowsAlone,
  })
  return apply
}
const allAxes = truth("all")
const anyAxes = truth("any")

/** The type of public reductions. */
export interface Reduction {
  (a: Operand, axis?: Axes, keepdims?: boolean, options?: StreamOptions): Array
  (a: Operand, axis: Axes, options: { keepdims?: boolean } & StreamOptions): Array
  (a: Operand, options: { axis?: Axes; keepdims?: boolean } & StreamOptions): Array
}

function reduction(name: string, body: (x: Array, axes: number[]) => Array): Reduction {
  const args = operation(
    name,
    { a: "operand", axis: "axes?", keepdims: "bool?" },
    (a: Operand, axis?: Axes, keepdims = false): Array => {
      const x = asOperand(name, a)
      const axes = normalizeAxes(name, axis, x.ndim)
      const y = body(x, axes)
      return keepdims || axes.length === 0 ? y : y.squeeze(axes)
    },
  )
  return ((...rest: unknown[]) => args(rest)) as Reduction
}

/** Over no axes, as of an array without any, a sum or product is what it is of. */
const overSome =
  (apply: Apply<{ axes: readonly number[] }>) =>
  (x: Array, axes: number[]): Array =>
    axes.length === 0 ? x : apply([x], { axes })

/**
 * Sum over the axes (all by default). bool and integers below 32 bits sum to int32, unsigned ones to uint32; over no axes, as of a scalar,
 * the dtype stays.
 * @example
 * mx.sum(mx.array([[1, 2], [3, 4]]), 0).tolist() // => [4, 6]
 */
export const sum: Reduction = reduction("sum", overSome(sumAxes))

/**
 * Product over the axes (all by default).
 * @example
 * mx.prod(mx.array([2, 3, 4])).item() // => 24
 */
export const prod: Reduction = reduction("prod", overSome(prodAxes))

/**
 * The maximum over the axes (all by default); NaN if any element is NaN.
 * @throws ShapeError over an empty axis
 * @example
 * mx.max(mx.array([1, 3, 2])).item() // => 3
 */
export const max: Reduction = reduction("max", (x, axes) => maxAxes([x], { axes }))

/**
 * The minimum over the axes (all by default); NaN if any element is NaN.
 * @throws ShapeError over an empty axis
 * @example
 * mx.min(mx.array([1, 3, 2])).item() // => 1
 */
export const min: Reduction = reduction("min", (x, axes) => minAxes([x], { axes }))

/**
 * True if all elements over the axes are nonzero.
 * @example
 * mx.all(mx.array([true, false])).item() // => false
 */
export const all: Reduction = reduction("all", (x, axes) => allAxes([x], { axes }))

/**
 * True if any element over the axes is nonzero.
 * @example
 * mx.any(mx.array([true, false])).item() // => true
 */
export const any: Reduction = reduction("any", (x, axes) => anyAxes([x], { axes }))

const meanOver = (x: Array, axes: readonly number[]): Array => {
  // As in MLX, integers are summed as integers.
  return floatOperand("mean", sumAxes([x], { axes })).multiply(1 / sizeOf(axes.map((axis) => x.shape[axis])))
}

/**
 * Arithmetic mean over the axes, in floating point.
 * @example
 * mx.mean(mx.array([1, 2, 3])).item() // => 2
 */
export const mean: Reduction = reduction("mean", meanOver)

/** The type of reductions with a `ddof`: the divisor is N − ddof. */
export interface Deviation {
  (a: Operand, axis?: Axes, keepdims?: boolean, ddof?: number, options?: StreamOptions): Array
  (a: Operand, axis: Axes, options: { keepdims?: boolean; ddof?: number } & StreamOptions): Array
  (a: Operand, options: { axis?: Axes; keepdims?: boolean; ddof?: number } & StreamOptions): Array
}

/** The factor of the sum of squared deviations. */
const share = (x: Array, axes: readonly number[], ddof: number): Array =>
  scalarOf("var", 1 / Math.max(sizeOf(axes.map((i) => x.shape[i])) - ddof, 0), x.dtype)

/** The variance of floating-point numbers, in at least float32. */
const varianceAxes: Apply<{ axes: readonly number[]; ddof: number }> = definePrimitive({
  name: "variance",
  params: { axes: "i64[]", ddof: "f64" },
  infer: ([x], { axes }) => {
    if (!isInexact(x.dtype))
      throw new DTypeError("variance", `needs a floating dtype, received ${x.dtype.name}`)
    return { shape: reduced(x, axes), dtype: x.dtype }
  },
  decompose: ([x], { axes, ddof }) => {
    const w = toDtype(x, wide(x.dtype))
    const squares = w.subtract(meanOver(w, axes)).square()
    return toDtype(sumAxes([squares], { axes }).multiply(share(w, axes, ddof)), x.dtype)
  },
  vjp: ({ inputs: [x], cotangents: [g], params: { axes, ddof } }) => {
    const w = toDtype(x, wide(x.dtype))
    const slope = toDtype(g, w.dtype)
      .multiply(share(w, axes, ddof))
      .multiply(2)
    return [toDtype(w.subtract(meanOver(w, axes)).conjugate().multiply(slope), x.dtype)]
  },
  jvp: ({ inputs: [x], tangents: [t], params: { axes, ddof } }) => {
    if (!t) return [null]
    const w = toDtype(x, wide(x.dtype))
    const products = w.subtract(meanOver(w, axes)).multiply(toDtype(t, w.dtype))
    return [
      toDtype(
        sumAxes([products], { axes })
          .multiply(share(w, axes, ddof))
          .multiply(2),
        x.dtype,
      ),
    ]
  },
  vmap: ({ inputs: [x], axes: [axis], params: { axes, ddof } }) => ({
    outputs: [varianceAxes([moveToFront(x, axis as number)], { axes: axes.map((a) => a + 1), ddof })],
    axes: [0],
  }),
})

function deviation(name: string, body: (variance: Array) => Array): Deviation {
  const args = operation(
    name,
    { a: "array", axis: "axes?", keepdims: "bool?", ddof: "number?" },
    (a: Operand, axis?: Axes, keepdims = false, ddof: number = 0): Array => {
      const x = floatOperand(name, a)
      const axes = normalizeAxes(name, axis, x.ndim)
      const y = body(
        x.dtype === complex64 ? complexVariance(x, axes, ddof) : varianceAxes([x], { axes, ddof }),
      )
      return keepdims || axes.length === 0 ? y : y.squeeze(axes)
    },
  )
  return ((...rest: unknown[]) => args(rest)) as Deviation
}
function complexVariance(x: Array, axes: readonly number[], ddof: number): Array {
  const squares = x.subtract(meanOver(x, axes)).abs().square()
  return sumAxes([squares], { axes }).multiply(share(squares, axes, ddof))
}

/**
 * Variance over the axes (all by default): the mean squared deviation from the mean, with divisor N − ddof.
 * @example
 * mx.var(mx.array([1, 3])).item() // => 1
 */
export const variance: Deviation = deviation("var", (v) => v)

/**
 * Standard deviation over the axes (all by default): the square root of {@link variance}.
 * @example
 * mx.std(mx.array([1, 3])).item() // => 1
 */
export const std: Deviation = deviation("std", (v) => v.sqrt())
