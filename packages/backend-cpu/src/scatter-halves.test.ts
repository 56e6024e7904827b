/**
 * Sums and products of many halves in few elements: rounded once, as the reference says.
 */
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"

const values = Array.from({ length: 3000 }, (_, i) => 0.5 + ((i * 37) % 101) / 101)
const targets = values.map((_, i) => i % 3)

test.each([mx.float16, mx.bfloat16])("sums of %o", (dtype) => {
  const updates = mx.array(values).astype(dtype)
  const index = mx.array(targets, mx.int32)
  for (const columns of [1, 20]) {
    const x = mx.ones([3, columns], dtype)
    const wide = mx.broadcastTo(updates.expandDims(1), [values.length, columns])
    const got = x.at(index).add(wide)
    const want = x.astype(mx.float32).at(index).add(wide.astype(mx.float32)).astype(dtype)
    expect(got.dtype).toBe(dtype)
    expect(got.tolist()).toEqual(want.tolist())
  }
})

test.each([mx.float16, mx.bfloat16])("products of %o", (dtype) => {
  const factors = mx.array(values.map((_, i) => (i % 2 ? 1.01 : 0.99))).astype(dtype)
  const index = mx.array(targets, mx.int32)
  const x = mx.ones([3], dtype)
  const got = x.at(index).multiply(factors)
  const want = x.astype(mx.float32).at(index).multiply(factors.astype(mx.float32)).astype(dtype)
  expect(got.tolist()).toEqual(want.tolist())
})

test("few updates leave the other elements as they are", () => {
  const x = mx.array([1, 2, 3, 4], mx.bfloat16)
  expect(
    x
      .at(mx.array([1, 1], mx.int32))
      .add(mx.array([0.5, 0.25], mx.bfloat16))
      .tolist(),
  ).toEqual([1, 2.75, 3, 4])
})
