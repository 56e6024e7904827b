/** The kernel of block-masked products against the reference backend. */
import * as mx from "@lazuli/core"
import { setBackend } from "@lazuli/core/engine"
import { afterEach, describe, expect, test } from "vitest"
import "./index"

// A primitive without a kernel would run by its decomposition, and be counted.
afterEach(() => expect(mx.backendStats()).toEqual({}))

const numbers = (shape: number[], seed: number): mx.Array =>
  mx.random.uniform({ low: -1, high: 1, shape, key: mx.random.key(seed) })
const kept = (shape: number[], seed: number): mx.Array => numbers(shape, seed).greater(0)

describe.each([mx.float32, mx.float16, mx.bfloat16, mx.float64])("%s", (dtype) => {
  const bound = { float32: 1e-5, float16: 3e-2, bfloat16: 2e-1, float64: 1e-12 }[dtype.name] as number
  const close = (run: () => mx.Array): void => {
    const got = run()
    mx.eval(got)
    setBackend("reference", "cpu")
    const want = run()
    mx.eval(want)
    setBackend("cpu", "cpu")
    mx.resetBackendStats()
    expect([got.dtype, got.shape]).toEqual([dtype, want.shape])
    if (want.size > 0)
      expect(got.astype(mx.float32).subtract(want.astype(mx.float32)).abs().max().item()).toBeLessThan(bound)
  }

  test("masks of either kind over each operand", () => {
    const [a, b] = [numbers([70, 100], 1).astype(dtype), numbers([100, 90], 2).astype(dtype)]
    for (const blockSize of [32, 64]) {
      const shapes = [
        [70, 90],
        [70, 100],
        [100, 90],
      ].map((shape) => shape.map((size) => Math.ceil(size / blockSize)))
      const [maskOut, maskLhs, maskRhs] = shapes.map((shape, i) => kept(shape, 3 + i))
      const factors = shapes.map((shape, i) => numbers(shape, 6 + i).astype(dtype))
      close(() => mx.blockMaskedMm(a, b, blockSize))
      close(() => mx.blockMaskedMm(a, b, blockSize, maskOut))
      close(() => mx.blockMaskedMm(a, b, blockSize, null, maskLhs, maskRhs))
      close(() => mx.blockMaskedMm(a, b, blockSize, ...factors))
      close(() => mx.blockMaskedMm(a, b, blockSize, maskOut, factors[1], maskRhs))
    }
  })

  test("batches, broadcasts, views, vectors and empty operands", () => {
    const a = numbers([3, 1, 80, 40], 1).astype(dtype)
    const b = numbers([2, 33, 80], 2).astype(dtype).swapaxes(-1, -2)
    const mask = kept([2, 3, 2], 3)
    close(() => mx.blockMaskedMm(a.swapaxes(-1, -2), b, 32, null, null, mask))
    close(() =>
      mx.blockMaskedMm(a.index("...", "::2", ":").swapaxes(-1, -2), b.index("...", "::-2", ":"), 32),
    )
    close(() => mx.blockMaskedMm(numbers([64], 4).astype(dtype), numbers([64, 5], 5).astype(dtype), 32))
    for (const [m, k, n] of [
      [0, 4, 3],
      [4, 0, 3],
      [1, 200, 1],
    ])
      close(() =>
        mx.blockMaskedMm(numbers([m, k], 6).astype(dtype), numbers([k, n], 7).astype(dtype), 64, {
          maskOut: kept([Math.ceil(m / 64), Math.ceil(n / 64)], 8),
        }),
      )
  })
})

test("what a bool mask drops is not looked at", () => {
  const a = mx.concatenate([mx.full([4, 32], Number.NaN), mx.ones([4, 32])], 1)
  const maskLhs = mx.array([[false, true]])
  expect(mx.blockMaskedMm(a, mx.ones([64, 2]), 32, { maskLhs }).tolist()).toEqual(
    new globalThis.Array(4).fill([32, 32]),
  )
  const nothing = mx.array([[false]])
  expect(
    mx
      .blockMaskedMm(a, mx.ones([64, 2]), 64, { maskOut: nothing })
      .sum()
      .item(),
  ).toBe(0)
})
