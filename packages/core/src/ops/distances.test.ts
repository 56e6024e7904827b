import { grad, jvp, vmap } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import * as mx from "../index"

const a = mx.array([
  [1, 2, -3],
  [0, 0, 0],
  [4, -1, 2],
])
const b = mx.array([
  [0, 0, 0],
  [1, 2, -3],
])
const flat = (x: mx.Array): number[] => x.flatten().tolist() as number[]
const numbers = [0, 0.5, 1, 2, 3, Number.POSITIVE_INFINITY]

function expected(x: number[], y: number[], p: number): number {
  const d = x.map((v, i) => Math.abs(v - y[i]))
  if (p === 0) return d.filter((v) => v !== 0).length
  if (p === Number.POSITIVE_INFINITY) return Math.max(...d)
  return d.reduce((sum, v) => sum + v ** p, 0) ** (1 / p)
}

describe("cdist", () => {
  test.each(numbers)("p = %s", (p) => {
    const [rows, others] = [a.tolist(), b.tolist()] as number[][][]
    const want = rows.flatMap((x) => others.map((y) => expected(x, y, p)))
    flat(mx.cdist(a, b, p)).forEach((v, i) => {
      expect(v).toBeCloseTo(want[i], 4)
    })
  })
  test.each(numbers)("derivatives with p = %s are finite, and 0 between equal rows", (p) => {
    const slopes = grad((x: mx.Array, y: mx.Array) => mx.cdist(x, y, p).sum(), [0, 1])(a, a) as [
      mx.Array,
      mx.Array,
    ]
    for (const g of slopes) expect(flat(g).every(Number.isFinite)).toBe(true)
    expect(flat(grad((x: mx.Array) => mx.cdist(x, b.index("0:1"), p).sum())(b.index("0:1")))).toEqual([
      0, 0, 0,
    ])
    const [, [t]] = jvp((x: mx.Array) => mx.cdist(x, x, p), [b], [mx.ones([2, 3])])
    expect(flat(t).every((v) => v === 0)).toBe(true)
  })
  test("the gradient of Euclid's distance is the direction", () => {
    const g = grad((x: mx.Array) => mx.cdist(x, mx.zeros([1, 2])).sum())(mx.array([[3, 4]]))
    expect(flat(g).map((v) => Math.round(v * 1e6) / 1e6)).toEqual([0.6, 0.8])
  })
  test("batches broadcast and map", () => {
    const x = mx.arange(24).reshape([2, 1, 3, 4])
    const y = mx.arange(40).reshape([5, 2, 4])
    expect(mx.cdist(x, y).shape).toEqual([2, 5, 3, 2])
    const mapped = vmap((r: mx.Array) => mx.cdist(r, y), { inAxes: 0 })(x)
    expect(flat(mapped)).toEqual(flat(mx.cdist(x, y)))
  })
  test("rows in parts are the same rows", () => {
    const x = mx.random.normal([300, 64], { key: mx.random.key(1) })
    const y = mx.random.normal([400, 64], { key: mx.random.key(2) })
    const whole = mx.cdist(x, y)
    expect(mx.allclose(whole.index("290:"), mx.cdist(x.index("290:"), y)).item()).toBe(true)
  })
  test("sizes of 0, dtypes and errors", () => {
    expect(mx.cdist(mx.ones([0, 3]), mx.ones([2, 3])).shape).toEqual([0, 2])
    expect(mx.cdist(mx.ones([2, 3]), mx.ones([0, 3])).shape).toEqual([2, 0])
    for (const p of numbers) expect(flat(mx.cdist(mx.ones([1, 0]), mx.ones([2, 0]), p))).toEqual([0, 0])
    expect(mx.cdist(mx.ones([1, 2], mx.int32), mx.ones([1, 2], mx.int32)).dtype).toBe(mx.float32)
    expect(flat(mx.cdist(mx.full([1, 2], 300, mx.float16), mx.zeros([1, 2], mx.float16)))).toEqual([424.25])
    expect(() => mx.cdist(mx.ones([3]), mx.ones([2, 3]))).toThrow(
      "[cdist] needs matrices with rows of the same length",
    )
    expect(() => mx.cdist(a, mx.ones([2, 4]))).toThrow("received shapes (3, 3) and (2, 4)")
    expect(() => mx.cdist(a, b, -1)).toThrow("[cdist] p must be a number of at least 0, received -1")
  })
})
