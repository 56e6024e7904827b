import { expect, it } from "vitest"
import * as mx from "../index"

const seen = (x: mx.Array): [string, unknown] => [x.dtype.name, x.tolist()]

it("an integer dtype counts fractions by trunc(start + step) - trunc(start)", () => {
  const int = (start: number, stop: number, step: number, dtype: mx.Dtype = mx.int32) =>
    mx.arange(start, stop, step, dtype).tolist()
  expect(int(0, 3, 0.5)).toEqual([0, 0, 0, 0, 0, 0])
  expect(int(0.5, 5, 1.5)).toEqual([0, 2, 4])
  expect(int(0, 4, 1.5)).toEqual([0, 1, 2])
  expect(int(-0.5, 3, 1)).toEqual([0, 0, 0, 0])
  expect(int(-1.5, 2, 0.7)).toEqual([-1, 0, 1, 2, 3])
  expect(int(5, 0, -1.5)).toEqual([5, 3, 1, -1])
  expect(int(0.5, 3, 1.5, mx.int64)).toEqual([0n, 2n])
  expect(mx.arange(0, 2, 0.5).tolist()).toEqual([0, 0.5, 1, 1.5])
})

it("an infinite step gives the start where the stop lies ahead", () => {
  expect(seen(mx.arange(0, 5, Number.POSITIVE_INFINITY))).toEqual(["float32", [0]])
  expect(mx.arange(0, -5, Number.NEGATIVE_INFINITY).tolist()).toEqual([0])
  expect(mx.arange(0, -5, Number.POSITIVE_INFINITY).tolist()).toEqual([])
  expect(mx.arange(2, 2, Number.POSITIVE_INFINITY).tolist()).toEqual([])
  expect(mx.arange(1.5, 5, Number.POSITIVE_INFINITY, mx.int64).tolist()).toEqual([1n])
})

it("is int64 where start, stop or step does not fit int32, and exact there", () => {
  expect(seen(mx.arange(3e9, 3e9 + 2))).toEqual(["int64", [3000000000n, 3000000001n]])
  expect(mx.arange(2 ** 31 - 2, 2 ** 31 - 1).dtype).toBe(mx.int32)
  expect(mx.arange(2 ** 31 - 2, 2 ** 31).dtype).toBe(mx.int64)
  expect(mx.arange(-(2 ** 31), 0, 2 ** 30).dtype).toBe(mx.int32)
  expect(mx.arange(0, 1, 3e9).dtype).toBe(mx.int64)
  expect(mx.arange(2 ** 53, 2 ** 53 + 4).tolist()).toEqual([0n, 1n, 2n, 3n].map((i) => 2n ** 53n + i))
  expect(mx.arange(2n ** 62n + 1n, 2n ** 62n + 6n, 2n).tolist()).toEqual(
    [1n, 3n, 5n].map((i) => 2n ** 62n + i),
  )
  expect(mx.arange(2n ** 60n, 2n ** 60n - 3n, -2n).tolist()).toEqual([2n ** 60n, 2n ** 60n - 2n])
  expect(mx.arange(2n ** 60n, 2n ** 60n).shape).toEqual([0])
  expect(mx.arange(2n ** 63n, 2n ** 63n + 2n, 1n, mx.uint64).tolist()).toEqual([2n ** 63n, 2n ** 63n + 1n])
})

it("takes bigints, and every parameter by name", () => {
  expect(seen(mx.arange(3n))).toEqual(["int64", [0n, 1n, 2n]])
  expect(seen(mx.arange(1, 3n))).toEqual(["int64", [1n, 2n]])
  expect(seen(mx.arange(3n, { dtype: mx.float32 }))).toEqual(["float32", [0, 1, 2]])
  expect(mx.arange({ stop: 3 }).tolist()).toEqual([0, 1, 2])
  expect(mx.arange({ start: 1, stop: 6, step: 2, dtype: mx.int8 }).tolist()).toEqual([1, 3, 5])
  expect(mx.arange({ stop: 3, stream: mx.cpu }).tolist()).toEqual([0, 1, 2])
  expect(mx.arange(4, null, 2).tolist()).toEqual([0, 2])
  expect(mx.arange(4, { step: 2 }).tolist()).toEqual([0, 2])
})

it("refuses what cannot be counted", () => {
  const refused = (f: () => unknown) => expect(f).toThrow(mx.ArgumentError)
  refused(() => mx.arange({ start: 3 } as never))
  refused(() => (mx.arange as unknown as () => void)())
  refused(() => mx.arange(Number.POSITIVE_INFINITY))
  refused(() => mx.arange(0, 3, Number.NaN))
  refused(() => mx.arange(0, 3, 0n))
  refused(() => mx.arange(0, 1e300, 1e-3, mx.float32))
  expect(() => mx.arange({ start: 3 } as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [arange] stop must be a finite number, received nothing]`,
  )
})
