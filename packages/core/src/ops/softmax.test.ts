import { expect, test } from "vitest"
import * as mx from "../index"

const values = (a: mx.Array) => a.tolist()

test("softmax over one, several and all axes sums to one there", () => {
  const x = mx.array([
    [
      [1, 2],
      [3, 4],
    ],
    [
      [0, -1],
      [100, 1000],
    ],
  ])
  for (const axis of [0, 1, 2, [0, 1], [0, 2], [1, 2], null]) {
    const total = mx.softmax(x, axis).sum(axis)
    expect(mx.abs(total.subtract(1)).max().item()).toBeLessThan(1e-6)
  }
})

test("softmax of extremes", () => {
  expect(values(mx.softmax(mx.array([1000, 1000, -Infinity])))).toEqual([0.5, 0.5, 0])
  expect(values(mx.softmax(mx.array([Infinity, 1])))).toEqual([NaN, NaN])
  expect(mx.softmax(mx.zeros([2, 0]), -1).shape).toEqual([2, 0])
  expect(mx.softmax(mx.array(5)).item()).toBe(1)
  expect(mx.softmax(mx.array([1, 1], mx.int32)).dtype).toBe(mx.float32)
  expect(mx.softmax(mx.array([1, 1], mx.float16), { precise: true }).dtype).toBe(mx.float16)
})

test("logsumexp", () => {
  expect(mx.logsumexp(mx.array([1000, 1000])).item()).toBeCloseTo(1000 + Math.LN2, 3)
  expect(mx.logsumexp(mx.array([-Infinity, -Infinity])).item()).toBe(-Infinity)
  expect(mx.logsumexp(mx.array([Infinity, 1])).item()).toBe(Infinity)
  expect(mx.logsumexp(mx.zeros([2, 3, 4]), [0, 2]).shape).toEqual([3])
  expect(mx.logsumexp(mx.zeros([2, 3, 4]), [0, 2], true).shape).toEqual([1, 3, 1])
})

test("errors name the op and the fact", () => {
  expect(() => mx.softmax(mx.zeros([2, 2]), 3)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [softmax] axis 3 is out of bounds for an array of 2 dimensions]`,
  )
  expect(() => mx.logsumexp(mx.zeros([2, 0]), 1)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [logsumexp] has no value of an empty array, received shape (2, 0)]`,
  )
  expect(() => mx.softmax(mx.zeros([2]), { axes: 0 } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [softmax] has no parameter "axes"; it takes a, axis, precise, stream. Did you mean "axis"?]`,
  )
})

test("argmax and argmin give the first of equals, and find NaN", () => {
  expect(mx.argmax(mx.array([1, 3, 3])).item()).toBe(1)
  expect(mx.argmin(mx.array([2, 1, 1])).item()).toBe(1)
  expect(mx.argmax(mx.array([1, Number.NaN, 3])).item()).toBe(1)
  const x = mx.array([
    [1, 5],
    [7, 2],
  ])
  expect(values(x.argmax(0))).toEqual([1, 0])
  expect(values(x.argmax(1, true))).toEqual([[1], [0]])
  expect(x.argmax({ keepdims: true }).shape).toEqual([1, 1])
  expect(x.argmin(0).dtype).toBe(mx.uint32)
  expect(() => mx.argmax(mx.zeros([0]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [argmax] has no value over an empty axis, received shape (0,)]`,
  )
})
