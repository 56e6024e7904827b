import { jvp, vjp, vmap } from "@lazuli/transforms"
import { expect, test } from "vitest"
import * as mx from "../index"

const numbers = (a: mx.Array): number[] =>
  globalThis.Array.from(a.toTypedArray() as unknown as ArrayLike<number>)
const transform = (x: mx.Array): mx.Array => mx.hadamardTransform(x)
const distance = (a: mx.Array, b: mx.Array): number => a.subtract(b).abs().max().item() as number
mx.random.seed(5)

test.each([1, 2, 4, 16, 12, 24, 20, 40, 28, 56])(
  "the matrix of size %i has orthogonal rows of 1 and -1",
  (n) => {
    const rows = mx.hadamardTransform(mx.eye(n), 1)
    expect(numbers(rows).every((v) => Math.abs(v) === 1)).toBe(true)
    expect(distance(rows.matmul(rows.T), mx.eye(n).multiply(n))).toBe(0)
  },
)

test("scale, order, dtypes", () => {
  expect(mx.hadamardTransform(mx.array([1, 2, 3, 4]), 1).tolist()).toEqual([10, -2, -4, 0])
  expect(mx.hadamardTransform(mx.array([1, 2, 3, 4]), { scale: 0.5 }).tolist()).toEqual([5, -1, -2, 0])
  expect(mx.hadamardTransform(mx.array([1, 2, 3, 4])).tolist()).toEqual([5, -1, -2, 0])
  expect(mx.hadamardTransform(mx.array(3), 2).item()).toBe(6)
  expect(mx.hadamardTransform(mx.array([1, 1], mx.int32)).dtype).toBe(mx.float32)
  for (const dtype of [mx.float16, mx.bfloat16, mx.float64])
    expect(mx.hadamardTransform(mx.ones([4], dtype)).dtype).toBe(dtype)
  expect(mx.hadamardTransform(mx.zeros([0, 8])).shape).toEqual([0, 8])
  // Applied twice, a symmetric one gives back what it had.
  const x = mx.random.normal([3, 24])
  expect(distance(transform(transform(x)), x)).toBeLessThan(1e-5)
})

test.each([8, 24, 20, 28])("transforms, for size %i", (n) => {
  const [x, t, g] = [1, 2, 3].map(() => mx.random.normal([3, n], mx.float64))
  const [, [tangent]] = jvp(transform, [x], [t])
  expect(distance(tangent, transform(t))).toBe(0)
  const [, [gradient]] = vjp(transform, [x], [g])
  const inner = (a: mx.Array, b: mx.Array): number => a.multiply(b).sum().item() as number
  expect(inner(gradient, t)).toBeCloseTo(inner(g, tangent), 10)
  expect(distance(vmap(transform, { inAxes: 0, outAxes: 1 })(x), transform(x).T)).toBe(0)
})

test("errors", () => {
  expect(() => mx.hadamardTransform(mx.ones([2, 13]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [hadamardTransform] the last axis must have a size of m · 2^k with m of 1, 12, 20 or 28, received 13]`,
  )
  expect(() => mx.hadamardTransform(mx.ones([2, 0]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [hadamardTransform] the last axis must have a size of m · 2^k with m of 1, 12, 20 or 28, received 0]`,
  )
  expect(() => mx.hadamardTransform(mx.ones([4], mx.complex64))).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [hadamardTransform] complex64 is not supported. Transform the real and imaginary parts separately]`,
  )
  expect(() => mx.hadamardTransform(mx.ones([4]), "2" as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [hadamardTransform] scale must be a number, received the string "2"]`,
  )
})
