/**
 * Every function against loops in float64, on every backend: operands of each dtype in each layout, and positions of each integer dtype,
 * sorted or not.
 */
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import { backends, useBackend } from "../test/backends"
import {
  ballQuery,
  farthestPointSampling,
  indexedDistance,
  knn,
  mvmr,
  pairwiseDistance,
  segmentReduce,
  vvor,
} from "./index"

/** An array, and its elements in float64, row by row. */
interface Given {
  readonly x: mx.Array
  readonly at: (...position: number[]) => number
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((n, m) => n * m, 1)
function values(shape: readonly number[], seed: number): mx.Array {
  let state = seed
  const next = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0
    return state / 2 ** 31
  }
  return mx.array(Float64Array.from({ length: sizeOf(shape) }, next)).reshape([...shape])
}

/** The same elements with other strides. */
const layouts: Record<string, (x: mx.Array) => mx.Array> = {
  "row by row": (x) => x,
  transposed: (x) => mx.contiguous(x.transpose()).transpose(),
  "of two neighbouring axes swapped": (x) => {
    const last = x.ndim - 1
    return mx.contiguous(x.swapaxes(last - 1, last)).swapaxes(last - 1, last)
  },
  "every second": (x) => mx.contiguous(mx.repeat(x, 2, x.ndim - 1)).index("...", "::2"),
  "every third row": (x) => mx.contiguous(mx.repeat(x, 3, 0)).index("::3"),
  backwards: (x) => mx.contiguous(x.index("::-1")).index("::-1"),
  "one row for all": (x) => mx.broadcastTo(x.index(":1"), [...x.shape]),
}
const dtypes = [mx.float16, mx.bfloat16, mx.float32, mx.float64]

function given(shape: number[], seed: number, dtype: mx.Dtype, layout: (x: mx.Array) => mx.Array): Given {
  const x = mx.stream(mx.cpu, () => layout(values(shape, seed).astype(dtype)))
  mx.eval(x)
  const all = mx.stream(mx.cpu, () => x.astype(mx.float64).flatten().tolist()) as number[]
  return { x, at: (...position) => all[position.reduce((at, i, axis) => at * shape[axis] + i, 0)] }
}

const tolerance = (dtype: mx.Dtype): number => ({ float16: 2e-3, bfloat16: 2e-2 })[dtype.name] ?? 1e-5
function near(got: mx.Array, want: ArrayLike<number>, most: number): void {
  const list = mx.stream(mx.cpu, () => got.astype(mx.float64).flatten().tolist()) as number[]
  expect(list.length).toBe(want.length)
  for (let i = 0; i < want.length; i++)
    if (list[i] !== want[i] && !(Math.abs(list[i] - want[i]) <= most * Math.max(1, Math.abs(want[i]))))
      expect([i, list[i]]).toEqual([i, want[i]])
}

const [T, G, M, C, B, X, K] = [40, 2, 3, 5, 7, 6, 9]
const whole = (n: number, most: number, step: number): number[] =>
  Array.from({ length: n }, (_, i) => (i * i * step + i) % most)
const b = whole(T, B, 3)
const x = whole(T, X, 5)
const rows = {
  sorted: whole(T, K, 7).sort((p, q) => p - q),
  mixed: whole(T, K, 7),
  alone: Array.from({ length: T }, (_, i) => (i * 7) % T),
}
const integers = [mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int32, mx.uint32, mx.int64, mx.uint64]
const cases = dtypes.flatMap((dtype, i) =>
  Object.entries(layouts).map(([layout, f], j) => ({
    dtype,
    name: dtype.name,
    layout,
    f,
    integer: integers[(i * 7 + j) % 8],
    order: Object.keys(rows)[(i + j) % 3] as keyof typeof rows,
  })),
)

describe.each(backends)("on the %s backend", (backend) => {
  useBackend(backend)
  // A GPU has no float64.
  const own = cases.filter(({ dtype }) => backend !== "metal" || dtype !== mx.float64)
  const list = (values: number[], dtype: mx.Dtype, layout = (x: mx.Array): mx.Array => x): mx.Array =>
    mx.stream(mx.cpu, () => layout(mx.array(values, mx.int32).astype(dtype)))

  test.each(own)(
    "products of $name $layout, $order positions of $integer.name",
    ({ dtype, f, integer, order }) => {
      const out = rows[order]
      const count = order === "alone" ? T : K
      const [p, q, v] = [
        given([T, G, M, C], 1, dtype, f),
        given([B, G, C], 2, dtype, f),
        given([X, G, M], 3, dtype, f),
      ]
      const sums = new Float64Array(count * G * M)
      const outer = new Float64Array(count * G * M * C)
      for (let t = 0; t < T; t++)
        for (let g = 0; g < G; g++)
          for (let m = 0; m < M; m++)
            for (let c = 0; c < C; c++) {
              const row = (out[t] * G + g) * M + m
              sums[row] += p.at(t, g, m, c) * q.at(b[t], g, c)
              outer[row * C + c] += v.at(x[t], g, m) * q.at(b[t], g, c)
            }
      const strided = (l: mx.Array): mx.Array => mx.contiguous(mx.repeat(l, 2)).index("::2")
      const [i, j, o] = [
        list(x, integer),
        list(b, integer, strided),
        list(out, integer, (l) => mx.contiguous(l.index("::-1")).index("::-1")),
      ]
      near(mvmr(p.x, q.x, j, o, { numRows: count }), sums, tolerance(dtype))
      near(vvor(v.x, q.x, i, j, o, { numRows: count }), outer, tolerance(dtype))
    },
  )

  test.each(own)("segments of $name $layout, $order ids of $integer.name", ({ dtype, f, integer, order }) => {
    const v = given([T, 2, 3], 1, dtype, f)
    const ids = rows[order]
    const count = order === "alone" ? T : K
    const fold = {
      sum: (l: number[]) => l.reduce((a, b) => a + b, 0),
      mean: (l: number[]) => fold.sum(l) / Math.max(l.length, 1),
      max: (l: number[]) => Math.max(...l),
      min: (l: number[]) => Math.min(...l),
    }
    const lengths = Array.from({ length: count }, (_, s) => ids.filter((id) => id === s).length)
    const offsets = [0]
    for (const length of lengths) offsets.push(offsets[offsets.length - 1] + length)
    for (const reduction of ["sum", "mean", "max", "min"] as const) {
      const want = (of: (t: number) => number): number[] =>
        Array.from({ length: count * 6 }, (_, n) => {
          const own = [...ids.keys()].filter((t) => of(t) === Math.floor(n / 6))
          return fold[reduction](own.map((t) => v.at(t, Math.floor((n % 6) / 3), n % 3)))
        })
      const sorted = [...ids].sort((p, q) => p - q)
      near(
        segmentReduce(v.x, list(ids, integer), { numSegments: count, reduction }),
        want((t) => ids[t]),
        tolerance(dtype),
      )
      const runs = want((t) => sorted[t])
      for (const given of [{ lengths: list(lengths, integer) }, { offsets: list(offsets, integer) }])
        near(segmentReduce(v.x, { ...given, reduction }), runs, tolerance(dtype))
    }
  })

  test.each(own)("distances of $name $layout, positions of $integer.name", ({ dtype, f, integer }) => {
    const [p, q] = [given([X, 3], 1, dtype, f), given([B, 3], 2, dtype, f)]
    const loops = {
      euclidean: (i: number, j: number) => Math.sqrt(loops.squared(i, j)),
      squared: (i: number, j: number) =>
        [0, 1, 2].reduce((sum, axis) => sum + (p.at(i, axis) - q.at(j, axis)) ** 2, 0),
      cosine: (i: number, j: number) => {
        const sum = (h: (axis: number) => number): number => [0, 1, 2].reduce((s, axis) => s + h(axis), 0)
        const [dot, pp, qq] = [
          sum((k) => p.at(i, k) * q.at(j, k)),
          sum((k) => p.at(i, k) ** 2),
          sum((k) => q.at(j, k) ** 2),
        ]
        return 1 - dot / Math.sqrt(pp * qq)
      },
    }
    for (const metric of ["euclidean", "squared", "cosine"] as const) {
      near(
        indexedDistance(p.x, q.x, list(x, integer), list(b, integer), { metric }),
        x.map((i, t) => loops[metric](i, b[t])),
        tolerance(dtype),
      )
      near(
        pairwiseDistance(p.x, q.x, { metric }),
        Array.from({ length: X * B }, (_, n) => loops[metric](Math.floor(n / B), n % B)),
        tolerance(dtype),
      )
    }
  })

  test.each(own)("neighbours of $name $layout, offsets of $integer.name", ({ dtype, f, integer }) => {
    const [points, queries] = [given([30, 3], 1, dtype, f), given([12, 3], 2, dtype, f)]
    const [bounds, of] = [
      [0, 11, 11, 12, 30],
      [0, 3, 4, 6, 12],
    ]
    const square = (i: number, j: number): number =>
      [0, 1, 2].reduce((sum, k) => sum + (points.at(i, k) - queries.at(j, k)) ** 2, 0)
    const own = (i: number, j: number): number =>
      [0, 1, 2].reduce((sum, k) => sum + (points.at(i, k) - points.at(j, k)) ** 2, 0)
    const filled = (l: number[], k: number): number[] =>
      [...l, ...new Array<number>(Math.max(0, k - l.length)).fill(-1)].slice(0, k)
    const nearest: number[] = []
    const inside: number[] = []
    const far: number[] = []
    for (let cloud = 0; cloud < 4; cloud++) {
      const all = Array.from({ length: bounds[cloud + 1] - bounds[cloud] }, (_, k) => bounds[cloud] + k)
      for (let j = of[cloud]; j < of[cloud + 1]; j++) {
        nearest.push(
          ...filled(
            [...all].sort((i, k) => square(i, j) - square(k, j) || i - k),
            4,
          ),
        )
        inside.push(
          ...filled(
            all.filter((i) => square(i, j) <= 0.7 ** 2),
            4,
          ),
        )
      }
      const chosen = all.slice(0, 1)
      while (chosen.length < Math.min(5, all.length)) {
        const least = (i: number): number =>
          chosen.includes(i) ? -1 : Math.min(...chosen.map((c) => own(i, c)))
        chosen.push(all.reduce((best, i) => (least(i) > least(best) ? i : best), all[0]))
      }
      far.push(...filled(chosen, 5))
    }
    const clouds = { offsets: list(bounds, integer), queryOffsets: list(of, integer) }
    expect(knn(points.x, queries.x, 4, clouds).flatten().tolist()).toEqual(nearest)
    expect(ballQuery(points.x, queries.x, 0.7, 4, clouds).flatten().tolist()).toEqual(inside)
    expect(farthestPointSampling(points.x, 5, { offsets: clouds.offsets }).flatten().tolist()).toEqual(far)
  })
})
