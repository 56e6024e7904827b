/**
 * float64 on the test double: elementwise work, reductions and products have kernels, and give what the reference gives to 1e-9.
 */
import "../test/double"
import { compile } from "@lazuli/compile"
import { backendSuite, formatChecks } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import "./index"

beforeAll(() => mx.setBackend("cuda", "gpu"))

const near = (f: (x: mx.Array) => mx.Array): void => {
  const run = (): Float64Array => {
    const x = mx.arange(1, 41).astype(mx.float64).divide(7).reshape(5, 8)
    return (compile(f)(x) as mx.Array).astype(mx.float64).flatten().toTypedArray() as Float64Array
  }
  const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, run))
  expect(got.length).toBe(want.length)
  got.forEach((v, i) => {
    if (!(Math.abs(v - want[i]) <= 1e-12 * (1 + Math.abs(want[i])))) expect([i, v]).toEqual([i, want[i]])
  })
}

it("keeps its digits through functions, reductions, casts and products", () => {
  mx.resetBackendStats()
  near((x) =>
    mx
      .exp(mx.sin(x))
      .add(mx.log1p(x).multiply(1 / 3))
      .divide(mx.sqrt(x)),
  )
  near((x) =>
    mx
      .erf(x)
      .add(mx.tanh(x))
      .add(mx.sigmoid(x))
      .add(mx.arctan2(x, x.add(1))),
  )
  near((x) => mx.power(x, 1.5).add(mx.remainder(x, 0.7)).add(mx.logaddexp(x, x.negative())))
  near((x) => x.sum(0).add(x.sum(1).sum()).add(x.prod(0)))
  near((x) => mx.max(x.subtract(3), 1).add(mx.min(x.transpose(), 0)))
  near((x) =>
    mx
      .argmax(mx.cos(x), 1)
      .astype(mx.float64)
      .add(mx.all(x.multiply(1e-300), 1)),
  )
  near((x) => x.multiply(1e15).astype(mx.int64).astype(mx.float64).add(x.astype(mx.float32)))
  near((x) => x.matmul(x.transpose()))
  near((x) => mx.where(x.greater(2), x, mx.array(1 / 3, mx.float64)))
  expect(mx.backendStats().cuda).toBeUndefined()
}, 240_000)

it("is the reference's for special values", () => {
  const reports = backendSuite("cuda", {
    primitives: ["min"],
    sizes: [33],
    dtypes: [mx.float64],
    fillings: ["special"],
    layouts: ["transposed"],
  })
  expect(formatChecks(reports.filter(({ ok }) => !ok))).toBe(formatChecks([]))
}, 240_000)
