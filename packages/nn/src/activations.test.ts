import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { expect, test } from "vitest"
import * as nn from "./index"

test.each([
  ["gelu", nn.gelu, 60_000],
  ["geluApprox", nn.geluApprox, 300],
  ["geluFastApprox", nn.geluFastApprox, 60_000],
] as const)("%s of large float16 numbers and its derivative are finite", (_name, gelu, large) => {
  const x = mx.array([large, -large], mx.float16)
  expect(gelu(x).index(0).item()).toBe(x.index(0).item())
  expect(gelu(x).index(1).item()).toBeCloseTo(0)
  const [slope, zero] = grad((y: mx.Array) => gelu(y).sum())(x).tolist() as number[]
  expect([slope, zero]).toEqual([1, expect.closeTo(0)])
})
