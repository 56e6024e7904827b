// Softmax and norms of arrays that no cache holds, which are stored around the caches, against the same rows in pieces.
import "./index"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"

test("a softmax too large for the caches has the bits of its pieces", () => {
  // Rows that begin anywhere in a cache line, and rows too long to be kept beside the result.
  for (const [rows, n] of [
    [401, 12_007],
    [120, 40_001],
    [70_000, 67],
  ])
    for (const dtype of rows === 401 ? [mx.float32, mx.bfloat16, mx.float16] : [mx.float32]) {
      const x = mx
        .sin(mx.arange(rows * n))
        .multiply(4)
        .astype(dtype)
        .reshape([rows, n])
      const whole = mx.softmax(x, -1)
      const part = Math.ceil(rows / 8)
      const pieces = Array.from({ length: 8 }, (_, i) =>
        mx.softmax(mx.contiguous(x.index(`${i * part}:${(i + 1) * part}`)), -1),
      )
      expect(mx.arrayEqual(whole, mx.concatenate(pieces, 0)).item()).toBe(true)
      const sums = whole.astype(mx.float32).sum(-1)
      expect(mx.max(mx.abs(sums.subtract(1))).item()).toBeLessThan(dtype === mx.float32 ? 1e-5 : 2e-2)
    }
})

test("norms too large for the caches have the bits of their pieces", () => {
  for (const [rows, n] of [
    [4200, 1024],
    [4001, 1050],
  ]) {
    const x = mx
      .sin(mx.arange(rows * n))
      .multiply(4)
      .reshape([rows, n])
    const w = mx.cos(mx.arange(n))
    for (const norm of [
      (a: mx.Array) => mx.fast.layerNorm(a, w, w, 1e-5),
      (a: mx.Array) => mx.fast.rmsNorm(a, w, 1e-5),
    ]) {
      const part = Math.ceil(rows / 4)
      const pieces = [0, 1, 2, 3].map((i) => norm(mx.contiguous(x.index(`${i * part}:${(i + 1) * part}`))))
      expect(mx.arrayEqual(norm(x), mx.concatenate(pieces, 0)).item()).toBe(true)
    }
  }
})

test("a NaN spreads over its row, whatever its bits", () => {
  const bits = new Uint32Array([0x7fc00000, 0x7fffffff, 0xffffffff, 0x7fc00001, 0xffc00003])
  const nan = mx.view(mx.array(bits), mx.float32).reshape([5, 1])
  const rest = mx.broadcastTo(mx.sin(mx.arange(40)), [5, 40])
  const rows = mx.concatenate([rest, nan, rest], 1)
  const all = (a: mx.Array) => mx.all(mx.isnan(a)).item()
  expect(all(mx.softmax(rows, -1))).toBe(true)
  expect(all(mx.softmax(rows.transpose(), 0))).toBe(true)
  expect(all(mx.logsumexp(rows, -1))).toBe(true)
  expect(all(mx.softmax(mx.log(mx.array([-1, 1, 2]))))).toBe(true)
  const keys = mx.broadcastTo(rows.reshape([5, 1, 81, 1]), [5, 1, 81, 16])
  for (const queries of [1, 40]) {
    const q = mx.ones([5, 1, queries, 16])
    expect(all(mx.fast.scaledDotProductAttention(q, keys, mx.ones(keys.shape), { scale: 1 }))).toBe(true)
  }
})
