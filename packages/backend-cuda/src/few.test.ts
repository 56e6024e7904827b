/**
 * Products and attention of a few rows on the test double: every form of the kernels agrees with the reference.
 */
import "../test/double"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it, vi } from "vitest"
import { callsOf } from "../test/calls"
import { wave } from "../test/waves"
import { cudaRuntime } from "./index"

beforeAll(() => mx.setBackend("cuda", "gpu"))

/** The command of a launch. */
const THREADS = 5

const valuesOf = (x: mx.Array): Float32Array => x.astype(mx.float32).toTypedArray() as Float32Array

/** Within a dtype's precision. */
function agree(f: () => mx.Array, tolerance: number): void {
  const [got, want] = [mx.gpu, mx.cpu].map((device) => mx.stream(device, () => valuesOf(f())))
  expect(got.length).toBe(want.length)
  got.forEach((x, i) => {
    if (!(Math.abs(x - want[i]) <= tolerance * (1 + Math.abs(want[i])))) expect([i, x]).toEqual([i, want[i]])
  })
}

it("products of a few rows are those of the reference, whatever the columns, with a row that is added", () => {
  const products = callsOf(32)
  for (const [dtype, rows, k, columns] of [
    [mx.bfloat16, 1, 136, 150],
    [mx.float16, 1, 1096, 128],
    [mx.bfloat16, 1, 256, 161],
    [mx.bfloat16, 8, 264, 130],
    [mx.float16, 3, 128, 129],
  ] as const) {
    const [x, w] = [() => wave([rows, k], dtype, 1), () => wave([columns, k], dtype, 2)]
    const tolerance = dtype === mx.float16 ? 1e-2 : 8e-2
    agree(() => mx.matmul(x(), w().T), tolerance)
    agree(() => mx.addmm(wave([columns], dtype, 3), x().expandDims(0), w().T), tolerance)
  }
  expect(products()).toBe(0)
}, 120_000)

it.each([
  [4, 32, mx.float16, 2, 384],
  [4, 64, mx.bfloat16, 8, 320],
  [4, 64, mx.bfloat16, 1, 576],
  [4, 128, mx.bfloat16, 5, 512],
  [8, 64, mx.bfloat16, 1, 128],
  [8, 32, mx.bfloat16, 3, 96],
  [8, 64, mx.float16, 7, 192],
  [8, 128, mx.bfloat16, 2, 256],
] as const)(
  "packed products of %d bits in groups of %d agree with the reference",
  (bits, groupSize, dtype, rows, k) => {
    agree(
      () => {
        const [w, scales, biases] = mx.quantize(wave([137, k], dtype, 1), { groupSize, bits })
        return mx.quantizedMatmul(wave([rows, k], dtype, 2), w, scales, biases, { groupSize, bits })
      },
      dtype === mx.float16 ? 1e-2 : 8e-2,
    )
  },
  60_000,
)

it("products of the same rows take one launch in a compiled function", () => {
  const plans = vi.spyOn(cudaRuntime, "newPlan")
  const widths = [150, 128, 200, 136, 140]
  type Product = (x: mx.Array) => mx.Array
  const all: readonly ((w: mx.Array, row: mx.Array) => Product)[] = [
    (w) => (x) => mx.matmul(x, w.T),
    (w, row) => (x) => mx.addmm(row, x, w.T),
    (w) => {
      const packed = mx.quantize(w) as [mx.Array, mx.Array, mx.Array]
      mx.eval(packed)
      return (x) => mx.quantizedMatmul(x, ...packed)
    },
  ]
  for (const make of all) {
    const run = (device: mx.Device): Float32Array =>
      mx.stream(device, () => {
        const products = widths.map((columns) => {
          const [w, row] = [wave([columns, 128], mx.bfloat16, columns), wave([columns], mx.bfloat16, 3)]
          mx.eval(w, row)
          return make(w, row)
        })
        // The last one reads another: it stays alone, as does the fourth of the others.
        const g = compile((x: mx.Array) => {
          const made = products.slice(0, 4).map((product) => product(x))
          return mx.concatenate([...made, products[4](made[1])], -1)
        })
        const [first, second] = [0, 5].map((phase) => wave([1, 128], mx.bfloat16, phase))
        mx.eval(first, second)
        g(first).tolist()
        return valuesOf(g(second))
      })
    const [got, want] = [run(mx.gpu), run(mx.cpu)]
    const most = Math.max(...want.map(Math.abs))
    got.forEach((x, i) => {
      expect(Math.abs(x - want[i])).toBeLessThan(0.02 * most)
    })
  }
  expect(plans).toHaveBeenCalledTimes(all.length)
  for (const [each, [{ words, length }]] of plans.mock.calls.entries()) {
    const launches: number[] = []
    for (let at = 0; at < length; at += words[at] >>> 8)
      if ((words[at] & 0xff) === THREADS) launches.push(words[at + 1] / 256)
    // Tiles of three matrices, of one, and of one; a block has two of packed ones.
    expect(launches.slice(0, 3).toSorted((a, b) => a - b)).toEqual(each < 2 ? [9, 9, 31] : [5, 5, 16])
  }
}, 120_000)

/** Compares the results of a compiled function for two arrays, one after another, with those of the CPU. */
function compiledAgrees(
  f: (x: mx.Array) => mx.Array[],
  shape: number[],
  dtype: mx.Dtype,
  kept: readonly mx.Array[],
): void {
  mx.eval(...kept)
  const [got, want] = [mx.gpu, mx.cpu].map((device) =>
    mx.stream(device, () => {
      const g = compile(f)
      return [0, 5].map((phase) => g(wave(shape, dtype, phase)).map(valuesOf))
    }),
  )
  got.flat().forEach((values, i) => {
    const expected = want.flat()[i]
    const most = Math.max(...expected.map(Math.abs))
    values.forEach((x, k) => {
      if (!(Math.abs(x - expected[k]) <= 0.02 * most)) expect([i, k, x]).toEqual([i, k, expected[k]])
    })
  })
}

it.each([
  [1, mx.bfloat16],
  [8, mx.float16],
  [8, mx.bfloat16],
  [1, mx.float16],
] as const)(
  "products of %d rows are followed by a clamp or a scale",
  (rows, dtype) => {
    const [w, row] = [wave([130, 136], dtype, 1), wave([130], dtype, 2)]
    for (const f of [
      (x: mx.Array) => mx.maximum(x.matmul(w.T), 0),
      (x: mx.Array) => x.matmul(w.T).multiply(0.25),
      (x: mx.Array) => mx.maximum(mx.addmm(row, x, w.T), 0),
    ])
      compiledAgrees((x) => [f(x)], [rows, 136], dtype, [w, row])
  },
  120_000,
)

it("products that turn out not to run as one run one by one", () => {
  const [a, b] = [1, 2].map((phase) => wave([128, 128], mx.bfloat16, phase))
  const [p, q] = [a, b].map((each) => mx.quantize(each) as [mx.Array, mx.Array, mx.Array])
  const kept = [a, b, ...p, ...q]
  // Rows apart.
  const last = (h: mx.Array): mx.Array[] => {
    const x = h.index(":", -1)
    return [mx.quantizedMatmul(x, ...p), mx.quantizedMatmul(x, ...q)]
  }
  compiledAgrees(last, [2, 3, 128], mx.bfloat16, kept)
  // Weights that begin between multiples of 16 bytes.
  const parts = [p, q].map(([w, scales, biases]) => [w.flatten(), scales, biases])
  const moved = parts.map(([w]) => mx.concatenate([mx.zeros([1], w.dtype), w]))
  const shifted = (x: mx.Array): mx.Array[] =>
    moved.map((w, i) =>
      mx.quantizedMatmul(x, w.index(mx.s(1, null)).reshape(p[0].shape), parts[i][1], parts[i][2]),
    )
  compiledAgrees(shifted, [2, 128], mx.bfloat16, [...kept, ...moved])
  // Rows that are added, with gaps.
  const rows = wave([256], mx.bfloat16, 3)
  const gaps = (x: mx.Array): mx.Array[] => [a, b].map((w) => mx.addmm(rows.index("::2"), x, w.T))
  compiledAgrees(gaps, [1, 128], mx.bfloat16, [...kept, rows])
}, 120_000)

const { scaledDotProductAttention: attend } = mx.fast

it.each([
  [mx.bfloat16, 64, 4, 2, 1, 40, null],
  [mx.float16, 128, 2, 2, 3, 70, "causal"],
  [mx.bfloat16, 128, 8, 2, 1, 300, "prefix"],
  [mx.bfloat16, 256, 4, 2, 2, 33, "rows"],
  [mx.float16, 64, 2, 1, 1, 1100, "window"],
  [mx.bfloat16, 64, 2, 1, 1, 1030, "nothing"],
] as const)(
  "attention of %o with %d features, %d heads on %d, %d queries over %d keys: %s",
  (dtype, features, heads, groups, queries, keys, seen) => {
    const f = (): mx.Array => {
      const at = mx.arange(keys)
      const last = mx.array([Math.floor(keys / 3), keys - 2]).reshape([2, 1, 1, 1])
      const mask =
        seen === "prefix"
          ? at.lessEqual(last)
          : seen === "window"
            ? at.lessEqual(last).logicalAnd(at.greater(last.subtract(20)))
            : seen === "nothing"
              ? at.less(last.subtract(keys - 2))
              : seen === "rows"
                ? wave([1, heads, queries, keys], mx.float32, 4).greater(0)
                : seen
      const [k, v] = [1, 2].map((phase) => wave([2, groups, keys + 3, features], dtype, phase))
      const part = [":", ":", mx.s(2, keys + 2)] as const
      return attend(wave([2, heads, queries, features], dtype, 0), k.index(...part), v.index(...part), {
        scale: 0.3,
        mask,
      })
    }
    agree(f, 2e-2)
  },
  120_000,
)

it("attention of a few queries keeps NaN, over one part of the keys and several", () => {
  for (const keys of [40, 1100]) {
    const [k, v] = [1, 2].map((phase) => wave([1, 2, keys, 64], mx.bfloat16, phase))
    const q = wave([1, 2, 1, 64], mx.float32, 0)
    const one = mx.arange(128).reshape([1, 2, 1, 64]).equal(70)
    agree(() => attend(mx.where(one, Number.NaN, q).astype(mx.bfloat16), k, v, { scale: 0.3 }), 2e-2)
  }
}, 60_000)
