import { expect, test } from "vitest"
import * as mx from "../index"

test("sort and argsort: stable, NaN last", () => {
  const x = mx.array([2, Number.NaN, 1, -Infinity, 2])
  expect(x.sort().tolist()).toEqual([-Infinity, 1, 2, 2, Number.NaN])
  expect(x.argsort().tolist()).toEqual([3, 2, 0, 4, 1])
  const m = mx.array([
    [3, 1],
    [2, 5],
  ])
  expect(m.sort(0).tolist()).toEqual([
    [2, 1],
    [3, 5],
  ])
  expect(m.sort(null).tolist()).toEqual([1, 2, 3, 5])
  expect(mx.sort(mx.array([mx.complex(1, 2), mx.complex(1, 1)])).imag.tolist()).toEqual([1, 2])
})

test("topk, partition, median, searchsorted", () => {
  const x = mx.array([4, 1, 3, 2])
  expect(mx.topk(x, 2).tolist()).toEqual([3, 4])
  expect(mx.partition(x, -1).index(-1).item()).toBe(4)
  expect(mx.argpartition(x, 0).index(0).item()).toBe(1)
  expect(mx.median(x).item()).toBe(2.5)
  expect(mx.median(mx.array([1, Number.NaN])).item()).toBeNaN()
  expect(mx.median(mx.zeros([2, 3, 4]), [0, 2], true).shape).toEqual([1, 3, 1])
  const s = mx.array([1, 2, 2, 5])
  expect(mx.searchsorted(s, mx.array([[0, 2, 9]])).tolist()).toEqual([[0, 1, 4]])
  expect(mx.searchsorted(s, mx.array([2]), { side: "right" }).tolist()).toEqual([3])
})

test("errors", () => {
  expect(() => mx.topk(mx.zeros([3]), 4)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [topk] k must be from 0 to 3, the size of the axis, received the number 4]`,
  )
  expect(() => mx.partition(mx.zeros([3]), 3)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [partition] kth 3 is out of bounds for an axis of size 3]`,
  )
  expect(() => mx.median(mx.zeros([0]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [median] has no value over an empty axis, received shape (0,)]`,
  )
  expect(() => mx.searchsorted(mx.zeros([2, 2]), mx.zeros([1]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [searchsorted] the sorted sequence must have 1 dimension, received shape (2, 2)]`,
  )
  expect(() =>
    mx.searchsorted(mx.zeros([2]), mx.zeros([1]), "up" as never),
  ).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [searchsorted] side must be "left" or "right", received the string "up"]`,
  )
})
