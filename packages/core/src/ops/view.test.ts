import { expect, it } from "vitest"
import type { Primitive } from "../graph/graph"
import { contiguousStrides, isContiguous } from "../graph/shape"
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

it("views that keep their input's order say so by their rules, too", () => {
  const x = mx.zeros([2, 1, 6])
  const views = [
    x.reshape(3, 4),
    x.flatten(1),
    x.unflatten(2, [3, 2]),
    x.expandDims(1),
    x.squeeze(1),
    mx.contiguous(x),
    mx.stopGradient(x),
    mx.zeros([0, 3]).reshape(3, 0),
  ]
  for (const { node } of views) {
    const { rules, facts, name } = node.primitive as Primitive
    const { shape, dtype } = node.inputs[0]
    const strides = contiguousStrides(shape)
    const layout = rules.view?.({ shape, dtype, offset: 5, strides }, node.params, node)
    expect([name, facts.keepsOrder, layout?.offset]).toEqual([name, true, 5])
    expect(isContiguous(node.shape, layout?.strides ?? [])).toBe(true)
  }
  expect(x.transpose(1, 0, 2).node.primitive?.facts.keepsOrder).toBeUndefined()
})

it("a repeated axis of a transpose is named", () => {
  expect(() => mx.zeros([2, 3, 4]).transpose(0, 2, -1)).toThrow("axis 2 is repeated")
})
