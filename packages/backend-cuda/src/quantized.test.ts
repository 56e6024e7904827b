/**
 * Products with packed weights on the test double: every format that the kernels take, rows and columns that fill no block, few rows and
 * many.
 */
import "../test/double"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import "./index"
import { wave } from "../test/waves"

beforeAll(() => mx.setBackend("cuda", "gpu"))

/** Rows and columns within a dtype's precision. */
function expectNear(got: Float32Array, want: Float32Array, dtype: mx.Dtype): void {
  expect(got.length).toBe(want.length)
  got.forEach((x, i) => {
    const tolerance =
      (dtype === mx.float32 ? 1e-4 : dtype === mx.float16 ? 1e-2 : 8e-2) * (1 + Math.abs(want[i]))
    if (!(Math.abs(x - want[i]) <= tolerance)) expect([i, x]).toEqual([i, want[i]])
  })
}

it.each([
  [4, 32, mx.float16, 1],
  [4, 64, mx.bfloat16, 3],
  [8, 32, mx.float32, 1],
  [8, 128, mx.float16, 8],
] as const)(
  "of %d bits in groups of %d agree with the reference",
  (bits, groupSize, dtype, rows) => {
    const f = (): Float32Array => {
      const [w, scales, biases] = mx.quantize(wave([37, 384], dtype, 1), { groupSize, bits })
      const y = mx.quantizedMatmul(wave([rows, 384], dtype, 2), w, scales, biases, {
        transpose: true,
        groupSize,
        bits,
      })
      return y.astype(mx.float32).toTypedArray() as Float32Array
    }
    const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, f))
    expectNear(got, want, dtype)
  },
  60_000,
)

it.each([
  [4, 32, mx.bfloat16, [2, 9], true],
  [8, 64, mx.float32, [33], true],
  [4, 64, mx.float16, [3, 5, 4], false],
  [8, 32, mx.bfloat16, [17], false],
] as const)(
  "of %d bits in groups of %d and many rows agree with the reference",
  (bits, groupSize, dtype, rows, transpose) => {
    const f = (): Float32Array => {
      const [w, scales, biases] = mx.quantize(wave(transpose ? [40, 128] : [96, 64], dtype, 1), {
        groupSize,
        bits,
      })
      const x = wave([...rows, transpose ? 128 : 96], dtype, 2)
      // Rows lie as columns too.
      const turned = x.ndim === 2 ? x.transpose().multiply(1).transpose() : x
      const y = mx.quantizedMatmul(turned, w, scales, biases, { transpose, groupSize, bits })
      return y.astype(mx.float32).toTypedArray() as Float32Array
    }
    const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, f))
    expectNear(got, want, dtype)
  },
  60_000,
)

it("of rows rounded to 8 bits are those of the rounded rows", () => {
  const f = (): Float32Array => {
    const [w, scales, biases] = mx.quantize(wave([40, 128], mx.float16, 1), { groupSize: 32 })
    const x = wave([3, 128], mx.float16, 2)
    const y = mx.quantizedMatmul(x, w, scales, biases, { groupSize: 32, activations: "int8" })
    return y.astype(mx.float32).toTypedArray() as Float32Array
  }
  const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, f))
  expectNear(got, want, mx.float16)
}, 60_000)
