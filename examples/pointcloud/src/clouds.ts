/**
 * Clouds drawn on the fly: points on surfaces, turned about all axes, made larger or smaller, with noise and with outliers.
 */
import { type Mesh, PointCloudBatch, sampleMesh } from "@lazuli/ext-pointcloud"
import { mx } from "lazuli"
import { objectParts, type Part } from "./objects"
import { SHAPES, shapeMeshes } from "./shapes"

/** Points of a cloud. */
export const POINTS = 256
/** Scales are uniform in 1 ± this. */
const SCALE = 0.2
/** The standard deviation of the noise, for surfaces whose farthest point is at distance 1. */
const NOISE = 0.02
/** The part of the points that lies anywhere in the cube around the surface. */
const OUTLIERS = 0.1

/** Clouds (n, points, 3), and the class of each cloud (n) or of each point (n, points). */
export interface Drawn {
  readonly clouds: mx.Array
  readonly labels: mx.Array
}

/** Rotation matrices (n, 3, 3), all orientations alike: unit quaternions of normal numbers. */
export function rotations(n: number, key: mx.Array): mx.Array {
  const q = mx.random.normal([n, 4], { key })
  const [w, x, y, z] = mx.split(q.divide(mx.linalg.norm(q, { axis: 1, keepdims: true })), 4, 1)
  const double = (a: mx.Array, b: mx.Array): mx.Array => a.multiply(b).multiply(2)
  const one = (a: mx.Array, b: mx.Array): mx.Array => mx.subtract(1, double(a, a)).subtract(double(b, b))
  const entries = [
    [one(y, z), double(x, y).subtract(double(z, w)), double(x, z).add(double(y, w))],
    [double(x, y).add(double(z, w)), one(x, z), double(y, z).subtract(double(x, w))],
    [double(x, z).subtract(double(y, w)), double(y, z).add(double(x, w)), one(x, y)],
  ]
  return mx.concatenate(entries.flat(), 1).reshape([n, 3, 3])
}

/** Surfaces (n, POINTS, 3) as they are measured: scaled, with noise and outliers, and turned. */
function disturbed(surfaces: mx.Array, outliers: number, key: mx.Array): mx.Array {
  const n = surfaces.shape[0]
  const keys = mx.random.split(key, 5)
  const at = (i: number): mx.Array => keys.index(i)
  const scales = mx.random.uniform({ low: 1 - SCALE, high: 1 + SCALE, shape: [n, 1, 1], key: at(0) })
  const noisy = surfaces.multiply(scales).add(mx.random.normal([n, POINTS, 3], { scale: NOISE, key: at(1) }))
  const anywhere = mx.random.uniform({ low: -1, high: 1, shape: [n, POINTS, 3], key: at(2) })
  const isOutlier = mx.random.bernoulli({ p: outliers, shape: [n, POINTS, 1], key: at(3) })
  return mx.where(isOutlier, anywhere, noisy).matmul(rotations(n, at(4)))
}

let meshes: Mesh[] | null = null

/** Clouds of shapes, as many of each class: n is a multiple of the number of classes. */
export function drawShapes(n: number, key: mx.Array): Drawn {
  meshes ??= shapeMeshes()
  const each = n / SHAPES.length
  const keys = mx.random.split(key, SHAPES.length + 1)
  const surfaces = mx
    .concatenate(meshes.map((mesh, i) => sampleMesh(mesh, each * POINTS, { key: keys.index(i) })))
    .reshape([n, POINTS, 3])
  const labels = mx.repeat(mx.arange(SHAPES.length, { dtype: mx.int32 }), each)
  return { clouds: disturbed(surfaces, OUTLIERS, keys.index(SHAPES.length)), labels }
}

let objects: Part[][] | null = null

/** Clouds of objects, as many of each, without outliers, which belong to no part. */
export function drawObjects(n: number, key: mx.Array): Drawn {
  objects ??= objectParts()
  const each = n / objects.length
  const keys = mx.random.split(key, objects.length + 1)
  const clouds: mx.Array[] = []
  const labels: mx.Array[] = []
  objects.forEach((parts, i) => {
    const own = mx.random.split(keys.index(i), parts.length)
    let left = POINTS
    const drawn = parts.map(({ mesh, share }, k) => {
      const count = k + 1 === parts.length ? left : Math.round(share * POINTS)
      left -= count
      return sampleMesh(mesh, each * count, { key: own.index(k) }).reshape([each, count, 3])
    })
    clouds.push(mx.concatenate(drawn, 1))
    const line = drawn.map(({ shape }, k) => mx.full([each, shape[1]], parts[k].label, mx.int32))
    labels.push(mx.concatenate(line, 1))
  })
  return {
    clouds: disturbed(mx.concatenate(clouds), 0, keys.index(objects.length)),
    labels: mx.concatenate(labels),
  }
}

/** Clouds (n, points, 3) as a batch. */
export function asBatch(clouds: mx.Array): PointCloudBatch {
  const [n, points] = clouds.shape
  return new PointCloudBatch(clouds.flatten(0, 1), new Array<number>(n).fill(points))
}
