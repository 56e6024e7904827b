import { expect, it } from "vitest"
import * as mx from "../index"

it("reshape and transpose take separate numbers, as MLX's methods do", () => {
  const x = mx.arange(6)
  expect(x.reshape(2, 3).shape).toEqual([2, 3])
  expect(x.reshape(2, -1, 1).shape).toEqual([2, 3, 1])
  expect(x.reshape(6).shape).toEqual([6])
  expect(x.reshape(3, 2, { stream: mx.cpu }).shape).toEqual([3, 2])
  expect(mx.reshape(x, 3, 2).shape).toEqual([3, 2])
  expect(x.reshape({ shape: [1, 6] }).shape).toEqual([1, 6])
  const y = x.reshape(1, 2, 3)
  expect(y.transpose(1, 2, 0).shape).toEqual([2, 3, 1])
  expect(y.transpose(-1, 0, 1, { stream: mx.cpu }).shape).toEqual([3, 1, 2])
  expect(x.transpose(0).tolist()).toEqual(x.tolist())
  expect(mx.permuteDims(y, 2, 1, 0).shape).toEqual([3, 2, 1])
  expect(y.transpose({ axes: [0, 2, 1] }).shape).toEqual([1, 3, 2])
  expect(() => x.reshape(4, 2)).toThrow(mx.ShapeError)
  expect(() => y.transpose(1, 0)).toThrow("expected 3 axes, received 2")
  expect(() => x.reshape(2, "3" as never)).toThrow(mx.ArgumentError)
})
