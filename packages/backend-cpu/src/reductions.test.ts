// Variances and the indices of extremes by the kernels, against the reference, over axes, layouts, dtypes and sizes that take every path.
import "./index"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"

function onReference(f: () => mx.Array): number[] {
  mx.setBackend("reference")
  try {
    return [...(f().astype(mx.float64).toTypedArray() as Float64Array)]
  } finally {
    mx.setBackend("cpu")
  }
}
const onKernel = (f: () => mx.Array): number[] => [...(f().astype(mx.float64).toTypedArray() as Float64Array)]
const wave = (n: number): Float32Array => Float32Array.from({ length: n }, (_, i) => 3 + Math.sin(i * i + 1))

const tolerances = { float32: 2e-6, float64: 1e-13, float16: 2e-3, bfloat16: 1e-2 }
const shapes = [[1], [7], [300], [5000], [9, 33], [33, 2100], [3, 70, 20], [2, 3, 5, 17]]
const axesOf = (ndim: number): number[][] => [
  ...Array.from({ length: ndim }, (_, i) => [i]),
  Array.from({ length: ndim }, (_, i) => i),
  ...(ndim > 2
    ? [
        [0, 2],
        [1, 2],
      ]
    : []),
]

test("variance agrees with the reference over any axes and in any layout", () => {
  for (const shape of shapes) {
    const data = wave(shape.reduce((a, b) => a * b, 1))
    for (const dtype of [mx.float32, mx.float64, mx.float16, mx.bfloat16])
      for (const axes of axesOf(shape.length))
        for (const view of [
          (x: mx.Array) => x,
          (x: mx.Array) => x.T,
          (x: mx.Array) => x.index("::-2"),
          (x: mx.Array) => mx.broadcastTo(x.index(":1"), x.shape),
        ].slice(0, dtype === mx.float32 ? 4 : 1)) {
          const f = (): mx.Array => mx.var(view(mx.array(data).astype(dtype).reshape(shape)), axes)
          const want = onReference(f)
          onKernel(f).forEach((v, i) => {
            expect(Math.abs(v - want[i])).toBeLessThanOrEqual(
              tolerances[dtype.name as "float32"] * Math.max(1, Math.abs(want[i])),
            )
          })
        }
  }
})

test("variance keeps its digits far from zero, whatever the order of the numbers", () => {
  // Numbers around 10⁴ with a variance of 1/12, in order: the mean of a block is not the mean of all.
  const n = 300_000
  const ramp = mx.arange(n).divide(n).add(10_000)
  const exact = onReference(() => mx.var(ramp.astype(mx.float64)))[0]
  for (const x of [ramp, ramp.reshape([n / 100, 100]), ramp.reshape([100, n / 100]).T])
    expect(Math.abs((mx.var(x).item() as number) / exact - 1)).toBeLessThan(1e-6)
  const columns = onKernel(() => mx.var(ramp.reshape([n / 100, 100]), 0))
  const each = onReference(() => mx.var(ramp.astype(mx.float64).reshape([n / 100, 100]), 0))
  for (let i = 0; i < 100; i++) expect(Math.abs(columns[i] / each[i] - 1)).toBeLessThan(1e-6)
})

test("variance of levels so far apart that their squares overflow between blocks", () => {
  const levels = mx.concatenate([mx.zeros([1024]), mx.ones([9216]).multiply(1e18)])
  const exact = onReference(() => mx.var(levels.astype(mx.float64)))[0]
  expect(Math.abs((mx.var(levels).item() as number) / exact - 1)).toBeLessThan(1e-5)
})

test("variance of nothing, of one, and of what is not finite", () => {
  expect(mx.var(mx.zeros([0])).item()).toBeNaN()
  expect(mx.var(mx.zeros([3, 0]), 1).tolist()).toEqual([Number.NaN, Number.NaN, Number.NaN])
  expect(mx.var(mx.zeros([0, 3]), 1).tolist()).toEqual([])
  expect(mx.var(mx.array([5]), null as never, false, 1).item()).toBeNaN()
  expect(mx.var(mx.array([1, Number.NaN])).item()).toBeNaN()
  expect(mx.var(mx.array([1, Number.POSITIVE_INFINITY])).item()).toBeNaN()
  expect(mx.var(mx.array(3)).item()).toBe(0)
  expect(mx.var(mx.array([1, 2, 4]), 0, false, 1).item()).toBeCloseTo(7 / 3, 6)
})

test("argmax and argmin find the first extreme, or the first NaN, along every axis", () => {
  const dtypes = [mx.int8, mx.uint8, mx.int16, mx.uint32, mx.int32, mx.int64, mx.uint64, mx.bool_]
  const floats = [mx.float16, mx.bfloat16, mx.float32, mx.float64]
  for (const shape of [
    [300, 40],
    [3, 5, 300],
    [2, 700],
  ]) {
    const n = shape.reduce((a, b) => a * b, 1)
    const data = Float32Array.from({ length: n }, (_, i) => (i * 7919) % 50)
    for (const dtype of [...dtypes, ...floats]) {
      const broken = floats.some((each) => each === dtype)
        ? data.map((v, i) => (i % 997 === 500 ? Number.NaN : v))
        : data
      for (const values of [data, broken])
        for (let axis = 0; axis < shape.length; axis++)
          for (const op of [mx.argmax, mx.argmin]) {
            const f = (): mx.Array => op(mx.array(values).astype(dtype).reshape(shape), axis)
            expect(onKernel(f)).toEqual(onReference(f))
          }
    }
  }
})

test("sums down columns take every number once", () => {
  for (const [rows, columns] of [
    [1, 5000],
    [3, 4097],
    [8, 17],
    [9, 4096],
    [65, 100],
    [500, 300],
    [2000, 33],
  ])
    for (const dtype of [mx.float32, mx.float16, mx.int32]) {
      const x = mx
        .arange(rows * columns)
        .remainder(11)
        .astype(dtype)
        .reshape([rows, columns])
      const f = (): mx.Array => x.sum(0).astype(mx.float64)
      const g = (): mx.Array => x.max(0).astype(mx.float64)
      const exact = onKernel(() => x.astype(mx.float64).sum(0).astype(dtype).astype(mx.float64))
      expect(onKernel(f)).toEqual(exact)
      expect(onKernel(g)).toEqual(onReference(() => x.max(0)))
    }
})

test("extremes of long rows: infinities, ties, NaN anywhere, the first and the last", () => {
  const n = 1700
  const row = (change: (x: Float32Array) => unknown): Float32Array => {
    const x = Float32Array.from({ length: n }, (_, i) => ((i * 7919) % 601) - 300)
    change(x)
    return x
  }
  const { POSITIVE_INFINITY: high, NEGATIVE_INFINITY: low, NaN: nan } = Number
  const rows = [
    row(() => {}),
    row((x) => x.fill(low)),
    row((x) => x.fill(high)),
    row((x) => x.fill(-0).fill(0, 900)),
    row((x) => x.fill(low, 0, n - 1)),
    row((x) => (x[n - 1] = 1000)),
    row((x) => (x[1535] = -1000)),
    row((x) => (x[600] = x[1100] = 1000)),
    row((x) => (x[900] = x[1600] = high)),
    row((x) => {
      x[70] = low
      x[1690] = high
    }),
    ...[0, 511, 512, 1023, 1536, n - 1].map((at) => row((x) => (x[at] = nan))),
    row((x) => {
      x[1200] = nan
      x.set([high, low], 3)
    }),
  ]
  for (const dtype of [mx.float32, mx.float16, mx.bfloat16, mx.float64, mx.int32]) {
    const kept = dtype === mx.int32 ? rows.filter((x) => x.every(Number.isFinite)) : rows
    const x = mx.stack(kept.map((r) => mx.array(r))).astype(dtype)
    for (const op of [mx.argmax, mx.argmin, mx.max, mx.min])
      for (const length of [n, 1024, 700, 65, 64]) {
        const f = (): mx.Array => op(x.index(":", `:${length}`), 1)
        // It is open which zero is larger.
        expect(onKernel(f).map((v) => v + 0)).toEqual(onReference(f).map((v) => v + 0))
      }
  }
})

test("variance of rows whose level changes behind their first elements", () => {
  for (const [level, from] of [
    [1e6, 1024],
    [-3e4, 1000],
    [1e6, 5120],
    [50, 9000],
  ]) {
    const x = wave(10_000).map((v, i) => (i < from ? v : v + level))
    const got = onKernel(() => mx.var(mx.array(x)))[0]
    const want = onReference(() => mx.var(mx.array(x).astype(mx.float64)))[0]
    expect(Math.abs(got / want - 1)).toBeLessThan(5e-6)
  }
})
