/** Derivatives of products of x with several updates of one element: those of a product of the same numbers. */
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { grad, hessian, jacfwd, jacrev, vmap } from "./index"

const X = [2, -1, 0, 3, 0.5, 4]
const U = [0, 3, -2, 0, 5, 0, 0.5, 1, -1, 2]
const x = mx.array(X, mx.float64).reshape([3, 2])
const u = mx.array(U, mx.float64).reshape([5, 2])
const rows = [2, 0, 2, -1, 0]
const weights = mx.array([1, 2, 3, 4, 5, 6], mx.float64).reshape([3, 2])

const updated = (a: mx.Array, v: mx.Array): mx.Array =>
  a.at(mx.array(rows, mx.int32)).multiply(v).multiply(weights).sum()
const multiplied = (a: mx.Array, v: mx.Array): mx.Array =>
  mx
    .stack(
      [0, 1, 2].map((row) => {
        const own = rows.flatMap((r, i) => ((r + 3) % 3 === row ? [v.index(i)] : []))
        return mx.stack([a.index(row), ...own]).prod(0)
      }),
    )
    .multiply(weights)
    .sum()

test("derivatives of any order are those of a product, at zeros too", () => {
  const orders: ((f: typeof updated) => mx.Array)[] = [
    (f) => f(x, u),
    (f) => grad(f, 0)(x, u),
    (f) => grad(f, 1)(x, u),
    (f) => hessian((v: mx.Array) => f(x, v))(u),
    (f) => jacfwd((v: mx.Array) => jacfwd((w: mx.Array) => f(x, w))(v))(u),
    (f) => jacrev((a: mx.Array) => grad(f, 1)(a, u))(x),
    (f) => jacfwd((v: mx.Array) => grad(f, 0)(x, v))(u),
    (f) => jacrev(hessian((v: mx.Array) => f(x, v)))(u),
  ]
  // Zeros of either sign are equal.
  for (const order of orders)
    expect(order(updated).add(0).tolist()).toEqual(order(multiplied).add(0).tolist())
})

test("gradients agree with finite differences", () => {
  const g = grad(updated, 1)(x, u).flatten().tolist() as number[]
  U.forEach((_, i) => {
    const moved = (by: number) =>
      updated(
        x,
        mx
          .array(
            U.map((v, k) => (k === i ? v + by : v)),
            mx.float64,
          )
          .reshape([5, 2]),
      ).item() as number
    expect(g[i]).toBeCloseTo((moved(1e-6) - moved(-1e-6)) / 2e-6, 6)
  })
})

test("several index arrays, columns and batches of indices", () => {
  const [i, j] = [mx.array([[0, 1], [0, 0]], mx.int32), mx.array([[1, 0], [1, 1]], mx.int32)] // biome-ignore format: matrices
  const two = (v: mx.Array) => mx.full([2, 2], 3).at(i, j).multiply(v).sum()
  expect(grad(two)(mx.array([[2, 7], [0, 5]])).tolist()).toEqual([[0, 3], [30, 0]]) // biome-ignore format: matrices
  const columns = (v: mx.Array) => mx.scatter(mx.full([2, 2], 3), [1, 1], v, 1, { reduction: "prod" }).sum()
  expect(grad(columns)(mx.array([[0, 2], [4, 5]])).tolist()).toEqual([[6, 0], [15, 12]]) // biome-ignore format: matrices
  const at = (index: mx.Array, v: mx.Array) => grad((w: mx.Array) => x.at(index).multiply(w).sum())(v)
  const indices = mx.array([rows, [0, 1, 2, 0, 0], [1, 1, 1, 1, 1]], mx.int32)
  const values = mx.stack([u, u.add(1), u.multiply(2)])
  expect(vmap(at)(indices, values).tolist()).toEqual(
    [0, 1, 2].map((k) => at(indices.index(k), values.index(k)).tolist()),
  )
})

test("a product of the others that is finite is not computed from one that is not", () => {
  const both = mx.array([0, 0], mx.int32)
  const slopes = (own: number, v: number[], dtype: mx.Dtype) =>
    grad((w: mx.Array) => mx.full([1], own, dtype).at(both).multiply(w).sum())(mx.array(v, dtype)).tolist()
  expect(slopes(0.1, [300, 300], mx.float16)).toEqual([30, 30])
  expect(slopes(1e-30, [1e30, 1e30], mx.float32)).toEqual([1, 1])
  expect(slopes(1e30, [1e-30, 1e-30], mx.float32)).toEqual([1, 1])
  expect(slopes(1, [Number.POSITIVE_INFINITY, 2], mx.float32)).toEqual([2, Number.POSITIVE_INFINITY])
})

test("an infinite update leaves the derivatives of other elements alone", () => {
  const f = (v: mx.Array) =>
    mx
      .ones([2])
      .at(mx.array([0, 0, 1, 1], mx.int32))
      .multiply(v)
      .sum()
  const v = mx.array([Number.POSITIVE_INFINITY, 2, 3, 4])
  expect(hessian(f)(v).index("2:").tolist()).toEqual([[0, 0, 0, 1], [0, 0, 1, 0]]) // biome-ignore format: a matrix
})
