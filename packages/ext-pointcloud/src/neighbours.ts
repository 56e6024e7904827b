/**
 * Neighbours: the k nearest points, those in a ball, and points far from each other. Positions are integers and have no derivative:
 * the distances of what is found have one, by {@link indexedDistance}.
 */
import * as mx from "@lazuli/core"
import {
  type Apply,
  definePrimitive,
  format,
  type HostArray,
  type Meta,
  operation,
} from "@lazuli/core/plugin"
import { asOffsets, boundsOf, type Integers, inFront, stackOffsets } from "./positions"

const PACKAGE = "@lazuli/ext-pointcloud"

function checkClouds(op: string, points: Meta, lists: readonly Meta[]): void {
  if (!mx.issubdtype(points.dtype, mx.floating))
    throw new mx.DTypeError(op, `expected floating points, received ${points.dtype.name}`)
  if (points.shape.length !== 2)
    throw new mx.ShapeError(
      op,
      `expected points of shape (points, coordinates), received ${format(points.shape)}`,
    )
  for (const list of lists)
    if (list.shape.length !== 1 || list.shape[0] === 0)
      throw new mx.ShapeError(op, `expected offsets of one dimension, received shape ${format(list.shape)}`)
}

/** Σ (p − q)² in double, coordinate by coordinate. */
function squaredDistance(x: HostArray, i: number, y: HostArray, j: number): number {
  const width = x.shape[1]
  let sum = 0
  for (let axis = 0; axis < width; axis++) {
    const difference = (x.data[i * width + axis] as number) - (y.data[j * width + axis] as number)
    sum += difference * difference
  }
  return sum
}

/** The cloud of each row. */
const cloudsOf = (bounds: readonly number[]): number[] =>
  bounds.slice(1).flatMap((end, cloud) => new Array<number>(end - bounds[cloud]).fill(cloud))

/** Positions in a stack of examples as those in each of them. */
function unshifted(found: mx.Array, size: number, count: number): mx.Array {
  const each = found.unflatten(0, [size, found.shape[0] / Math.max(size, 1)])
  const shift = mx.arange(size, { dtype: mx.int32 }).multiply(count).reshape([size, 1, 1])
  return mx.where(each.less(0), each, each.subtract(shift))
}

type Order = "nearest" | "first"
/** The function that asks for neighbours in an order. */
const nameOf = (order: Order): string => (order === "nearest" ? "knn" : "ballQuery")

/** points [P, D], queries [Q, D], offsets of the clouds of both → int32 [Q, k]: positions of points, −1 where there are fewer. */
const neighbours: Apply<{ k: number; radius: number; order: Order }> = definePrimitive({
  name: `${PACKAGE}/neighbours`,
  api: 1,
  params: { k: "i64", radius: "f64", order: ["nearest", "first"] },
  infer: ([points, queries, ...offsets], { k, order }) => {
    const op = nameOf(order)
    checkClouds(op, points, offsets)
    checkClouds(op, queries, offsets)
    if (points.shape[1] !== queries.shape[1] || points.dtype !== queries.dtype)
      throw new mx.ShapeError(
        op,
        "expected points and queries of one dtype with the same number of coordinates",
      )
    if (offsets[0].shape[0] !== offsets[1].shape[0])
      throw new mx.ShapeError(
        op,
        `expected as many clouds of points as of queries, received ${offsets[0].shape[0] - 1} and ${offsets[1].shape[0] - 1}`,
      )
    const rows = Math.max(points.shape[0], queries.shape[0])
    if (offsets[0].shape[0] === 1 && rows > 0)
      throw new mx.IndexError(op, `offsets must end with the ${rows} rows, received no clouds`)
    return { shape: [queries.shape[0], k], dtype: mx.int32 }
  },
  reference: ([points, queries, ofPoints, ofQueries], [out], { k, radius, order }) => {
    const op = nameOf(order)
    const bounds = boundsOf(op, ofPoints, points.shape[0])
    cloudsOf(boundsOf(op, ofQueries, queries.shape[0])).forEach((cloud, q) => {
      const found: [distance: number, point: number][] = []
      for (let p = bounds[cloud]; p < bounds[cloud + 1]; p++) {
        const distance = squaredDistance(points, p, queries, q)
        if (distance <= radius * radius) found.push([distance, p])
      }
      if (order === "nearest") found.sort(([d, p], [e, r]) => (d === e ? p - r : d - e))
      for (let i = 0; i < k; i++) out.data[q * k + i] = i < found.length ? found[i][1] : -1
    })
  },
  vjp: () => [null, null, null, null],
  jvp: () => [null],
  vmap: ({ inputs, axes, params, size }) => {
    const [points, queries] = [0, 1].map((i) => inFront(inputs[i], axes[i], size))
    const counts = [points.shape[1], queries.shape[1]]
    const offsets = counts.map((count, i) => stackOffsets(inputs[i + 2], axes[i + 2], size, count))
    const found = neighbours([points.flatten(0, 1), queries.flatten(0, 1), ...offsets], params)
    return { outputs: [unshifted(found, size, counts[0])], axes: [0] }
  },
})

/** points [P, D], offsets of clouds → int32 [clouds, count]: each point the farthest from those before it, −1 after the last. */
const farthest: Apply<{ count: number }> = definePrimitive({
  name: `${PACKAGE}/farthestPoints`,
  api: 1,
  params: { count: "i64" },
  infer: ([points, offsets], { count }) => {
    checkClouds("farthestPointSampling", points, [offsets])
    return { shape: [offsets.shape[0] - 1, count], dtype: mx.int32 }
  },
  reference: ([points, offsets], [out], { count }) => {
    const bounds = boundsOf("farthestPointSampling", offsets, points.shape[0])
    for (let cloud = 0; cloud + 1 < bounds.length; cloud++) {
      const [first, size] = [bounds[cloud], bounds[cloud + 1] - bounds[cloud]]
      const far = new Array<number>(size).fill(Number.POSITIVE_INFINITY)
      let chosen = 0
      for (let i = 0; i < count; i++) {
        out.data[cloud * count + i] = i < size ? first + chosen : -1
        if (i >= size) continue
        far[chosen] = -1
        let next = 0
        let most = -1
        for (let p = 0; p < size; p++) {
          const distance = squaredDistance(points, first + p, points, first + chosen)
          if (distance < far[p]) far[p] = distance
          if (far[p] > most) {
            most = far[p]
            next = p
          }
        }
        chosen = next
      }
    }
  },
  vjp: () => [null, null],
  jvp: () => [null],
  vmap: ({ inputs: [points, offsets], axes, params, size }) => {
    const stack = inFront(points, axes[0], size)
    const count = stack.shape[1]
    const found = farthest([stack.flatten(0, 1), stackOffsets(offsets, axes[1], size, count)], params)
    return { outputs: [unshifted(found, size, count)], axes: [0] }
  },
})

/** Points as the primitives take them: matrices in float32 or float64. */
function asPoints(op: string, name: string, x: mx.Array): mx.Array {
  if (x.ndim !== 2)
    throw new mx.ShapeError(
      op,
      `expected ${name} of shape (points, coordinates), received ${format(x.shape)}`,
    )
  if (mx.issubdtype(x.dtype, mx.complexfloating))
    throw new mx.DTypeError(op, `expected real ${name}, received ${x.dtype.name}`)
  return x.dtype === mx.float64 ? x : x.astype(mx.float32)
}

/** The clouds: where each begins, with the number of points at the end. */
export interface CloudOptions {
  /** Of the points; one cloud by default. */
  offsets?: Integers | null
  /** Of the queries: as many clouds as of the points. */
  queryOffsets?: Integers | null
}

function search(
  op: string,
  points: mx.Array,
  queries: mx.Array,
  params: { k: number; radius: number; order: Order },
  offsets: Integers | null | undefined,
  queryOffsets: Integers | null | undefined,
): mx.Array {
  const [given, at] = [asPoints(op, "points", points), asPoints(op, "queries", queries)]
  const dtype = given.dtype === at.dtype ? given.dtype : mx.float64
  if (given.shape[1] !== at.shape[1])
    throw new mx.ShapeError(
      op,
      `expected queries with ${given.shape[1]} coordinates, received shape ${format(at.shape)}`,
    )
  const lists = [
    asOffsets(op, "offsets", offsets, given.shape[0]),
    asOffsets(op, "queryOffsets", queryOffsets, at.shape[0]),
  ]
  return neighbours([given.astype(dtype), at.astype(dtype), ...lists], params)
}

const knnArgs = operation(
  `${PACKAGE}/knn`,
  { points: "array", queries: "array", k: "count", offsets: "indices?", queryOffsets: "indices?" },
  (
    points: mx.Array,
    queries: mx.Array,
    k: number,
    offsets?: Integers | null,
    queryOffsets?: Integers | null,
  ): mx.Array =>
    search(
      "knn",
      points,
      queries,
      { k, radius: Number.POSITIVE_INFINITY, order: "nearest" },
      offsets,
      queryOffsets,
    ),
)
/**
 * The k points nearest to each query: points (P, D) and queries (Q, D) give positions of points, int32 (Q, k), the nearest first, of
 * equally near ones the first. −1 stands where a cloud has fewer points. With `offsets` and `queryOffsets` queries see the points of their
 * own cloud alone. Memory beside the result does not grow with P · Q.
 * @named offsets queryOffsets
 * @throws ShapeError when coordinates or numbers of clouds differ; IndexError for offsets that descend: at once where they are a list,
 *   when computed for an array. (GPU backends cut those to the points.)
 * @example
 * const points = mx.array([[0], [1], [5]])
 * knn(points, mx.array([[0.9], [4]]), 2).tolist() // => [[1, 0], [2, 1]]
 */
export function knn(
  points: mx.Array,
  queries: mx.Array,
  k: number,
  options?: CloudOptions & mx.StreamOptions,
): mx.Array
export function knn(...args: unknown[]): mx.Array {
  return knnArgs(args)
}

const ballArgs = operation(
  `${PACKAGE}/ballQuery`,
  {
    points: "array",
    queries: "array",
    radius: "nonNegative",
    k: "count",
    offsets: "indices?",
    queryOffsets: "indices?",
  },
  (
    points: mx.Array,
    queries: mx.Array,
    radius: number,
    k: number,
    offsets?: Integers | null,
    queryOffsets?: Integers | null,
  ): mx.Array => search("ballQuery", points, queries, { k, radius, order: "first" }, offsets, queryOffsets),
)
/**
 * At most k points no farther than `radius` from each query, in the order of the points: int32 (Q, k), −1 behind them. Points, queries and
 * clouds are as {@link knn} takes them.
 * @named offsets queryOffsets
 * @throws ShapeError when coordinates or numbers of clouds differ; IndexError for offsets that descend: at once where they are a list,
 *   when computed for an array. (GPU backends cut those to the points.)
 * @example
 * const points = mx.array([[0], [1], [5]])
 * ballQuery(points, mx.array([[0.9], [4]]), 1, 2).tolist() // => [[0, 1], [2, -1]]
 */
export function ballQuery(
  points: mx.Array,
  queries: mx.Array,
  radius: number,
  k: number,
  options?: CloudOptions & mx.StreamOptions,
): mx.Array
export function ballQuery(...args: unknown[]): mx.Array {
  return ballArgs(args)
}

const farthestArgs = operation(
  `${PACKAGE}/farthestPointSampling`,
  { points: "array", count: "size", offsets: "indices?" },
  (points: mx.Array, count: number, offsets?: Integers | null): mx.Array => {
    const op = "farthestPointSampling"
    const given = asPoints(op, "points", points)
    const found = farthest([given, asOffsets(op, "offsets", offsets, given.shape[0])], { count })
    return offsets === null || offsets === undefined ? found.squeeze(0) : found
  },
)
/**
 * Positions of `count` points that lie far from each other: the first point, and then each time the one farthest from all before it, of
 * equally far ones the first. Points (P, D) give int32 (count), −1 after the last point; with `offsets` of clouds (clouds, count).
 * @named offsets
 * @throws IndexError for offsets that descend: at once where they are a list, when computed for an array. (GPU backends cut those to the
 *   points.)
 * @example
 * farthestPointSampling(mx.array([[0], [1], [5], [3]]), 3).tolist() // => [0, 2, 3]
 */
export function farthestPointSampling(
  points: mx.Array,
  count: number,
  options?: { offsets?: Integers | null } & mx.StreamOptions,
): mx.Array
export function farthestPointSampling(...args: unknown[]): mx.Array {
  return farthestArgs(args)
}
