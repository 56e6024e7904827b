/** Elementwise work on the pieces of a product: when it runs there, and that eager and compiled answers are the same bit for bit. */
import { compile } from "@lazuli/compile"
import { arrays } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { bits } from "../test/bits"
import "./index"
import { native } from "./native"

type F = (...xs: mx.Array[]) => mx.Array | mx.Array[]

const random = arrays()

/** Compiled equals eager; tells how much work runs on pieces of products. */
function pieces(f: F, ...xs: mx.Array[]): number {
  const compiled = compile(f)
  expect(bits(compiled(...xs))).toEqual(bits(f(...xs)))
  return compiled.explain(...xs).steps.filter(({ reason }) => /^on each piece of the product/.test(reason))
    .length
}

const gelu = (x: mx.Array): mx.Array => x.multiply(mx.erf(x.divide(Math.SQRT2)).add(1)).divide(2)
const silu = (x: mx.Array): mx.Array => x.multiply(x.sigmoid())

const sizes = [
  [512, 600, 300],
  [150, 64, 1030],
  [40, 300, 7],
  [3, 20, 64],
  [1, 100, 100],
  [200, 50, 1],
]

describe("a product and what follows it", () => {
  for (const dtype of [mx.float32, mx.bfloat16, mx.float16, mx.float64, mx.complex64])
    test(`of ${dtype.name}`, () => {
      for (const [m, k, n] of sizes) {
        const [x, w, b, r] = [
          random([m, k], dtype),
          random([k, n], dtype),
          random([n], dtype),
          random([m, n], dtype),
        ]
        expect(pieces((x, w, b) => mx.addmm(b, x, w).square(), x, w, b)).toBe(1)
        expect(pieces((x, w, r) => x.matmul(w).multiply(2).add(r), x, w, r)).toBe(1)
        const rows = pieces((x, w, b) => x.matmul(w).add(b).astype(mx.float32), x, w, b)
        expect(rows).toBe(n >= 64 || n === 1 || m === 1 ? 1 : 0)
        if (dtype === mx.complex64) continue
        expect(pieces((x, w, b) => gelu(mx.addmm(b, x, w)), x, w, b)).toBe(1)
        expect(pieces((x, w, b, r) => [silu(mx.addmm(b, x, w)).add(r), mx.addmm(b, x, w)], x, w, b, r)).toBe(
          1,
        )
      }
    })

  test("again and again, until it is machine code", () => {
    const [x, w, b] = [random([200, 100]), random([100, 500]), random([500])]
    const f: F = (x, w, b) =>
      gelu(mx.addmm(b, x, w))
        .add(b)
        .subtract(b.exp())
    const compiled = compile(f)
    const answer = bits(f(x, w, b))
    for (let i = 0; i < 40; i++) expect(bits(compiled(x, w, b))).toEqual(answer)
  })

  test("in batches, of transposed operands, after a reshape", () => {
    const [x, w, b] = [random([3, 5, 70, 30]), random([3, 5, 30, 80]), random([80])]
    expect(pieces((x, w, b) => x.matmul(w).add(b).tanh(), x, w, b)).toBe(1)
    expect(pieces((x, w, m) => x.matmul(w).multiply(0.3).add(m), x, w, random([70, 80]))).toBe(1)
    expect(pieces((x, w, m) => x.matmul(w).multiply(m), x, w, random([3, 1, 70, 1]))).toBe(1)
    expect(pieces((x) => x.swapaxes(2, 3).matmul(x).exp(), x)).toBe(1)
    expect(pieces((x, w, b) => x.matmul(w.index(0, 0)).add(b).square(), x, w, b)).toBe(1)
    expect(pieces((x, w) => x.matmul(w).reshape([15, 70, 80]).square(), x, w)).toBe(1)
    expect(
      pieces((x, w) => x.reshape([-1, 30]).matmul(w.index(0, 0)).reshape([3, 5, 70, 80]).abs(), x, w),
    ).toBe(1)
  })

  test("waits for what the work reads besides", () => {
    const [x, w, b] = [random([90, 30]), random([30, 80]), random([80])]
    expect(pieces((x, w, b) => x.matmul(w).add(b.exp().sum()), x, w, b)).toBe(1)
    expect(pieces((x, w) => silu(x.matmul(w)).multiply(x.matmul(w.square())), x, w)).toBe(1)
    // Others read the product in between.
    pieces(
      (x, w) => {
        const y = x.matmul(w)
        return [y.add(y.sum(0)), y]
      },
      x,
      w,
    )
  })

  test("of quantized weights", () => {
    const x = random([100, 128])
    const [w, scales, biases] = mx.quantize(random([192, 128]))
    const f =
      (dtype: mx.Dtype): F =>
      (x, w, s, b) =>
        silu(mx.quantizedMatmul(x.astype(dtype), w, s.astype(dtype), b?.astype(dtype)).add(1))
    expect(pieces(f(mx.float32), x, w, scales, biases as mx.Array)).toBe(1)
    expect(pieces(f(mx.bfloat16), x, w, scales, biases as mx.Array)).toBe(1)
    pieces(f(mx.float32), x.index("0:5"), w, scales, biases as mx.Array)
  })
})

describe("what the work may not write over", () => {
  test("what the product reads is left alone until it has been read", () => {
    const [x, w] = [random([300, 300]), random([300, 300])]
    // The arena has memory for the sums, which end with the products that read them.
    const f: F = (x, w) => {
      let y = x.add(1).multiply(0.1)
      for (let i = 0; i < 4; i++) y = y.matmul(w).multiply(0.01).add(y)
      return y.add(0.5)
    }
    expect(pieces(f, x, w)).toBe(4)
    expect(pieces((x) => x.add(1).matmul(x.add(1)).subtract(x.add(1)), x)).toBe(1)
  })

  test("a product that the work reads in another order as well is computed first", () => {
    const x = random([200, 200])
    const f: F = (x) => {
      const y = x.matmul(x)
      return y.add(y.T).add(y.index("::-1"))
    }
    expect(pieces(f, x)).toBe(0)
    const { steps } = compile(f as (x: mx.Array) => mx.Array).explain(x)
    expect(steps.at(-1)?.reason).toMatch(/it does not read the product in its own layout/)
  })

  test("donated state", () => {
    const run = (traced: boolean): unknown[] => {
      const random = arrays()
      const state = { w: random([300, 200]), v: random([300, 200]), s: random([200, 200]) }
      const step = (x: mx.Array, g: mx.Array): mx.Array => {
        const d = x.T.matmul(g)
        state.v = state.v.multiply(0.9).add(d)
        state.w = state.w.subtract(state.v.multiply(0.01))
        // The state is what the product reads and what the work ends in.
        state.s = state.s.matmul(state.s).multiply(0.01).add(state.s)
        return state.w.sum(0)
      }
      const f = traced ? compile(step, { inputs: state, outputs: state, donate: true }) : step
      const [x, g] = [random([64, 300]), random([64, 200])]
      const sums = [1, 2, 3].map(() => bits(f(x, g)))
      return [sums, bits([state.w, state.v, state.s])]
    }
    expect(run(true)).toEqual(run(false))
  })
})

test("explanations say why not", () => {
  const [x, w, b] = [random([9, 5]), random([5, 7]), random([7])]
  const reason = (f: (...xs: mx.Array[]) => mx.Array, ...xs: mx.Array[]): string =>
    compile(f)
      .explain(...xs)
      .steps.at(-1)?.reason ?? ""
  expect(reason((x, w, b) => x.matmul(w).add(b).square(), x, w, b)).toMatch(
    /are not laid out by the product's rows/,
  )
  const state = [400, 400]
  const [p, q] = [random([400, 30]), random([30, 400])]
  expect(
    reason(
      (p, q, v, w) =>
        p
          .matmul(q)
          .add(v)
          .multiply(w)
          .subtract(v.square().divide(w.add(3))),
      p,
      q,
      random(state),
      random(state),
    ),
  ).toMatch(/^on each piece/)
  expect(
    reason(
      (p, q, u, v, w) => p.matmul(q).add(v).multiply(w).subtract(u),
      p,
      q,
      random(state),
      random(state),
      random(state),
    ),
  ).toMatch(/it reads more memory elsewhere/)
})

test("random products with random work", () => {
  const size = fc.integer({ min: 1, max: 90 })
  const works: ((y: mx.Array, row: mx.Array, column: mx.Array, whole: mx.Array) => mx.Array)[] = [
    (y, row) => y.add(row),
    (y, _row, column) => y.multiply(column),
    (y, _row, _column, whole) => y.subtract(whole),
    (y) => gelu(y),
    (y) => y.maximum(0),
    (y) => silu(y),
    (y) => y.astype(mx.float16).astype(mx.float32),
    (y, row, column) => mx.where(y.greater(row), y, column),
    (y) => y.multiply(0.5).add(1),
    (y) => y.sin().square(),
  ]
  fc.assert(
    fc.property(
      fc.tuple(size, size, size, fc.integer({ min: 0, max: 3 })),
      fc.tuple(fc.boolean(), fc.boolean(), fc.boolean()),
      fc.array(fc.integer({ min: 0, max: works.length - 1 }), { minLength: 1, maxLength: 5 }),
      fc.constantFrom(mx.float32, mx.float32, mx.bfloat16, mx.float64),
      ([m, k, n, batch], [ta, tb, addend], chosen, dtype) => {
        const front = batch === 0 ? [] : [batch]
        const a = random([...front, ...(ta ? [k, m] : [m, k])], dtype)
        const b = random([...front, ...(tb ? [n, k] : [k, n])], dtype)
        const [row, column, whole] = [
          random([n], dtype),
          random([m, 1], dtype),
          random([...front, m, n], dtype),
        ]
        pieces(
          (a, b, row, column, whole) => {
            const x = ta ? a.swapaxes(-1, -2) : a
            const w = tb ? b.swapaxes(-1, -2) : b
            let y = addend ? mx.addmm(row, x, w) : x.matmul(w)
            for (const i of chosen) y = works[i](y, row, column, whole)
            return y
          },
          a,
          b,
          row,
          column,
          whole,
        )
      },
    ),
    { numRuns: Number(process.env.LAZULI_PROPERTY_RUNS ?? 60), seed: 7 },
  )
})

/** Elsewhere products are a library's, whose sums depend on their size. */
const own = native.simdTarget().startsWith("avx")

test.runIf(own)(
  "a row of a product does not depend on how many rows there are, nor on the threads that share them",
  () => {
    for (const [m, k, n] of [
      [40, 512, 300],
      [26, 400, 500],
      [48, 1000, 64],
    ]) {
      const [a, b] = [random([3 * m, k]), random([n, k])]
      const some = a.index(`0:${m}`).contiguous().matmul(b.T)
      expect(bits(some)).toEqual(bits(a.matmul(b.T).index(`0:${m}`)))
    }
  },
)
