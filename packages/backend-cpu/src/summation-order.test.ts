/** One order of summation for one set of numbers: results of a view are those of its copy to the last bit, eager and compiled. */
import { compile } from "@lazuli/compile"
import { generator } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import "./index"

type Reduction = (x: mx.Array, axes: number[]) => mx.Array
const reductions: Record<string, Reduction> = {
  sum: (x, axes) => mx.sum(x, axes),
  prod: (x, axes) => mx.prod(x, axes),
  mean: (x, axes) => mx.mean(x, axes),
  var: (x, axes) => x.var(axes),
  std: (x, axes) => mx.std(x, axes),
  logsumexp: (x, axes) => mx.logsumexp(x, axes),
  max: (x, axes) => mx.max(x, axes),
  min: (x, axes) => mx.min(x, axes),
  norm: (x, axes) => mx.sqrt(mx.sum(mx.square(x), axes)),
}
const alongLast: Record<string, (x: mx.Array) => mx.Array> = {
  softmax: (x) => mx.softmax(x, -1),
  cumsum: (x) => mx.cumsum(x, -1),
  cumprod: (x) => mx.cumprod(x, -1),
  "cumsum, first axis": (x) => mx.cumsum(x, 0),
  logcumsumexp: (x) => mx.logcumsumexp(x, -1),
  layerNorm: (x) => mx.fast.layerNorm(x, null, null, 1e-5),
  rmsNorm: (x) => mx.fast.rmsNorm(x, null, 1e-5),
}

/** The bits of all elements. */
const bits = (x: mx.Array): string => {
  const { buffer, byteOffset, byteLength } = x.toTypedArray()
  return Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength).toString("latin1")
}
const copyOf = (x: mx.Array): mx.Array => mx.contiguous(x)

/** Arrays that lie otherwise than their copies, near 1 so that products stay finite. */
function views(seed: number): Record<string, mx.Array> {
  const key = mx.random.key(seed)
  const made = (shape: number[], dtype: mx.Dtype = mx.float32): mx.Array => {
    const x = mx.add(1, mx.multiply(0.01, mx.random.normal(shape, { key })))
    return dtype === mx.complex64 ? mx.multiply(x, mx.array(new mx.Complex(0.8, 0.6))) : x.astype(dtype)
  }
  return {
    transposed: made([300, 260]).T,
    "transposed, wide": made([70, 3000]).T,
    "transposed, long": made([5000, 30]).T,
    "a part of rows": made([200, 700]).index(":", "3:650"),
    "every second column": made([90, 5000]).index(":", "::2"),
    "every third row, reversed": made([600, 130]).index("::-3"),
    "reversed columns": made([60, 4500]).index(":", "::-1"),
    permuted: made([12, 40, 60]).transpose([2, 0, 1]),
    "permuted, channels last": made([4, 33, 50, 21]).transpose([0, 2, 3, 1]),
    "a part of a permuted array": made([30, 40, 50]).transpose([1, 2, 0]).index("2:37", "::2"),
    broadcast: mx.broadcastTo(made([70, 1, 90]), [70, 50, 90]),
    "broadcast at the end": mx.broadcastTo(made([3000, 1]), [3000, 40]),
    "broadcast and transposed": mx.broadcastTo(made([200, 130]), [3, 200, 130]).transpose([2, 0, 1]),
    halves: made([260, 300], mx.float16).T,
    "bfloat16, permuted": made([20, 30, 70], mx.bfloat16).transpose([2, 1, 0]),
    complex: made([150, 220], mx.complex64).T,
    doubles: mx.stream(mx.cpu, () => made([120, 2300], mx.float64).T),
  }
}

const axesOf = (rank: number): number[][] =>
  Array.from({ length: 2 ** rank - 1 }, (_, k) =>
    Array.from({ length: rank }, (_, axis) => axis).filter((axis) => (k + 1) & (1 << axis)),
  )

describe("of a view are the bits of its copy", () => {
  const all = views(7)
  test.each(Object.keys(all))("%s", { timeout: 120_000 }, (name) => {
    const x = all[name]
    const y = copyOf(x)
    mx.eval(x, y)
    const different: string[] = []
    const check = (what: string, f: (x: mx.Array) => mx.Array): void => {
      if (bits(f(x)) !== bits(f(y))) different.push(what)
    }
    const isComplex = x.dtype === mx.complex64
    for (const axes of axesOf(x.ndim))
      for (const [op, f] of Object.entries(reductions)) {
        if (isComplex && ["var", "std", "logsumexp", "norm"].includes(op)) continue
        check(`${op} over ${axes}`, (a) => f(a, axes))
      }
    if (!isComplex) for (const [op, f] of Object.entries(alongLast)) check(op, f)
    for (const axes of axesOf(x.ndim)) {
      const sum = compile((a: mx.Array) => [a.sum(axes), a.multiply(2).mean(axes)])
      const [s, m] = sum(x)
      if (bits(s) !== bits(y.sum(axes))) different.push(`compiled sum over ${axes}`)
      if (bits(m) !== bits(y.multiply(2).mean(axes))) different.push(`compiled mean over ${axes}`)
    }
    expect(different).toEqual([])
  })
})

test("of long ones too", { timeout: 120_000 }, () => {
  const x = mx.random.normal([700, 900], { key: mx.random.key(3) })
  const wide = mx.random.normal([40, 70_000], { key: mx.random.key(4) })
  for (const view of [
    x.T,
    x.index(":", "1:"),
    x.index("::-1"),
    wide.T,
    wide.index(":", "2:"),
    wide.index("::2"),
  ])
    for (const axes of [[0], [1], [0, 1]]) expect(bits(view.sum(axes))).toEqual(bits(copyOf(view).sum(axes)))
})

describe("random views", () => {
  for (const seed of [1, 2, 3])
    test(`seed ${seed}`, () => {
      const next = generator(seed)
      const integer = (low: number, high: number): number => low + Math.floor(next() * (high - low + 1))
      for (let round = 0; round < 40; round++) {
        const rank = integer(1, 4)
        const shape = Array.from({ length: rank }, () => integer(1, rank > 2 ? 30 : 300))
        let x = mx.random.normal(shape, { key: mx.random.key(100 * seed + round) })
        const order = shape.map((_, axis) => axis).sort(() => integer(0, 1) - 0.5)
        x = x.transpose(order)
        x = x.index(...x.shape.map(() => ["::-1", "::2", "1:", ":", ":"][integer(0, 4)]))
        if (x.size === 0) continue
        const axes = order.filter(() => integer(0, 1) === 1)
        if (axes.length === 0) continue
        const y = copyOf(x)
        for (const f of [reductions.sum, reductions.mean, reductions.prod, reductions.std])
          expect(bits(f(x, axes)) === bits(f(y, axes)), `${x.shape} over ${axes}`).toBe(true)
      }
    })
})

test("attention of few queries", () => {
  const made = (seed: number): mx.Array => mx.random.normal([1, 1, 24, 24], { key: mx.random.key(seed) })
  const [q, k, v] = [
    made(1).index(":", ":", ":3"),
    made(2).transpose([0, 1, 3, 2]),
    made(3).transpose([0, 1, 3, 2]),
  ]
  const attend = (a: mx.Array, b: mx.Array, c: mx.Array): string =>
    bits(mx.fast.scaledDotProductAttention(a, b, c, { scale: 0.2 }))
  expect(attend(q, k, v)).toBe(attend(q, copyOf(k), copyOf(v)))
})

describe("products of views", () => {
  const made = (dtype: mx.Dtype, ...shape: number[]): mx.Array => {
    const x = mx.random.normal(shape, { key: mx.random.key(shape.length + shape[0]) })
    return mx.stream(mx.cpu, () =>
      dtype === mx.complex64 ? x.multiply(mx.array(new mx.Complex(0.8, 0.6))) : x.astype(dtype),
    )
  }
  test.each([mx.float32, mx.float64, mx.complex64].map((dtype) => [dtype.name, dtype] as const))(
    "of %s",
    (_, dtype) => {
      const different: string[] = []
      const check = (what: string, a: mx.Array, b: mx.Array): void => {
        const [got, want] = [mx.matmul(a, b), mx.matmul(copyOf(a), copyOf(b))]
        if (bits(got) !== bits(want)) different.push(what)
      }
      for (const [m, k, n] of [
        [1, 64, 1],
        [1, 33, 1],
        [7, 50, 1],
      ]) {
        check(
          `vector ${m}, ${k}, ${n}`,
          made(dtype, m, 2 * k).index(":", "::2"),
          made(dtype, 2 * k, n).index("::2"),
        )
        check(
          `batch of vectors ${m}, ${k}, ${n}`,
          made(dtype, 3, m, 2 * k).index(":", ":", "::2"),
          made(dtype, 2 * k, n).index("::-2"),
        )
      }
      if (dtype !== mx.float32)
        for (const [m, k, n] of [
          [8, 64, 8],
          [17, 64, 17],
          [33, 3, 64],
        ]) {
          const [a, b] = [made(dtype, m, k), made(dtype, k, n)]
          check(`transposed ${m}, ${k}, ${n}`, copyOf(a.T).T, b)
          check(`by transposed ${m}, ${k}, ${n}`, a, copyOf(b.T).T)
          check(`both ${m}, ${k}, ${n}`, copyOf(a.T).T, copyOf(b.T).T)
        }
      expect(different).toEqual([])
    },
  )
})

test("the variance of one number that is not finite is NaN", () => {
  for (const dtype of [mx.float32, mx.float16, mx.float64])
    mx.stream(mx.cpu, () => {
      for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
        const x = mx.array([value]).astype(dtype)
        expect(x.var().item()).toBeNaN()
        expect(mx.broadcastTo(x, [1, 20]).var(0).tolist()).toEqual(new Array(20).fill(Number.NaN))
      }
    })
})
