import { expect, test } from "vitest"
import * as mx from "../../index"

test("norms of float16 do not overflow in the powers", () => {
  const x = mx.array([300, 400], mx.float16)
  for (const order of [null, 2, "fro"] as const) {
    const y = mx.linalg.norm(order === "fro" ? x.reshape(1, 2) : x, order)
    expect(y.dtype).toBe(mx.float16)
    expect(y.item()).toBe(500)
  }
  expect(mx.linalg.norm(x, 3).item()).toBeCloseTo(450, -1)
})
