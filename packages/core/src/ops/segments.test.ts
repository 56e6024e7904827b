/**
 * Reductions of rows that belong together: against loops in float64, in every way in which segments are given; empty segments, wrong ids,
 * derivatives and batches. That kernels agree with the reference implementation is the test kit's.
 */
import { compile } from "@lazuli/compile"
import { grad, jvp, vmap } from "@lazuli/transforms"
import { describe, expect, it } from "vitest"
import * as mx from "../index"

type Name = "segmentSum" | "segmentMean" | "segmentMax" | "segmentMin"
const functions: Pick<typeof mx, Name> = mx
const names: Name[] = ["segmentSum", "segmentMean", "segmentMax", "segmentMin"]
const empty: Record<Name, number> = {
  segmentSum: 0,
  segmentMean: 0,
  segmentMax: -Infinity,
  segmentMin: Infinity,
}
const fold: Record<Name, (list: number[]) => number> = {
  segmentSum: (list) => list.reduce((a, b) => a + b, 0),
  segmentMean: (list) => list.reduce((a, b) => a + b, 0) / list.length,
  segmentMax: (list) => Math.max(...list),
  segmentMin: (list) => Math.min(...list),
}

const wave = (n: number, width: number): number[][] =>
  Array.from({ length: n }, (_, i) => Array.from({ length: width }, (_, j) => Math.sin(7 * i + 3 * j + 1)))

/** The rows of each segment, reduced column by column. */
function looped(name: Name, rows: number[][], ids: number[], count: number): number[][] {
  return Array.from({ length: count }, (_, s) =>
    rows[0].map((_, j) => {
      const list = rows.filter((_, i) => ids[i] === s).map((row) => row[j])
      return list.length === 0 ? empty[name] : fold[name](list)
    }),
  )
}

const near = (got: mx.Array, want: number[][] | number[]): void => {
  const flat = (want as number[][]).flat(2)
  const values = got.flatten().tolist() as number[]
  expect(values.length).toBe(flat.length)
  for (const [i, v] of values.entries()) {
    if (Number.isFinite(flat[i])) expect(Math.abs(v - flat[i])).toBeLessThan(1e-5)
    else expect(v).toBe(flat[i])
  }
}

describe.each(names)("%s", (name) => {
  const rows = wave(9, 3)
  const sorted = [0, 0, 1, 1, 1, 3, 4, 4, 4]
  const mixed = [4, 0, 1, 3, 1, 0, 4, 1, 4]
  const data = mx.array(rows)

  it("agrees with loops however segments are given", () => {
    const f = functions[name]
    near(f(data, mixed), looped(name, rows, mixed, 5))
    near(f(data, mx.array(mixed, mx.int64), { numSegments: 6 }), looped(name, rows, mixed, 6))
    near(f(data, mx.array(mixed, mx.uint8), { numSegments: 5 }), looped(name, rows, mixed, 5))
    const want = looped(name, rows, sorted, 5)
    near(f(data, sorted), want)
    near(f(data, sorted, { sorted: true }), want)
    near(f(data, { lengths: [2, 3, 0, 1, 3] }), want)
    near(f(data, { lengths: mx.array([2, 3, 0, 1, 3], mx.int8) }), want)
    near(f(data, { offsets: [0, 2, 5, 5, 6, 9] }), want)
    near(f(data, { offsets: mx.array([0, 2, 5, 5, 6, 9], mx.uint32) }), want)
    const methods = data as unknown as Record<Name, (ids: mx.Array) => mx.Array>
    near(methods[name](mx.array(sorted, mx.int32)), want)
  })

  it("keeps the axes of a row, and takes rows of one number or of none", () => {
    const cube = mx.array([rows, rows]).transpose([1, 2, 0])
    expect(functions[name](cube, mixed).shape).toEqual([5, 3, 2])
    near(functions[name](cube, mixed).index("...", 1), looped(name, rows, mixed, 5))
    near(
      functions[name](cube, { lengths: [4, 5] }).index("...", 0),
      looped(name, rows, [0, 0, 0, 0, 1, 1, 1, 1, 1], 2),
    )
    const column = rows.map(([v]) => v)
    near(
      functions[name](mx.array(column), mixed),
      looped(
        name,
        rows.map(([v]) => [v]),
        mixed,
        5,
      ),
    )
    expect(functions[name](mx.zeros([9, 0]), mixed).shape).toEqual([5, 0])
    expect(functions[name](mx.zeros([9, 0]), { lengths: [4, 5] }).shape).toEqual([2, 0])
  })

  it("gives its value for no rows", () => {
    near(functions[name](mx.zeros([0, 2]), [], { numSegments: 2 }), [
      [empty[name], empty[name]],
      [empty[name], empty[name]],
    ])
    near(functions[name](mx.zeros([0, 2]), { lengths: [0] }), [[empty[name], empty[name]]])
    expect(functions[name](mx.zeros([0, 2]), []).shape).toEqual([0, 2])
    expect(functions[name](mx.zeros([0, 2]), { offsets: [0] }).shape).toEqual([0, 2])
  })

  it("has the gradient of its loops, by ids and by lengths", () => {
    const weights = mx.array(wave(5, 3))
    const slope = (f: (x: mx.Array) => mx.Array): number[][] => {
      const finite = (x: mx.Array): mx.Array => mx.where(mx.isfinite(f(x)), f(x).multiply(weights), 0).sum()
      return grad(finite)(data).tolist() as number[][]
    }
    const h = 1e-6
    const want = rows.map((row, i) =>
      row.map((_, j) => {
        const at = (d: number): number => {
          const moved = rows.map((r, k) => r.map((v, l) => (k === i && l === j ? v + d : v)))
          return looped(name, moved, sorted, 5)
            .flatMap((list, s) =>
              list.map((v, l) => (Number.isFinite(v) ? v * Math.sin(7 * s + 3 * l + 1) : 0)),
            )
            .reduce((a, b) => a + b, 0)
        }
        return (at(h) - at(-h)) / (2 * h)
      }),
    )
    near(mx.array(slope((x) => functions[name](x, sorted))), want)
    near(mx.array(slope((x) => functions[name](x, { lengths: [2, 3, 0, 1, 3] }))), want)
    near(
      mx.array(
        slope((x) => functions[name](x, mx.array(sorted, mx.int32), { sorted: true, numSegments: 5 })),
      ),
      want,
    )
  })
})

it("softmax is 1 in every segment, and agrees with softmax", () => {
  const x = mx.array([1, 2, 3, 100, 101, -5])
  const want = [
    ...(mx.softmax(mx.array([1, 2, 3])).tolist() as number[]),
    ...(mx.softmax(mx.array([100, 101])).tolist() as number[]),
    1,
  ]
  near(mx.segmentSoftmax(x, [0, 0, 0, 1, 1, 3]), want)
  near(mx.segmentSoftmax(x, { lengths: [3, 2, 0, 1] }), want)
  near(mx.segmentSoftmax(mx.array([2, 101, 3, 100, 1, -5]), [0, 1, 0, 1, 0, 2]), [
    want[1],
    want[4],
    want[2],
    want[3],
    want[0],
    1,
  ])
  const f = (v: mx.Array): mx.Array =>
    mx
      .segmentSoftmax(v, { lengths: [3, 3] })
      .multiply(mx.arange(6))
      .sum()
  const g = (v: mx.Array): mx.Array =>
    mx
      .softmax(v.reshape([2, 3]), -1)
      .flatten()
      .multiply(mx.arange(6))
      .sum()
  const y = mx.array([0.5, 1, -1, 0.3, 0.2, 0])
  near(grad(f)(y), grad(g)(y).tolist() as number[])
})

it("dtypes: sums widen as sum does, extremes stay, means are floating", () => {
  const x = mx.array([[1], [0], [1]], mx.bool_)
  for (const at of [{ segmentIds: [0, 0, 1] }, { lengths: [2, 1] }] as never[]) {
    expect(mx.segmentSum(x, at).dtype).toBe(mx.int32)
    expect(mx.segmentMax(x, at).tolist()).toEqual([[true], [true]])
    expect(mx.segmentMin(x, at).tolist()).toEqual([[false], [true]])
    expect(mx.segmentMean(x, at).tolist()).toEqual([[0.5], [1]])
    expect(mx.segmentSum(x.astype(mx.uint8), at).dtype).toBe(mx.uint32)
    expect(mx.segmentSum(x.astype(mx.int64), at).tolist()).toEqual([[1n], [1n]])
    expect(mx.segmentMax(x.astype(mx.bfloat16), at).dtype).toBe(mx.bfloat16)
    expect(mx.segmentSum(x.astype(mx.complex64), at).tolist()).toEqual([
      [mx.complex(1, 0)],
      [mx.complex(1, 0)],
    ])
  }
  expect(mx.segmentMax(mx.array([1], mx.int8), { lengths: [1, 0] }).tolist()).toEqual([1, -128])
  expect(mx.segmentMin(mx.array([1], mx.uint16), [0], { numSegments: 2 }).tolist()).toEqual([1, 65535])
  expect(mx.segmentMax(mx.array([Number.NaN, 1]), [0, 0]).item()).toBeNaN()
  expect(mx.segmentMin(mx.array([1, Number.NaN]), { lengths: [2] }).item()).toBeNaN()
})

// Sums of segments stopped at 256 in bfloat16 and at 2048 in float16; counts of more than 65,504 rows were infinite.
it("long segments of 16-bit floats are summed in float32, and rounded once", () => {
  const n = 70_000
  const [ones, ids] = [(dtype: mx.Dtype) => mx.ones([n], dtype), mx.zeros([n], mx.int32)]
  for (const at of [
    { segmentIds: ids, numSegments: n },
    { segmentIds: ids, numSegments: n, sorted: true },
    { lengths: [n] },
  ] as never[]) {
    const first = (x: mx.Array): unknown => {
      expect(x.dtype.size).toBe(2)
      return x.index(0).item()
    }
    expect(first(mx.segmentSum(ones(mx.bfloat16), at))).toBe(70_144)
    expect(first(mx.segmentSum(ones(mx.float16).multiply(0.5), at))).toBe(35_008)
    expect(first(mx.segmentMean(ones(mx.bfloat16), at))).toBe(1)
    expect(first(mx.segmentMean(ones(mx.float16), at))).toBe(1)
    expect(first(mx.segmentSoftmax(ones(mx.float16), at))).toBe(Number(mx.array(1 / n, mx.float16).item()))
  }
})

it("means of integers do not overflow", () => {
  for (const at of [{ segmentIds: [0, 0, 0, 0] }, { lengths: [4] }] as never[]) {
    expect(mx.segmentMean(mx.full([4], 2 ** 30, mx.int32), at).tolist()).toEqual([2 ** 30])
    expect(mx.segmentMean(mx.full([4], 2 ** 31, mx.uint32), at).tolist()).toEqual([2 ** 31])
  }
})

it("equal extremes share their derivative", () => {
  const x = mx.array([3, 3, 1])
  expect(grad((v: mx.Array) => mx.segmentMax(v, { lengths: [3] }).sum())(x).tolist()).toEqual([0.5, 0.5, 0])
  expect(grad((v: mx.Array) => mx.segmentMax(v, [0, 0, 0]).sum())(x).tolist()).toEqual([0.5, 0.5, 0])
  expect(
    jvp((v: mx.Array) => mx.segmentMax(v, { lengths: [3] }), [x], [mx.array([2, 4, 9])])[1][0].tolist(),
  ).toEqual([3])
})

it("batches of data, of ids, of lengths and of both", () => {
  const x = mx.array(wave(12, 2)).reshape([3, 4, 2])
  const ids = mx.array(
    [
      [0, 1, 1, 0],
      [2, 2, 2, 2],
      [0, 1, 2, 0],
    ],
    mx.int32,
  )
  const lengths = mx.array(
    [
      [1, 3, 0],
      [2, 0, 2],
      [0, 0, 4],
    ],
    mx.int32,
  )
  const each = (f: (x: mx.Array, at: mx.Array) => mx.Array, at: mx.Array): mx.Array =>
    mx.stack([0, 1, 2].map((i) => f(x.index(i), at.index(i))))
  for (const name of names) {
    const byIds = (v: mx.Array, at: mx.Array): mx.Array => functions[name](v, at, { numSegments: 3 })
    const byLengths = (v: mx.Array, at: mx.Array): mx.Array => functions[name](v, { lengths: at })
    expect(vmap(byIds)(x, ids).tolist()).toEqual(each(byIds, ids).tolist())
    expect(vmap(byLengths)(x, lengths).tolist()).toEqual(each(byLengths, lengths).tolist())
    expect(
      vmap((v: mx.Array) => byLengths(v, lengths.index(0)))(x)
        .index(2)
        .tolist(),
    ).toEqual(byLengths(x.index(2), lengths.index(0)).tolist())
    expect(
      vmap((at: mx.Array) => byLengths(x.index(0), at))(lengths)
        .index(1)
        .tolist(),
    ).toEqual(byLengths(x.index(0), lengths.index(1)).tolist())
    const slope = grad((v: mx.Array, at: mx.Array) =>
      mx.where(mx.isfinite(byLengths(v, at)), byLengths(v, at).square(), 0).sum(),
    )
    expect(vmap(slope)(x, lengths).tolist()).toEqual(each(slope, lengths).tolist())
  }
})

it("compiles where the number of segments is given", () => {
  const f = (x: mx.Array, ids: mx.Array): mx.Array => mx.segmentMean(x.exp(), ids, { numSegments: 2 })
  const [x, ids] = [mx.array([0, 1, 2]), mx.array([0, 1, 0], mx.int32)]
  near(compile(f)(x, ids), f(x, ids).tolist() as number[])
  expect(() =>
    compile((v: mx.Array, at: mx.Array) => mx.segmentSum(v, at))(x, ids),
  ).toThrowErrorMatchingInlineSnapshot(
    `[TransformError: [segmentSum] the number of segments depends on values that vmap or compile traces. Pass numSegments]`,
  )
  expect(() =>
    vmap((v: mx.Array, at: mx.Array) => mx.segmentSum(v, at))(x.reshape([1, 3]), ids.reshape([1, 3])),
  ).toThrowErrorMatchingInlineSnapshot(
    `[TransformError: [segmentSum] the number of segments depends on values that vmap or compile traces. Pass numSegments]`,
  )
})

it("what is refused", () => {
  const x = mx.ones([3, 2])
  const refused = (f: () => mx.Array): string => {
    try {
      mx.eval(f())
    } catch (error) {
      return `${(error as Error).name}: ${(error as Error).message}`
    }
    return "nothing"
  }
  expect([
    refused(() => mx.segmentSum(x, [0, 1])),
    refused(() => mx.segmentSum(x, [0, -1, 1])),
    refused(() => mx.segmentSum(x, mx.array([0, -1, 1], mx.int32))),
    refused(() => mx.segmentSum(x, [0, 0.5, 1])),
    refused(() => mx.segmentSum(x, mx.array([0, 1, 2]))),
    refused(() => mx.segmentSum(x, [0, 3, 1], { numSegments: 3 })),
    refused(() => mx.segmentSum(x, mx.array([0, 3, 1], mx.int32), { numSegments: 3 })),
    refused(() => mx.segmentSum(x, mx.array([0, -1, 1], mx.int8), { numSegments: 3 })),
    refused(() => mx.segmentSum(x, mx.array([0, -1, 1], mx.int64), { numSegments: 3 })),
    refused(() => mx.segmentSum(x, { lengths: [1, 1] })),
    refused(() => mx.segmentSum(x, { lengths: [4, -1] })),
    refused(() => mx.segmentSum(x, { lengths: mx.array([1, 1], mx.int32) })),
    refused(() => mx.segmentSum(x, { offsets: [0, 2, 1, 3] })),
    refused(() => mx.segmentSum(x, { offsets: [1, 3] })),
    refused(() => mx.segmentSum(x, { offsets: [] })),
    refused(() => mx.segmentSum(x, { offsets: mx.zeros([1, 2], mx.int32) })),
    refused(() => mx.segmentSum(x, {} as never)),
    refused(() => mx.segmentSum(x, [0, 1, 2], { lengths: [3] } as never)),
    refused(() => mx.segmentSum(x, { lengths: [3], numSegments: 1 } as never)),
    refused(() => mx.segmentSum(x, { length: [3] } as never)),
    refused(() => mx.segmentSum(mx.array(1), [0])),
    refused(() => mx.segmentSum([1] as never, [0])),
  ]).toMatchInlineSnapshot(`
    [
      "ShapeError: [segmentSum] expected one segment id for each of 3 rows, received shape (2,)",
      "IndexError: [segmentSum] segmentIds must not be negative, received -1",
      "IndexError: [segmentSum] segmentIds must not be negative, received -1",
      "ArgumentError: [segmentSum] indices must be integers, received the number 0.5",
      "DTypeError: [segmentSum] segmentIds must be integers, received float32",
      "IndexError: [segmentSum] segmentIds must be below the 3 segments, received 3",
      "IndexError: [scatter] index 3 is out of bounds for axis 0 with size 3",
      "IndexError: [scatter] index 4294967295 is out of bounds for axis 0 with size 3",
      "IndexError: [scatter] index 18446744073709552000 is out of bounds for axis 0 with size 3",
      "ShapeError: [segmentSum] lengths must add up to the 3 rows, received a sum of 2",
      "ArgumentError: [segmentSum] lengths must not be negative, received -1 at position 1",
      "IndexError: [segmentReduce] offsets must end with the 3 rows, received 2",
      "IndexError: [segmentSum] offsets must not descend, received 1 after 2",
      "IndexError: [segmentSum] offsets must begin with 0, received 1",
      "ShapeError: [segmentSum] offsets must have at least one element, received none",
      "ShapeError: [segmentSum] offsets must have one dimension, received shape (1, 2)",
      "ArgumentError: [segmentSum] expected segmentIds, lengths or offsets, received none of them",
      "ArgumentError: [segmentSum] expected segmentIds, lengths or offsets, received segmentIds and lengths",
      "ArgumentError: [segmentSum] numSegments goes with segmentIds, received lengths",
      "ArgumentError: [segmentSum] has no parameter "length"; it takes data, segmentIds, numSegments, sorted, lengths, offsets, stream. Did you mean "lengths"?",
      "ShapeError: [segmentSum] data must have rows, received a 0-d array",
      "ArgumentError: [segmentSum] data must be an array, received a list of length 1. mx.array(data) makes one",
    ]
  `)
})
