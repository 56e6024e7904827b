/**
 * mvmr and vvor against loops in float64, on every backend: sorted and unsorted positions, empty rows, derivatives, batches, and what is
 * refused.
 */
import { createRequire } from "node:module"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { grad, vmap } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import { backends, useBackend } from "../test/backends"
import { mvmr, vvor } from "./index"

const [T, G, M, C, B, X, K] = [7, 2, 3, 11, 4, 5, 6]
const wave = (shape: number[], step: number): mx.Array => {
  const size = shape.reduce((n, m) => n * m, 1)
  return mx.array(Float32Array.from({ length: size }, (_, i) => Math.sin(i * step + 1))).reshape(shape)
}
const [a, b, x] = [wave([T, G, M, C], 0.7), wave([B, G, C], 1.3), wave([X, G, M], 0.9)]
const bIndices = [3, 0, 2, 2, 1, 0, 3]
const xIndices = [4, 0, 1, 4, 2, 2, 0]
const outs = { unsorted: [4, 0, 2, 4, 1, 0, 4], sorted: [0, 0, 1, 2, 4, 4, 4], alone: [0, 1, 2, 3, 4, 5, 5] }

type Numbers = { readonly [i: number]: number }
const flat = (v: mx.Array): Numbers => v.flatten().tolist() as number[]
function loopedMvmr(out: number[]): Float64Array {
  const [p, q, sums] = [flat(a), flat(b), new Float64Array(K * G * M)]
  for (let t = 0; t < T; t++)
    for (let g = 0; g < G; g++)
      for (let m = 0; m < M; m++)
        for (let c = 0; c < C; c++)
          sums[(out[t] * G + g) * M + m] +=
            p[((t * G + g) * M + m) * C + c] * q[(bIndices[t] * G + g) * C + c]
  return sums
}
function loopedVvor(out: number[]): Float64Array {
  const [p, q, sums] = [flat(x), flat(b), new Float64Array(K * G * M * C)]
  for (let t = 0; t < T; t++)
    for (let g = 0; g < G; g++)
      for (let m = 0; m < M; m++)
        for (let c = 0; c < C; c++)
          sums[((out[t] * G + g) * M + m) * C + c] +=
            p[(xIndices[t] * G + g) * M + m] * q[(bIndices[t] * G + g) * C + c]
  return sums
}
const near = (got: mx.Array, want: ArrayLike<number>, most = 1e-5): void => {
  const values = flat(got)
  expect(got.size).toBe(want.length)
  for (let i = 0; i < want.length; i++) expect(Math.abs(values[i] - want[i])).toBeLessThan(most)
}
const close = (got: mx.Array, want: mx.Array): void => {
  expect(got.shape).toEqual(want.shape)
  near(got, want.flatten().tolist() as number[], 2e-5)
}

describe.each(backends)("on the %s backend", (backend) => {
  useBackend(backend)

  test.each(Object.entries(outs))("agree with loops where rows are %s", (_name, out) => {
    near(mvmr(a, b, bIndices, out, { numRows: K }), loopedMvmr(out))
    near(vvor(x, b, xIndices, bIndices, out, { numRows: K }), loopedVvor(out))
    const across = mx.contiguous(a.swapaxes(2, 3)).swapaxes(2, 3)
    near(
      mvmr(across, b, mx.array(bIndices, mx.uint8), mx.array(out, mx.int64), { numRows: K }),
      loopedMvmr(out),
    )
  })

  test("positions in lists are refused before anything is computed", () => {
    expect(() => mvmr(a, b, [9, ...bIndices.slice(1)], outs.sorted, { numRows: K })).toThrow(mx.IndexError)
    expect(() => mvmr(a, b, bIndices, [-1, ...outs.sorted.slice(1)], { numRows: K })).toThrow(mx.IndexError)
    expect(() => vvor(x, b, xIndices, bIndices, outs.sorted, { numRows: 4 })).toThrow(mx.IndexError)
  })

  test("gradients are those of the composition", () => {
    const out = mx.array(outs.unsorted, mx.int32)
    const plain = (p: mx.Array, q: mx.Array): mx.Array =>
      mx.segmentSum(p.matmul(mx.take(q, bIndices, 0).expandDims(3)).squeeze(3), out, { numSegments: K })
    const loss = (f: typeof plain) => (p: mx.Array, q: mx.Array) => f(p, q).square().sum()
    const made = loss((p, q) => mvmr(p, q, bIndices, out, { numRows: K }))
    for (const argnums of [0, 1]) close(grad(made, { argnums })(a, b), grad(loss(plain), { argnums })(a, b))
    const products = (p: mx.Array, q: mx.Array): mx.Array =>
      mx.segmentSum(
        mx
          .take(p, xIndices, 0)
          .expandDims(3)
          .multiply(mx.take(q, bIndices, 0).expandDims(2)),
        out,
        { numSegments: K },
      )
    const outer = loss((p, q) => vvor(p, q, xIndices, bIndices, out, { numRows: K }))
    for (const argnums of [0, 1])
      close(grad(outer, { argnums })(x, b), grad(loss(products), { argnums })(x, b))
  })
})

test("dtypes, empty operands, and calls compiled", () => {
  for (const dtype of [mx.float16, mx.bfloat16, mx.float64]) {
    const got = mvmr(a.astype(dtype), b.astype(dtype), bIndices, outs.sorted, { numRows: K })
    expect(got.dtype).toBe(dtype)
    near(got.astype(mx.float64), loopedMvmr(outs.sorted), dtype === mx.float64 ? 1e-5 : 0.1)
  }
  expect(mvmr(a.astype(mx.int32), b.astype(mx.int32), bIndices, outs.sorted, { numRows: K }).dtype).toBe(
    mx.float32,
  )
  expect(mvmr(mx.zeros([0, 2, 3, 4]), mx.zeros([0, 2, 4]), [], [], { numRows: 2 }).tolist()).toEqual([
    [
      [0, 0, 0],
      [0, 0, 0],
    ],
    [
      [0, 0, 0],
      [0, 0, 0],
    ],
  ])
  expect(mvmr(mx.zeros([1, 2, 3, 0]), mx.zeros([1, 2, 0]), [0], [0], { numRows: 1 }).tolist()).toEqual([
    [
      [0, 0, 0],
      [0, 0, 0],
    ],
  ])
  expect(vvor(x, b, [], [], [], { numRows: 0 }).shape).toEqual([0, G, M, C])
  const f = compile((p: mx.Array, q: mx.Array) => mvmr(p.exp(), q, bIndices, outs.sorted, { numRows: K }))
  close(f(a, b), mvmr(a.exp(), b, bIndices, outs.sorted, { numRows: K }))
})

test("batches of operands and of positions", () => {
  const out = mx.array(outs.unsorted, mx.int32)
  const at = mx.array(bIndices, mx.int32)
  const f = (p: mx.Array, q: mx.Array, i: mx.Array, o: mx.Array): mx.Array => mvmr(p, q, i, o, { numRows: K })
  const g = (p: mx.Array, q: mx.Array, i: mx.Array, o: mx.Array): mx.Array =>
    vvor(f(p, q, i, o), q, o, i, o, { numRows: K })
  const one = [a, b, at, out]
  const two = [
    mx.stack([a, a.negative()]),
    mx.stack([b, b.exp()]),
    mx.stack([at, mx.subtract(3, at)]),
    mx.stack([out, mx.subtract(5, out)]),
  ]
  for (let mask = 1; mask < 16; mask++) {
    const inAxes = one.map((_, i) => ((mask >> i) & 1 ? 0 : null))
    const args = inAxes.map((axis, i) => (axis === null ? one[i] : two[i])) as Parameters<typeof f>
    const each = (k: number) =>
      args.map((v, i) => (inAxes[i] === null ? v : v.index(k))) as Parameters<typeof f>
    for (const h of [f, g]) close(vmap(h, { inAxes })(...args), mx.stack([h(...each(0)), h(...each(1))]))
  }
})

/** The CPU backend's addon, whose threads are the process's. */
const native = createRequire(import.meta.url)("../../backend-cpu/build/lazuli_cpu.node") as {
  threads(): number
  setThreads(count: number): void
}
test("many products, which several threads share, have the same sums as one thread's", () => {
  const [p, q] = [wave([5000, 1, 16, 16], 0.3), wave([1000, 1, 16], 0.2)]
  const [i, o] = [mx.random.randint(0, 1000, [5000]), mx.random.randint(0, 1000, [5000])]
  const before = native.threads()
  const sums = (threads: number): mx.Array => {
    native.setThreads(threads)
    try {
      const sums = mvmr(p, q, i, o, { numRows: 1000 })
      mx.eval(sums)
      return sums
    } finally {
      native.setThreads(before)
    }
  }
  const once = sums(1)
  for (const threads of [2, 3]) expect(mx.arrayEqual(sums(threads), once).item()).toBe(true)
  const want = mx.segmentSum(p.matmul(mx.take(q, i, 0).expandDims(3)).squeeze(3), o, { numSegments: 1000 })
  expect(mx.allclose(once, want, 1e-4, 1e-5).item()).toBe(true)
})

// Products that have a row to themselves or share one, that are kept or added at once; results that no cache holds; odd sizes.
test.each([
  { pairs: 3000, sizes: [2, 8, 8], rows: 3000, shared: false },
  { pairs: 3000, sizes: [2, 8, 8], rows: 3000, shared: true },
  { pairs: 3000, sizes: [1, 16, 8], rows: 100, shared: true },
  { pairs: 3000, sizes: [2, 5, 19], rows: 2000, shared: true },
  { pairs: 3000, sizes: [1, 9, 2], rows: 2000, shared: true },
  { pairs: 2500, sizes: [1, 32, 32], rows: 2600, shared: false },
  { pairs: 140_000, sizes: [1, 16, 1], rows: 140_000, shared: false },
  // Rows of their own are told by parts of the list: two products of a row stand in different ones.
  { pairs: 20_000, sizes: [1, 3, 2], rows: 20_000, shared: true },
  { pairs: 20_000, sizes: [1, 3, 2], rows: 20_100, shared: false },
])("$pairs products of $sizes at $rows rows, shared: $shared", ({ pairs, sizes, rows, shared }) => {
  const [groups, height, width] = sizes
  const count = 500
  const [p, q] = [wave([pairs, groups, height, width], 0.3), wave([count, groups, width], 0.2)]
  const v = wave([count, groups, height], 0.4)
  const positions = (n: number, step: number): mx.Array =>
    mx.array(Int32Array.from({ length: pairs }, (_, t) => (t * step) % n))
  const [i, j] = [positions(count, 77), positions(count, 31)]
  const o = shared ? positions(rows, 4 * 1009) : positions(rows, 1009)
  const take = (x: mx.Array, at: mx.Array): mx.Array => mx.take(x, at, 0)
  const near = (got: mx.Array, want: mx.Array): void => {
    expect(got.shape).toEqual(want.shape)
    expect(got.subtract(want).abs().max().item()).toBeLessThan(1e-5 * Math.max(1, Number(want.abs().max())))
  }
  const products = (x: mx.Array, y: mx.Array): mx.Array => mvmr(x, y, j, o, { numRows: rows })
  const composed = (x: mx.Array, y: mx.Array): mx.Array =>
    mx.segmentSum(x.multiply(take(y, j).expandDims(2)).sum(3), o, { numSegments: rows })
  near(products(p, q), composed(p, q))
  near(products(mx.contiguous(p.swapaxes(2, 3)).swapaxes(2, 3), q), composed(p, q))
  const g = wave([rows, groups, height], 0.5)
  const gradients = (f: typeof products): mx.Array[] =>
    grad((x: mx.Array, y: mx.Array) => f(x, y).multiply(g).sum(), { argnums: [0, 1] })(p, q)
  const [byP, byQ] = gradients(products)
  near(byP, gradients(composed)[0])
  near(byQ, gradients(composed)[1])
  near(
    vvor(v, q, i, j, o, { numRows: rows }),
    mx.segmentSum(take(v, i).expandDims(3).multiply(take(q, j).expandDims(2)), o, { numSegments: rows }),
  )
})

test("matrices in several products have the gradients of all", () => {
  const [p, q] = [wave([X, G, M], 0.3), wave([B, G, C], 0.2)]
  const out = mx.array(outs.unsorted, mx.int32)
  const outer = (x: mx.Array, y: mx.Array): mx.Array => vvor(x, y, xIndices, bIndices, out, { numRows: K })
  const plain = (x: mx.Array, y: mx.Array): mx.Array =>
    mx.segmentSum(
      mx
        .take(x, xIndices, 0)
        .expandDims(3)
        .multiply(mx.take(y, bIndices, 0).expandDims(2)),
      out,
      { numSegments: K },
    )
  // The derivative by a vector is a product of matrices that several pairs share; its derivative is by both.
  const twice = (f: typeof outer) => (x: mx.Array, y: mx.Array) =>
    grad((u: mx.Array) => f(u, y).square().sum().multiply(0.5))(x)
      .square()
      .sum()
  const [got, want] = [outer, plain].map((f) => grad(twice(f), { argnums: [0, 1] })(p, q))
  close(got[0].divide(100), want[0].divide(100))
  close(got[1].divide(100), want[1].divide(100))
})

test("what is refused", () => {
  const refused = (f: () => mx.Array): string => {
    try {
      mx.eval(f())
    } catch (error) {
      return `${(error as Error).name}: ${(error as Error).message}`
    }
    return "nothing"
  }
  const options = { numRows: K }
  expect([
    refused(() => mvmr(a, b, [...bIndices.slice(1), 4], outs.sorted, options)),
    refused(() => mvmr(a, b, [...bIndices.slice(1), -1], outs.sorted, options)),
    refused(() => mvmr(a, b, bIndices, outs.sorted, { numRows: 3 })),
    refused(() => mvmr(a, b, mx.array([...bIndices.slice(1), 4], mx.int32), outs.sorted, options)),
    refused(() => vvor(x, b, [...xIndices.slice(1), 5], bIndices, outs.sorted, options)),
    // In 32 bits this was 0.
    refused(() =>
      vmap((at: mx.Array) => mvmr(a.index(":1"), b, [0], at, { numRows: 1 }))(
        mx.array([[0n], [2n ** 32n]], mx.int64),
      ),
    ),
    refused(() => mvmr(a, b, [0], outs.sorted, options)),
    refused(() => mvmr(a, b.index(":", ":", "1:"), bIndices, outs.sorted, options)),
    refused(() => mvmr(b, b, bIndices, outs.sorted, options)),
    refused(() => mvmr(a.astype(mx.complex64), b, bIndices, outs.sorted, options)),
    refused(() =>
      mvmr(
        a,
        b,
        bIndices.map((i) => i + 0.5),
        outs.sorted,
        options,
      ),
    ),
    refused(() => mvmr(a, b, mx.array(bIndices), outs.sorted, options)),
    refused(() => mvmr(a, b, bIndices, outs.sorted, {} as never)),
    refused(() => vvor(x, b, xIndices, [0], outs.sorted, options)),
    refused(() => vvor(x, b.index(":", "1:"), xIndices, bIndices, outs.sorted, options)),
  ]).toMatchInlineSnapshot(`
    [
      "IndexError: [mvmr] index 4 in bIndices is out of bounds for axis 0 with size 4",
      "IndexError: [mvmr] index -1 in bIndices is out of bounds for axis 0 with size 4",
      "IndexError: [mvmr] index 4 in outIndices is out of bounds for axis 0 with size 3",
      "IndexError: [mvmr] index 4 is out of bounds for axis 0 with size 4",
      "IndexError: [vvor] index 5 in xIndices is out of bounds for axis 0 with size 5",
      "IndexError: [mvmr] index 2147483647 is out of bounds for axis 0 with size 2",
      "ShapeError: [mvmr] expected 7 bIndices, received 1",
      "ShapeError: [mvmr] operands of shapes (7, 2, 3, 11) and (4, 2, 10) do not fit",
      "ShapeError: [mvmr] expected a of 4 and b of 3 dimensions, received shapes (4, 2, 11) and (4, 2, 11)",
      "DTypeError: [mvmr] expected operands of the same floating dtype, received complex64 and complex64",
      "ArgumentError: [mvmr] bIndices must be integers, received 3.5",
      "DTypeError: [mvmr] bIndices must be integers, received float32",
      "ArgumentError: [mvmr] needs numRows: expected a non-negative integer, received nothing",
      "ShapeError: [vvor] expected 7 bIndices, received 1",
      "ShapeError: [vvor] operands of shapes (5, 2, 3) and (4, 1, 11) do not fit",
    ]
  `)
})
