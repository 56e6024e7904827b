import { describe, expect, test } from "vitest"
import * as mx from "../index"

test("a key gives the same bits as in MLX", () => {
  const key = mx.random.key(42)
  expect(key.tolist()).toEqual([0, 42])
  expect(mx.random.key(2n ** 33n + 5n).tolist()).toEqual([2, 5])
  expect(mx.random.key(-1).tolist()).toEqual([2 ** 32 - 1, 2 ** 32 - 1])
  expect(mx.random.bits([3], 1, key).dtype).toBe(mx.uint8)
  expect(mx.random.bits({ shape: [3], width: 2, key }).dtype).toBe(mx.uint16)
  // Narrow elements are the bytes of the same words.
  const words = mx.random.bits([2], 4, key).toTypedArray() as Uint32Array
  expect([...(mx.random.bits([8], 1, key).toTypedArray() as Uint8Array)]).toEqual([
    ...new Uint8Array(words.buffer),
  ])
})

test("normal and Laplace samples of 16 bits are drawn in float32, as in MLX", () => {
  const [shape, key] = [[4], mx.random.key(0)]
  expect(mx.random.normal({ shape, dtype: mx.float16, key }).tolist()).toEqual([
    1.8154296875, -0.7548828125, 0.33984375, -0.53466796875,
  ])
  expect(mx.random.laplace({ shape, dtype: mx.bfloat16, key }).tolist()).toEqual([
    -2.671875, 0.796875, -0.30859375, 0.5234375,
  ])
})

test("the state is one key, split at every draw", () => {
  mx.random.seed(3)
  const [before] = mx.random.state
  const a = mx.random.uniform({ shape: [3] })
  const pair = mx.random.split(before)
  expect(mx.random.state[0].tolist()).toEqual(pair.index(0).tolist())
  expect(a.tolist()).toEqual(mx.random.uniform({ shape: [3], key: pair.index(1) }).tolist())
  expect(mx.random.uniform({ shape: [3] }).tolist()).not.toEqual(a.tolist())
  mx.random.seed(3)
  expect(mx.random.uniform({ shape: [3] }).tolist()).toEqual(a.tolist())
})

describe("moments of 20,000 draws", () => {
  const n = 20_000
  const key = mx.random.key(1)
  const cases: [string, mx.Array, number, number][] = [
    ["uniform", mx.random.uniform(-1, 3, { shape: [n], key }), 1, 4 / 3],
    ["normal", mx.random.normal([n], { loc: 2, scale: 3, key }), 2, 9],
    ["laplace", mx.random.laplace([n], { loc: 1, scale: 2, key }), 1, 8],
    ["gumbel", mx.random.gumbel([n], { key }), 0.5772, Math.PI ** 2 / 6],
    ["randint", mx.random.randint(0, 10, { shape: [n], key }).astype(mx.float32), 4.5, 8.25],
    ["bernoulli", mx.random.bernoulli(0.3, { shape: [n], key }).astype(mx.float32), 0.3, 0.21],
    ["truncatedNormal", mx.random.truncatedNormal(-1, 1, { shape: [n], key }), 0, 0.2911],
    [
      "categorical",
      mx.random.categorical(mx.array([0, Math.log(3)]), { shape: [n], key }).astype(mx.float32),
      0.75,
      0.1875,
    ],
  ]
  for (const [name, x, mean, variance] of cases)
    test(name, () => {
      expect(Math.abs((mx.mean(x).item() as number) - mean)).toBeLessThan(4 * Math.sqrt(variance / n) + 1e-3)
      expect(Math.abs((mx.var(x).item() as number) / variance - 1)).toBeLessThan(0.06)
    })
})

test("uniform stays below its upper bound", () => {
  for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
    const x = mx.random.uniform({ shape: [4000], dtype, key: mx.random.key(5) })
    expect(x.max().item()).toBeLessThan(1)
    expect(x.min().item()).toBeGreaterThanOrEqual(0)
  }
})

test("permutation", () => {
  const p = mx.random.permutation(10, { key: mx.random.key(0) })
  expect(mx.sort(p).tolist()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  const x = mx.arange(6).reshape([2, 3])
  expect(mx.random.permutation(x, 1).sum(1).tolist()).toEqual([3, 12])
})

test("errors", () => {
  for (const n of [-1, 1.5])
    expect(() => mx.random.permutation(n)).toThrow(
      `[random.permutation] x must be an array or a non-negative integer, received the number ${n}`,
    )
  expect(() => mx.random.uniform({ dtype: mx.int32 })).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [random.uniform] expected a floating dtype, received int32]`,
  )
  expect(() => mx.random.uniform(mx.zeros([3]), 1, { shape: [2] })).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [random.uniform] shapes (3,) and (2,) cannot be broadcast: 3 and 2 differ and neither is 1]`,
  )
  expect(() => mx.random.split(mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [random.split] a key must be uint32, received float32. mx.random.key(seed) makes one]`,
  )
  expect(() => mx.random.key(0.5)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [random.key] a seed must be an integer, received the number 0.5]`,
  )
  expect(() => mx.random.normal({ shapes: [2] } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [random.normal] has no parameter "shapes"; it takes shape, dtype, loc, scale, key, stream. Did you mean "shape"?]`,
  )
  expect(() => mx.random.bits([1], 3 as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [random.bits] width must be 1, 2 or 4 bytes, received the number 3]`,
  )
  expect(() => mx.random.categorical(mx.zeros([2, 3]), { shape: [5] })).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [random.categorical] shapes (5,) and (2,) cannot be broadcast: 5 and 2 differ and neither is 1]`,
  )
  expect(() => mx.random.bernoulli(mx.array([1], mx.int32))).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [random.bernoulli] p must be floating, received int32]`,
  )
})

test("randint gives bools, and stays between bounds that float32 does not hold", () => {
  const key = mx.random.key(3)
  const flips = mx.random.randint(0, 2, [400], mx.bool_, key)
  expect(flips.dtype).toBe(mx.bool_)
  expect(Math.abs(flips.astype(mx.int32).sum().item() as number) / 400).toBeCloseTo(0.5, 1)
  expect(mx.random.randint(0, 1, [20], mx.bool_, key).any().item()).toBe(false)
  const one = 2 ** 24 + 1
  expect(mx.random.randint(one, one + 1, { shape: [3], key }).tolist()).toEqual([one, one, one])
  const bounds = mx.array([one, one + 1], mx.int32)
  expect(mx.random.randint(bounds.index(0), bounds.index(1), { key }).item()).toBe(one)
  const all = mx.random.randint(0, 2 ** 31 - 1, { shape: [4096], key })
  expect([(all.min().item() as number) >= 0, (all.max().item() as number) < 2 ** 31 - 1]).toEqual([
    true,
    true,
  ])
  expect(mx.random.randint(0, 256, [1000], mx.uint8, key).max().item()).toBeGreaterThan(250)
  expect(() => mx.random.randint(0, 300, [3], mx.uint8)).toThrow(mx.DTypeError)
  expect(() => mx.random.randint(0, 3, [3], mx.float16)).toThrow("expected an integer dtype or bool_")
})

test("a seed of more than 64 bits is refused", () => {
  expect(mx.random.key(2n ** 64n - 1n).tolist()).toEqual([2 ** 32 - 1, 2 ** 32 - 1])
  for (const seed of [2n ** 64n, -(2n ** 63n) - 1n])
    expect(() => mx.random.key(seed)).toThrow("[random.key] a seed must have at most 64 bits")
})
