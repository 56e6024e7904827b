/** Ropes whose results are updates of caches: one launch with the updates beside them, in place where caches are given up. */
import "../test/double"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import { followPipelines, plansOf } from "../test/launches"
import { valuesOf, wave } from "../test/waves"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
  followPipelines()
})

it.each([
  [mx.bfloat16, 16, 16, false],
  [mx.float16, 24, 16, true],
  [mx.float32, 8, 8, false],
] as const)(
  "in %s, %d of %d features turned, traditional: %s",
  (dtype, width, dims, traditional) => {
    const caches = (): mx.Array[] => [1, 2].map((phase) => wave([1, 3, 10, width], dtype, phase))
    const step = (
      q: mx.Array,
      k: mx.Array,
      v: mx.Array,
      keys: mx.Array,
      values: mx.Array,
      at: mx.Array,
    ): mx.Array[] => {
      const turned = [q, k].map((x) =>
        mx.fast.rope(x, dims, { traditional, base: 10_000, scale: 1, offset: at }),
      )
      const place = at.reshape([1])
      return [turned[0], mx.sliceUpdate(keys, turned[1], place, [2]), mx.sliceUpdate(values, v, place, [2])]
    }
    const given = (at: number): mx.Array[] => [
      wave([1, 6, 1, width], dtype, 3 + at),
      wave([1, 3, 1, width], dtype, 4 + at),
      wave([1, 3, 1, width], dtype, 5 + at),
    ]
    const place = (at: number): mx.Array => mx.array(at, mx.int32)
    for (const donate of [[], [3, 4]]) {
      const f = compile(step, { donate })
      let [keys, values] = caches()
      let [ownKeys, ownValues] = caches()
      mx.eval(keys, values)
      const run = (at: number): void => {
        const [q, k, v] = given(at)
        mx.eval(q, k, v)
        const want = step(q, k, v, ownKeys, ownValues, place(at))
        const wanted = want.map(valuesOf)
        const memory = [keys, values].map((x) => x.node.storage?.id)
        const got = f(q, k, v, keys, values, place(at))
        mx.eval(got)
        // Others may hold the first ones, and reading float32 leaves a handle of the same memory.
        if (at !== 3 && dtype !== mx.float32)
          expect(got.slice(1).every((x) => memory.includes(x.node.storage?.id))).toBe(donate.length > 0)
        expect(got.map(valuesOf)).toEqual(wanted)
        ;[, ownKeys, ownValues] = want
        ;[, keys, values] = got
      }
      expect(plansOf(() => run(3))).toEqual([{ launches: ["map", "map", "rope"], leftOut: 2 }])
      for (const at of [4, 9, 0]) run(at)
    }
  },
  120_000,
)

/** New keys, a cache of keys, and a position. */
const operands = (): [mx.Array, mx.Array, mx.Array] => [
  wave([1, 3, 1, 16], mx.bfloat16, 1),
  wave([1, 3, 10, 16], mx.bfloat16, 2),
  mx.array(5, mx.int32),
]

it("not where something else reads what is turned", () => {
  const step = (k: mx.Array, keys: mx.Array, at: mx.Array): mx.Array[] => {
    const turned = mx.fast.rope(k, 16, { traditional: false, base: 10_000, scale: 1, offset: at })
    return [turned, mx.sliceUpdate(keys, turned, at.reshape([1]), [2])]
  }
  const f = compile(step)
  const want = step(...operands()).map(valuesOf)
  expect(f(...operands()).map(valuesOf)).toEqual(want)
  expect(f(...operands()).map(valuesOf)).toEqual(want)
}, 120_000)

it("not where one is turned again", () => {
  const step = (k: mx.Array, keys: mx.Array, at: mx.Array): mx.Array[] => {
    const turn = (x: mx.Array): mx.Array =>
      mx.fast.rope(x, 16, { traditional: false, base: 10_000, scale: 1, offset: at })
    const once = turn(k)
    return [once, mx.sliceUpdate(keys, turn(once), at.reshape([1]), [2])]
  }
  const f = compile(step)
  const want = step(...operands()).map(valuesOf)
  for (let i = 0; i < 3; i++) expect(f(...operands()).map(valuesOf)).toEqual(want)
}, 120_000)

it("many heads have the bits of each by itself", () => {
  const turn = (x: mx.Array): mx.Array =>
    mx.fast.rope(x, 16, { traditional: false, base: 10_000, scale: 1, offset: 3 })
  const x = wave([1, 7, 300, 16], mx.bfloat16, 1)
  const heads = Array.from({ length: 7 }, (_, i) => turn(x.index(":", mx.s(i, i + 1))))
  expect(valuesOf(turn(x))).toEqual(heads.flatMap(valuesOf))
}, 120_000)
