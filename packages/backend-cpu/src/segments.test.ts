/** Kernels of segments and sparse products: long runs in pieces, sums whatever the order and the number of threads, and errors. */
import * as mx from "@lazuli/core"
import { beforeEach, describe, expect, it } from "vitest"
import "./index"

beforeEach(() => mx.resetBackendStats())

const wave = (n: number): Float32Array =>
  Float32Array.from({ length: n }, (_, i) => Math.sin(i * i * 0.37 + i))
const refused = (f: () => mx.Array): string => {
  try {
    mx.eval(f())
  } catch (error) {
    return `${(error as Error).name}: ${(error as Error).message}`
  }
  return "nothing"
}

describe.each([1, 3, 70, 5000])("runs of rows of %i", (width) => {
  // One run is cut into pieces, some are short, one is empty.
  const lengths = [3, 0, width > 100 ? 700 : 70_001, 1, 40]
  const n = lengths.reduce((a, b) => a + b, 0)
  const values = wave(n * width)
  const x = mx.array(values).reshape([n, width])

  it("sums and extremes agree with loops in float64", () => {
    const sums = new Float64Array(lengths.length * width)
    const most = new Float64Array(lengths.length * width).fill(Number.NEGATIVE_INFINITY)
    let row = 0
    lengths.forEach((length, s) => {
      for (const end = row + length; row < end; row++)
        for (let j = 0; j < width; j++) {
          const v = values[row * width + j]
          sums[s * width + j] += v
          most[s * width + j] = Math.max(most[s * width + j], v)
        }
    })
    // Terms of a long run cancel: the error is in proportion to what is added.
    const error = 1e-5 + 1e-9 * n
    const got = mx.segmentSum(x, { lengths }).toTypedArray()
    sums.forEach((v, i) => {
      if (Math.abs((got[i] as number) - v) > error * Math.max(1, Math.abs(v))) expect(got[i]).toBe(v)
    })
    expect([...mx.segmentMax(x, { lengths }).toTypedArray()]).toEqual([...most])
    expect(
      mx.arrayEqual(mx.segmentSum(x, { lengths }), mx.segmentSum(mx.contiguous(x.T).T, { lengths })).item(),
    ).toBe(true)
    expect(mx.backendStats()).toEqual({})
  })
})

it("long runs of complex numbers, and of integers that wrap", () => {
  const n = 70_000
  const x = mx.array(wave(n)).multiply(mx.complex(1, -2))
  const want = mx.stack([x.index(":5").sum(), x.index("5:").sum()])
  expect(mx.allclose(mx.segmentSum(x, { lengths: [5, n - 5] }), want, 1e-4, 1e-4).item()).toBe(true)
  const y = mx.full([n], 2 ** 30, mx.int32)
  expect(mx.segmentSum(y, { lengths: [2, n - 2] }).tolist()).toEqual([-(2 ** 31), ((n - 2) * 2 ** 30) | 0])
  expect(mx.segmentMin(y.astype(mx.uint64), { lengths: [n, 0] }).tolist()).toEqual([
    BigInt(2 ** 30),
    2n ** 64n - 1n,
  ])
})

describe("sparse products", () => {
  const [rows, columns, n] = [500, 300, 40_000]
  const [values, r, c] = [wave(n), wave(2 * n).subarray(0, n), wave(3 * n).subarray(0, n)]
  const at = (list: Float32Array, size: number) =>
    Int32Array.from(list, (v, i) => Math.floor(Math.abs(v) * 7919 + i) % size)
  const [row, column] = [at(r, rows), at(c, columns)]

  it.each([1, 5, 64, 300])("of %i columns agree with loops in float64, sorted or not", (width) => {
    const dense = wave(columns * width)
    const want = new Float64Array(rows * width)
    for (let t = 0; t < n; t++)
      for (let j = 0; j < width; j++) want[row[t] * width + j] += values[t] * dense[column[t] * width + j]
    const order = [...row.keys()].sort((i, j) => row[i] - row[j] || i - j)
    const pick = <T extends Float32Array | Int32Array>(list: T) => order.map((i) => list[i])
    const x = mx.array(dense).reshape([columns, width])
    const got = mx.cooMatmul(mx.array(values), mx.array(row), mx.array(column), x, { numRows: rows })
    const list = got.toTypedArray()
    want.forEach((v, i) => {
      if (Math.abs((list[i] as number) - v) > 1e-5 * Math.max(1, Math.abs(v))) expect(list[i]).toBe(v)
    })
    // The values of a row are taken in their order: the same bits, however rows are mixed.
    const sorted = mx.cooMatmul(mx.array(pick(values)), pick(row), pick(column), x, { numRows: rows })
    expect(mx.arrayEqual(sorted, got).item()).toBe(true)
    const samples = mx.sampledMatmul(x, x, mx.array(column), mx.array(column))
    expect(mx.allclose(samples, mx.take(x.square().sum(1), mx.array(column)), 1e-5, 1e-5).item()).toBe(true)
    expect(mx.backendStats()).toEqual({})
  })
})

it("positions and offsets that do not fit are index errors", () => {
  const x = mx.ones([3, 2])
  const list = (...values: number[]): mx.Array => mx.array(values, mx.int32)
  expect([
    refused(() => mx.segmentSum(x, { offsets: list(0, 2, 1, 3) })),
    refused(() => mx.segmentSum(x, { offsets: list(1, 3) })),
    refused(() => mx.segmentMax(x, { lengths: list(2, 2) })),
    refused(() => mx.segmentSum(x, { lengths: mx.array([2n ** 64n - 1n, 4n], mx.uint64) })),
    refused(() => mx.segmentSum(x, list(0, 3, 1), { numSegments: 3 })),
    refused(() => mx.segmentSum(x, list(0, -1, 1), { numSegments: 3 })),
    refused(() => mx.segmentSum(x, list(0, 3, 1), { numSegments: 3, sorted: true })),
    refused(() => mx.padSegments(x, { lengths: list(1, 2), maxLength: 1 })),
    refused(() => mx.repeat(x, list(1, 2, 0), { axis: 0, totalLength: 4 })),
    refused(() => mx.repeat(x, list(1, -1, 3), { axis: 0, totalLength: 3 })),
    refused(() => mx.cooMatmul(mx.ones([1]), list(2), list(0), x, { numRows: 2 })),
    refused(() => mx.cooMatmul(mx.ones([1]), list(0), list(-1), x, { numRows: 2 })),
    refused(() => mx.csrMatmul(mx.ones([1]), list(3), list(0, 1), x)),
    refused(() => mx.sampledMatmul(x, x, list(0), mx.array([2n ** 63n], mx.uint64))),
  ]).toMatchInlineSnapshot(`
    [
      "IndexError: [segmentReduce] offsets must not descend, received 1 after 2",
      "IndexError: [segmentReduce] offsets must begin with 0, received 1",
      "IndexError: [segmentReduce] offsets must end with the 3 rows, received 4",
      "IndexError: [segmentReduce] offsets must not descend, received 3 after 9223372036854775807",
      "IndexError: [scatter] index 3 is out of bounds for axis 0 with size 3",
      "IndexError: [scatter] index 4294967295 is out of bounds for axis 0 with size 3",
      "IndexError: [scatter] index 3 is out of bounds for axis 0 with size 3",
      "IndexError: [scatter] index 1 is out of bounds for axis 1 with size 1",
      "IndexError: [segmentIds] offsets must end with the 4 rows, received 3",
      "IndexError: [segmentIds] offsets must not descend, received 0 after 1",
      "IndexError: [sparseMatmul] row 2 is out of bounds for a matrix with 2 rows",
      "IndexError: [sparseMatmul] column -1 is out of bounds for a matrix with 3 columns",
      "IndexError: [sparseMatmul] column 3 is out of bounds for a matrix with 3 columns",
      "IndexError: [sampledMatmul] column 9223372036854775808 is out of bounds for a matrix with 3 columns",
    ]
  `)
})

// Scatter sums such floats wide only where updates are more than elements: here it stopped at 256.
it("many segments of 16-bit floats by ids are summed in float32, and rounded once", () => {
  const n = 1000
  for (const dtype of [mx.bfloat16, mx.float16]) {
    const ids = mx.zeros([n], mx.int32)
    expect(
      mx
        .segmentSum(mx.ones([n], dtype), ids, { numSegments: n })
        .index(0)
        .item(),
    ).toBe(n)
    expect(
      mx
        .segmentSum(mx.full([n], 1.125, dtype), ids, { numSegments: n })
        .index(0)
        .item(),
    ).toBe(mx.array(1.125 * n, dtype).item())
  }
})
