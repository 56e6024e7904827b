/**
 * Neighbours, balls and farthest points against plain searches, on every backend: clouds apart, empty clouds, one point, ties, and what is
 * refused.
 */
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { grad, vmap } from "@lazuli/transforms"
import { afterEach, beforeEach, describe, expect, test } from "vitest"
import { ballQuery, farthestPointSampling, indexedDistance, knn, pairwiseDistance } from "./index"

afterEach(() => mx.setBackend(null, "cpu"))
const cloud = (n: number, width: number, step: number): mx.Array =>
  mx.array(Float32Array.from({ length: n * width }, (_, i) => Math.sin(i * i * step + i))).reshape([n, width])
const squares = (p: number[], q: number[]): number => p.reduce((sum, v, i) => sum + (v - q[i]) ** 2, 0)

describe.each(["reference", "cpu"])("on the %s backend", (backend) => {
  beforeEach(() => mx.setBackend(backend, "cpu"))
  const [points, queries] = [cloud(150, 3, 0.37), cloud(40, 3, 0.11)]
  const [ps, qs] = [points.tolist() as number[][], queries.tolist() as number[][]]

  test("knn finds the nearest, in order", () => {
    const want = qs.map((q) =>
      [...ps.keys()].sort((i, j) => squares(ps[i], q) - squares(ps[j], q) || i - j).slice(0, 5),
    )
    expect(knn(points, queries, 5).tolist()).toEqual(want)
    expect(knn(points.astype(mx.float64), queries, 5).tolist()).toEqual(want)
    expect(knn(mx.contiguous(points.T).T, queries.index("::-1"), 5).tolist()).toEqual(want.reverse())
    expect(knn(points, points, 1).flatten().tolist()).toEqual([...ps.keys()])
  })

  test("ballQuery finds the first in the ball", () => {
    const want = qs.map((q) => {
      const inside = [...ps.keys()].filter((i) => squares(ps[i], q) <= 0.49).slice(0, 8)
      return [...inside, ...new Array<number>(8 - inside.length).fill(-1)]
    })
    expect(ballQuery(points, queries, 0.7, 8).tolist()).toEqual(want)
    expect(ballQuery(points, points, 0, 1).flatten().tolist()).toEqual([...ps.keys()])
  })

  test("clouds are searched apart, empty ones too", () => {
    const [offsets, queryOffsets] = [[0, 3, 3, 100, 150], mx.array([0, 10, 11, 11, 40], mx.int32)]
    const found = knn(points, queries, 4, { offsets, queryOffsets }).tolist() as number[][]
    qs.forEach((q, i) => {
      const [from, to] = i < 10 ? [0, 3] : i < 11 ? [3, 3] : [100, 150]
      const all = Array.from({ length: to - from }, (_, k) => from + k)
      const want = all.sort((j, k) => squares(ps[j], q) - squares(ps[k], q) || j - k).slice(0, 4)
      expect(found[i]).toEqual([...want, ...new Array<number>(4 - want.length).fill(-1)])
    })
  })

  test("farthest points", () => {
    const looped = (from: number, to: number, count: number): number[] => {
      const chosen = from < to ? [from] : []
      while (chosen.length < Math.min(count, to - from)) {
        const far = (i: number): number =>
          chosen.includes(i) ? -1 : Math.min(...chosen.map((j) => squares(ps[i], ps[j])))
        let next = from
        for (let i = from; i < to; i++) if (far(i) > far(next)) next = i
        chosen.push(next)
      }
      return [...chosen, ...new Array<number>(count - chosen.length).fill(-1)]
    }
    expect(farthestPointSampling(points, 12).tolist()).toEqual(looped(0, 150, 12))
    expect(farthestPointSampling(points, 6, { offsets: [0, 4, 4, 5, 150] }).tolist()).toEqual([
      looped(0, 4, 6),
      looped(4, 4, 6),
      looped(4, 5, 6),
      looped(5, 150, 6),
    ])
    expect(farthestPointSampling(mx.ones([4, 2]), 4).tolist()).toEqual([0, 1, 2, 3])
    expect(farthestPointSampling(points, 0).shape).toEqual([0])
  })

  test("ties go to the first, NaN is near to nothing, and one point is enough", () => {
    const same = mx.array([[1], [0], [1], [0]])
    expect(knn(same, mx.array([[0.5]]), 4).tolist()).toEqual([[0, 1, 2, 3]])
    expect(knn(mx.array([[Number.NaN], [9]]), mx.array([[0], [Number.NaN]]), 2).tolist()).toEqual([
      [1, -1],
      [-1, -1],
    ])
    expect(knn(mx.array([[1, 2]]), mx.array([[5, 5]]), 2).tolist()).toEqual([[0, -1]])
    expect(knn(mx.zeros([0, 2]), mx.ones([1, 2]), 2).tolist()).toEqual([[-1, -1]])
    expect(knn(mx.ones([1, 2]), mx.zeros([0, 2]), 2).shape).toEqual([0, 2])
  })

  test("batches and compiled calls", () => {
    const several = mx.stack([points.index(":40"), points.index("40:80")])
    const offsets = mx.array(
      [
        [0, 20, 40],
        [0, 5, 40],
      ],
      mx.int32,
    )
    const f = (x: mx.Array, at: mx.Array): mx.Array =>
      knn(x, queries, 3, { offsets: at, queryOffsets: mx.array([0, 7, 40], mx.int32) })
    const g = (x: mx.Array, at: mx.Array): mx.Array => farthestPointSampling(x, 25, { offsets: at })
    for (const h of [f, g]) {
      const each = (i: number, j: number) => h(several.index(i), offsets.index(j)).tolist()
      expect(vmap(h)(several, offsets).tolist()).toEqual([each(0, 0), each(1, 1)])
      expect(vmap(h, { inAxes: [0, null] })(several, offsets.index(1)).tolist()).toEqual([
        each(0, 1),
        each(1, 1),
      ])
      expect(vmap(h, { inAxes: [null, 0] })(several.index(1), offsets).tolist()).toEqual([
        each(1, 0),
        each(1, 1),
      ])
      expect(compile(h)(several.index(0), offsets.index(0)).tolist()).toEqual(each(0, 0))
    }
  })

  test("100,000 points are searched in memory of the result", () => {
    if (backend === "reference") return
    const many = mx.random.normal([100_000, 3], { dtype: mx.float32 })
    mx.eval(many)
    mx.resetPeakMemory()
    const before = mx.getActiveMemory()
    mx.eval(knn(many, many.index(":64"), 16))
    expect(mx.getPeakMemory() - before).toBeLessThan(1e7)
  })
})

describe("distances", () => {
  const [x, y] = [cloud(6, 3, 0.5), cloud(5, 3, 0.2)]
  const [xs, ys] = [x.tolist() as number[][], y.tolist() as number[][]]
  const plain = {
    euclidean: (p: number[], q: number[]) => Math.sqrt(squares(p, q)),
    squared: squares,
    cosine: (p: number[], q: number[]) =>
      1 - p.reduce((s, v, i) => s + v * q[i], 0) / Math.hypot(...p) / Math.hypot(...q),
  }

  test.each(["euclidean", "squared", "cosine"] as const)(
    "%s agrees with a loop, pairwise and indexed",
    (metric) => {
      const all = pairwiseDistance(x, y, { metric }).tolist() as number[][]
      xs.forEach((p, i) => {
        ys.forEach((q, j) => {
          expect(Math.abs(all[i][j] - plain[metric](p, q))).toBeLessThan(1e-5)
        })
      })
      const [i, j] = [
        [5, 0, 3, 3],
        [4, 4, 0, 1],
      ]
      const some = indexedDistance(x, y, i, mx.array(j, mx.uint8), { metric }).tolist() as number[]
      some.forEach((d, t) => {
        expect(Math.abs(d - plain[metric](xs[i[t]], ys[j[t]]))).toBeLessThan(1e-5)
      })
    },
  )

  test.each(["euclidean", "squared", "cosine"] as const)("the gradient of %s at 0 is 0", (metric) => {
    const p = mx.array([
      [1, 2, 3],
      [0, 0, 0],
    ])
    const slope = (f: (a: mx.Array) => mx.Array): number =>
      Number(
        grad((a: mx.Array) => f(a).sum())(p)
          .abs()
          .max()
          .item(),
      )
    expect(slope((a) => indexedDistance(a, p, [0, 1], [0, 1], { metric }))).toBeLessThan(1e-6)
    // Of each point to itself alone: the others have a slope.
    expect(slope((a) => mx.diagonal(pairwiseDistance(a, p, { metric })))).toBeLessThan(1e-6)
  })

  test.each(["euclidean", "squared", "cosine"] as const)(
    "%s of 16 bits is float32's, rounded once",
    (metric) => {
      for (const dtype of [mx.float16, mx.bfloat16]) {
        // Squares of such points exceed float16.
        const [p, q] = [x.multiply(300), y.multiply(170)].map((v) => v.astype(dtype))
        const [a, b] = [p, q].map((v) => v.astype(mx.float32))
        const want = pairwiseDistance(a, b, { metric }).astype(dtype)
        expect(pairwiseDistance(p, q, { metric }).tolist()).toEqual(want.tolist())
      }
    },
  )

  test.each([2, 3, 5])("many chosen pairs of points with %i coordinates, in every dtype", (width) => {
    const [p, q] = [cloud(40, width, 0.5), cloud(30, width, 0.2)]
    const at = (n: number, step: number): mx.Array =>
      mx.array(Int32Array.from({ length: 1000 }, (_, t) => (t * step) % n))
    const [i, j] = [at(40, 7), at(30, 11)]
    for (const metric of ["euclidean", "squared", "cosine"] as const)
      for (const [a, b] of [
        [mx.float32, mx.float32],
        [mx.float64, mx.float64],
        [mx.float32, mx.float64],
        [mx.float16, mx.float16],
      ]) {
        const got = indexedDistance(p.astype(a), q.astype(b), i, j, { metric })
        expect(got.dtype).toBe(b)
        const values = got.tolist() as number[]
        const [from, to] = [p.astype(a), q.astype(b)].map((v) => v.astype(mx.float64).tolist() as number[][])
        values.forEach((d, t) => {
          const want = plain[metric](from[(t * 7) % 40], to[(t * 11) % 30])
          expect(Math.abs(d - want)).toBeLessThan(a === mx.float16 ? 2e-2 : 1e-5)
        })
      }
  })

  test("the distance of a point that is nowhere is no number", () => {
    const p = mx.array([
      [Number.NaN, 0],
      [0, 0],
    ])
    for (const metric of ["euclidean", "squared"] as const) {
      expect(indexedDistance(p, p, [0, 1, 1], [1, 0, 1], { metric }).tolist()).toEqual([
        Number.NaN,
        Number.NaN,
        0,
      ])
      const f = (v: mx.Array): mx.Array => indexedDistance(v, p, [0, 1], [1, 1], { metric }).sum()
      expect(grad(f)(p).index(1).tolist()).toEqual([0, 0])
    }
    expect(indexedDistance(p, mx.ones([1, 2]), [0, 1], [0, 0], { metric: "cosine" }).tolist()).toEqual([
      Number.NaN,
      1,
    ])
    expect(pairwiseDistance(p, mx.ones([1, 2]), { metric: "cosine" }).tolist()).toEqual([[Number.NaN], [1]])
  })

  test("a distance of found neighbours is differentiable", () => {
    const f = (a: mx.Array): mx.Array => {
      const found = knn(y, a, 2).flatten()
      return indexedDistance(a, y, mx.repeat(mx.arange(6, { dtype: mx.int32 }), 2), found).sum()
    }
    const h = 1e-2
    const moved = mx.zeros([6, 3]).at(0, 0).add(h)
    const at = (v: mx.Array): number => f(v).item() as number
    const want = (at(x.add(moved)) - at(x.subtract(moved))) / (2 * h)
    expect(Math.abs((grad(f)(x).index(0, 0).item() as number) - want)).toBeLessThan(1e-2)
  })
})

test("what is refused", () => {
  const refused = (f: () => mx.Array): string => {
    try {
      mx.eval(f())
    } catch (error) {
      return `${(error as Error).name}: ${(error as Error).message}`
    }
    return "nothing"
  }
  const x = mx.ones([4, 3])
  const ends = (...values: number[]): mx.Array => mx.array([0, ...values], mx.int32)
  expect([
    refused(() => knn(x, mx.ones([2, 2]), 1)),
    refused(() => knn(x, x, 0)),
    refused(() => knn(x.flatten(), x, 1)),
    refused(() => knn(x, x, 1, { offsets: [0, 2, 4] })),
    refused(() => knn(x, x, 1, { offsets: [0, 5, 4], queryOffsets: [0, 2, 4] })),
    refused(() => knn(x, x, 1, { offsets: [0, 3], queryOffsets: [0, 4] })),
    refused(() => knn(x, x, 1, { offsets: [1, 4], queryOffsets: [0, 4] })),
    refused(() => knn(x, x, 1, { offsets: [], queryOffsets: [] })),
    // Rows of no cloud would be left unwritten.
    refused(() => knn(mx.zeros([0, 3]), x, 1, { offsets: ends(), queryOffsets: ends() })),
    refused(() => ballQuery(mx.zeros([0, 3]), x, 1, 2, { offsets: ends(), queryOffsets: ends() })),
    refused(() => knn(x, mx.zeros([0, 3]), 1, { offsets: ends(), queryOffsets: ends() })),
    refused(() => farthestPointSampling(x, 2, { offsets: ends() })),
    refused(() => knn(x, x, 1, { offsets: ends(3, 2, 4), queryOffsets: [0, 1, 2, 4] })),
    refused(() => ballQuery(x, x, 1, 1, { offsets: [0, 2, 4], queryOffsets: ends(2, 3) })),
    refused(() => farthestPointSampling(x, 2, { offsets: ends(5) })),
    // Of several examples too, whatever the others have.
    ...[ends(2, 3), ends(-1, 4), ends(5, 4), mx.array([0n, 2n ** 32n, 4n], mx.int64)].flatMap((wrong) => {
      const both = mx.stack([ends(2, 4).astype(wrong.dtype), wrong])
      return [
        refused(() => vmap((offsets: mx.Array) => farthestPointSampling(x, 2, { offsets }))(both)),
        refused(() => vmap((offsets: mx.Array) => knn(x, x, 1, { offsets, queryOffsets: [0, 2, 4] }))(both)),
      ]
    }),
    refused(() => knn(x.astype(mx.complex64), x, 1)),
    refused(() => ballQuery(x, x, -1, 2)),
    refused(() => farthestPointSampling(x, -1)),
    refused(() => pairwiseDistance(x, mx.ones([2, 2]))),
    refused(() => pairwiseDistance(x, x, { metric: "manhattan" as never })),
    refused(() => indexedDistance(x, x, [0], [4])),
    refused(() => indexedDistance(x, x, [0, 1], [0])),
  ]).toMatchInlineSnapshot(`
    [
      "ShapeError: [knn] expected queries with 3 coordinates, received shape (2, 2)",
      "ArgumentError: [knn] k must be an integer of at least 1, received the number 0",
      "ShapeError: [knn] expected points of shape (points, coordinates), received (12,)",
      "ShapeError: [knn] expected as many clouds of points as of queries, received 2 and 1",
      "IndexError: [knn] offsets must not descend, received 4 after 5",
      "IndexError: [knn] offsets must end with the 4 rows, received 3",
      "IndexError: [knn] offsets must begin with 0, received 1",
      "ShapeError: [knn] offsets must have at least one element, received none",
      "IndexError: [knn] offsets must end with the 4 rows, received no clouds",
      "IndexError: [ballQuery] offsets must end with the 4 rows, received no clouds",
      "IndexError: [knn] offsets must end with the 4 rows, received no clouds",
      "IndexError: [farthestPointSampling] offsets must end with the 4 rows, received 0",
      "IndexError: [knn] offsets must not descend, received 2 after 3",
      "IndexError: [ballQuery] offsets must end with the 4 rows, received 3",
      "IndexError: [farthestPointSampling] offsets must end with the 4 rows, received 5",
      "IndexError: [farthestPointSampling] offsets must not descend, received -1 after 2",
      "IndexError: [knn] offsets must not descend, received -1 after 2",
      "IndexError: [farthestPointSampling] offsets must not descend, received -1 after 2",
      "IndexError: [knn] offsets must not descend, received -1 after 2",
      "IndexError: [farthestPointSampling] offsets must not descend, received -1 after 2",
      "IndexError: [knn] offsets must not descend, received -1 after 2",
      "IndexError: [farthestPointSampling] offsets must not descend, received -1 after 2",
      "IndexError: [knn] offsets must not descend, received -1 after 2",
      "DTypeError: [knn] expected real points, received complex64",
      "ArgumentError: [ballQuery] radius must be a non-negative number, received the number -1",
      "ArgumentError: [farthestPointSampling] count must be a non-negative integer, received the number -1",
      "ShapeError: [pairwiseDistance] expected points with the same number of coordinates, received shapes (4, 3) and (2, 2)",
      "ArgumentError: [pairwiseDistance] metric must be "euclidean", "squared" or "cosine", received the string "manhattan"",
      "IndexError: [indexedDistance] index 4 in yIndices is out of bounds for axis 0 with size 4",
      "ShapeError: [indexedDistance] expected 2 yIndices, received 1",
    ]
  `)
})
