/** Simplification and fusion: the programs that they make compute what eager code does, bit for bit. */

import { compile } from "@lazuli/compile"
import { integers } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import { bits } from "../test/bits"
import "./index"

type F = (...xs: mx.Array[]) => mx.Array | mx.Array[]

/** Compiled equals eager; gives how many kernels a call runs. */
function kernels(f: F, ...xs: mx.Array[]): number | null {
  const compiled = compile(f)
  expect(bits(compiled(...xs))).toEqual(bits(f(...xs)))
  return compiled.explain(...xs).kernels
}

const awkward = mx.array([0, -0, 1, -1, Number.NaN, Infinity, -Infinity, 1e-40])
const matrix = mx.arange(24).reshape([4, 6]).divide(7).subtract(1)

describe("simplification", () => {
  test("drops arithmetic that gives its input back, and nothing else", () => {
    expect(kernels((x) => x.multiply(1).divide(1).subtract(0).negative(), awkward)).toBe(1)
    const alone = compile((x: mx.Array) => x.multiply(1).divide(1))
    expect(alone.explain(awkward).steps).toEqual([])
    // −0 + 0 is 0, and infinity times 0 is NaN.
    for (const f of [
      (x) => x.add(0),
      (x) => x.multiply(0),
      (x) => mx.subtract(0, x),
      (x) => x.add(-0),
      (x) => x.subtract(-0),
      (x) => mx.divide(1, x),
    ] as F[])
      kernels(f, awkward)
    kernels((x) => x.multiply(1), mx.array([1, 2]).astype(mx.complex64).divide(0))
    kernels((x) => x.add(0).multiply(1), mx.array([1, -2], mx.int32))
    kernels((x) => x.multiply(1), mx.ones([3], mx.float16))
    expect(kernels((x) => x.multiply(mx.ones([2, 1])), mx.array([1, 2]))).toBe(1)
  })

  test("computes constants of constants, as the backend would", () => {
    const f: F = (x) => x.multiply(mx.full([], 0.1).multiply(3).add(0.7).divide(3).negative())
    expect(kernels(f, awkward)).toBe(1)
    for (const value of [0.1, 0.3, 1e9 + 7, 1 / 3])
      kernels((x) => x.multiply(mx.full([], value).multiply(3).square().subtract(value)), matrix)
    const g = compile((x: mx.Array) => x.add(mx.exp(mx.full([], 1)).multiply(0.1)))
    expect(bits(g(matrix))).toEqual(bits(matrix.add(mx.exp(mx.full([], 1)).multiply(0.1))))
  })

  test("drops casts there and back where nothing is lost", () => {
    const half = matrix.astype(mx.float16)
    const there: F = (x) => x.astype(mx.float32).astype(mx.float16)
    expect(compile(there as (x: mx.Array) => mx.Array).explain(half).steps).toEqual([])
    expect(kernels((x) => there(x.exp()) as mx.Array, half)).toBe(1)
    // Something is lost here.
    kernels((x) => x.astype(mx.float16).astype(mx.float32), awkward)
    kernels((x) => x.astype(mx.int32).astype(mx.float32), matrix)
  })

  test("merges views, and moves them in front of elementwise work", () => {
    expect(kernels((x) => x.exp().reshape([24]).add(1).reshape([2, 12]).multiply(3), matrix)).toBe(1)
    expect(kernels((x) => x.exp().T.add(1).sin(), matrix)).toBe(1)
    expect(kernels((x) => x.exp().index("1:3").add(1).expandDims(0).cos(), matrix)).toBe(1)
    expect(kernels((x, y) => x.add(y).T.multiply(2).subtract(x.T), matrix, mx.ones([6]))).toBe(1)
    expect(kernels((x) => x.exp().T.T.add(x), matrix)).toBe(1)
    kernels((x) => {
      let y = x
      for (let i = 0; i < 3000; i++) y = y.add(1)
      return y.T.multiply(2)
    }, matrix)
    // Where the work is read elsewhere too, or by a kernel, it stays as it is.
    kernels((x) => {
      const e = x.exp()
      return [e.T.add(1), e.sum(0)]
    }, matrix)
    expect(kernels((x) => x.exp().T.matmul(x), matrix)).toBe(2)
    kernels((x, y) => x.add(y).reshape([24]).multiply(2), matrix, mx.arange(6))
    kernels((x) => x.add(1).T.exp(), mx.zeros([0, 3]))
  })

  test("keeps the maximum in place of what it is the maximum of", () => {
    const relu: F = (x) => {
      const y = x.matmul(x.T).maximum(0)
      return [y, x.matmul(x.T).greater(0)]
    }
    kernels(relu, matrix)
    const complex = mx.array([2, -1]).astype(mx.complex64)
    const undefinedPart = mx.array(new mx.Complex(1, Number.NaN))
    kernels((x, c) => [x.maximum(c), x.greater(c)], complex, undefinedPart)
    kernels((x) => [x.maximum(0), x.greater(0), x.maximum(Number.NaN), x.greater(Number.NaN)], awkward)
  })
})

describe("blocks of rows", () => {
  const big = mx.random.normal([1100, 1000], { key: mx.random.key(1) })
  const cube = mx.random.normal([5, 300, 800], { key: mx.random.key(2) })
  const row = mx.random.normal([1000], { key: mx.random.key(3) })
  const column = mx.random.normal([1100, 1], { key: mx.random.key(4) })
  mx.eval(big, cube, row, column)

  /** Equal to eager, and by blocks. */
  const byRows = (f: F, ...xs: mx.Array[]): number => {
    const compiled = compile(f)
    expect(bits(compiled(...xs))).toEqual(bits(f(...xs)))
    return compiled.explain(...xs).steps.filter(({ reason }) => /in blocks of rows/.test(reason)).length
  }

  test("join elementwise work with what reduces or normalizes its rows", () => {
    expect(byRows((x) => x.exp().add(1).sum(-1), big)).toBe(2)
    expect(byRows((x) => x.square().max(1, true), big)).toBe(2)
    expect(byRows((x) => x.multiply(mx.erf(x)).softmax(-1), cube)).toBe(2)
    expect(byRows((x) => x.tanh().logsumexp(-1, true), cube)).toBe(2)
    expect(byRows((x, w) => mx.fast.layerNorm(x.multiply(2).add(w), w, w, 1e-5), big, row)).toBe(2)
    expect(byRows((x, w, c) => mx.fast.rmsNorm(x.multiply(c).add(w), w, 1e-5), big, row, column)).toBe(2)
  })

  test("take several operations, keep what is read outside, and read any layout", () => {
    expect(byRows((x) => x.subtract(x.max(-1, true)).exp().sum(-1, true).log(), big)).toBeGreaterThan(1)
    const both: F = (x) => {
      const y = x.multiply(3)
      return [y.exp().sum(-1), y.index(0), y.softmax(-1).add(y)]
    }
    byRows(both, big)
    expect(byRows((x) => x.sin().T.contiguous().cos().sum(-1), big)).toBeGreaterThan(0)
    byRows((x) => x.T.exp().sum(-1), big)
    byRows((x) => x.index("::-1").exp().sum(-1), big)
    byRows((x) => x.transpose([1, 0, 2]).exp().sum(-1), cube)
    byRows((x) => x.astype(mx.bfloat16).square().sum(-1), cube.index("0:4"))
    byRows((x) => mx.where(x.greater(2), Number.NaN, x).max(-1), big)
  })

  test("leave small work and reductions across rows alone", () => {
    expect(byRows((x) => x.exp().sum(-1), matrix)).toBe(0)
    expect(byRows((x) => x.exp().sum(0), big)).toBe(0)
    expect(byRows((x) => x.exp().sum(), big)).toBe(0)
  })

  test("take less memory than what is between them would", () => {
    const { arenaBytes } = compile((x: mx.Array) => x.exp().sum(-1)).explain(big)
    expect(arenaBytes).toBeLessThan(big.nbytes / 2)
  })
})

describe("what is cheaper computed again than kept", () => {
  const half = mx.random.normal([600, 512], { key: mx.random.key(5) }).astype(mx.bfloat16)
  const wide = mx.random.normal([600, 512], { key: mx.random.key(6) })
  mx.eval(half, wide)

  /** Equal to eager; what is computed again, and the memory between inputs and outputs. */
  const again = (f: F, ...xs: mx.Array[]): { repeated: string[]; arenaBytes: number } => {
    const compiled = compile(f)
    expect(bits(compiled(...xs))).toEqual(bits(f(...xs)))
    const { steps, arenaBytes } = compiled.explain(...xs)
    const repeated = steps.flatMap(({ reason }) => /computes (.*) again/.exec(reason)?.[1] ?? [])
    return { repeated, arenaBytes: arenaBytes as number }
  }

  test("is computed in every pass that reads it", () => {
    // A normalization as one writes it: the cast is read before and after the mean.
    const norm: F = (x) => {
      const y = x.astype(mx.float32)
      return y.multiply(mx.rsqrt(y.square().mean(-1, true).add(1e-5)))
    }
    const { repeated, arenaBytes } = again(norm, half)
    expect(repeated).toEqual(["cast", "cast"])
    expect(arenaBytes).toBeLessThan(2 * half.nbytes + 2 ** 14)
    const centred: F = (x, m) => {
      const y = x.multiply(2).add(m.index(0))
      return y.exp().divide(y.abs().sum(0))
    }
    expect(again(centred, wide, wide).repeated).toEqual(["multiply, add", "multiply, add"])
  })

  test("is kept where it is dear, large to read, small, wanted or read by others", () => {
    const twice =
      (cheap: (x: mx.Array, y: mx.Array) => mx.Array): F =>
      (x, y) => {
        const z = cheap(x, y)
        return z.multiply(z.square().sum(0))
      }
    for (const f of [
      twice((x) => x.exp()),
      twice((x, y) => x.add(y)),
      twice((x) => x.index("0:40").multiply(2)),
      twice((x) => x.matmul(x.T.matmul(x)).exp().multiply(2)),
      ((x) => {
        const y = x.multiply(2)
        return [y, y.multiply(y.square().sum(0)).exp()]
      }) as F,
      ((x) => {
        const y = x.multiply(2)
        return [y.softmax(-1), y.exp(), y.multiply(y.square().sum(0))]
      }) as F,
    ])
      expect(again(f, wide, wide).repeated).toEqual([])
    // One pass reads it all: nothing to repeat.
    expect(again((x) => x.multiply(2).square().add(x.multiply(2)), wide).repeated).toEqual([])
  })

  test("is kept where a pass has no room for it", () => {
    const operands = Array.from({ length: 13 }, (_, i) => wide.add(i))
    const f: F = (x, ...xs) => {
      const y = x.astype(mx.float32)
      let z = y.exp()
      for (const other of xs) z = z.multiply(other)
      return z.sum(0).add(y.square()).subtract(y.sin().sum(1, true))
    }
    again(f, half, ...operands)
  })

  test("is found again in random programs", () => {
    const cheap: ((x: mx.Array) => mx.Array)[] = [
      (x) => x.astype(mx.float32),
      (x) => x.multiply(3),
      (x) => x.maximum(0),
      (x) => mx.where(x.greater(0), x, 1),
    ]
    const rest: ((x: mx.Array, y: mx.Array) => mx.Array)[] = [
      (x, y) => x.add(y.sum(0)),
      (x, y) => x.multiply(y.max(1, true)),
      (x, y) => x.subtract(y),
      (x, y) => x.tanh().add(y),
      (x) => x.T.contiguous().T,
    ]
    const next = integers(1)
    for (let k = 0; k < 25; k++) {
      const choices = Array.from({ length: 12 }, () => [next(3), next(4), next(5), next(9), next(9)])
      again((x) => {
        const made = [x, x.astype(mx.float32).multiply(0.5)]
        for (const [kind, c, r, i, j] of choices) {
          const [a, b] = [made[i % made.length], made[j % made.length]]
          const y = kind > 0 ? cheap[c](a) : rest[r](a.astype(mx.float32), b.astype(mx.float32))
          made.push(kind === 2 ? y : mx.clip(y, -9, 9))
        }
        return made.slice(-3)
      }, half)
    }
  })
})

describe("products of transposes", () => {
  test("read them as they lie, without a copy, and as eager ones do", () => {
    const sizes = [
      [40, 300, 50],
      [24, 512, 33],
      [300, 64, 200],
      [1, 90, 70],
      [90, 70, 1],
    ]
    for (const dtype of [mx.float32, mx.bfloat16, mx.float64])
      for (const [m, k, n] of sizes) {
        const key = mx.random.key(m + k)
        const a = mx.random.normal([2, k, m], { key }).astype(dtype)
        const b = mx.random.normal([2, n, k], { key }).astype(dtype)
        const f = (a: mx.Array, b: mx.Array): mx.Array => a.swapaxes(1, 2).matmul(b.transpose([0, 2, 1]))
        const compiled = compile(f)
        expect(bits(compiled(a, b))).toEqual(bits(f(a, b)))
        const { kernels, arenaBytes, steps } = compiled.explain(a, b)
        expect([kernels, arenaBytes]).toEqual([1, 0])
        expect(steps.filter(({ reason }) => /read transposed by the product/.test(reason))).toHaveLength(2)
      }
  })
})
