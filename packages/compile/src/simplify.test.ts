/** Simplification, by what explanations show of programs; that values stay the same is tested on backends. */
import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { expect, test } from "vitest"
import { compile } from "./compile"

const stepsOf = (f: (x: mx.Array) => unknown, x = mx.ones([2, 3])): string[] =>
  compile(f as (x: mx.Array) => mx.Array)
    .explain(x)
    .steps.flatMap(({ operations }) => operations)

test("equal applications run once", () => {
  expect(stepsOf((x) => x.sum(0).add(x.sum(0)))).toEqual(["sum", "squeeze", "add"])
  expect(stepsOf((x) => [x.sort(1), x.sort(0)])).toEqual(["sort", "sort"])
})

test("applications that no result needs do not run", () => {
  expect(
    stepsOf((x) => {
      x.sort(0)
      return x.cumsum(1)
    }),
  ).toEqual(["cumsum"])
})

test("operations that change nothing are dropped", () => {
  expect(stepsOf((x) => x.astype(mx.float32).multiply(1).T.T.sort(1))).toEqual(["sort"])
})

test("of large rows one element is picked before the work on them, and rows of one element are elementwise", () => {
  const index = mx.array([[3], [-1]], mx.int32)
  const f = (x: mx.Array): mx.Array => mx.takeAlongAxis(x.subtract(1).exp(), index, 1)
  const g = (x: mx.Array): mx.Array =>
    mx.putAlongAxis(mx.zeros(x.shape), index, mx.takeAlongAxis(x, index, 1), 1)
  const large = mx
    .arange(2 << 20)
    .reshape([2, -1])
    .multiply(1e-6)
  expect(stepsOf(f, large)[0]).toBe("takeAlongAxis")
  expect(stepsOf(g, large)).not.toContain("putAlongAxis")
  expect(stepsOf(g, mx.ones([2, 4]))).toContain("putAlongAxis")
  for (const each of [f, g]) expect(mx.arrayEqual(compile(each)(large), each(large)).item()).toBe(true)
})

test("constants of constants are computed at the trace", () => {
  const steps = stepsOf((x) => x.add(mx.array(2).multiply(3)))
  expect(steps.filter((name) => name === "multiply").length).toBeLessThanOrEqual(1)
  expect(compile((x: mx.Array) => x.add(mx.array(2).multiply(3)))(mx.ones([2])).tolist()).toEqual([7, 7])
})

test("an index of few bits finds its position in rows that it cannot number", () => {
  const n = 70_000
  const zeros = (): mx.Array => mx.zeros([16, n])
  for (const dtype of [mx.uint8, mx.int8, mx.uint16, mx.int16]) {
    const index = mx
      .arange(16)
      .reshape([16, 1])
      .subtract(dtype.kind === "signed" ? 8 : 0)
      .astype(dtype)
    const put = (i: mx.Array): mx.Array => mx.putAlongAxis(zeros(), i, mx.array(2), 1)
    expect(stepsOf(put, index)).not.toContain("putAlongAxis")
    expect(mx.arrayEqual(compile(put)(index), put(index)).item(), dtype.name).toBe(true)
    const slope = grad((x: mx.Array) => mx.takeAlongAxis(x, index, 1).sum())
    expect(mx.arrayEqual(compile(slope)(zeros()), slope(zeros())).item(), dtype.name).toBe(true)
  }
})

test("a constant read as another dtype is not that constant, also where it is read back", () => {
  const shifted = (): mx.Array => mx.full([4], 1, mx.float32).view(mx.uint8).index("2:14").view(mx.float32)
  const f = (x: mx.Array): mx.Array => shifted().multiply(2).add(x)
  const x = mx.zeros([3])
  expect(compile(f)(x).tolist()).toEqual(f(x).tolist())
  expect(f(x).index(0).item()).not.toBe(2)
})
