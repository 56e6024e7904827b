import { describe, expect, test } from "vitest"
import * as mx from "../index"

const x = () => mx.arange(24).reshape([2, 3, 4])

describe("index", () => {
  const cases: [string, mx.IndexSpec[], number[]][] = [
    ["an integer", [1], [3, 4]],
    ["a negative integer", [-1, -2], [4]],
    ["slices", [":", "1:3", "::-2"], [2, 2, 2]],
    ["slices by mx.s", [mx.s(0, 1), mx.s(null, null, -2)], [1, 2, 4]],
    ["an ellipsis", ["...", 0], [2, 3]],
    ["a new axis", [null, 1, null], [1, 1, 3, 4]],
    ["a list", [[0, 1, 0]], [3, 3, 4]],
    ["a nested list", [":", [[0, 1]]], [2, 1, 2, 4]],
    [
      "two lists",
      [
        [0, 1],
        [0, 2],
      ],
      [2, 4],
    ],
    ["lists apart", [[0, 1], ":", [0, 2]], [2, 3]],
    ["a list, a new axis, a list", [[0, 1], null, [0, 2]], [2, 1, 4]],
    ["a number beside a list", [0, ":", [0, 2, 1]], [3, 3]],
    ["a slice that leaves the axis", ["5:"], [0, 3, 4]],
    ["nothing", [], [2, 3, 4]],
  ]
  for (const [name, specs, shape] of cases) test(name, () => expect(x().index(...specs).shape).toEqual(shape))

  test("values", () => {
    expect(x().index(1, 2, 3).item()).toBe(23)
    expect(x().index(0, "::-1", 0).tolist()).toEqual([8, 4, 0])
    expect(x().index([1, 0], [2, 0], [3, 0]).tolist()).toEqual([23, 0])
    expect(x().index(0, ":", [3, 0]).tolist()).toEqual([
      [3, 7, 11],
      [0, 4, 8],
    ])
  })

  test("a mask", () => {
    const v = mx.array([5, 1, 7])
    expect(v.index(v.greater(2)).tolist()).toEqual([5, 7])
    expect(mx.nonzero(mx.eye(2)).map((a) => a.tolist())).toEqual([
      [0, 1],
      [0, 1],
    ])
  })

  test("errors come at once for what is known", () => {
    expect(() => x().index(2)).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [index] index 2 is out of bounds for axis 0 with size 2]`,
    )
    expect(() => x().index(0, 0, 0, 0)).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [index] 4 indices for an array of 3 dimensions]`,
    )
    expect(() => x().index("1-3")).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [index] cannot read the index "1-3". A string is a slice such as "1:3", ":" or "::-2", or "..."]`,
    )
    expect(() => x().index("...", "...")).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [index] an index can contain only one "..."]`,
    )
    expect(() => x().index(1.5)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [index] an index must be an integer, received the number 1.5]`,
    )
    expect(() => x().index(mx.array([0.5]))).toThrowErrorMatchingInlineSnapshot(
      `[DTypeError: [index] an index array must have an integer dtype or bool_, received float32]`,
    )
    expect(() => x().index("::0")).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [index] the step of a slice must not be 0]`,
    )
    expect(() => x().index({} as never)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [index] cannot index with a plain object. Use integers, slices such as "1:3", null, "...", integer arrays or a mask]`,
    )
    // biome-ignore lint/suspicious/noSparseArray: a list with holes
    expect(() => x().set([, 0] as never, 1)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [set] cannot index with nothing. Use integers, slices such as "1:3", null, "...", integer arrays or a mask]`,
    )
    expect(() => x().index([7]).tolist()).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [gather] index 7 is out of bounds for axis 0 with size 2]`,
    )
    expect(() => x().index(mx.array([true]))).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [index] a mask of shape (1,) does not fit axes of sizes (2,)]`,
    )
  })
})

describe("set", () => {
  test("rebinds the handle; others keep what they show", () => {
    const a = mx.zeros([2, 3])
    const b = mx.array(a)
    a.set(["...", "::2"], mx.array([1, 2]))
    expect(a.tolist()).toEqual([
      [1, 0, 2],
      [1, 0, 2],
    ])
    expect(b.tolist()).toEqual([
      [0, 0, 0],
      [0, 0, 0],
    ])
  })
  test("index arrays, masks, reversed slices", () => {
    const a = mx.zeros([4])
    a.set([[3, 0]], mx.array([7, 8]))
    expect(a.tolist()).toEqual([8, 0, 0, 7])
    a.set([a.equal(0)], -1)
    expect(a.tolist()).toEqual([8, -1, -1, 7])
    a.set([a.equal(-1)], mx.array([1, 2]))
    expect(a.tolist()).toEqual([8, 1, 2, 7])
    a.set(["::-1"], mx.array([1, 2, 3, 4]))
    expect(a.tolist()).toEqual([4, 3, 2, 1])
    const m = mx.zeros([2, 3])
    m.set(["1:", [2, 0]], 5)
    expect(m.tolist()).toEqual([
      [0, 0, 0],
      [5, 0, 5],
    ])
  })
  test("errors", () => {
    expect(() => mx.zeros([3]).set([3], 1)).toThrowErrorMatchingInlineSnapshot(
      `[IndexError: [set] index 3 is out of bounds for axis 0 with size 3]`,
    )
    expect(() => mx.zeros([3]).set([":2"], mx.zeros([3]))).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [set] shapes (3,) and (2,) cannot be broadcast: 3 and 2 differ and neither is 1]`,
    )
    expect(() => mx.zeros([3]).set([0], "a" as never)).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [set] the value must be an array or a scalar, received the string "a"]`,
    )
  })
})

test("at", () => {
  const a = mx.ones([3])
  expect(
    a
      .at([0, 0, 2])
      .add(mx.array([1, 2, 3]))
      .tolist(),
  ).toEqual([4, 1, 4])
  expect(a.at([0, 0]).multiply(3).tolist()).toEqual([9, 1, 1])
  expect(a.at(":2").subtract(3).tolist()).toEqual([-2, -2, 1])
  expect(a.at(1).divide(4).tolist()).toEqual([1, 0.25, 1])
  expect(a.at([1]).divide(4).tolist()).toEqual([1, 0.25, 1])
  expect(a.at(-1).maximum(5).tolist()).toEqual([1, 1, 5])
  expect(
    a
      .at([2, 1])
      .minimum(mx.array([0, 5]))
      .tolist(),
  ).toEqual([1, 1, 0])
  expect(a.tolist()).toEqual([1, 1, 1])
})

test("one selection makes one update", () => {
  const at = mx.ones([3]).at(0)
  expect(() => at.add(mx.zeros([2]))).toThrow("broadcast")
  expect(at.add(1).tolist()).toEqual([2, 1, 1])
  for (const again of [() => at.add(1), () => at.subtract(1), () => at.divide(2)])
    expect(again).toThrow(
      /^\[at\.\w+\] this selection has made its update\. Call x\.at\(…\) for each update$/,
    )
})

test("numbers that do not fit are refused, and fractions are truncated, as by mx.array", () => {
  const bytes = mx.zeros([3], mx.uint8)
  const z = mx.complex(1, 2)
  for (const value of [300, -1, Infinity, 2n ** 70n, z]) {
    expect(() => bytes.set([0], value)).toThrow(/^\[set\] .* does not fit uint8/)
    expect(() => bytes.at(0).add(value)).toThrow(/^\[at.add\] .* does not fit uint8/)
    expect(() => bytes.at(0).subtract(value)).toThrow(/^\[at.subtract\] .* does not fit uint8/)
    expect(() => bytes.at(0).maximum(value)).toThrow(/^\[at.maximum\] .* does not fit uint8/)
    expect(() => bytes.set([mx.array([true, false, true])], value)).toThrow(/^\[set\] .* does not fit uint8/)
  }
  expect(() => mx.zeros([2]).set([0], z)).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [set] a complex number does not fit float32. Convert the array first]`,
  )
  bytes.set([1], 2.7)
  expect(bytes.tolist()).toEqual([0, 2, 0])
  expect(
    bytes
      .at(1)
      .subtract([1] as never)
      .tolist(),
  ).toEqual([0, 1, 0])
})

test("extremes at an index order complex numbers by their real parts, then their imaginary ones", () => {
  const z = (re: number, im: number) => mx.complex(re, im)
  const x = mx.array([z(1, 5), z(1, 5), z(0, 9), z(Number.NaN, 0)])
  const v = mx.array([z(2, -1), z(1, 6), z(0, 8), z(7, 7)])
  for (const name of ["maximum", "minimum"] as const) {
    const want = x[name](v).tolist()
    expect(x.at(":")[name](v).tolist()).toEqual(want)
    expect(x.at(mx.arange(4))[name](v).tolist()).toEqual(want)
  }
})

test("bounds of slices may be 0-d arrays of integers", () => {
  const x = mx.arange(6)
  const at = (v: number, dtype: mx.Dtype = mx.int32) => mx.array(v, dtype)
  expect(x.index(mx.s(at(1), at(5), at(2))).tolist()).toEqual([1, 3])
  expect(x.index(mx.s(at(-2, mx.int64))).tolist()).toEqual([4, 5])
  expect(x.index(mx.s(null, x.max().astype(mx.uint8))).tolist()).toEqual([0, 1, 2, 3, 4])
  for (const bad of [mx.array(1), mx.array([1], mx.int32), mx.array(true)])
    expect(() => mx.s(bad)).toThrow("[s] bounds must be integers, 0-d integer arrays or null, received")
})

test("indices into an axis of size 0 are refused when they are given, by every way to index", () => {
  const none = mx.zeros([0, 3])
  const spots = mx.array([0, -1], mx.int32)
  for (const [op, run] of [
    ["index", () => none.index(spots)],
    ["set", () => mx.zeros([0, 3]).set([spots], 1)],
    ["add", () => none.at(spots).add(1)],
    ["maximum", () => mx.zeros([3, 0]).at("...", spots).maximum(1)],
  ] as const) {
    expect(run, op).toThrow(mx.IndexError)
    expect(run, op).toThrow(/\] cannot index an empty axis of shape \((0, 3|3, 0)\)/)
  }
  expect(none.at(mx.zeros([0], mx.int32)).add(1).shape).toEqual([0, 3])
  expect(mx.zeros([3, 0]).at(spots).add(1).shape).toEqual([3, 0])
})

test("a mask takes as many values as it has true elements, and ignores further ones", () => {
  const set = (values: mx.Array | number[]) => {
    const y = mx.zeros([5])
    y.set([mx.array([true, true, false, true, false])], values)
    return y.tolist()
  }
  expect(set([1, 2, 3])).toEqual([1, 2, 0, 3, 0])
  expect(set(mx.arange(4))).toEqual([0, 1, 0, 2, 0])
  expect(set(mx.arange(7))).toEqual([0, 1, 0, 2, 0])
  for (const few of [[], [1], [1, 2]])
    expect(() => set(few)).toThrow(
      `[set] a mask of 3 true elements needs as many values, received ${few.length}`,
    )
  expect(() => set([1, 2])).toThrow(mx.ShapeError)
  expect(() => set(mx.ones([1, 3]))).toThrow(mx.ShapeError)
  const none = mx.ones([2])
  none.set([mx.zeros([2], mx.bool_)], [])
  expect(none.tolist()).toEqual([1, 1])
})

test("a mask of leading axes takes a row for each true element, or one for all", () => {
  const set = (values: mx.Array) => {
    const y = mx.zeros([3, 2])
    y.set([mx.array([true, false, true])], values)
    return y.tolist()
  }
  const want = [[1, 2], [0, 0], [1, 2]] // biome-ignore format: a matrix
  expect(set(mx.array([[1, 2], [1, 2]]))).toEqual(want) // biome-ignore format: a matrix
  expect(set(mx.array([1, 2]))).toEqual(want)
  expect(set(mx.array([[3], [4]]))).toEqual([[3, 3], [0, 0], [4, 4]]) // biome-ignore format: a matrix
  expect(set(mx.array([5]))).toEqual([[5, 5], [0, 0], [5, 5]]) // biome-ignore format: a matrix
  for (const bad of [mx.ones([1, 2]), mx.ones([3]), mx.ones([2, 3])])
    expect(() => set(bad)).toThrow(mx.ShapeError)
})
