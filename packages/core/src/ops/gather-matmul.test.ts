import { describe, expect, test } from "vitest"
import * as mx from "../index"

const counting = (...shape: number[]): mx.Array =>
  mx
    .arange(shape.reduce((a, b) => a * b, 1))
    .reshape(shape)
    .astype(mx.float32)
const equal = (a: mx.Array, b: mx.Array): void => {
  expect(a.tolist()).toEqual(b.tolist())
}

describe("gatherMm", () => {
  const a = counting(3, 2, 4)
  const b = counting(2, 2, 4, 3)
  test("multiplies what the indices name", () => {
    const lhsIndices = mx.array([2, 0, -1], mx.int32)
    const rhsIndices = mx.array([3, 3, 1], mx.uint32)
    const got = mx.gatherMm(a, b, lhsIndices, rhsIndices)
    equal(got.index(0), a.index(2).matmul(b.index(1, 1)))
    equal(got.index(1), a.index(0).matmul(b.index(1, 1)))
    equal(got.index(2), a.index(2).matmul(b.index(0, 1)))
    equal(mx.gatherMm(a, b, lhsIndices, rhsIndices, { sortedIndices: false }), got)
    equal(
      mx.gatherMm(a, b.index(0, 0), lhsIndices, mx.array([0], mx.int32)).index(1),
      a.index(0).matmul(b.index(0, 0)),
    )
  })
  test("vectors, no indices, and indices of none", () => {
    equal(mx.gatherMm(counting(4), counting(4)), mx.array(14))
    equal(mx.gatherMm(a, b.index(0, 0)), a.matmul(b.index(0, 0)))
    const none = mx.zeros([0], mx.int32)
    expect(mx.gatherMm(a, b, none, none).shape).toEqual([0, 2, 3])
  })
  test("refuses", () => {
    const index = mx.array([0], mx.int32)
    expect(() => mx.gatherMm(a, a, index, index)).toThrow(mx.ShapeError)
    expect(() => mx.gatherMm(a, b, mx.array([0]), index)).toThrow(mx.DTypeError)
    expect(() => mx.gatherMm(a.astype(mx.int32), b.astype(mx.int32), index, index)).toThrow(mx.DTypeError)
    expect(() => mx.gatherMm(mx.array(1), b, index, index)).toThrow(mx.ShapeError)
    expect(() => mx.gatherMm(a, b, mx.array([0, 1], mx.int32), mx.zeros([3], mx.int32))).toThrow(
      mx.ShapeError,
    )
    expect(() => mx.gatherMm(a, b, mx.array([3], mx.int32), index).tolist()).toThrow(mx.IndexError)
    expect(() => mx.gatherMm(a, b, mx.array([-4], mx.int32), index).tolist()).toThrow(mx.IndexError)
  })
})

describe("segmentedMm", () => {
  const a = counting(2, 5)
  const b = counting(5, 3)
  test("cuts the inner axis", () => {
    const segments = mx.array(
      [
        [
          [0, 2],
          [3, 3],
        ],
        [
          [4, 99],
          [-7, 5],
        ],
      ],
      mx.int32,
    )
    const got = mx.segmentedMm(a, b, segments)
    expect(got.shape).toEqual([2, 2, 2, 3])
    equal(got.index(0, 0), a.index(":", ":2").matmul(b.index(":2")))
    equal(got.index(0, 1), mx.zeros([2, 3]))
    equal(got.index(1, 0), a.index(":", "4:").matmul(b.index("4:")))
    equal(got.index(1, 1), a.matmul(b))
  })
  test("does not read outside a segment", () => {
    const spoiled = mx.concatenate([a, mx.full([2, 1], Number.NaN)], 1)
    const taller = mx.concatenate([b, mx.ones([1, 3])])
    equal(mx.segmentedMm(spoiled, taller, mx.array([[0, 5]], mx.uint32)).squeeze(0), a.matmul(b))
  })

  test("of few bits end where they say in a longer axis", () => {
    for (const dtype of [mx.uint8, mx.int8]) {
      const product = mx.segmentedMm(mx.ones([1, 300]), mx.ones([300, 1]), mx.array([[10, 100]], dtype))
      expect(product.flatten().tolist()).toEqual([90])
    }
  })
  test("refuses", () => {
    const segments = mx.array([[0, 2]], mx.int32)
    expect(() => mx.segmentedMm(a.expandDims(0), b, segments)).toThrow(mx.ShapeError)
    expect(() => mx.segmentedMm(a, a, segments)).toThrow(mx.ShapeError)
    expect(() => mx.segmentedMm(a, b, mx.array([0, 1, 2], mx.int32))).toThrow(mx.ShapeError)
    expect(() => mx.segmentedMm(a, b, mx.array([[0, 1]]))).toThrow(mx.DTypeError)
    expect(() => mx.segmentedMm(mx.ones([5]), b, segments)).toThrow(mx.ShapeError)
  })
})

describe("blockMaskedMm", () => {
  const a = counting(2, 33, 40).multiply(1e-3)
  const b = counting(40, 70).multiply(1e-3)
  test("masks blocks of the result and of the factors", () => {
    const out = mx.array([
      [true, false, true],
      [false, true, true],
    ])
    const full = a.matmul(b)
    const got = mx.blockMaskedMm(a, b, 32, { maskOut: out })
    expect(got.shape).toEqual([2, 33, 70])
    equal(got.index("...", ":32", ":32"), full.index("...", ":32", ":32"))
    expect(got.index("...", ":32", "32:64").abs().max().item()).toBe(0)
    equal(got.index(":", 32, "32:"), full.index(":", 32, "32:"))
    const half = mx.blockMaskedMm(a, b, {
      blockSize: 32,
      maskLhs: mx.array([
        [0.5, 0],
        [0.5, 0],
      ]),
    })
    const want = a.index("...", ":32").matmul(b.index(":32")).multiply(0.5)
    expect(half.subtract(want).abs().max().item() as number).toBeLessThan(1e-5)
    const right = mx.blockMaskedMm(a, b, 64, null, null, mx.array([[false, true]]))
    expect(right.index("...", ":64").abs().max().item()).toBe(0)
  })
  test("vectors", () => {
    const y = mx.blockMaskedMm(counting(40), b, 32, {
      maskOut: mx.array([true, false, true]),
      maskLhs: mx.array([true, true]),
    })
    expect(y.shape).toEqual([70])
    expect(y.index("32:64").abs().max().item()).toBe(0)
  })
  test("refuses", () => {
    expect(() => mx.blockMaskedMm(a, b, 16)).toThrow(mx.ArgumentError)
    expect(() => mx.blockMaskedMm(a, b, 32, { maskOut: mx.ones([3, 3]) })).toThrow(mx.ShapeError)
    expect(() => mx.blockMaskedMm(a, a, 32)).toThrow(mx.ShapeError)
    expect(() => mx.blockMaskedMm(a, b, 32, { maskOut: mx.zeros([2, 3], mx.complex64) })).toThrow(
      mx.DTypeError,
    )
    expect(() => mx.blockMaskedMm(a.astype(mx.complex64), b, 32)).toThrow(mx.DTypeError)
  })
})
