/**
 * The gradient of max and min on the CPU: rows, columns, pieces and strides, with ties and NaN.
 */
import * as mx from "@lazuli/core"
import { vjp } from "@lazuli/transforms"
import { expect, test } from "vitest"
import "./index"

/** Few values, so that extremes are shared. */
const values = (shape: number[], dtype: mx.Dtype): mx.Array =>
  mx.random.randint(0, 5, { shape, key: mx.random.key(7) }).astype(dtype)
const slope = (f: (x: mx.Array) => mx.Array, x: mx.Array): mx.Array => {
  const y = f(x)
  return vjp(f, [x], [mx.arange(y.size).add(1).reshape(y.shape).astype(y.dtype)])[1][0]
}
/** The same from its definition. */
function expected(x: mx.Array, axes: number[], name: "max" | "min"): mx.Array {
  const wide = x.astype(mx.float64)
  const y = wide[name](axes, true)
  const g = mx.arange(y.size).add(1).reshape(y.shape).astype(x.dtype).astype(mx.float64)
  const hit = wide.equal(y).astype(mx.float64)
  return hit.multiply(g.divide(hit.sum(axes, true)))
}

const shapes: [number[], number[]][] = [
  [[3, 5], [1]],
  [[3, 5], [0]],
  [[300, 70], [1]],
  [[300, 700], [0]],
  [[3, 700], [0]],
  [[200_000], [0]],
  [[2, 150_000], [1]],
  [
    [400, 500],
    [0, 1],
  ],
  [
    [2, 6, 2, 6, 2, 9],
    [2, 4],
  ],
  [
    [5, 4, 3, 7],
    [0, 2],
  ],
  [[3, 70, 600], [1]],
  [[3, 20_000], [1]],
  [
    [40, 300, 50],
    [1, 2],
  ],
  [[1, 9, 1], [0]],
]
test.each(shapes)("of shape %j along %j", (shape, axes) => {
  for (const dtype of [mx.float32, mx.float64, mx.bfloat16, mx.float16])
    for (const name of ["max", "min"] as const) {
      const x = values(shape, dtype)
      const views: [mx.Array, number[]][] = [
        [x, axes],
        [x.transpose(), axes.map((axis) => shape.length - 1 - axis)],
        [x.index("::-1"), axes],
      ]
      for (const [view, along] of views) {
        const got = slope((a) => a[name](along), view)
        expect(got.dtype).toBe(dtype)
        const tolerance = dtype.size === 2 ? 1e-2 : 1e-6
        const want = expected(view, along, name)
        expect(
          mx.allclose(got.astype(mx.float64), want, tolerance, 1e-30).item(),
          `${dtype.name} ${name}`,
        ).toBe(true)
      }
    }
})

test("NaN makes its cell NaN; an infinite cotangent makes NaN elsewhere", () => {
  const x = mx.array([
    [1, Number.NaN],
    [2, 2],
    [3, 4],
  ])
  const [, [g]] = vjp((a: mx.Array) => a.max(1), [x], [mx.array([1, 1, Number.POSITIVE_INFINITY])])
  expect(g.tolist()).toEqual([
    [Number.NaN, Number.NaN],
    [0.5, 0.5],
    [Number.NaN, Number.POSITIVE_INFINITY],
  ])
})

test("of large cells with one extreme, several, and NaN", () => {
  const large: [number[], number[]][] = [
    [[3, 20_000], [1]],
    [
      [40, 300, 50],
      [1, 2],
    ],
  ]
  for (const [shape, axes] of large) {
    const normal = mx.random.normal(shape, { key: mx.random.key(5) })
    const cells = mx.arange(shape[0]).reshape([-1, ...axes.map(() => 1)])
    const ties = mx.where(cells.equal(1), normal.multiply(2).round(), normal)
    const first = mx
      .arange(normal.size)
      .reshape(shape)
      .remainder(normal.size / shape[0])
    const x = mx.where(cells.equal(2).logicalAnd(first.equal(9_999)), Number.NaN, ties)
    for (const name of ["max", "min"] as const)
      for (const view of [x, x.index("::-1")]) {
        const got = slope((a) => a[name](axes), view).astype(mx.float64)
        const want = expected(view, axes, name)
        expect(mx.allclose(got, want, 1e-6, 1e-30, { equalNan: true }).item(), `${shape} ${name}`).toBe(true)
      }
  }
})

test("down columns of which few or none have two extremes", () => {
  for (const [few, dtype] of [
    [[], mx.float32],
    [[0, 5, 699], mx.float32],
    [[3], mx.float64],
  ] as [number[], mx.Dtype][]) {
    let x = mx.random.normal([300, 700], { key: mx.random.key(3) }).astype(dtype)
    const rows = mx.arange(300).reshape([300, 1])
    const ties = few.reduce(
      (at, column) => at.logicalOr(mx.arange(700).equal(column)),
      mx.zeros([700], mx.bool),
    )
    x = mx.where(ties.logicalAnd(rows.remainder(100).equal(7)), mx.array(9, dtype), x)
    const got = slope((a) => a.max(0), x)
    expect(mx.allclose(got.astype(mx.float64), expected(x, [0], "max"), 1e-6, 1e-6).item()).toBe(true)
  }
})

test("of more than the caches hold, with rows that begin anywhere", () => {
  const x = mx.random.normal([2100, 2003], { key: mx.random.key(1) })
  for (const axis of [0, 1])
    for (const view of [x, x.index("::-1")]) {
      const got = slope((a) => a.max(axis), view)
      expect(mx.arrayEqual(got, expected(view, [axis], "max").astype(mx.float32)).item()).toBe(true)
    }
})
