import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import "./index"

const values = (shape: number[], seed: number): mx.Array =>
  mx.random.normal(shape, { key: mx.random.key(seed) })

/** The definition, of differences that all exist at once. */
function defined(a: mx.Array, b: mx.Array, p: number): mx.Array {
  const d = a.expandDims(-2).subtract(b.expandDims(-3)).abs()
  if (p === 0) return d.notEqual(0).astype(d.dtype).sum(-1)
  if (p === Number.POSITIVE_INFINITY) return d.size === 0 ? d.sum(-1) : d.max(-1)
  return d
    .power(p)
    .sum(-1)
    .power(1 / p)
}

describe.each([0, 1, 2, 2.5, Number.POSITIVE_INFINITY])("cdist with p = %s", (p) => {
  test.each([
    [
      [1, 1],
      [1, 1],
    ],
    [
      [5, 3],
      [130, 3],
    ],
    [
      [19, 17],
      [257, 17],
    ],
    [
      [2, 3, 7, 4],
      [2, 3, 40, 4],
    ],
    [
      [3, 0],
      [4, 0],
    ],
    [
      [0, 3],
      [4, 3],
    ],
  ])("of %j and %j", (left, right) => {
    const [a, b] = [values(left, 1), values(right, 2)]
    const found = mx.cdist(a, b, p)
    expect(found.shape).toEqual([...left.slice(0, -1), right[right.length - 2]])
    expect(mx.allclose(found, defined(a, b, p), { rtol: 1e-4, atol: 1e-5 }).item()).toBe(true)
  })

  test("of strided rows, halves and doubles", () => {
    const [a, b] = [values([6, 20], 3).T, values([150, 12], 4).index(":", "::2")]
    const wanted = defined(a, b, p)
    expect(mx.allclose(mx.cdist(a, b, p), wanted, { rtol: 1e-4, atol: 1e-5 }).item()).toBe(true)
    for (const [dtype, rtol] of [
      [mx.float16, 4e-3],
      [mx.bfloat16, 3e-2],
      [mx.float64, 1e-6],
    ] as const) {
      const [x, y] = [a.astype(dtype), b.astype(dtype)]
      const found = mx.cdist(x, y, p)
      expect(found.dtype).toBe(dtype)
      const exact = defined(x.astype(mx.float64), y.astype(mx.float64), p)
      expect(mx.allclose(found.astype(mx.float64), exact, { rtol, atol: rtol }).item()).toBe(true)
    }
  })
})

test("NaN and infinities are as in the definition", () => {
  const a = mx.array([
    [Number.NaN, 1],
    [1, 2],
    [Number.POSITIVE_INFINITY, 0],
  ])
  const b = mx.array([
    [1, 2],
    [0, 0],
  ])
  for (const p of [1, 2, Number.POSITIVE_INFINITY])
    expect(mx.arrayEqual(mx.cdist(a, b, p), defined(a, b, p), { equalNan: true }).item()).toBe(true)
  expect(mx.cdist(a, b, 0).tolist()).toEqual([
    [2, 2],
    [0, 2],
    [2, 1],
  ])
})
