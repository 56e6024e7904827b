/** Widths of the engine's records: operands, results and axes beyond what 16 or 8 bits count, and sizes beyond 32. */
import { mx } from "lazuli"
import { describe, expect, test } from "vitest"

const MANY = 70_000
const SLOW = 120_000

describe(`operations of ${MANY} inputs`, () => {
  const parts = Array.from({ length: MANY }, (_, i) => mx.array([i, i + 0.5]))
  const ends = (x: mx.Array): unknown => [
    x.shape,
    ...[0, 4463, 4464, 65_535, 65_536, MANY - 1].map((i) => x.reshape([MANY, 2]).index(i).tolist()),
  ]
  const rows = [0, 4463, 4464, 65_535, 65_536, MANY - 1].map((i) => [i, i + 0.5])

  test("stack, concatenate and array give what they are given, and leave it alone", { timeout: SLOW }, () => {
    expect(ends(mx.stack(parts))).toEqual([[MANY, 2], ...rows])
    expect(ends(mx.concatenate(parts))).toEqual([[MANY * 2], ...rows])
    expect(ends(mx.array(parts))).toEqual([[MANY, 2], ...rows])
    expect(parts[0].tolist()).toEqual([0, 0.5])
    expect(parts[MANY % 65_536].tolist()).toEqual([4464, 4464.5])
  })

  test("compiled, and with more results than 15 bits count", { timeout: SLOW }, () => {
    const join = mx.compile((all: mx.Array[]) => mx.concatenate(all))
    expect(ends(join(parts))).toEqual([[MANY * 2], ...rows])
    const results = mx.compile((x: mx.Array) => mx.split(x, 33_000))(mx.arange(33_000))
    const some = [0, 32_766, 32_767, 32_768, 32_999]
    expect(some.map((i) => results[i].item())).toEqual(some)
  })
})

describe("axes", () => {
  const ones = (rank: number): number[] => Array<number>(rank).fill(1)
  const most = mx.ones(ones(64))

  test("64 of them work", () => {
    const f = (x: mx.Array): mx.Array => mx.sort(x.add(1).transpose()).sum(5)
    expect(f(most).shape).toEqual(ones(63))
    expect(f(most).item()).toBe(2)
    expect(mx.compile(f)(most).item()).toBe(2)
    expect(mx.matmul(most, most).item()).toBe(1)
  })

  test.each([
    ["reshape", () => mx.ones([1]).reshape(ones(256))],
    ["expandDims", () => most.expandDims(0)],
    ["ones", () => mx.ones(ones(257))],
    ["stack", () => mx.stack([most, most])],
    ["broadcastTo", () => mx.broadcastTo(mx.array(1), ones(300))],
  ])("more are refused where the array is made: %s", (_, make) => {
    expect(make).toThrow(mx.ShapeError)
    expect(make).toThrow(/expected at most 64 axes, received \d+$/)
    expect(most.item()).toBe(1)
  })
})

test("axes beyond 32 bits beside an empty one keep their sizes", () => {
  const x = mx.zeros([2, 0, 2 ** 33])
  expect(mx.sum(x, [0, 1, 2]).item()).toBe(0)
  expect(mx.sum(mx.exp(x), 2).shape).toEqual([2, 0])
  expect(mx.concatenate([x, x], 1).shape).toEqual([2, 0, 2 ** 33])
  expect(mx.concatenate([x, x], 2).sum().item()).toBe(0)
})

test("programs of many inputs are told apart by all of their dtypes", () => {
  const total = mx.definePrimitive({
    name: "test/total",
    infer: ([first]) => first,
    scalar: (ops, inputs) =>
      inputs.slice(1).reduce((sum, x) => ops.add(sum, ops.cast(x, mx.float32)), inputs[0]),
  })
  const halves = Array.from({ length: 20 }, () => mx.array([0.5], mx.float32))
  expect(total(halves).item()).toBe(10)
  const mixed = [...halves.slice(1), mx.array([3], mx.int32)]
  expect(total(mixed).item()).toBe(12.5)
  expect(total([...mixed.slice(0, -1), mx.array([true])]).item()).toBe(10.5)
  // More inputs than a program of the native side has: it runs as its definition says.
  const many = Array.from({ length: 300 }, (_, i) => mx.array([i], mx.float32))
  expect(total(many).item()).toBe((300 * 299) / 2)
})
