/**
 * Attention on the CPU: the kernel and the reference agree where queries see nothing, and float64 keeps its precision.
 */
import "./index"
import * as mx from "@lazuli/core"
import { jvp, vjp } from "@lazuli/transforms"
import { expect, test } from "vitest"

const random = (seed: number, shape: number[]): mx.Array =>
  mx.random.normal(shape, { key: mx.random.key(seed) })
const [q, k, v] = [random(1, [1, 2, 3, 4]), random(2, [1, 1, 3, 4]), random(3, [1, 1, 3, 4])]
const c = random(4, [1, 2, 3, 4])
// The second query sees no key.
const mask = mx.array([
  [true, false, true],
  [false, false, false],
  [true, true, true],
])
const attend = (...[a, b, w]: mx.Array[]): mx.Array =>
  mx.fast.scaledDotProductAttention(a, b, w, { scale: 0.5, mask })
const wide = (xs: readonly mx.Array[]): mx.Array[] => xs.map((x) => x.astype(mx.float64))
const far = (a: mx.Array, b: mx.Array): number =>
  a.astype(mx.float64).subtract(b.astype(mx.float64)).abs().max().item() as number

test("a query that sees nothing gives zeros and passes no gradient, by the kernel and by the reference", () => {
  const [[y], [dq, dk, dv]] = vjp(attend, [q, k, v], [c])
  expect(y.index(0, ":", 1).tolist()).toEqual(mx.zeros([2, 4]).tolist())
  expect(dq.index(0, ":", 1).tolist()).toEqual(mx.zeros([2, 4]).tolist())
  const [[exact], grads] = vjp(attend, wide([q, k, v]) as [mx.Array, mx.Array, mx.Array], [
    c.astype(mx.float64),
  ])
  expect(far(y, exact)).toBeLessThan(1e-6)
  ;[dq, dk, dv].forEach((g, i) => {
    expect(far(g, grads[i])).toBeLessThan(1e-5)
  })
})

test("float64 is computed in float64", () => {
  const [a, b, w] = wide([q, k, v])
  const along = (h: number): mx.Array => attend(a.add(b.sum().multiply(h)), b, w)
  const slope = along(1e-5).subtract(along(-1e-5)).divide(2e-5)
  const t = mx.ones(a.shape, mx.float64).multiply(b.sum())
  expect(far(jvp((x: mx.Array) => attend(x, b, w), [a], [t])[1][0], slope)).toBeLessThan(1e-6)
})

test("few queries a head of k and v agree with float64, whatever their masks, dtypes and layouts", () => {
  const tolerances = [[mx.float32, 2e-6], [mx.float16, 2e-3], [mx.bfloat16, 1.6e-2]] as const // biome-ignore format: one line
  const sizes = [[4, 2, 1, 2500], [4, 1, 3, 1100], [2, 2, 2, 130], [6, 3, 8, 5], [1, 1, 1, 1], [5, 1, 1, 300], [6, 1, 1, 300], [7, 1, 1, 300]] // biome-ignore format: one line
  for (const [dtype, tolerance] of tolerances)
    for (const [heads, kvHeads, rows, columns] of sizes) {
      const depth = columns === 130 ? 37 : 64
      const a = random(5, [2, heads, rows, depth]).astype(dtype)
      // As caches lay them out: heads inside rows.
      const b = random(6, [2, columns, kvHeads, depth]).astype(dtype).swapaxes(1, 2)
      const w = random(7, [2, kvHeads, columns, columns === 300 ? depth : depth + 3]).astype(dtype)
      const allowed = random(8, [heads, rows, columns]).greater(0)
      // The second part of the columns is hidden from the first row, and from the others all but that.
      const second = mx.arange(columns).greaterEqual(1024)
      const parts = mx.stack([second.logicalNot(), ...Array.from({ length: rows - 1 }, () => second)])
      const masks = [null, "causal", allowed, parts, random(9, [rows, columns]).astype(dtype)] as const
      for (const mask of masks) {
        const result = mx.fast.scaledDotProductAttention(a, b, w, { scale: 0.2, mask })
        const exact = mx.fast.scaledDotProductAttention(
          ...(wide([a, b, w]) as [mx.Array, mx.Array, mx.Array]),
          {
            scale: 0.2,
            mask: mask instanceof mx.Array && mask.dtype === dtype ? mask.astype(mx.float64) : mask,
          },
        )
        expect(far(result, exact)).toBeLessThan(tolerance)
      }
    }
})

test("few queries give NaN where a key is NaN, and zeros where they see nothing", () => {
  const keys = mx.where(
    mx.arange(1500).equal(1300).reshape([1, 1, 1500, 1]),
    Number.NaN,
    random(2, [1, 1, 1500, 4]),
  )
  const values = random(3, [1, 1, 1500, 4])
  const query = q.index(":", ":", ":1")
  expect(
    mx
      .isnan(mx.fast.scaledDotProductAttention(query, keys, values, { scale: 1 }))
      .all()
      .item(),
  ).toBe(true)
  const nothing = mx.fast.scaledDotProductAttention(query, values, values, {
    scale: 1,
    mask: mx.zeros([1500], mx.bool),
  })
  expect(nothing.abs().max().item()).toBe(0)
})

test("memory grows with the length, not with its square", () => {
  const length = 8192
  const [a, b, w] = [10, 11, 12].map((seed) => random(seed, [1, 2, length, 16]))
  mx.eval(a, b, w)
  const floating = random(13, [length]).broadcastTo([length, length])
  for (const mask of [null, "causal", floating] as const) {
    mx.resetPeakMemory()
    const before = mx.getActiveMemory()
    mx.eval(mx.fast.scaledDotProductAttention(a, b, w, { scale: 0.25, mask }))
    // The result takes 1 MB, the scores of one head would take 256.
    expect(mx.getPeakMemory() - before).toBeLessThan(16 * 2 ** 20)
  }
})

test("blocks of keys that a mask hides from all queries are not read", () => {
  const columns = 1500
  const [b, w] = [random(6, [1, 2, columns, 64]), random(7, [1, 2, columns, 64])]
  const NOTHING = mx.full([1], Number.NaN)
  for (const [first, last] of [[0, 40], [200, 300], [1100, 1200]] as const) // biome-ignore format: one line
    for (const rows of [1, 3]) {
      const a = random(5, [1, 4, rows, 64])
      const at = mx.arange(columns)
      const seen = at.greaterEqual(first).logicalAnd(at.lessEqual(last))
      // Whole blocks that nothing is seen of hold what no arithmetic forgives.
      const kept = at
        .greaterEqual(first - 128)
        .logicalAnd(at.less(last + 128))
        .reshape([columns, 1])
      const [dirtyB, dirtyW] = [b, w].map((x) => mx.where(kept, x, NOTHING))
      const [got, want] = [
        mx.fast.scaledDotProductAttention(a, dirtyB, dirtyW, { scale: 0.125, mask: seen }),
        mx.fast.scaledDotProductAttention(a, b, w, { scale: 0.125, mask: seen }),
      ]
      expect(got.tolist()).toEqual(want.tolist())
      const part = ["...", mx.s(first, last + 1), ":"] as const
      expect(
        far(got, mx.fast.scaledDotProductAttention(a, b.index(...part), w.index(...part), { scale: 0.125 })),
      ).toBeLessThan(1e-6)
    }
})
