import { expect, test } from "vitest"
import * as mx from "../index"

const odd = () => mx.array([1, Number.NaN, Infinity, -Infinity])

test("questions about elements", () => {
  const asked = [mx.isnan, mx.isinf, mx.isposinf, mx.isneginf, mx.isfinite].map((f) => f(odd()).tolist())
  expect(asked).toEqual([
    [false, true, false, false],
    [false, false, true, true],
    [false, false, true, false],
    [false, false, false, true],
    [true, false, false, false],
  ])
  expect(mx.isfinite(mx.array([1, 2], mx.int32)).tolist()).toEqual([true, true])
  expect(mx.isnan(mx.array([mx.complex(0, Number.NaN)])).tolist()).toEqual([true])
})

test("closeness and equality", () => {
  expect(mx.isclose(odd(), odd()).tolist()).toEqual([true, false, true, true])
  expect(mx.isclose(odd(), odd(), { equalNan: true }).tolist()).toEqual([true, true, true, true])
  expect(mx.isclose(mx.array([Infinity]), 1e30, 1, 1).tolist()).toEqual([false])
  expect(mx.allclose(mx.array([1, 2]), mx.array([1, 2.1]), 0.1).item()).toBe(true)
  expect(mx.arrayEqual(mx.zeros([2]), mx.zeros([3])).item()).toBe(false)
  expect(mx.arrayEqual(odd(), odd(), true).item()).toBe(true)
  expect(mx.countNonzero(mx.eye(3), { axis: 0 }).tolist()).toEqual([1, 1, 1])
})

test("repairs", () => {
  expect(mx.nanToNum(odd(), 7, 8, 9).tolist()).toEqual([1, 7, 8, 9])
  expect(mx.nanToNum(mx.array([Infinity], mx.float16)).item()).toBe(65504)
  expect(mx.clip(mx.array([-5, 0, 5], mx.int32), -1, null).tolist()).toEqual([-1, 0, 5])
  expect(mx.clip(mx.array([1, 2]), mx.array([2, 0]), 2).tolist()).toEqual([2, 2])
  expect(() => mx.clip(mx.array([1]), null)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [clip] needs at least one of aMin and aMax]`,
  )
})

test("products", () => {
  const [a, b] = [mx.array([1, 2]), mx.array([3, 4])]
  expect(mx.inner(a, b).item()).toBe(11)
  expect(mx.outer(a, b).shape).toEqual([2, 2])
  expect(mx.kron(a, b).tolist()).toEqual([3, 4, 6, 8])
  expect(mx.tensordot(mx.ones([2, 3]), mx.ones([3, 2]), [[0, 1], [1, 0]]).item()).toBe(6) // biome-ignore format: pairs
  expect(mx.vecdot(mx.array([mx.complex(0, 1)]), mx.array([mx.complex(0, 1)])).real.item()).toBe(1)
  expect(() => mx.tensordot(a, mx.zeros([3]), 1)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [tensordot] axis 0 of a has size 2 and axis 0 of b has size 3: shapes (2,) and (3,)]`,
  )
})

test("rounding, sequences, limits, bytes", () => {
  expect(
    mx
      .round(mx.array([0.5, 1.5, 2.346]), 2)
      .index(2)
      .item(),
  ).toBeCloseTo(2.35, 5)
  expect(mx.round(mx.array([15, 25], mx.int32), -1).tolist()).toEqual([20, 20])
  expect(mx.divmod(mx.array([-7], mx.int32), 2).map((x) => x.item())).toEqual([-4, 1])
  expect(mx.linspace(0, 1, 4, { endpoint: false }).size).toBe(4)
  expect(mx.linspace(0, 1, 2, false).tolist()).toEqual([0, 0.5])
  expect(mx.fullLike(mx.zeros([2], mx.int8), 3).dtype).toBe(mx.int8)
  expect([mx.finfo(mx.bfloat16).eps, mx.iinfo(mx.int64).max]).toEqual([2 ** -7, 2n ** 63n - 1n])
  expect([mx.issubdtype(mx.int8, mx.integer), mx.isdtype(mx.int8, ["bool", "integral"])]).toEqual([
    true,
    true,
  ])
  expect(mx.view(mx.array([1, 2]).index("::-1"), mx.uint8).shape).toEqual([8])
  expect(mx.view(mx.arange(4).index("1:3"), mx.int16).tolist()).toEqual([1, 0, 2, 0])
  expect(mx.asStrided(mx.arange(5), [2, 2], [2, -1], 1).tolist()).toEqual([
    [1, 0],
    [3, 2],
  ])
  expect(() => mx.asStrided(mx.arange(4), [2], [4])).toThrowErrorMatchingInlineSnapshot(
    `[IndexError: [asStrided] positions 0 to 4 are out of bounds for an array of 4 elements]`,
  )
  expect(() => mx.view(mx.zeros([3], mx.uint8), mx.float32)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [view] the last axis of shape (3,) in uint8 does not fill elements of float32]`,
  )
  expect(() => mx.finfo(mx.int8)).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [finfo] expected a floating dtype, received int8]`,
  )
})
