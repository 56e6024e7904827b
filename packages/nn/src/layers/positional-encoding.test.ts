import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import * as nn from "../index"

test("a scale of 0 is a scale", () => {
  const layer = new nn.SinusoidalPositionalEncoding(4, { scale: 0 })
  expect(layer.scale).toBe(0)
  expect(layer.forward(mx.arange(2)).abs().sum().item()).toBe(0)
  expect(new nn.SinusoidalPositionalEncoding(4).scale).toBeCloseTo(Math.SQRT1_2)
  expect(new nn.SinusoidalPositionalEncoding(4, { scale: null }).scale).toBeCloseTo(Math.SQRT1_2)
})
