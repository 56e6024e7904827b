/** Orders of long and short rows, shared by threads and not, as JavaScript's own stable sort puts them. */
import * as mx from "@lazuli/core"
import { afterAll, expect, test } from "vitest"
import "./index"
import { native } from "./native"

const before = native.threads()
afterAll(() => native.setThreads(before))

/** Few values of many magnitudes, each several times, so that ties are met; floats with what is no common number, too. */
function valuesOf(dtype: mx.Dtype, shape: number[]): mx.Array {
  const keys = [1, 2].map((seed) => mx.random.key(seed))
  const whole = mx.random.randint(0, 40_000, shape, { key: keys[0] })
  if (dtype === mx.uint64) return whole.astype(dtype)
  const signed = whole.subtract(20_000)
  if (dtype === mx.int8 || dtype === mx.int16) return signed.astype(dtype)
  if (dtype === mx.int64) return signed.multiply(90_001).astype(dtype)
  const rare = mx.random.randint(0, 50, shape, { key: keys[1] })
  const special = [NaN, Infinity, -Infinity, 0, -0, 1e-40]
  return special.reduce(
    (x, value, i) => mx.where(rare.equal(i), mx.array(value, dtype), x),
    signed.astype(mx.float32).divide(7).astype(dtype),
  )
}

type Value = number | bigint
/** −0 is told apart from 0 where values are sorted; indices take both for equal. */
function ordered(row: Value[], equalZeros: boolean): number[] {
  const rank = (x: Value): number => (Object.is(x, -0) && !equalZeros ? 0 : 1)
  return row
    .map((_, i) => i)
    .sort((i, j) => {
      const [a, b] = [row[i] as number, row[j] as number]
      if (Number.isNaN(a) || Number.isNaN(b))
        return Number(Number.isNaN(a)) - Number(Number.isNaN(b)) || i - j
      return a < b ? -1 : a > b ? 1 : (a === 0 ? rank(a) - rank(b) : 0) || i - j
    })
}

const dtypes = [mx.float32, mx.bfloat16, mx.float64, mx.int8, mx.int16, mx.int64, mx.uint64]
test.each(dtypes)("rows of %s", { timeout: 60_000 }, (dtype) => {
  for (const shape of [[32_767], [32_768], [50_001], [3, 33_000], [40, 200], [5, 30]]) {
    const x = mx.stream(mx.cpu, () => valuesOf(dtype, shape).reshape([-1, shape.at(-1) as number]))
    const rows = x.tolist() as Value[][]
    const values = rows.map((row) => ordered(row, false).map((i) => row[i]))
    const places = rows.map((row) => ordered(row, true))
    for (const threads of [1, 5]) {
      native.setThreads(threads)
      const what = `[${shape}] on ${threads} threads`
      expect(mx.sort(x, -1).tolist(), what).toEqual(values)
      expect(mx.argsort(x, -1).tolist(), what).toEqual(places)
      expect(mx.sort(x.transpose(), 0).transpose().tolist(), what).toEqual(values)
    }
  }
})

test("a long row whose values share all digits but one", () => {
  native.setThreads(4)
  const x = mx
    .arange(100_000)
    .remainder(7)
    .multiply(2 ** 11)
    .astype(mx.uint32)
  const sorted = mx.sort(x).tolist() as number[]
  const counts = Array.from({ length: 7 }, (_, i) => Math.ceil((100_000 - i) / 7))
  expect(sorted).toEqual(counts.flatMap((count, i) => Array(count).fill(i * 2 ** 11)))
  expect(mx.sort(mx.full([50_000], 3)).tolist()).toEqual(Array(50_000).fill(3))
})
