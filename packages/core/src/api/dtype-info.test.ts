import { expect, it } from "vitest"
import * as mx from "../index"

it("finfo tells bits and the smallest normal number", () => {
  const facts = [mx.float16, mx.bfloat16, mx.float32, mx.float64].map((dtype) => {
    const { bits, smallestNormal } = mx.finfo(dtype)
    return [bits, Math.log2(smallestNormal)]
  })
  expect(facts).toEqual([
    [16, -14],
    [16, -126],
    [32, -126],
    [64, -1022],
  ])
  expect(mx.finfo(mx.complex64).bits).toBe(32)
})

it("asarray copies what JavaScript holds and never an array", () => {
  const x = mx.array([1, 2])
  for (const copy of [true, false, null]) expect(mx.asarray(x, { copy }).tolist()).toEqual([1, 2])
  expect(mx.asarray(x, mx.int32, { copy: true }).dtype).toBe(mx.int32)
  const source = new Float32Array([1, 2])
  const copied = mx.asarray(source, { copy: true })
  source[0] = 5
  expect(copied.tolist()).toEqual([1, 2])
  expect(() => mx.asarray(source, { copy: false })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [asarray] copy is false, but a value of type Float32Array must be copied]`,
  )
  expect(() => mx.asarray(x, mx.int32, { copy: false })).toThrow(mx.ArgumentError)
})

it("CUDA is not there without its backend", () => {
  expect(mx.cuda.isAvailable()).toBe(false)
})
