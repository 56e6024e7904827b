/** Max pooling of integers and bools: padding never wins. */
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import { MaxPool1d } from "./pooling"

test.each([
  [mx.int32, [-3, -5], [-3, -3, -5]],
  [mx.int64, [-3n, -5n], [-3n, -3n, -5n]],
  [mx.uint8, [3, 5], [3, 5, 5]],
  [mx.bool_, [false, false], [false, false, false]],
  [mx.float32, [-3, -5], [-3, -3, -5]],
] as const)("padding does not affect the maximum of %s", (dtype, data, expected) => {
  const x = mx.array(data as readonly number[], dtype).reshape([1, 2, 1])
  const y = new MaxPool1d(2, 1, 1).forward(x)
  expect(y.dtype).toBe(dtype)
  expect(y.flatten().tolist()).toEqual(expected)
})
