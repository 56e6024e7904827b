/** The Metal kernels, on the CPU's runtime for them: against the CPU's kernels at sizes with several groups, and at the edges. */
import "@lazuli/backend-cpu"
import "@lazuli/backend-metal"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { beforeEach, describe, expect, test } from "vitest"
import { ballQuery, farthestPointSampling, indexedDistance, knn, mvmr, vvor } from "./index"

function noise(shape: number[], seed: number): mx.Array {
  let state = seed
  const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0
    return state / 2 ** 31
  })
  return mx.array(values).reshape(shape)
}
const whole = (n: number, most: number, seed: number): mx.Array =>
  mx.minimum(noise([n], seed).abs().multiply(most).floor(), most - 1).astype(mx.int32)

/** The same on both devices; nothing falls back on Metal. */
function agrees(body: () => mx.Array, tolerance = 0): mx.Array {
  const wanted = mx.stream(mx.cpu, body)
  mx.eval(wanted)
  mx.resetBackendStats()
  const got = mx.stream(mx.gpu, body)
  mx.eval(got)
  expect(mx.backendStats()).toEqual({})
  expect(got.shape).toEqual(wanted.shape)
  if (got.size > 0) expect(mx.abs(got.subtract(wanted)).max().item()).toBeLessThanOrEqual(tolerance)
  return got
}

describe.runIf(process.platform === "linux")("on Metal", () => {
  beforeEach(() => mx.resetBackendStats())

  test.each([3, 40])("mvmr and vvor, width %i", (width) => {
    const count = 700
    const [a, b, x] = [noise([count, 2, 5, width], 1), noise([30, 2, width], 2), noise([40, 2, 5], 3)]
    const [i, j, o] = [whole(count, 40, 4), whole(count, 30, 5), whole(count, 50, 6)]
    agrees(() => mvmr(a, b, j, o, { numRows: 51 }), 1e-5)
    agrees(() => vvor(x, b, i, j, o, { numRows: 51 }), 1e-5)
    agrees(() => grad((v: mx.Array) => mvmr(a, v, j, o, { numRows: 51 }).square().sum())(b), 1e-3)
    agrees(() => grad((v: mx.Array) => vvor(v, b, i, j, o, { numRows: 51 }).square().sum())(x), 1e-3)
  })
  test("many products of one row, in their order whatever the threads do", () => {
    const [a, b] = [noise([3000, 1, 1, 1], 1), noise([7, 1, 1], 2)]
    const lists = [whole(3000, 7, 3), mx.zeros([3000], mx.int32)] as const
    const run = (): mx.Array => mvmr(a, b, ...lists, { numRows: 1 })
    const first = agrees(run, 1e-4).item()
    for (let n = 0; n < 3; n++) expect(mx.stream(mx.gpu, run).item()).toBe(first)
  })
  test("products out of bounds are left out, and nothing gives zeros", () => {
    const [a, b] = [mx.ones([3, 1, 1, 2]), mx.ones([2, 1, 2])]
    const run = (): mx.Array =>
      mvmr(a, b, mx.array([0, 5, -1], mx.int32), mx.array([1, 1, 0], mx.int32), { numRows: 3 })
    expect(mx.stream(mx.gpu, run).flatten().tolist()).toEqual([0, 2, 0])
    agrees(() => mvmr(mx.ones([0, 1, 1, 2]), b, [], [], { numRows: 2 }))
    agrees(() => vvor(mx.ones([0, 1, 1]), b, [], [], [], { numRows: 2 }))
  })

  test("rows with no, one, or more products than are ordered at a time", () => {
    const [a, b] = [noise([5000, 1, 3, 2], 1), noise([7, 1, 2], 2)]
    const lists = [whole(5000, 7, 3), mx.minimum(whole(5000, 9000, 4), 4321)] as const
    agrees(() => mvmr(a, b, ...lists, { numRows: 9000 }), 1e-4)
    const wide = lists.map((list) => list.astype(mx.int64)) as [mx.Array, mx.Array]
    agrees(() => mvmr(a, b, ...wide, { numRows: 9000 }), 1e-4)
    agrees(() => vvor(b, b, wide[0], ...lists, { numRows: 9000 }), 1e-3)
  })
  test.each(["euclidean", "squared", "cosine"] as const)("%s distances of pairs", (metric) => {
    const [x, y] = [noise([50, 3], 1), mx.concatenate([mx.zeros([1, 3]), noise([30, 3], 2)], 0)]
    const [i, k] = [whole(900, 50, 3), whole(900, 31, 4)]
    agrees(() => indexedDistance(x, y, i, k, { metric }), 1e-6)
    agrees(() => indexedDistance(x, x, i.astype(mx.uint8), i.astype(mx.int64), { metric }), 1e-6)
    const [left, right] = [mx.array([0, 50, -1, 3], mx.int32), mx.array([31, 0, 0, 3], mx.int32)]
    const outside = (): mx.Array => indexedDistance(x, y, left, right, { metric })
    expect(mx.stream(mx.gpu, () => mx.isnan(outside())).tolist()).toEqual([true, true, true, false])
  })

  test("neighbours, of several clouds", () => {
    const [points, queries] = [noise([600, 3], 1), noise([300, 3], 2)]
    const clouds = { offsets: [0, 200, 200, 600], queryOffsets: [0, 100, 150, 300] }
    agrees(() => knn(points, queries, 7))
    agrees(() => knn(points, queries, 7, clouds))
    agrees(() => ballQuery(points, queries, 0.5, 9, clouds))
    agrees(() => knn(points.index(":4"), queries, 9))
    agrees(() => farthestPointSampling(points, 40))
    agrees(() => farthestPointSampling(points, 12, { offsets: [0, 5, 5, 600] }))
  })
  test("equally near points come in their order, close ones are told apart, and NaN is nowhere", () => {
    const grid = mx.stack([whole(300, 4, 1), whole(300, 4, 2)], 1).astype(mx.float32)
    agrees(() => knn(grid, grid, 20))
    agrees(() => farthestPointSampling(grid, 30))
    const near = mx.array(Float32Array.from({ length: 64 }, (_, i) => 1 + ((i * 37) % 64) * 2 ** -23))
    agrees(() => knn(near.reshape([64, 1]), mx.array([[0.3], [1.000002]]), 64))
    const odd = mx.array([[Number.NaN], [1], [Number.POSITIVE_INFINITY], [-2], [1e15], [0]])
    agrees(() => knn(odd, mx.array([[0], [Number.POSITIVE_INFINITY]]), 6))
    agrees(() => farthestPointSampling(odd, 6))
  })
})
