/**
 * Positions out of bounds, which a kernel cannot refuse: they read the nearest element and write nothing. Unsigned ones never count from
 * the end, and the largest signed ones do not wrap around.
 */
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import "./index"

const onGpu = <T>(body: () => T): T => mx.stream(mx.gpu, body)
const x = mx.array([10, 20, 30])

const unsigned = [2n ** 63n, 2n ** 64n - 1n, 2n ** 63n - 1n, 3n, 1n]
const lists: [string, mx.Array, number[], number[]][] = [
  ["uint64", mx.array(BigUint64Array.from(unsigned)), [30, 30, 30, 30, 20], [10, 21, 30]],
  [
    "int64",
    mx.array(BigInt64Array.of(2n ** 63n - 1n, -(2n ** 63n), -4n, 3n, -2n)),
    [30, 10, 10, 30, 20],
    [10, 21, 30],
  ],
  ["uint32", mx.array(Uint32Array.of(2 ** 32 - 1, 2 ** 31, 3, 3, 1)), [30, 30, 30, 30, 20], [10, 21, 30]],
  ["int32", mx.array(Int32Array.of(2 ** 31 - 1, -(2 ** 31), -4, 3, -2)), [30, 10, 10, 30, 20], [10, 21, 30]],
]
it.each(lists)("%s", (_, positions, read, written) => {
  onGpu(() => {
    expect(mx.take(x, positions).tolist()).toEqual(read)
    expect(mx.takeAlongAxis(x, positions, 0).tolist()).toEqual(read)
    expect(
      mx
        .take(mx.stack([x, x], 1), positions, 0)
        .index(":", 1)
        .tolist(),
    ).toEqual(read)
    expect(x.at(positions).add(1).tolist()).toEqual(written)
    expect(x.at(positions).maximum(21).tolist()).toEqual([10, 21, 30])
    expect(mx.putAlongAxis(x, positions, mx.full([5], 21), 0).tolist()).toEqual(written)
    const set = mx.add(x, 0)
    set.set([positions], 21)
    expect(set.tolist()).toEqual(written)
  })
})
it("nothing at all", () => {
  const empty = mx.zeros([0])
  const said = (body: () => mx.Array): unknown => {
    try {
      return onGpu(body).tolist()
    } catch (error) {
      return String(error)
    }
  }
  const one = mx.array([0], mx.int32)
  expect([
    said(() => mx.take(empty, one)),
    said(() => mx.takeAlongAxis(empty, one, 0)),
    said(() => empty.at(one).add(1)),
  ]).toMatchInlineSnapshot(`
    [
      "IndexError: [take] cannot take from axis 0 with size 0 of shape (0,)",
      "IndexError: [takeAlongAxis] cannot index axis 0 with size 0 of shape (0,)",
      "IndexError: [at.add] cannot index an empty axis of shape (0,)",
    ]
  `)
})
it("sums of sixteen bits are rounded once", () => {
  const many = mx.arange(1025).remainder(3).astype(mx.int32)
  for (const dtype of [mx.bfloat16, mx.float16])
    for (const size of [3, 4]) {
      const sums = onGpu(() =>
        mx
          .zeros([size, 1], dtype)
          .at(many)
          .add(mx.full([1025, 1], 0.55, dtype)),
      )
      const each = mx.array([0.55]).astype(dtype).astype(mx.float32).item()
      const exact = mx.array([342 * each, 342 * each, 341 * each, 0].slice(0, size)).astype(dtype)
      expect(sums.flatten().tolist()).toEqual(exact.tolist())
    }
})
