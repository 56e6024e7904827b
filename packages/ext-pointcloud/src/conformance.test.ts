/** The test kit on the primitives: inference, kernels against the semantics, derivatives, batches, compiled calls, memory given back. */
import "@lazuli/backend-cpu"
import "@lazuli/backend-metal"
import { opCheck } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { expect, test } from "vitest"
import { ballQuery, farthestPointSampling, indexedDistance, knn, mvmr, vvor } from "./index"
import { nativeLibrary } from "./libraries"

const wave = (shape: number[], step: number): mx.Array =>
  mx
    .array(Float64Array.from({ length: shape.reduce((n, m) => n * m, 1) }, (_, i) => Math.sin(i * step + 1)))
    .reshape(shape)
const list = (...values: number[]): mx.Array => mx.array(values, mx.int32)

// The runtime that runs Metal kernels on the CPU is for Linux.
const backends = process.platform === "linux" ? ["cpu", "metal"] : ["cpu"]

test("the native kernels are built", () => {
  expect(nativeLibrary, "npm run build:native here, or npm run build at the root, makes them").not.toBeNull()
})

const [a, b, x] = [wave([4, 2, 3, 2], 0.7), wave([3, 2, 2], 1.3), wave([3, 2, 3], 0.9)]
const points = wave([6, 2], 1.1)
const [offsets, queryOffsets] = [list(0, 4, 4, 6), list(0, 1, 2, 3)]
const products = (p: mx.Array, q: mx.Array): mx.Array =>
  mvmr(p, q, list(2, 0, 2, 1), list(3, 0, 3, 1), { numRows: 4 })
const outer = (p: mx.Array, q: mx.Array): mx.Array =>
  vvor(p, q, list(0, 2, 1, 2), list(2, 0, 2, 1), list(3, 0, 3, 1), { numRows: 4 })
const samples = {
  mvmr: [{ name: "matrices by vectors", inputs: [a, b], f: products }],
  mvmrGradients: [
    {
      name: "by matrices and by vectors",
      inputs: [a, b],
      f: (p: mx.Array, q: mx.Array) => {
        const [byP, byQ] = grad((u: mx.Array, v: mx.Array) => products(u, v).square().sum(), {
          argnums: [0, 1],
        })(p, q)
        return mx.concatenate([byP.flatten(), byQ.flatten()])
      },
    },
  ],
  vvor: [{ name: "vectors by vectors", inputs: [x, b], f: outer }],
  pairDistances: (["euclidean", "squared", "cosine"] as const).map((metric) => ({
    name: metric,
    inputs: [points, points.index("1:4").multiply(0.7)],
    f: (p: mx.Array, q: mx.Array) => indexedDistance(p, q, [0, 5, 1, 0], list(2, 0, 1, 2), { metric }),
  })),
  neighbours: [
    { name: "knn", inputs: [points, points.index("1:4")], f: (p: mx.Array, q: mx.Array) => knn(p, q, 2) },
    {
      name: "balls in clouds",
      inputs: [points, points.index("1:4")],
      f: (p: mx.Array, q: mx.Array) => ballQuery(p, q, 0.8, 3, { offsets, queryOffsets }),
    },
  ],
  farthestPoints: [
    { name: "in clouds", inputs: [points], f: (p: mx.Array) => farthestPointSampling(p, 3, { offsets }) },
  ],
}

test.each(Object.entries(samples))(
  "opCheck of %s",
  (name, each) => {
    const report = opCheck(`@lazuli/ext-pointcloud/${name}`, each as never, { backends })
    expect(report.results.filter(({ status }) => status === "failed")).toEqual([])
    expect(report.ok).toBe(true)
  },
  120_000,
)
