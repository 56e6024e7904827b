/** Clouds of several sizes: round trips, empty clouds, gathering, shuffling, reductions with derivatives, and what is refused. */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { expect, test } from "vitest"
import { knn, PointCloudBatch } from "./index"

const clouds = [
  mx.array([
    [0, 1],
    [2, 3],
  ]),
  mx.zeros([0, 2]),
  mx.array([
    [4, 5],
    [6, 7],
    [8, 9],
  ]),
]
const batch = PointCloudBatch.of(clouds)

test("clouds are apart, and come back", () => {
  expect([batch.length, batch.lengths, batch.offsets]).toEqual([3, [2, 0, 3], [0, 2, 2, 5]])
  expect(batch.clouds().map((cloud) => cloud.tolist())).toEqual(clouds.map((cloud) => cloud.tolist()))
  expect(batch.cloud(-1).tolist()).toEqual(clouds[2].tolist())
  expect(batch.cloudIds().tolist()).toEqual([0, 0, 2, 2, 2])
  const padded = batch.toPadded(-1)
  expect(padded.index("...", 0).tolist()).toEqual([
    [0, 2, -1],
    [-1, -1, -1],
    [4, 6, 8],
  ])
  expect(batch.mask().tolist()).toEqual([
    [true, true, false],
    [false, false, false],
    [true, true, true],
  ])
  const back = PointCloudBatch.fromPadded(padded, mx.array([2, 0, 3], mx.int64))
  expect([back.points.tolist(), back.lengths]).toEqual([batch.points.tolist(), batch.lengths])
  const none = new PointCloudBatch(mx.zeros([0, 3]), [])
  expect([none.length, none.toPadded().shape, none.reduce("sum").shape]).toEqual([0, [0, 0, 3], [0, 3]])
})

test("gathering and shuffling keep clouds whole", () => {
  const chosen = batch.gather([2, 0, -1])
  expect(chosen.lengths).toEqual([3, 2, 3])
  expect(chosen.cloud(1).tolist()).toEqual(clouds[0].tolist())
  const many = PointCloudBatch.of([mx.arange(50).reshape([50, 1]), mx.arange(50, 53).reshape([3, 1])])
  const key = mx.random.key(3)
  const mixed = many.shuffle({ key })
  const sorted = (x: mx.Array) => mx.sort(x.flatten()).tolist()
  expect(mixed.clouds().map(sorted)).toEqual(many.clouds().map(sorted))
  expect(mixed.points.tolist()).not.toEqual(many.points.tolist())
  expect(mixed.points.tolist()).toEqual(many.shuffle({ key }).points.tolist())
  const turned = batch.shuffle({ of: "clouds", key })
  expect(turned.lengths.slice().sort()).toEqual([0, 2, 3])
  expect(batch.gather([]).points.shape).toEqual([0, 2])
})

test("reductions, and derivatives through them", () => {
  expect(batch.reduce("mean").tolist()).toEqual([
    [1, 2],
    [0, 0],
    [6, 7],
  ])
  expect(batch.reduce("sum").tolist()).toEqual([
    [2, 4],
    [0, 0],
    [18, 21],
  ])
  expect(batch.reduce("max").index(2).tolist()).toEqual([8, 9])
  expect(batch.reduce("min").index(0).tolist()).toEqual([0, 1])
  const centred = (points: mx.Array): mx.Array => {
    const moved = batch.withPoints(points)
    return moved.points.subtract(mx.repeat(moved.reduce("mean"), moved.lengths, 0))
  }
  expect(centred(batch.points).tolist()).toEqual([
    [-1, -1],
    [1, 1],
    [-2, -2],
    [0, 0],
    [2, 2],
  ])
  expect(
    grad((p: mx.Array) => centred(p).sum())(batch.points)
      .abs()
      .max()
      .item(),
  ).toBeLessThan(1e-6)
  const { points, offsets } = batch
  expect(knn(points, points, 3, { offsets, queryOffsets: offsets }).index(0).tolist()).toEqual([0, 1, -1])
})

test("what is refused", () => {
  const refused = (f: () => unknown): string => {
    try {
      f()
    } catch (error) {
      return `${(error as Error).name}: ${(error as Error).message}`
    }
    return "nothing"
  }
  expect([
    refused(() => new PointCloudBatch(mx.ones([3, 2]), [1, 1])),
    refused(() => new PointCloudBatch(mx.ones([3, 2]), [4, -1])),
    refused(() => new PointCloudBatch(mx.array(1), [1])),
    refused(() => new PointCloudBatch([[1, 2]] as never, [1])),
    refused(() => new PointCloudBatch(mx.ones([3, 2]), [Number.NaN])),
    refused(() => new PointCloudBatch(mx.ones([3, 2]), [2 ** 32 + 3])),
    refused(() => PointCloudBatch.of([[[1, 2]]] as never)),
    refused(() => PointCloudBatch.fromPadded(mx.ones([2, 3, 2]), [3, 4])),
    refused(() => PointCloudBatch.fromPadded(mx.ones([2, 3, 2]), [3])),
    refused(() => batch.shuffle({ of: "rows" as never })),
    refused(() => PointCloudBatch.of([])),
    refused(() => PointCloudBatch.of([mx.ones([1, 2]), mx.ones([1, 3])])),
    refused(() => batch.cloud(3)),
    refused(() => batch.cloud(0.5)),
    refused(() => batch.gather([-4])),
    refused(() => batch.reduce("product" as never)),
    refused(() => batch.withPoints(mx.ones([4, 2]))),
  ]).toMatchInlineSnapshot(`
    [
      "ShapeError: [PointCloudBatch] lengths must add up to the 3 points, received a sum of 2",
      "ArgumentError: [PointCloudBatch] lengths must not be negative, received -1",
      "ShapeError: [PointCloudBatch] expected points, received a 0-d array",
      "ArgumentError: [PointCloudBatch] expected an array of points",
      "ArgumentError: [PointCloudBatch] lengths must be integers, received NaN",
      "ArgumentError: [PointCloudBatch] lengths must fit 32 bits, received 4294967299",
      "ArgumentError: [PointCloudBatch] expected clouds, each an array of points",
      "ShapeError: [PointCloudBatch.fromPadded] expected lengths from 0 to 3, received 4",
      "ShapeError: [unpadSegments] expected 2 runs, received 1",
      "ArgumentError: [PointCloudBatch.shuffle] of must be "points" or "clouds", received "rows"",
      "ShapeError: [PointCloudBatch] expected clouds, received none",
      "ShapeError: [PointCloudBatch] expected clouds whose points have the same shape, received shapes (1, 2) and (1, 3)",
      "IndexError: [PointCloudBatch] index 3 is out of bounds for 3 clouds",
      "IndexError: [PointCloudBatch] index 0.5 is out of bounds for 3 clouds",
      "IndexError: [PointCloudBatch] index -4 is out of bounds for 3 clouds",
      "ArgumentError: [PointCloudBatch.reduce] there is no reduction "product". It is one of sum, mean, max, min",
      "ShapeError: [PointCloudBatch] lengths must add up to the 4 points, received a sum of 5",
    ]
  `)
})
