/** Distances of points, whose derivative is 0 where points are equal. */
import * as mx from "@lazuli/core"
import { type Apply, definePrimitive, format, operation, promoteOperands } from "@lazuli/core/plugin"
import { asPositions, type Integers, unsigned } from "./positions"

const PACKAGE = "@lazuli/ext-pointcloud"
/** By their numbers in kernels. */
export const metrics = ["euclidean", "squared", "cosine"] as const
/** √Σ(x − y)², Σ(x − y)², and 1 − x·y / (|x| |y|), which is 1 where one of them is 0. */
export type Metric = (typeof metrics)[number]

function operands(op: string, x: mx.Array, y: mx.Array): [mx.Array, mx.Array] {
  if (x.ndim !== 2 || y.ndim !== 2 || x.shape[1] !== y.shape[1])
    throw new mx.ShapeError(
      op,
      `expected points with the same number of coordinates, received shapes ${format(x.shape)} and ${format(y.shape)}`,
    )
  for (const each of [x, y])
    if (mx.issubdtype(each.dtype, mx.complexfloating))
      throw new mx.DTypeError(op, `expected real points, received ${each.dtype.name}`)
  const float = (a: mx.Array): mx.Array => (mx.issubdtype(a.dtype, mx.floating) ? a : a.astype(mx.float32))
  return promoteOperands(op, float(x), float(y), "x", "y") as [mx.Array, mx.Array]
}

/** f(x), and 0 with derivative 0 where x is 0. */
function unlessZero(x: mx.Array, f: (x: mx.Array) => mx.Array): mx.Array {
  const zero = x.equal(0)
  return mx.where(zero, 0, f(mx.where(zero, 1, x)))
}
const root = (squares: mx.Array): mx.Array => unlessZero(squares, (s) => s.sqrt())
/** Rows of length 1; rows of zeros stay. */
const normal = (x: mx.Array): mx.Array => x.multiply(unlessZero(x.square().sum(1, true), (s) => s.rsqrt()))

const pairwiseArgs = operation(
  `${PACKAGE}/pairwiseDistance`,
  { x: "array", y: "array", metric: metrics },
  (x: mx.Array, y: mx.Array, metric: Metric = "euclidean"): mx.Array => {
    const given = operands("pairwiseDistance", x, y)
    const { dtype } = given[0]
    // Points of 16 bits are computed in float32, and rounded once.
    const [a, b] = dtype.size === 2 ? given.map((points) => points.astype(mx.float32)) : given
    if (metric === "cosine") return mx.subtract(1, normal(a).matmul(normal(b).T)).astype(dtype)
    const distances = mx.cdist(a, b)
    return (metric === "squared" ? distances.square() : distances).astype(dtype)
  },
)
/**
 * The distances of every point of x (N, D) to every point of y (M, D): (N, M). Memory beside the result is bounded, in derivatives too.
 * @named metric
 * @throws ShapeError unless points have as many coordinates
 * @example
 * pairwiseDistance(mx.array([[0, 0]]), mx.array([[3, 4], [0, 0]])).tolist() // => [[5, 0]]
 */
export function pairwiseDistance(
  x: mx.Array,
  y: mx.Array,
  options?: { metric?: Metric } & mx.StreamOptions,
): mx.Array
export function pairwiseDistance(...args: unknown[]): mx.Array {
  return pairwiseArgs(args)
}

/** x [N, D], y [M, D], positions i, k → [T]: the distance of x[i[t]] to y[k[t]]. */
const pairDistances: Apply<{ metric: Metric }> = definePrimitive({
  name: `${PACKAGE}/pairDistances`,
  api: 1,
  params: { metric: metrics },
  infer: ([x, y, i, k]) => {
    const op = "indexedDistance"
    if (x.dtype !== y.dtype || !mx.issubdtype(x.dtype, mx.floating))
      throw new mx.DTypeError(
        op,
        `expected points of the same floating dtype, received ${x.dtype.name} and ${y.dtype.name}`,
      )
    const fits = x.shape.length === 2 && y.shape.length === 2 && x.shape[1] === y.shape[1]
    if (!fits || i.shape.length !== 1 || k.shape.length !== 1 || i.shape[0] !== k.shape[0])
      throw new mx.ShapeError(
        op,
        "expected points with the same number of coordinates and lists of the same length",
      )
    return { shape: i.shape, dtype: x.dtype }
  },
  decompose: ([x, y, i, k], { metric }) => {
    const { dtype } = x
    if (dtype.size === 2)
      return pairDistances([x.astype(mx.float32), y.astype(mx.float32), i, k], { metric }).astype(dtype)
    const [from, to] = [mx.take(x, unsigned(i), 0), mx.take(y, unsigned(k), 0)]
    if (metric === "cosine") return mx.subtract(1, normal(from).multiply(normal(to)).sum(1))
    const squares = from.subtract(to).square().sum(1)
    return metric === "squared" ? squares : root(squares)
  },
})

const indexedArgs = operation(
  `${PACKAGE}/indexedDistance`,
  { x: "array", y: "array", xIndices: "indices", yIndices: "indices", metric: metrics },
  (
    x: mx.Array,
    y: mx.Array,
    xIndices: Integers,
    yIndices: Integers,
    metric: Metric = "euclidean",
  ): mx.Array => {
    const op = "indexedDistance"
    const [a, b] = operands(op, x, y)
    const first = asPositions(op, "xIndices", xIndices, a.shape[0])
    const second = asPositions(op, "yIndices", yIndices, b.shape[0], first.shape[0])
    return pairDistances([a, b, first, second], { metric })
  },
)
/**
 * The distances of chosen pairs: point xIndices[t] of x (N, D) to point yIndices[t] of y (M, D) gives the t-th of (T).
 * @named metric
 * @throws ShapeError unless points have as many coordinates; IndexError for a position out of bounds: at once where lists are given,
 *   when computed for arrays. (GPU backends give NaN for such pairs.)
 * @example
 * const x = mx.array([[0, 0], [3, 4]])
 * indexedDistance(x, x, [0, 1], [1, 1], { metric: 'squared' }).tolist() // => [25, 0]
 */
export function indexedDistance(
  x: mx.Array,
  y: mx.Array,
  xIndices: Integers,
  yIndices: Integers,
  options?: { metric?: Metric } & mx.StreamOptions,
): mx.Array
export function indexedDistance(...args: unknown[]): mx.Array {
  return indexedArgs(args)
}
