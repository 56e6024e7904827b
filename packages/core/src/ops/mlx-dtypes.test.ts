/** Result dtypes, and values at the ends of a type's range, as MLX computes them. */
import { expect, test } from "vitest"
import * as mx from "../index"

test.each([
  [mx.bool_, mx.int32],
  [mx.int8, mx.int32],
  [mx.uint16, mx.uint32],
  [mx.int64, mx.int64],
  [mx.float16, mx.float16],
  [mx.complex64, mx.complex64],
])("sums of %s: a dot product and a trace widen, a sum over no axes does not", (dtype, wide) => {
  const x = mx.array([1, 0, 1]).astype(dtype)
  expect(mx.vecdot(x, x).dtype).toBe(wide)
  expect(mx.trace(mx.ones([2, 2]), { dtype }).dtype).toBe(wide)
  expect(mx.sum(x).dtype).toBe(wide)
  for (const f of [mx.sum, mx.prod]) {
    expect(f(x.index(0)).dtype).toBe(dtype)
    expect(f(x, []).dtype).toBe(dtype)
    expect(f(x, []).tolist()).toEqual(x.tolist())
  }
  expect(mx.countNonzero(x.index(0)).dtype).toBe(mx.int32)
})

test.each<[number[], number[] | null, boolean]>([
  [[], null, false],
  [[0], [0], false],
  [[1, 1], [0], false],
  [[1, 1], [1], true],
  [[1, 1], null, true],
  [[2, 2], [1], true],
  [[2, 2], [0, 1], false],
  [[1, 2], [0, 1], true],
  [[1, 1, 2], null, true],
  [[2, 1, 2], [1, 2], true],
])("softmax of integers of shape %j over %j", (shape, axes, isFloat) => {
  const y = mx.softmax(mx.zeros(shape, mx.int8), axes)
  expect(y.dtype).toBe(isFloat ? mx.float32 : mx.int8)
  expect(y.shape).toEqual(shape)
})

test("matrix norms by singular values of complex arrays", () => {
  const x = mx.array([
    [1, new mx.Complex(0, 2)],
    [3, 4],
  ])
  expect(([2, -2, "nuc", "fro"] as const).map((order) => mx.linalg.norm(x, order).dtype)).toEqual([
    mx.complex64,
    mx.complex64,
    mx.float32,
    mx.float32,
  ])
  expect(mx.real(mx.linalg.norm(x, 2)).item()).toBeCloseTo(5.30594, 4)
})

test("divmod of integers at the ends of their range", () => {
  const divmod = (a: number[], b: number[], dtype: mx.Dtype): unknown[] =>
    mx.divmod(mx.array(a, mx.int32).astype(dtype), mx.array(b, mx.int32).astype(dtype)).map((x) => x.tolist())
  expect(divmod([-(2 ** 31), 2 ** 31 - 1, 7, -7, 7, -7], [6, -2, 2, 2, -2, -2], mx.int32)).toEqual([
    [-357913942, -1073741824, 3, -4, -4, 3],
    [4, -1, 1, 1, -1, -1],
  ])
  expect(divmod([2, -128, -128, 127], [-128, 2, 127, -128], mx.int8)).toEqual([
    [-1, -64, -2, -1],
    [-126, 0, 126, -1],
  ])
  expect(divmod([250, 3], [7, 2], mx.uint8)).toEqual([
    [35, 1],
    [5, 1],
  ])
})
