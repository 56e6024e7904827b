/**
 * Cross products.
 */
import { operation, type StreamOptions } from "../../graph/args"
import { promote } from "../../graph/dtype"
import { ShapeError } from "../../graph/errors"
import type { Array } from "../../graph/graph"
import { broadcastShapes, format, normalizeAxis } from "../../graph/shape"
import { toDtype } from "../constant"
import { zeros } from "../creation"
import { concatenate } from "../join"
import { broadcastTo } from "../reduce"
import { sliceRange } from "../slice"

const crossArgs = operation(
  "linalg.cross",
  { a: "array", b: "array", axis: "axis?" },
  (a: Array, b: Array, axis: number = -1): Array => {
    const op = "linalg.cross"
    const [i, j] = [normalizeAxis(op, axis, a.ndim), normalizeAxis(op, axis, b.ndim)]
    const [m, n] = [a.shape[i], b.shape[j]]
    if ((m !== 2 && m !== 3) || (n !== 2 && n !== 3))
      throw new ShapeError(
        op,
        `the vectors must have 2 or 3 components, received shapes ${format(a.shape)} and ${format(b.shape)} with axis ${axis}`,
      )
    const without = (x: Array, k: number): number[] => x.shape.map((size, d) => (d === k ? 1 : size))
    const shape = broadcastShapes(op, without(a, i), without(b, j))
    const dtype = promote(a.dtype, b.dtype)
    const axisInResult = axis < 0 ? axis + shape.length : axis + shape.length - Math.max(a.ndim, b.ndim)
    const component = (x: Array, k: number, c: number): Array =>
      toDtype(
        sliceRange(
          x,
          x.shape.map((_, d) => (d === k ? c : 0)),
          x.shape.map((size, d) => (d === k ? c + 1 : size)),
          x.shape.map(() => 1),
        ),
        dtype,
      )
    const [x, y] = [
      [0, 1, 2].map((c) => (c < m ? component(a, i, c) : null)),
      [0, 1, 2].map((c) => (c < n ? component(b, j, c) : null)),
    ]
    // x[p]·y[q] − x[q]·y[p], where an absent third component is 0.
    const minor = (p: number, q: number): Array => {
      const [u, v] = [x[p] && y[q] && x[p].multiply(y[q]), x[q] && y[p] && x[q].multiply(y[p])]
      return broadcastTo(u && v ? u.subtract(v) : ((u ?? v?.negative()) as Array), shape)
    }
    // Of two vectors in a plane only the third component is not 0.
    const flat = m === 2 && n === 2
    const none = flat ? zeros(shape, dtype) : null
    return concatenate([none ?? minor(1, 2), none ?? minor(2, 0), minor(0, 1)], axisInResult)
  },
)
/**
 * The cross product of vectors along an axis. For vectors of 2 components, the third is taken as 0. The other axes broadcast.
 *
 * @throws ShapeError unless the axis has size 2 or 3
 * @example
 * mx.linalg.cross(mx.array([1, 0, 0]), mx.array([0, 1, 0])).tolist() // => [0, 0, 1]
 */
export function cross(a: Array, b: Array, axis?: number, options?: StreamOptions): Array
export function cross(a: Array, b: Array, options: { axis?: number } & StreamOptions): Array
export function cross(...args: unknown[]): Array {
  return crossArgs(args)
}
