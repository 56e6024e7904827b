import { expect, test } from "vitest"
import * as mx from "../index"

const lists = (arrays: mx.Array[]) => arrays.map((a) => a.tolist())
const shapes = (arrays: mx.Array[]) => arrays.map((a) => a.shape)

test("split and unstack", () => {
  const x = mx.arange(6)
  expect(lists(mx.split(x, 3))).toEqual([
    [0, 1],
    [2, 3],
    [4, 5],
  ])
  expect(lists(mx.split(x, [2, -1]))).toEqual([[0, 1], [2, 3, 4], [5]])
  expect(shapes(mx.split(mx.zeros([2, 3]), [9], { axis: 1 }))).toEqual([
    [2, 3],
    [2, 0],
  ])
  expect(shapes(mx.unstack(mx.zeros([2, 3]), { axis: 1 }))).toEqual([[2], [2], [2]])
  expect(() => mx.split(x, 4)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [split] axis 0 of size 6 cannot be split into 4 equal parts]`,
  )
  expect(() => mx.split(x, "a" as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [split] indicesOrSections must be an integer or a list of integers, received the string "a"]`,
  )
})

test("tile, repeat, roll, flip, diff", () => {
  const m = mx.array([
    [1, 2],
    [3, 4],
  ])
  expect(mx.tile(m, [1, 2]).tolist()).toEqual([
    [1, 2, 1, 2],
    [3, 4, 3, 4],
  ])
  expect(mx.repeat(m, 2, 0).shape).toEqual([4, 2])
  expect(mx.roll(m, 1).tolist()).toEqual([
    [4, 1],
    [2, 3],
  ])
  expect(mx.roll(m, [1, -1], [0, 1]).tolist()).toEqual([
    [4, 3],
    [2, 1],
  ])
  expect(mx.flip(m, 1).tolist()).toEqual([
    [2, 1],
    [4, 3],
  ])
  expect(mx.flip(mx.zeros([0, 2])).shape).toEqual([0, 2])
  expect(mx.diff(m, { n: 2 }).shape).toEqual([2, 0])
  expect(mx.diff(m, 2 ** 53 - 1).shape).toEqual([2, 0])
  expect(() => mx.tile(m, -1)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [tile] reps must be non-negative integers, received the number -1]`,
  )
  expect(() => mx.tile(m, [2, -1])).toThrow("reps must be non-negative integers, received the number -1")
  expect(() => mx.roll(m, [1, 2], [0, 1, 0])).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [roll] 2 shifts for 3 axes]`,
  )
})

test("grids and common shapes", () => {
  const [a, b] = [mx.array([1, 2, 3]), mx.array([4, 5])]
  expect(shapes(mx.meshgrid(a, b))).toEqual([
    [2, 3],
    [2, 3],
  ])
  expect(shapes(mx.meshgrid(a, b, { indexing: "ij", sparse: true }))).toEqual([
    [3, 1],
    [1, 2],
  ])
  expect(mx.broadcastShapes([2, 1], [3])).toEqual([2, 3])
  expect(shapes(mx.broadcastArrays(a, mx.zeros([2, 1])))).toEqual([
    [2, 3],
    [2, 3],
  ])
  expect(mx.atleast2d(a).shape).toEqual([1, 3])
  expect(shapes(mx.atleast3d(a, mx.zeros([2, 2])))).toEqual([
    [1, 3, 1],
    [2, 2, 1],
  ])
  expect(() => mx.meshgrid(a, { index: "ij" } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [meshgrid] has no parameter "index"; it takes sparse, indexing, stream]`,
  )
})

test("pad", () => {
  const x = mx.array([1, 2, 3])
  expect(mx.pad(x, 1, "constant", 9).tolist()).toEqual([9, 1, 2, 3, 9])
  expect(mx.pad(x, [0, 2], { mode: "edge" }).tolist()).toEqual([1, 2, 3, 3, 3])
  expect(mx.pad(x, 2, { mode: "reflect" }).tolist()).toEqual([3, 2, 1, 2, 3, 2, 1])
  expect(mx.pad(x, [2, 1], { mode: "symmetric" }).tolist()).toEqual([2, 1, 1, 2, 3, 3])
  // Nothing is made before it is computed.
  for (const mode of ["constant", "edge", "symmetric"] as const) {
    const wide = mx.pad(x, [0, 2 ** 31], { mode })
    expect(wide.shape).toEqual([2 ** 31 + 3])
    wide.dispose()
  }
  const m = mx.pad(mx.ones([2, 2]), [
    [1, 0],
    [0, 2],
  ])
  expect(m.tolist()).toEqual([
    [0, 0, 0, 0],
    [1, 1, 0, 0],
    [1, 1, 0, 0],
  ])
  expect(() => mx.pad(x, -1)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [pad] the widths must be non-negative integers, received the number -1. Pass a number, a pair for all axes, or a pair for each axis]`,
  )
  expect(() => mx.pad(x, 1, "wrap" as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [pad] mode must be "constant", "edge", "reflect" or "symmetric", received the string "wrap"]`,
  )
  expect(() => mx.pad(x, 3, "reflect")).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [pad] axis 0 of size 3 cannot be reflected by 3]`,
  )
})

test("diagonals and triangles", () => {
  const m = mx.arange(6).reshape([2, 3])
  expect(mx.diagonal(m, 1).tolist()).toEqual([1, 5])
  expect(mx.diag(mx.array([1, 2]), -1).tolist()).toEqual([
    [0, 0, 0],
    [1, 0, 0],
    [0, 2, 0],
  ])
  expect(mx.diagonal(m, 9).shape).toEqual([0])
  expect(mx.trace(mx.zeros([1, 3, 1, 5]), { offset: -2 }).tolist()).toEqual([[0, 0, 0, 0, 0]])
  expect(mx.tril(m, 0).tolist()).toEqual([
    [0, 0, 0],
    [3, 4, 0],
  ])
  expect(mx.triu(m, 1).tolist()).toEqual([
    [0, 1, 2],
    [0, 0, 5],
  ])
  expect(() => mx.tril(mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [tril] needs at least 2 dimensions, received shape (2,)]`,
  )
  expect(() => mx.diag(mx.zeros([1, 1, 1]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [diag] needs 1 or 2 dimensions, received shape (1, 1, 1)]`,
  )
})

test("what is no matrix, or more than a line of coordinates, is refused", () => {
  expect(() => mx.matrixTranspose(mx.ones([3]))).toThrow(
    "[matrixTranspose] needs an array of at least 2 dimensions, received shape (3,)",
  )
  expect(mx.matrixTranspose(mx.ones([2, 3, 4])).shape).toEqual([4, 3, 2])
  expect(() => mx.meshgrid(mx.ones([2]), mx.ones([2, 2]))).toThrow(
    "[meshgrid] array 1 must have at most one dimension, received shape (2, 2)",
  )
  expect(mx.meshgrid(mx.array(1), mx.ones([2])).map((x) => x.shape)).toEqual([
    [2, 1],
    [2, 1],
  ])
})

test("an error of meshgrid and broadcastArrays names the function that was called", () => {
  const lines = Array.from({ length: 65 }, () => mx.ones([1]))
  expect(() => mx.meshgrid(...lines)).toThrow("[meshgrid] expected at most 64 axes, received 65")
  expect(() => mx.broadcastArrays(mx.ones([2]), mx.ones([3]))).toThrow(/^\[broadcastArrays\] /)
})
