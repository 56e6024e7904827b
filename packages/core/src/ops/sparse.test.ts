/** Sparse products against dense ones: forms, dtypes, derivatives, batches, what is empty and what is refused. */
import { compile } from "@lazuli/compile"
import { grad, vmap } from "@lazuli/transforms"
import { expect, it } from "vitest"
import * as mx from "../index"

const rows = [2, 0, 2, 3, 0, 2]
const columns = [1, 3, 0, 4, 3, 1]
const values = mx.sin(mx.arange(6).add(1))
const dense = mx.cos(mx.arange(15)).reshape([5, 3])
/** The matrix as a dense one; what stands at one position adds up. */
const whole = (v: mx.Array = values): mx.Array =>
  mx.zeros([4, 5], v.dtype).at(mx.array(rows, mx.int32), mx.array(columns, mx.int32)).add(v)
const near = (got: mx.Array, want: mx.Array): void => {
  expect([got.shape, got.dtype.name]).toEqual([want.shape, want.dtype.name])
  expect(mx.allclose(got, want, 1e-5, 1e-6).item()).toBe(true)
}
const order = [1, 4, 0, 2, 5, 3]
const sorted = {
  values: mx.take(values, order),
  columns: order.map((i) => columns[i]),
  offsets: [0, 2, 2, 5, 6],
}

it("agree with the product of the dense matrix, in both forms", () => {
  near(mx.cooMatmul(values, rows, columns, dense, { numRows: 4 }), whole().matmul(dense))
  near(
    mx.cooMatmul(values, mx.array(rows, mx.uint8), mx.array(columns, mx.int64), dense.index(":", 1), {
      numRows: 4,
    }),
    whole().matmul(dense.index(":", 1)),
  )
  near(mx.csrMatmul(sorted.values, sorted.columns, sorted.offsets, dense), whole().matmul(dense))
  near(
    mx.csrMatmul(sorted.values, sorted.columns, sorted.offsets, dense.index(":", 0)),
    whole().matmul(dense.index(":", 0)),
  )
  near(
    mx.cooMatmul(values, columns, rows, mx.ones([4, 2]), { numRows: 5 }),
    whole().T.matmul(mx.ones([4, 2])),
  )
  near(mx.sampledMatmul(mx.ones([4, 3]), dense, rows, columns), mx.take(dense.sum(1), columns))
})

it("of every floating dtype, and of complex numbers", () => {
  for (const dtype of [mx.float16, mx.bfloat16, mx.float64, mx.complex64]) {
    const got = mx.cooMatmul(values.astype(dtype), rows, columns, dense, { numRows: 4 })
    expect(got.dtype).toBe(dtype === mx.float16 || dtype === mx.bfloat16 ? mx.float32 : dtype)
    const both = mx.cooMatmul(values.astype(dtype), rows, columns, dense.astype(dtype), { numRows: 4 })
    expect(both.dtype).toBe(dtype)
    const size = dtype.size === 2 ? 0.05 : 1e-5
    expect(both.astype(mx.complex64).subtract(whole().matmul(dense)).abs().max().item()).toBeLessThan(size)
  }
  const [v, x] = [values.multiply(mx.complex(1, 2)), dense.multiply(mx.complex(0, 1))]
  near(
    mx.cooMatmul(v, rows, columns, x, { numRows: 4 }),
    whole(values.astype(mx.complex64)).matmul(dense).multiply(mx.complex(-2, 1)),
  )
})

it("have the gradients of the dense product", () => {
  const g = mx.sin(mx.arange(12)).reshape([4, 3])
  const coo = (v: mx.Array, x: mx.Array): mx.Array =>
    mx.cooMatmul(v, rows, columns, x, { numRows: 4 }).multiply(g).sum()
  const full = (v: mx.Array, x: mx.Array): mx.Array => whole(v).matmul(x).multiply(g).sum()
  const csr = (v: mx.Array, x: mx.Array): mx.Array =>
    mx.csrMatmul(v, sorted.columns, sorted.offsets, x).multiply(g).sum()
  for (const argnums of [0, 1])
    near(grad(coo, { argnums })(values, dense), grad(full, { argnums })(values, dense))
  near(grad(csr)(sorted.values, dense), mx.take(grad(full)(values, dense), order))
  near(grad(csr, { argnums: 1 })(sorted.values, dense), grad(full, { argnums: 1 })(values, dense))
  const twice = (f: typeof coo) => grad((v: mx.Array) => grad(f, { argnums: 1 })(v, dense).square().sum())
  near(twice(coo)(values), twice(full)(values))
})

it("batch each operand, and compile", () => {
  const f = (v: mx.Array, r: mx.Array, c: mx.Array, x: mx.Array): mx.Array =>
    mx.cooMatmul(v, r, c, x, { numRows: 4 })
  const g = (v: mx.Array, r: mx.Array, c: mx.Array, x: mx.Array): mx.Array =>
    mx.sampledMatmul(f(v, r, c, x), x, r, c)
  const single = [values, mx.array(rows, mx.int32), mx.array(columns, mx.int32), dense]
  const double = [
    mx.stack([values, values.negative()]),
    mx.array([rows, rows.map((r) => 3 - r)], mx.int32),
    mx.array([columns, columns.map((c) => 4 - c)], mx.int32),
    mx.stack([dense, dense.exp()]),
  ]
  for (let mask = 1; mask < 16; mask++) {
    const inAxes = single.map((_, i) => ((mask >> i) & 1 ? 0 : null))
    const args = inAxes.map((axis, i) => (axis === null ? single[i] : double[i])) as [
      mx.Array,
      mx.Array,
      mx.Array,
      mx.Array,
    ]
    const at = (k: number) => args.map((x, i) => (inAxes[i] === null ? x : x.index(k))) as typeof args
    for (const h of [f, g]) near(vmap(h, { inAxes })(...args), mx.stack([h(...at(0)), h(...at(1))]))
  }
  near(compile(f)(values, single[1], single[2], dense), whole().matmul(dense))
})

it("without values, rows or columns", () => {
  expect(mx.cooMatmul(mx.zeros([0]), [], [], dense, { numRows: 2 }).tolist()).toEqual([
    [0, 0, 0],
    [0, 0, 0],
  ])
  expect(mx.csrMatmul(mx.zeros([0]), [], [0], dense).shape).toEqual([0, 3])
  expect(mx.csrMatmul(mx.zeros([0]), [], [0, 0], mx.zeros([0, 3])).tolist()).toEqual([[0, 0, 0]])
  expect(mx.cooMatmul(values, rows, columns, mx.zeros([5, 0]), { numRows: 4 }).shape).toEqual([4, 0])
  expect(mx.sampledMatmul(mx.zeros([2, 0]), mx.zeros([1, 0]), [1], [0]).tolist()).toEqual([0])
})

it("what is refused", () => {
  const refused = (f: () => mx.Array): string => {
    try {
      mx.eval(f())
    } catch (error) {
      return `${(error as Error).name}: ${(error as Error).message}`
    }
    return "nothing"
  }
  expect([
    refused(() => mx.cooMatmul(values, rows, columns, dense, { numRows: 3 })),
    refused(() => mx.cooMatmul(values, rows, columns, mx.ones([4, 2]), { numRows: 4 })),
    refused(() =>
      mx.cooMatmul(
        values,
        rows.map(() => -1),
        columns,
        dense,
        { numRows: 4 },
      ),
    ),
    refused(() => mx.cooMatmul(values, [1], columns, dense, { numRows: 4 })),
    refused(() => mx.cooMatmul(values, rows, columns, dense, {} as never)),
    refused(() =>
      mx.cooMatmul(values.astype(mx.int32), rows, columns, mx.ones([5, 1], mx.int32), { numRows: 4 }),
    ),
    refused(() => mx.cooMatmul(values, mx.array(rows), columns, dense, { numRows: 4 })),
    refused(() => mx.csrMatmul(values, columns, [0, 7, 6], dense)),
    refused(() => mx.csrMatmul(values, columns, [], dense)),
    refused(() => mx.csrMatmul(values.reshape([2, 3]), columns, [0, 6], dense)),
    refused(() => mx.sampledMatmul(dense, mx.ones([2, 2]), [0], [0])),
    refused(() => mx.sampledMatmul(dense, dense, [0], [5])),
    refused(() => mx.sampledMatmul(dense, dense, mx.array([5], mx.int32), [0])),
    // In 32 bits these were 0.
    ...[mx.int64, mx.uint64].map((dtype) =>
      refused(() =>
        vmap((r: mx.Array) => mx.cooMatmul(mx.ones([1]), r, [0], mx.ones([1, 1]), { numRows: 2 }))(
          mx.array([[2n ** 32n], [1n]], dtype),
        ),
      ),
    ),
  ]).toMatchInlineSnapshot(`
    [
      "IndexError: [cooMatmul] row 3 is out of bounds for a matrix with 3 rows",
      "IndexError: [cooMatmul] column 4 is out of bounds for a matrix with 4 columns",
      "IndexError: [cooMatmul] row -1 is out of bounds for a matrix with 4 rows",
      "ShapeError: [cooMatmul] rows must have one number for each of 6 values, received 1",
      "ArgumentError: [cooMatmul] needs numRows: expected a non-negative integer, received nothing",
      "DTypeError: [cooMatmul] needs floating or complex operands, received int32 and int32",
      "DTypeError: [cooMatmul] rows must be integers, received float32",
      "IndexError: [csrMatmul] offsets must not descend, received 6 after 7",
      "ShapeError: [csrMatmul] offsets must have at least one element, received none",
      "ShapeError: [csrMatmul] needs values of one dimension and a vector or a matrix, received shapes (2, 3) and (5, 3)",
      "ShapeError: [sampledMatmul] needs matrices with rows of the same length, received shapes (5, 3) and (2, 2)",
      "IndexError: [sampledMatmul] column 5 is out of bounds for a matrix with 5 columns",
      "IndexError: [sampledMatmul] row 5 is out of bounds for a matrix with 5 rows",
      "IndexError: [sparseMatmul] row 2147483647 is out of bounds for a matrix with 4 rows",
      "IndexError: [sparseMatmul] row 2147483647 is out of bounds for a matrix with 4 rows",
    ]
  `)
})
