/** Products by a matrix unit's tiles, which few processors have: by tiles in plain C++, through the same loops. */
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { expect, test, vi } from "vitest"
import "./index"

vi.hoisted(() => {
  process.env.LAZULI_TILES = "plain"
})

/** True if two arrays differ by no more than what rounding to bfloat16 once or, of packed weights, twice gives. */
function agree(got: mx.Array, want: mx.Array, size: mx.Array): void {
  const bound = size.multiply(2 ** -8)
  expect(got.astype(mx.float32).subtract(want).abs().lessEqual(bound).all().item()).toBe(true)
}
const half = (shape: number[], seed: number): mx.Array => noise(shape, seed).astype(mx.bfloat16)
const wide = (x: mx.Array): mx.Array => x.astype(mx.float32)

// One tile and less, ends of tiles on every side, several blocks, and more work than one thread takes.
test.each([
  [16, 32, 16],
  [2, 3, 5],
  [17, 33, 31],
  [33, 70, 48],
  [5, 1100, 600],
  [16, 4200, 33],
  [8, 257, 271],
  [150, 530, 40],
  [301, 1090, 203],
])("%i × %i × %i", (m, k, n) => {
  for (const order of [0, 1, 2, 3]) {
    const a = order & 1 ? half([k, m], 1).T : half([m, k], 1)
    const b = order & 2 ? half([n, k], 2).T : half([k, n], 2)
    const c = half([n], 3)
    const size = wide(a).abs().matmul(wide(b).abs())
    agree(a.matmul(b), wide(a).matmul(wide(b)), size)
    const sum = wide(a).matmul(wide(b)).multiply(0.5).add(wide(c).multiply(2))
    agree(mx.addmm(c, a, b, 0.5, 2), sum, size.add(wide(c).abs().multiply(2)))
  }
})

test.each([
  [2, 1024, 256],
  [7, 600, 301],
  [16, 130, 1050],
])("%i rows have the bits that they have among many, %i × %i", (m, k, n) => {
  const [a, b] = [half([40, k], 1), half([k, n], 2)]
  const among = a.matmul(b).index(`:${m}`).tolist()
  const few = a.index(`:${m}`)
  expect(few.matmul(b).tolist()).toEqual(among)
  expect(few.expandDims(1).matmul(b).index(":", 0).tolist()).toEqual(among)
  expect(few.T.contiguous().T.matmul(b).tolist()).toEqual(among)
  expect(few.matmul(mx.concatenate([b, b], 1).index(":", `:${n}`)).tolist()).toEqual(among)
})

test("packed weights", () => {
  for (const q of [{ bits: 4 }, { bits: 3, groupSize: 32 }, { mode: "nvfp4" as const }])
    for (const transpose of [true, false]) {
      const [rows, k, n] = [70, 720, 384]
      const packed = mx.quantize(half(transpose ? [n, transpose ? 768 : k] : [k, n], 4), q)
      const x = half([rows, transpose ? 768 : k], 5)
      const stored = mx.dequantize(packed[0], packed[1], packed[2], { ...q, dtype: mx.float32 })
      const w = transpose ? stored.T : stored
      const got = mx.quantizedMatmul(x, packed[0], packed[1], packed[2], { transpose, ...q })
      agree(got, wide(x).matmul(w), wide(x).abs().matmul(w.abs()))
    }
})
