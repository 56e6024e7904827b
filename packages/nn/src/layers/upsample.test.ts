import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import * as nn from "../index"

const along = (values: number[], dtype: mx.Dtype = mx.float32) =>
  mx.array(values, dtype).reshape([1, values.length, 1])
const list = (x: mx.Array): number[] => x.flatten().tolist() as number[]

describe("antialias", () => {
  // MLX's values: output i lies at i / s − ((m − 1) / s − n + 1) / 2 of n positions for m = ⌊s n⌋.
  test.each([
    [0.75, "linear", [1, 2], [1.5]],
    [0.7, "linear", [1, 2, 3], [1.384615, 2.615385]],
    [0.5, "linear", [1, 2, 3, 4], [1.714286, 3.285714]],
    [0.4, "linear", [1, 2, 3, 4, 5, 9], [2.333333, 5.291667]],
    [0.45, "cubic", [1, 5, 3, 4, 2, 9, 7], [3.221749, 3.342083, 6.892214]],
    [0.6, "cubic", [1, 5, 3, 4, 2], [2.692308, 3.851163, 2.8]],
  ] as const)("by %d, %s, of %j", (scale, mode, from, to) => {
    const y = new nn.Upsample(scale, { mode, antialias: true }).forward(along([...from]))
    list(y).forEach((value, i) => expect(value).toBeCloseTo(to[i], 4))
    expect(y.shape).toEqual([1, to.length, 1])
  })

  test("is symmetric, and keeps constants, at every factor", () => {
    for (const mode of ["linear", "cubic"] as const)
      for (const scale of [0.3, 0.45, 0.5, 0.61, 0.75, 0.9, 1.3]) {
        const layer = new nn.Upsample(scale, { mode, antialias: true })
        const y = list(layer.forward(along([1, 2, 3, 4, 5, 6, 7])))
        y.forEach((value, i) => expect(value + y[y.length - 1 - i]).toBeCloseTo(8, 4))
        for (const value of list(layer.forward(along([3, 3, 3, 3, 3])))) expect(value).toBeCloseTo(3, 5)
      }
  })

  test("of nothing is nothing", () => {
    expect(new nn.Upsample(0.4, { mode: "linear", antialias: true }).forward(along([1, 2])).shape).toEqual([
      1, 0, 1,
    ])
  })

  test("is refused with alignCorners, as in MLX", () => {
    expect(
      () => new nn.Upsample(0.5, { mode: "linear", antialias: true, alignCorners: true }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [Upsample] antialiasing cannot be combined with alignCorners]`,
    )
  })
})

test("integers are interpolated in float32", () => {
  for (const mode of ["linear", "cubic"] as const) {
    const layer = new nn.Upsample(2, { mode })
    const y = layer.forward(along([1, 2], mx.int32))
    expect(y.dtype).toBe(mx.float32)
    expect(list(y)).toEqual(list(layer.forward(along([1, 2]))))
  }
  expect(new nn.Upsample(2).forward(along([1, 2], mx.int32)).dtype).toBe(mx.int32)
})

test("16-bit floats are interpolated in float32, as in MLX", () => {
  for (const dtype of [mx.float16, mx.bfloat16]) {
    const y = (options: nn.UpsampleOptions) => new nn.Upsample(2, options).forward(along([1, 2, 4], dtype))
    const linear = y({ mode: "linear", alignCorners: true })
    expect(linear.dtype).toBe(mx.float32)
    expect(list(linear)[1]).toBeCloseTo(1.4, 6)
    const cubic = y({ mode: "cubic" })
    expect(cubic.dtype).toBe(mx.float32)
    expect(list(cubic)).toEqual([0.89453125, 1.15625, 1.5625, 2.55859375, 3.58203125, 4.2109375])
    expect(y({ mode: "nearest" }).dtype).toBe(dtype)
  }
  const wide = new nn.Upsample(2, { mode: "linear" }).forward(along([1, 2], mx.float64))
  expect(wide.dtype).toBe(mx.float64)
})

test("more positions than a table may have are refused", () => {
  const x = along([1, 2, 3])
  for (const mode of ["linear", "cubic"] as const)
    expect(() => new nn.Upsample(2e9, mode).forward(x)).toThrow(
      "[Upsample] axis 1 would have 6000000000 positions, at most 33554432",
    )
  expect(() => new nn.Upsample(2e9 + 0.5).forward(x)).toThrow(
    "[Upsample] axis 1 would have 6000000001 positions",
  )
  expect(new nn.Upsample(2e9).forward(x).shape).toEqual([1, 6e9, 1])
})

test("windows of more elements than there may be arrays are refused", () => {
  expect(() => new nn.MaxPool1d(2 ** 30, 1, 2 ** 29).forward(along([1, 2, 3]))).toThrow(
    "[MaxPool1d] a window has 1073741824 elements, at most 1048576 unless windows are tiles",
  )
})
