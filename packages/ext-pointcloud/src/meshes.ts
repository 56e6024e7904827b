/** Surfaces of triangles, and points drawn on them. */
import * as mx from "@lazuli/core"
import { format } from "@lazuli/core/plugin"

/** A surface: corners in space, and three positions of corners for each triangle. */
export interface Mesh {
  /** Floating, (V, 3). */
  readonly vertices: mx.Array
  /** Integers, (F, 3). */
  readonly faces: mx.Array
}

function check(op: string, { vertices, faces }: Mesh): void {
  if (!(vertices instanceof mx.Array) || !(faces instanceof mx.Array))
    throw new mx.ArgumentError(op, "expected a mesh, an object with arrays vertices and faces")
  if (vertices.ndim !== 2 || vertices.shape[1] !== 3 || !mx.issubdtype(vertices.dtype, mx.floating))
    throw new mx.ShapeError(
      op,
      `vertices must be floating numbers of shape (V, 3), received ${vertices.dtype.name} of shape ${format(vertices.shape)}`,
    )
  if (faces.ndim !== 2 || faces.shape[1] !== 3 || !mx.issubdtype(faces.dtype, mx.integer))
    throw new mx.ShapeError(
      op,
      `faces must be integers of shape (F, 3), received ${faces.dtype.name} of shape ${format(faces.shape)}`,
    )
}

/** The number of ascending `bounds` that are at most each of the values, int32. */
function countAtMost(bounds: mx.Array, values: mx.Array): mx.Array {
  const [n] = bounds.shape
  const order = mx.argsort(mx.concatenate([bounds, values]))
  const isBound = order.less(n)
  const before = mx.cumsum(isBound.astype(mx.int32), 0)
  const ranks = mx.take(before, mx.argsort(order))
  return ranks.index(`${n}:`)
}

/**
 * The area of each triangle, (F).
 * @throws ShapeError unless corners are (V, 3) and faces (F, 3)
 * @example
 * const mesh = { vertices: mx.array([[0, 0, 0], [2, 0, 0], [0, 2, 0]], mx.float32), faces: mx.array([[0, 1, 2]], mx.int32) }
 * faceAreas(mesh).tolist() // => [2]
 */
export function faceAreas(mesh: Mesh): mx.Array {
  check("faceAreas", mesh)
  const corners = mx.take(mesh.vertices, mesh.faces, 0)
  const [a, b, c] = [0, 1, 2].map((i) => corners.index(":", i))
  return mx.linalg.norm(mx.linalg.cross(b.subtract(a), c.subtract(a)), { axis: 1 }).multiply(0.5)
}

/**
 * `count` points drawn on a surface, everywhere as densely: (count, 3). They have a derivative by the corners. Where all triangles have no
 * area, the points are corners.
 * @throws ShapeError for a mesh without faces
 * @example
 * const mesh = { vertices: mx.array([[0, 0, 1], [2, 0, 1], [0, 2, 1]], mx.float32), faces: mx.array([[0, 1, 2]], mx.int32) }
 * sampleMesh(mesh, 4, { key: mx.random.key(0) }).index(':', 2).tolist() // => [1, 1, 1, 1]
 */
export function sampleMesh(
  mesh: Mesh,
  count: number,
  { key = null }: { key?: mx.Array | null } = {},
): mx.Array {
  const op = "sampleMesh"
  check(op, mesh)
  if (!Number.isSafeInteger(count) || count < 0)
    throw new mx.ArgumentError(op, `expected a number of points, received ${String(count)}`)
  const { vertices, faces } = mesh
  const [total] = faces.shape
  if (total === 0) throw new mx.ShapeError(op, "expected a mesh with faces, received none")
  const { dtype } = vertices
  // Areas in float32 at least: sums of many halves would not grow.
  const wide = dtype === mx.float64 ? dtype : mx.float32
  const draws = mx.random.uniform({ shape: [3, count], dtype: mx.float32, key }).astype(wide)
  const ends = mx.stopGradient(mx.cumsum(faceAreas({ vertices: vertices.astype(wide), faces }), 0))
  const chosen = mx.minimum(countAtMost(ends, draws.index(0).multiply(ends.index(-1))), total - 1)
  const corners = mx.take(vertices, mx.take(faces, chosen, 0), 0)
  const [a, b, c] = [0, 1, 2].map((i) => corners.index(":", i))
  // Uniform in a triangle: Turk, "Generating random points in triangles", Graphics Gems (1990).
  const root = draws.index(1).sqrt().expandDims(1)
  const far = root.multiply(draws.index(2).expandDims(1)).astype(dtype)
  const along = (to: mx.Array, part: mx.Array): mx.Array => to.subtract(a).multiply(part)
  return a.add(along(b, root.astype(dtype).subtract(far))).add(along(c, far))
}
