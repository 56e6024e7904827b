// Running sums of rows that are cut into pieces, and rows gathered from and scattered to many rows, against plain loops.
import "./index"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"

/** A number below n that looks random; the same in every run. */
const scrambled = (i: number, n: number): number => (Math.imul(i + 1, 2654435761) >>> 0) % n

function runningSums(x: ArrayLike<number>, reverse: boolean, inclusive: boolean): Float64Array {
  const sums = new Float64Array(x.length)
  let total = 0
  for (let k = 0; k < x.length; k++) {
    const i = reverse ? x.length - 1 - k : k
    sums[i] = inclusive ? total + x[i] : total
    total += x[i]
  }
  return sums
}

test("running sums of long rows agree with a loop, forwards and backwards, with and without the element itself", () => {
  const n = 140_003
  const numbers = Float32Array.from({ length: n }, (_, i) => scrambled(i, 2001) / 1000 - 0.5)
  for (const dtype of [mx.float32, mx.bfloat16, mx.int8, mx.int32])
    for (const [reverse, inclusive] of [
      [false, true],
      [false, false],
      [true, false],
    ]) {
      const x = mx.array(numbers).multiply(8).astype(dtype)
      const want = runningSums(x.astype(mx.float64).toTypedArray() as Float64Array, reverse, inclusive)
      const got = mx.cumsum(x, 0, { reverse, inclusive }).astype(mx.float64).toTypedArray() as Float64Array
      const rounding = dtype === mx.float32 ? 2 ** -24 : dtype === mx.bfloat16 ? 2 ** -8 : 1e-12
      let worst = 0
      for (let i = 0; i < n; i++) {
        const exact = dtype === mx.int8 ? (want[i] << 24) >> 24 : want[i]
        worst = Math.max(worst, Math.abs(got[i] - exact) / (Math.abs(exact) + 1e-3))
      }
      expect(worst).toBeLessThanOrEqual(rounding)
    }
  const counts = mx.cumsum(mx.ones([n], mx.bool), 0)
  expect(counts.index(-1).item()).toBe(n)
})

test("several long rows, and infinities on the way", () => {
  const n = 140_000
  const rows = mx.ones([3, n]).add(mx.arange(3).reshape([3, 1]))
  const sums = mx.cumsum(rows, 1)
  for (const row of [0, 1, 2]) expect(sums.index(row, -1).item()).toBe(n * (row + 1))
  const data = new Float32Array(n).fill(1)
  data[70_001] = Infinity
  data[70_005] = -Infinity
  const got = mx.cumsum(mx.array(data), 0).toTypedArray() as Float32Array
  expect([70_000, 70_001, 70_004, 70_005, n - 1].map((i) => got[i])).toEqual([
    70_001,
    Infinity,
    Infinity,
    NaN,
    NaN,
  ])
  const before = mx.cumsum(mx.array(data), 0, { inclusive: false }).toTypedArray() as Float32Array
  expect([70_001, 70_002, 70_005, 70_006].map((i) => before[i])).toEqual([70_001, Infinity, Infinity, NaN])
})

test("running sums of short rows, and of rows larger than the caches", () => {
  for (const length of [1, 3, 15, 16, 37])
    for (const [dtype, inclusive] of [
      [mx.float32, true],
      [mx.float32, false],
      [mx.float16, true],
      [mx.bfloat16, false],
    ] as const) {
      const all = mx.arange(5 * length).remainder(7)
      const x = all.astype(dtype).reshape([5, length])
      const got = mx.cumsum(x, 1, { inclusive }).tolist() as number[][]
      const want = (x.tolist() as number[][]).map((row) => [...runningSums(row, false, inclusive)])
      expect(got).toEqual(want)
    }
  const n = 4_300_003
  const got = mx.cumsum(mx.arange(n).remainder(3).astype(mx.float32), 0).toTypedArray() as Float32Array
  let wrong = 0
  for (let i = 0, total = 0; i < n; i++) {
    total += i % 3
    if (got[i] !== total) wrong++
  }
  expect(wrong).toBe(0)
})

test("gathered rows, few and more than the caches hold", () => {
  const table = mx.arange(3000 * 64).reshape([3000, 64])
  for (const [dtype, width, count] of [
    [mx.float32, 64, 140_000],
    [mx.float32, 37, 1000],
    [mx.float64, 64, 77],
    [mx.uint8, 64, 1000],
    [mx.int16, 33, 5000],
  ] as const) {
    const x = mx.contiguous(table.index(":", `:${width}`).astype(dtype))
    const order = Int32Array.from({ length: count }, (_, i) => scrambled(i, 3000))
    const got = x.take(mx.array(order), 0).toTypedArray() as Float32Array
    const from = x.toTypedArray() as Float32Array
    let wrong = 0
    for (let i = 0; i < count; i++)
      for (let j = 0; j < width; j++) if (got[i * width + j] !== from[order[i] * width + j]) wrong++
    expect(wrong).toBe(0)
  }
})

test.each(["mixed", "ascending", "ascending but one", "alike", "none for many rows"])(
  "scattered rows are added in the order of their indices, which are %s",
  (kind) => {
    const [targets, width, count] = [700, 40, 9001]
    const order = Int32Array.from({ length: count }, (_, i) => scrambled(i, targets))
    if (kind === "alike") order.fill(3)
    if (kind === "none for many rows") order.forEach((row, i) => (order[i] = row - (row % 90)))
    if (kind !== "mixed") order.sort()
    if (kind === "ascending but one") order[count - 2] = 0
    const updates = Float32Array.from({ length: count * width }, (_, i) => scrambled(i, 1000) / 999)
    const [x, y] = [mx.zeros([targets, width]), mx.array(updates).reshape([count, width])]
    const got = x.at(mx.array(order)).add(y).toTypedArray() as Float32Array
    const most = x.at(mx.array(order)).maximum(y).toTypedArray() as Float32Array
    const [want, largest] = [new Float32Array(targets * width), new Float32Array(targets * width)]
    for (let i = 0; i < count; i++)
      for (let j = 0; j < width; j++) {
        const to = order[i] * width + j
        want[to] += updates[i * width + j]
        largest[to] = Math.max(largest[to], updates[i * width + j])
      }
    expect(got).toEqual(want)
    expect(most).toEqual(largest)
  },
)
