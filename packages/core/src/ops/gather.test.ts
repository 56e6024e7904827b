import { expect, test } from "vitest"
import * as mx from "../index"
import { gather, scatter } from "./gather"

const m = () =>
  mx.array([
    [1, 2, 3],
    [4, 5, 6],
  ])

test("take", () => {
  expect(mx.take(m(), [2, 0], 1).tolist()).toEqual([
    [3, 1],
    [6, 4],
  ])
  expect(mx.take(m(), -1).item()).toBe(6)
  expect(mx.take(m(), mx.array([[1], [0]], mx.uint8), { axis: 0 }).shape).toEqual([2, 1, 3])
  expect(mx.take(mx.zeros([2, 3, 4]), mx.zeros([5, 6], mx.int32), 1).shape).toEqual([2, 5, 6, 4])
  expect(mx.take(mx.zeros([0, 3]), [], 0).shape).toEqual([0, 3])
})

test("takeAlongAxis and putAlongAxis", () => {
  const order = mx.array([[2, 1, 0]], mx.int32)
  expect(mx.takeAlongAxis(m(), order, 1).tolist()).toEqual([
    [3, 2, 1],
    [6, 5, 4],
  ])
  expect(mx.takeAlongAxis(m(), [5, 0]).tolist()).toEqual([6, 1])
  expect(mx.putAlongAxis(m(), mx.array([[0]], mx.int32), mx.array([[9]]), 0).tolist()).toEqual(
    [
      [9, 2, 3],
      [4, 5, 6],
    ].map((row, i) => (i === 0 ? [9, 9, 9] : row)),
  )
})

test("slice and sliceUpdate start where arrays say", () => {
  expect(mx.slice(m(), mx.array([1], mx.int32), [1], [2, 2]).tolist()).toEqual([
    [2, 3],
    [5, 6],
  ])
  expect(mx.sliceUpdate(m(), mx.array([[0]]), [1, 1], [0, 1]).tolist()).toEqual([
    [1, 2, 3],
    [4, 0, 6],
  ])
})

test("sliceUpdate reads no index arrays where its starts are numbers within the array", () => {
  const block = mx.array([[7, 8]])
  const starts: [number[], number[][]][] = [
    [
      [1, 0],
      [
        [1, 2, 3],
        [7, 8, 6],
      ],
    ],
    [
      [0, 1],
      [
        [1, 7, 8],
        [4, 5, 6],
      ],
    ],
    [
      [-1, 0],
      [
        [1, 2, 3],
        [7, 8, 6],
      ],
    ],
  ]
  for (const [start, want] of starts) {
    const y = mx.sliceUpdate(m(), block, start, [0, 1])
    expect(y.node.primitive?.name).toBe("sliceUpdate")
    expect(y.tolist()).toEqual(want)
    // The order of the axes is the caller's.
    expect(mx.sliceUpdate(m(), block, start.toReversed(), [-1, 0]).tolist()).toEqual(want)
  }
  expect(() => mx.sliceUpdate(m(), block, [0, 2], [0, 1])).toThrow(
    "[sliceUpdate] index 2 is out of bounds for axis 1 with size 3",
  )
  expect(mx.sliceUpdate(m(), mx.zeros([0, 2]), [2, 1], [0, 1]).tolist()).toEqual(m().tolist())
  expect(() => mx.sliceUpdate(m(), block, [0, 0], [1, 1])).toThrow("repeat an axis")
  expect(() => mx.sliceUpdate(m(), block, [0], [0, 1])).toThrow("one start index for each")
  expect(() => mx.sliceUpdate(m(), block, [0.5, 0], [0, 1])).toThrow("integers")
})

test("slices without axes to start along start at 0", () => {
  for (const start of [[], mx.array([], mx.int32)]) {
    expect(mx.slice(m(), start, [], [1, 2]).tolist()).toEqual([[1, 2]])
    expect(mx.slice(mx.array(3), start, [], []).item()).toBe(3)
    expect(mx.sliceUpdate(mx.zeros([2]), mx.ones([2]), start, []).tolist()).toEqual([1, 1])
  }
  expect(() => mx.slice(m(), [0], [], [1, 2])).toThrow("one start index for each of 0 axes")
})

test("gather and scatter are transposes of each other", () => {
  const x = m()
  const index = mx.array([1, 1, 0], mx.int32)
  const g = mx.array([1, 2, 4]).reshape([3, 1, 1]).broadcastTo([3, 1, 3])
  const [dx] = (gather.primitive.rules.vjp as NonNullable<typeof gather.primitive.rules.vjp>)({
    inputs: [x, index],
    outputs: [],
    cotangents: [g],
    params: { axes: [0], sliceSizes: [1, 3] },
    wanted: [true, false],
  }) as mx.Array[]
  expect(dx.tolist()).toEqual([
    [4, 4, 4],
    [3, 3, 3],
  ])
})

test("the gradient of scatter knows which update counted", () => {
  const vjp = (mode: "set" | "multiply" | "maximum", updates: number[]) => {
    const x = mx.array([2, 3, 5])
    const inputs = [x, mx.array(updates).reshape([3, 1]), mx.array([1, 1, 0], mx.int32)]
    const params = { axes: [0], mode }
    const y = scatter(inputs, params)
    return (
      (scatter.primitive.rules.vjp as NonNullable<typeof scatter.primitive.rules.vjp>)({
        inputs,
        outputs: [y],
        cotangents: [mx.array([1, 10, 100])],
        params,
        wanted: [true, true, false],
      }) as mx.Array[]
    ).map((a) => a?.flatten().tolist() ?? null)
  }
  expect(vjp("set", [7, 8, 9])).toEqual([[0, 0, 100], [0, 10, 1], null])
  expect(vjp("multiply", [0, 4, 6])).toEqual([[6, 0, 100], [120, 0, 2], null])
  expect(vjp("maximum", [9, 9, 1])).toEqual([[1, 0, 100], [5, 5, 0], null])
  // At ties the update is the result, as the second argument of maximum.
  expect(vjp("maximum", [3, 3, 2])).toEqual([[0, 0, 100], [5, 5, 1], null])
  expect(vjp("maximum", [3, 9, 1])).toEqual([[1, 0, 100], [0, 10, 0], null])
})

test("products of updates that overlap in part have the derivatives of their elements", () => {
  const params = { axes: [0], mode: "multiply" as const }
  const x = mx.array([2, 3, 5, 7])
  // Slices of two elements from 0, 1 and 2.
  const inputs = [x, mx.array([[2, 3], [4, 0], [6, 7]]), mx.array([0, 1, 2], mx.int32)] // biome-ignore format: a matrix
  const { vjp } = scatter.primitive.rules
  const [, du] = (vjp as NonNullable<typeof vjp>)({
    inputs,
    outputs: [scatter(inputs, params)],
    cotangents: [mx.ones([4])],
    params,
    wanted: [false, true, false],
  }) as mx.Array[]
  expect(du.tolist()).toEqual([[2, 12], [9, 30], [0, 7]]) // biome-ignore format: a matrix
})

test("errors", () => {
  expect(() => mx.take(m(), 7, 1)).toThrowErrorMatchingInlineSnapshot(
    `[IndexError: [take] index 7 is out of bounds for axis 1 with size 3]`,
  )
  expect(() => mx.take(m(), [7], 1).tolist()).toThrowErrorMatchingInlineSnapshot(
    `[IndexError: [gather] index 7 is out of bounds for axis 1 with size 3]`,
  )
  expect(() => mx.take(mx.zeros([0]), [0])).toThrowErrorMatchingInlineSnapshot(
    `[IndexError: [take] cannot take from axis 0 with size 0 of shape (0,)]`,
  )
  expect(() => mx.take(m(), mx.array([0.5]))).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [take] indices must be integers, received float32]`,
  )
  expect(() => mx.takeAlongAxis(m(), [0], 1)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [takeAlongAxis] indices must have 2 dimensions like the array, received shape (1,)]`,
  )
  expect(() => mx.slice(m(), [0], [0, 1], [1, 1])).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [slice] needs one start index for each of 2 axes, received indices of shape (1,)]`,
  )
  expect(() => mx.slice(m(), [0], [0], [3, 1])).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [slice] a slice of size (3, 1) does not fit an array of shape (2, 3)]`,
  )
  expect(() => mx.slice(m(), [2], [0], [1, 1]).tolist()).toThrowErrorMatchingInlineSnapshot(
    `[IndexError: [gather] index 2 is out of bounds for axis 0 with size 2]`,
  )
})
