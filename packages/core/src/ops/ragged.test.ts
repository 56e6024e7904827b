/** Runs of rows padded and unpadded, repetition by counts, and scatter with its reductions: against loops, with derivatives and batches. */
import { compile } from "@lazuli/compile"
import { grad, vmap } from "@lazuli/transforms"
import { describe, expect, it } from "vitest"
import * as mx from "../index"

const refused = (f: () => mx.Array): string => {
  try {
    mx.eval(f())
  } catch (error) {
    return `${(error as Error).name}: ${(error as Error).message}`
  }
  return "nothing"
}

describe("padSegments and unpadSegments", () => {
  const x = mx.arange(12).astype(mx.float32).add(1).reshape([6, 2])
  const lengths = [2, 0, 3, 1]

  it("pad each run to the longest, or to a length, and undo it", () => {
    const padded = mx.padSegments(x, { lengths })
    expect(padded.shape).toEqual([4, 3, 2])
    expect(padded.index("...", 0).tolist()).toEqual([
      [1, 3, 0],
      [0, 0, 0],
      [5, 7, 9],
      [11, 0, 0],
    ])
    const wide = mx.padSegments(x, { offsets: [0, 2, 2, 5, 6], maxLength: 5, value: -1 })
    expect(wide.index("...", 1).tolist()).toEqual([
      [2, 4, -1, -1, -1],
      [-1, -1, -1, -1, -1],
      [6, 8, 10, -1, -1],
      [12, -1, -1, -1, -1],
    ])
    for (const each of [padded, wide]) {
      expect(mx.unpadSegments(each, { lengths }).tolist()).toEqual(x.tolist())
      expect(mx.unpadSegments(each, { offsets: mx.array([0, 2, 2, 5, 6], mx.uint8) }).tolist()).toEqual(
        x.tolist(),
      )
      expect(each.unpadSegments({ lengths: mx.array(lengths, mx.int64), totalLength: 6 }).tolist()).toEqual(
        x.tolist(),
      )
    }
  })

  it("keep dtypes and take what is empty", () => {
    for (const dtype of [mx.bool_, mx.int8, mx.int64, mx.float16, mx.complex64]) {
      const y = x.astype(dtype)
      const padded = y.padSegments({ lengths: mx.array(lengths, mx.int32) })
      expect(padded.dtype).toBe(dtype)
      expect(padded.unpadSegments({ lengths }).tolist()).toEqual(y.tolist())
    }
    expect(mx.padSegments(mx.zeros([0, 3]), { lengths: [0, 0] }).shape).toEqual([2, 0, 3])
    expect(mx.padSegments(mx.zeros([0, 3]), { lengths: [], maxLength: 2 }).shape).toEqual([0, 2, 3])
    expect(mx.padSegments(mx.zeros([0]), { lengths: [0], maxLength: 2, value: 4 }).tolist()).toEqual([[4, 4]])
    expect(mx.unpadSegments(mx.zeros([2, 0, 3]), { lengths: [0, 0] }).shape).toEqual([0, 3])
    expect(mx.unpadSegments(mx.zeros([2, 4]), { lengths: [0, 0] }).shape).toEqual([0])
  })

  it("have each other's gradients", () => {
    const g = mx.sin(mx.arange(24)).reshape([4, 3, 2])
    const f = (v: mx.Array): mx.Array => mx.padSegments(v, { lengths, value: 9 }).multiply(g).sum()
    expect(grad(f)(x).tolist()).toEqual(mx.unpadSegments(g, { lengths }).tolist())
    const h = (v: mx.Array): mx.Array => mx.unpadSegments(v, { lengths }).multiply(x).sum()
    expect(grad(h)(g).tolist()).toEqual(mx.padSegments(x, { lengths }).tolist())
  })

  it("batch and compile where sizes are given", () => {
    const each = mx.array(
      [
        [2, 4],
        [5, 1],
      ],
      mx.int32,
    )
    const f = (at: mx.Array): mx.Array => mx.padSegments(x, { lengths: at, maxLength: 5 })
    expect(vmap(f)(each).tolist()).toEqual(mx.stack([f(each.index(0)), f(each.index(1))]).tolist())
    expect(compile(f)(each.index(1)).tolist()).toEqual(f(each.index(1)).tolist())
    const g = (at: mx.Array): mx.Array => mx.unpadSegments(f(at), { lengths: at, totalLength: 6 })
    expect(vmap(g)(each).tolist()).toEqual([x.tolist(), x.tolist()])
  })

  it("what is refused", () => {
    expect([
      refused(() => mx.padSegments(x, { lengths: [1, 2] })),
      refused(() => mx.padSegments(x, { lengths, maxLength: 2 })),
      refused(() => mx.padSegments(x, {} as never)),
      refused(() => mx.padSegments(mx.array(1), { lengths: [1] })),
      refused(() => mx.unpadSegments(x, { lengths: [1, 2] })),
      refused(() => mx.unpadSegments(x, { lengths: [1, 3, 0, 0, 0, 0] })),
      refused(() => mx.unpadSegments(x, { lengths: [1, -1, 0, 0, 0, 0] })),
      refused(() => mx.unpadSegments(x, { offsets: [0, 1, 2, 3, 4, 5, 6], totalLength: 7 })),
      refused(() => mx.unpadSegments(x, { lengths: [1, 1, 1, 1, 1, 1], totalLength: 7 })),
      refused(() => mx.unpadSegments(x, { lengths: [1], offsets: [0, 1] } as never)),
      refused(() => vmap((at: mx.Array) => mx.padSegments(x, { lengths: at }))(mx.array([[6]], mx.int32))),
      refused(() =>
        vmap((at: mx.Array) => mx.unpadSegments(x, { lengths: at }))(
          mx.array([[1, 1, 1, 1, 1, 1]], mx.int32),
        ),
      ),
    ]).toMatchInlineSnapshot(`
      [
        "ShapeError: [padSegments] lengths must add up to the 6 rows, received a sum of 3",
        "IndexError: [scatter] index 2 is out of bounds for axis 1 with size 2",
        "ArgumentError: [padSegments] expected lengths or offsets, received none of them",
        "ShapeError: [padSegments] data must have rows, received a 0-d array",
        "ShapeError: [unpadSegments] expected 6 runs, received 2",
        "IndexError: [gather] index 2 is out of bounds for axis 1 with size 2",
        "ArgumentError: [unpadSegments] lengths must not be negative, received -1 at position 1",
        "IndexError: [unpadSegments] offsets must end with the 7 rows, received 6",
        "ShapeError: [unpadSegments] lengths must add up to the 7 rows, received a sum of 6",
        "ArgumentError: [unpadSegments] expected lengths or offsets, received lengths and offsets",
        "TransformError: [padSegments] the result's size depends on values that vmap or compile traces. Pass maxLength",
        "TransformError: [unpadSegments] the result's size depends on values that vmap or compile traces. Pass totalLength",
      ]
    `)
  })
})

describe("repeat with counts", () => {
  const x = mx.array([
    [1, 2],
    [3, 4],
    [5, 6],
  ])

  it("repeats each element as often as its count", () => {
    expect(mx.repeat(x, [2, 0, 1], 0).tolist()).toEqual([
      [1, 2],
      [1, 2],
      [5, 6],
    ])
    expect(mx.repeat(x, mx.array([0, 3], mx.uint8), { axis: -1 }).tolist()).toEqual([
      [2, 2, 2],
      [4, 4, 4],
      [6, 6, 6],
    ])
    expect(x.repeat([1, 0, 0, 2, 0, 1]).tolist()).toEqual([1, 4, 4, 6])
    expect(mx.repeat(x, mx.array([1, 0, 2], mx.int32), { axis: 0, totalLength: 3 }).tolist()).toEqual([
      [1, 2],
      [5, 6],
      [5, 6],
    ])
    expect(mx.repeat(x, [0, 0, 0], 0).shape).toEqual([0, 2])
    expect(mx.repeat(mx.zeros([0, 2]), [], 0).shape).toEqual([0, 2])
  })

  it("has the gradient of its copies, batches and compiles", () => {
    const counts = mx.array([2, 0, 1], mx.int32)
    const f = (v: mx.Array, at: mx.Array): mx.Array => mx.repeat(v, at, { axis: 0, totalLength: 3 })
    const g = (v: mx.Array): mx.Array =>
      f(v, counts)
        .multiply(mx.array([[1], [10], [100]]))
        .sum()
    expect(grad(g)(x).tolist()).toEqual([
      [11, 11],
      [0, 0],
      [100, 100],
    ])
    const several = mx.array(
      [
        [2, 0, 1],
        [0, 3, 0],
      ],
      mx.int32,
    )
    expect(vmap(f, { inAxes: [null, 0] })(x, several).tolist()).toEqual([
      f(x, several.index(0)).tolist(),
      f(x, several.index(1)).tolist(),
    ])
    expect(compile(f)(x, counts).tolist()).toEqual(f(x, counts).tolist())
  })

  it("what is refused", () => {
    expect([
      refused(() => mx.repeat(x, [1, 2], 0)),
      refused(() => mx.repeat(x, [1, -2, 0], 0)),
      refused(() => mx.repeat(x, [1, 0.5, 0], 0)),
      refused(() => mx.repeat(x, mx.array([1, -2, 0], mx.int32), 0)),
      refused(() => mx.repeat(x, mx.array([1, 2, 0]), 0)),
      refused(() => mx.repeat(x, mx.array([[1, 2, 0]], mx.int32), 0)),
      refused(() => mx.repeat(x, [1, 1, 1], { axis: 0, totalLength: 4 })),
      refused(() => mx.repeat(x, mx.array([1, 1, 1], mx.int32), { axis: 0, totalLength: 4 })),
      refused(() => mx.repeat(x, [2 ** 32, 1, 1], 0)),
      refused(() => mx.repeat(x, -1)),
      refused(() => mx.repeat(x, "2" as never)),
      refused(() => vmap((at: mx.Array) => mx.repeat(x, at, 0))(mx.array([[1, 2, 0]], mx.int32))),
    ]).toMatchInlineSnapshot(`
      [
        "ShapeError: [repeat] expected a count for each of the 3 elements of axis 0, received 2",
        "ArgumentError: [repeat] repeats must be non-negative integers, received the number -2 at position 1",
        "ArgumentError: [repeat] repeats must be non-negative integers, received the number 0.5 at position 1",
        "ArgumentError: [repeat] repeats must be non-negative integers, received the number -2 at position 1",
        "DTypeError: [repeat] repeats must be integers, received float32",
        "ShapeError: [repeat] repeats must have one dimension, received shape (1, 3)",
        "ShapeError: [repeat] repeats must add up to totalLength 4, received a sum of 3",
        "IndexError: [segmentIds] offsets must end with the 4 rows, received 3",
        "ShapeError: [repeat] repeats must add up to less than 2^31, received a sum of 4294967298",
        "ArgumentError: [repeat] repeats must be a non-negative integer, received the number -1",
        "ArgumentError: [repeat] repeats must be an array of integers, or integers in lists, received the string "2"",
        "TransformError: [repeat] the result's size depends on values that vmap or compile traces. Pass totalLength",
      ]
    `)
  })
})

describe("scatter", () => {
  const modes = {
    set: (_: number, b: number) => b,
    sum: (a: number, b: number) => a + b,
    prod: (a: number, b: number) => a * b,
    max: Math.max,
    min: Math.min,
  }
  const names = Object.keys(modes) as (keyof typeof modes)[]
  const x = mx.sin(mx.arange(12)).reshape([3, 4])

  it.each(names)("%s agrees with a loop along each axis", (reduction) => {
    for (const axis of [0, 1]) {
      const index = [
        [2, 0, 2],
        [1, 1, -1],
      ]
      const updates = mx.cos(mx.arange(axis === 0 ? 24 : 18)).reshape(axis === 0 ? [2, 3, 4] : [3, 2, 3])
      const want = x.tolist() as number[][]
      const u = updates.tolist() as number[][][]
      for (const [i, row] of index.entries())
        for (const [j, at] of row.entries())
          for (let k = 0; k < (axis === 0 ? 4 : 3); k++) {
            const [r, c] = axis === 0 ? [(at + 3) % 3, k] : [k, (at + 4) % 4]
            want[r][c] = modes[reduction](want[r][c], axis === 0 ? u[i][j][k] : u[k][i][j])
          }
      const got = mx.scatter(x, mx.array(index, mx.int32), updates, axis, { reduction })
      expect(mx.allclose(got, mx.array(want), 1e-6, 1e-6).item()).toBe(true)
    }
  })

  it("has gradients, batches, and broadcasts updates", () => {
    const at = mx.array([2, 0, 2], mx.int32)
    const f = (v: mx.Array, u: mx.Array): mx.Array =>
      mx.scatter(v, at, u, { reduction: "sum" }).square().sum()
    const u = mx.ones([3, 4])
    const y = mx.scatter(x, at, u, { reduction: "sum" })
    expect(grad(f, { argnums: 1 })(x, u).tolist()).toEqual(mx.take(y.multiply(2), at, 0).tolist())
    expect(vmap((v: mx.Array) => mx.scatter(v, 1, 7))(x).tolist()).toEqual(mx.scatter(x, 1, 7, 1).tolist())
    expect(x.scatter([0, 0], 1, { reduction: "sum" }).index(0).tolist()).toEqual(
      x.index(0).add(1).add(1).tolist(),
    )
    expect(mx.scatter(mx.zeros([2], mx.int32), [1], true).tolist()).toEqual([0, 1])
    expect(mx.scatter(x, [], mx.zeros([0, 4])).tolist()).toEqual(x.tolist())
  })

  it("what is refused", () => {
    expect([
      refused(() => mx.scatter(x, [3], 1)),
      refused(() => mx.scatter(x, [0.5], 1)),
      refused(() => mx.scatter(x, [0], mx.ones([2, 4]))),
      refused(() => mx.scatter(x, [0], 1, 2)),
      refused(() => mx.scatter(x, [0], 1, { reduction: "add" as never })),
      refused(() => mx.scatter(mx.zeros([0]), [0], 1)),
    ]).toMatchInlineSnapshot(`
      [
        "IndexError: [scatter] index 3 is out of bounds for axis 0 with size 3",
        "ArgumentError: [scatter] indices must be integers, received the number 0.5",
        "ShapeError: [scatter] an array of shape (2, 4) cannot be broadcast to (1, 4)",
        "ShapeError: [scatter] axis 2 is out of bounds for an array of 2 dimensions",
        "ArgumentError: [scatter] reduction must be "set", "sum", "prod", "max" or "min", received the string "add"",
        "IndexError: [scatter] cannot write to axis 0 with size 0 of shape (0,)",
      ]
    `)
  })
})

it("topk with indices", () => {
  const x = mx.array([
    [3, 1, 2, 3],
    [Number.NaN, 0, -1, 5],
  ])
  const [values, indices] = mx.topk(x, 2, { returnIndices: true })
  expect(values.tolist()).toEqual([
    [3, 3],
    [5, Number.NaN],
  ])
  expect([indices.dtype, indices.tolist()]).toEqual([
    mx.uint32,
    [
      [0, 3],
      [3, 0],
    ],
  ])
  const [top, at] = x.topk(1, { axis: 0, returnIndices: true })
  expect([top.shape, at.tolist()]).toEqual([[1, 4], [[1, 0, 0, 1]]])
  expect(mx.topk(x, 0, { returnIndices: true })[1].shape).toEqual([2, 0])
  const y = mx.array([3, 1, 2])
  const f = (v: mx.Array): mx.Array =>
    mx
      .topk(v, 2, { returnIndices: true })[0]
      .multiply(mx.array([1, 10]))
      .sum()
  expect(grad(f)(y).tolist()).toEqual([10, 0, 1])
  expect(vmap((v: mx.Array) => mx.topk(v, 1, { returnIndices: true })[1])(x).tolist()).toEqual([[3], [0]])
})
