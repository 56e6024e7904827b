import { expect, it } from "vitest"
import * as mx from "../index"

it("linspace takes num, endpoint and dtype in this order", () => {
  expect(mx.linspace(0, 10, 5, false).tolist()).toEqual([0, 2, 4, 6, 8])
  const counted = mx.linspace(0, 4, 5, true, mx.int32)
  expect([counted.dtype, counted.tolist()]).toEqual([mx.int32, [0, 1, 2, 3, 4]])
  expect(mx.linspace(0, 1, { endpoint: false, num: 2 }).tolist()).toEqual([0, 0.5])
  expect(mx.linspace(0, 1, null, { dtype: mx.float16 }).shape).toEqual([50])
  expect(() => mx.linspace(0, 1, 3, mx.int32 as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [linspace] endpoint must be true or false, received the function int32. The dtype comes after it, or by name: mx.linspace(0, 1, 5, { dtype })]`,
  )
})

it("windows take their size by MLX's name M", () => {
  for (const window of [mx.bartlett, mx.blackman, mx.hamming, mx.hanning])
    expect(window({ M: 4 }).tolist()).toEqual(window(4).tolist())
  expect(() => mx.hanning({ m: 4 } as never)).toThrow('Did you mean "M"?')
  expect(() => mx.hanning(2.5)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [hanning] M must be an integer of at most 268435456, received the number 2.5]`,
  )
})
