/** The measure of a schedule: what its results take, and of that what handles show. */
import { expect, test } from "vitest"
import type { Array } from "../graph/graph"
import * as mx from "../index"
import { measure } from "./memory-budget"
import { schedule } from "./schedule"

const shownBy = (root: Array): number => measure(schedule([root.node]), [root.node], null).shown

test("a result that shows another's memory takes it once", () => {
  const x = mx.ones([8, 4]).add(0)
  mx.eval(x)
  // The rows that are found have a handle within the operation.
  expect(shownBy(mx.take(x, [1, 2], 0))).toBe(0)
  expect(shownBy(x.add(1).reshape([32]).reshape([4, 8]))).toBe(0)
  const held = x.add(1)
  expect(shownBy(held.reshape([32]).exp())).toBe(held.nbytes)
})
