/** Products of float16 and bfloat16 matrices, which have ways of their own for few rows, against float32. */
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import "./index"

const numbers = (shape: number[], seed: number): mx.Array =>
  mx.random.uniform({ low: -1, high: 1, shape, key: mx.random.key(seed) })

describe.each([mx.float16, mx.bfloat16])("%s", (dtype) => {
  const close = (got: mx.Array, want: mx.Array): void => {
    expect([got.dtype, got.shape]).toEqual([dtype, want.shape])
    const bound =
      (dtype === mx.float16 ? 6e-4 : 5e-3) * (want.size > 0 ? (want.abs().max().item() as number) : 0)
    const error = got.size > 0 ? (got.astype(mx.float32).subtract(want).abs().max().item() as number) : 0
    expect(error).toBeLessThanOrEqual(bound)
  }
  const half = (shape: number[], seed: number): mx.Array => numbers(shape, seed).astype(dtype)
  const wide = (x: mx.Array): mx.Array => x.astype(mx.float32)

  test.each([
    [1, 1, 1],
    [1, 70, 33],
    [1, 1030, 600],
    [3, 257, 65],
    [17, 300, 130],
    [5, 600, 300],
    [300, 40, 50],
    [40, 33, 70],
    [1, 5, 0],
    [2, 0, 3],
    [2, 900, 700],
    [9, 1100, 600],
    [16, 130, 1050],
    [300, 200, 1],
    [1, 200, 1],
    [1, 127, 65],
    [1, 8193, 70],
    [1, 20001, 3],
    [4, 9001, 66],
    [24, 2801, 70],
  ])("%i × %i × %i", (m, k, n) => {
    const [a, b, t] = [half([m, k], 1), half([k, n], 2), half([n, k], 3)]
    close(a.matmul(b), wide(a).matmul(wide(b)))
    close(a.matmul(t.T), wide(a).matmul(wide(t).T))
    close(half([k, m], 4).T.matmul(b), wide(half([k, m], 4)).T.matmul(wide(b)))
    const c = half([n], 5)
    const want = wide(a).matmul(wide(t).T).multiply(0.5).add(wide(c).multiply(2))
    close(mx.addmm(c, a, t.T, 0.5, 2), want)
    const sum = wide(a).matmul(wide(b)).multiply(0.5).add(wide(c).multiply(2))
    close(mx.addmm(c, a, b, 0.5, 2), sum)
  })

  test("an infinity or a NaN at the end of a row", () => {
    const ones = mx.ones([70, 8225], dtype)
    for (const [last, want] of [
      [Infinity, Infinity],
      [-Infinity, -Infinity],
      [Number.NaN, Number.NaN],
    ]) {
      const row = mx.concatenate([mx.zeros([1, 8224], dtype), mx.full([1, 1], last, dtype)], 1)
      expect(row.matmul(ones.T).tolist()).toEqual([Array(70).fill(want)])
      expect(mx.ones([1, 8225], dtype).matmul(row.T).item()).toEqual(want)
    }
  })

  test("batches, broadcasts and views", () => {
    const a = half([3, 2, 1, 96], 1)
    for (const b of [
      half([3, 2, 96, 40], 2),
      half([2, 96, 40], 3),
      half([96, 40], 4),
      half([3, 2, 40, 96], 5).swapaxes(-1, -2),
    ])
      close(a.matmul(b), wide(a).matmul(wide(b)))
    const strided = half([192, 80], 6).index("::2", "::-2")
    close(a.matmul(strided), wide(a).matmul(wide(strided)))
    const rows = half([192, 40], 7).index("::2")
    close(a.matmul(rows), wide(a).matmul(wide(rows)))
    close(half([150, 2, 96], 8).matmul(rows), wide(half([150, 2, 96], 8)).matmul(wide(rows)))
    close(half([96], 9).matmul(rows), wide(half([96], 9)).matmul(wide(rows)))
    const columns = half([3, 2, 70, 1], 10)
    for (const x of [half([2, 90, 70], 11), half([3, 1, 70, 90], 12).swapaxes(-1, -2), half([90, 140], 13).index("...", "::2")]) // biome-ignore format: one line
      close(x.matmul(columns), wide(x).matmul(wide(columns)))
  })

  test("columns take any addend", () => {
    const a = half([2, 20, 17], 14).index("...", "::-1")
    const column = half([2, 17, 1], 15)
    const product = wide(a).matmul(wide(column))
    for (const shape of [[1], [20, 1], [2, 1, 1], [2, 20, 1]]) {
      const c = half(shape, 16)
      close(mx.addmm(c, a, column, 0.5, 2), product.multiply(0.5).add(wide(c).multiply(2)))
    }
  })

  test("infinities and NaN stay with their row", () => {
    const b = mx.where(mx.arange(64).equal(5).expandDims(1), Infinity, mx.ones([64, 20])).astype(dtype)
    expect(mx.ones([1, 64], dtype).matmul(b).index(0, 0).item()).toBe(Infinity)
    expect(mx.ones([1, 64], dtype).matmul(b.T.contiguous().T).index(0, 0).item()).toBe(Infinity)
    expect(
      mx
        .isnan(mx.zeros([1, 64], dtype).matmul(b))
        .all()
        .item(),
    ).toBe(true)
  })
})

test.each([
  [2, 900, 700],
  [7, 513, 1100],
  [9, 1100, 600],
  [16, 130, 1050],
])("few rows of float32, %i × %i × %i, against float64", (m, k, n) => {
  const [a, b, c] = [numbers([m, k], 1), numbers([k, n], 2), numbers([n], 3)]
  const wide = (x: mx.Array): mx.Array => x.astype(mx.float64)
  const far = (got: mx.Array, want: mx.Array): number => wide(got).subtract(want).abs().max().item() as number
  expect(far(a.matmul(b), wide(a).matmul(wide(b)))).toBeLessThan(1e-4)
  const want = wide(a).matmul(wide(b)).multiply(-0.5).add(wide(c).multiply(2))
  expect(far(mx.addmm(c, a, b, -0.5, 2), want)).toBeLessThan(1e-4)
})
