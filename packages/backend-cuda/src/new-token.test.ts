/** Attention of one more token with its rotation and the updates of caches, on the test double as a Hopper GPU: one launch. */
import "../test/double"
import "../test/hopper"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import { followPipelines, launchesInPlans } from "../test/launches"
import { valuesOf, wave } from "../test/waves"

/** Attention of one position, which gives its result and the new caches. */
type Step = (
  q: mx.Array,
  k: mx.Array,
  v: mx.Array,
  oldKeys: mx.Array,
  oldValues: mx.Array,
  at: mx.Array,
) => mx.Array[]

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
  followPipelines()
})

it.each([
  [mx.bfloat16, 128, 4, 1, 40, 2, false, true],
  [mx.float16, 64, 4, 2, 700, 1, true, true],
  // More than the warps of a cluster have at once.
  [mx.bfloat16, 64, 2, 1, 2060, 1, false, false],
  [mx.float16, 256, 2, 2, 33, 2, false, true],
] as const)(
  "%o, %d features, %d heads on %d, %d keys of %d examples, traditional: %s, masked: %s",
  (dtype, features, heads, groups, keys, batch, traditional, isMasked) => {
    const rates = mx.array(Float32Array.from({ length: features / 2 }, (_, i) => 1.1 ** i))
    const step: Step = (q, k, v, oldKeys, oldValues, at) => {
      const how = { traditional, offset: at, ...(traditional ? { base: 100 } : { base: null, freqs: rates }) }
      const [turned, key] = [q, k].map((x) => mx.fast.rope(x, features, { scale: 1, ...how }))
      const place = at.reshape([1])
      const newKeys = mx.sliceUpdate(oldKeys, key, place, [2])
      const newValues = mx.sliceUpdate(oldValues, v, place, [2])
      const mask = isMasked ? mx.arange(keys, { dtype: mx.int32 }).lessEqual(at) : null
      const y = mx.fast.scaledDotProductAttention(turned, newKeys, newValues, { scale: 0.2, mask })
      return [y, newKeys, newValues]
    }
    const caches = (): mx.Array[] =>
      [1, 2].map((phase) => wave([batch, groups, keys, features], dtype, phase))
    const given = (at: number): mx.Array[] => [
      wave([batch, heads, 1, features], dtype, 3 + at),
      wave([batch, groups, 1, features], dtype, 4 + at),
      wave([batch, groups, 1, features], dtype, 5 + at),
    ]
    for (const donate of [[], [3, 4]]) {
      const f = compile(step, { donate })
      let [ownKeys, ownValues] = caches()
      let [newKeys, newValues] = caches()
      mx.eval(newKeys, newValues, rates)
      const run = (at: number): void => {
        const [q, k, v] = given(at)
        mx.eval(q, k, v)
        const want = mx.stream(mx.cpu, () =>
          step(q, k, v, ownKeys, ownValues, mx.array(at, mx.int32)).map((x) => x.astype(mx.float32)),
        )
        const wanted = want.map(valuesOf)
        const got = f(q, k, v, newKeys, newValues, mx.array(at, mx.int32))
        mx.eval(got)
        const [y, ...written] = got.map(valuesOf)
        y.forEach((x, i) => {
          if (!(Math.abs(x - wanted[0][i]) <= 2e-2)) expect([at, i, x]).toEqual([at, i, wanted[0][i]])
        })
        expect(written).toEqual(wanted.slice(1))
        ;[, ownKeys, ownValues] = want.map((x) => x.astype(dtype))
        ;[, newKeys, newValues] = got
      }
      const launched = launchesInPlans(() => run(keys - 2))
      expect(launched.filter((each) => !["map", "arange"].includes(each))).toEqual(["attend_token"])
      for (const at of [0, 17, keys - 1]) run(at)
    }
  },
  240_000,
)

it("rotations of two positions, seen as one of twice the heads, are turned by their positions", () => {
  const [heads, groups, keys, features] = [4, 2, 40, 64]
  const step: Step = (q, k, v, oldKeys, oldValues, at) => {
    const [turned, key] = [q, k].map((x) =>
      mx.fast
        .rope(x, features, { traditional: false, base: 100, scale: 1, offset: at })
        .reshape([1, -1, 1, features]),
    )
    const place = at.reshape([1])
    const newKeys = mx.sliceUpdate(oldKeys, key, place, [2])
    const newValues = mx.sliceUpdate(oldValues, v, place, [2])
    return [mx.fast.scaledDotProductAttention(turned, newKeys, newValues, { scale: 0.2 }), newKeys, newValues]
  }
  const given = [
    wave([1, heads / 2, 2, features], mx.float16, 1),
    wave([1, groups / 2, 2, features], mx.float16, 2),
    wave([1, groups, 1, features], mx.float16, 3),
    wave([1, groups, keys, features], mx.float16, 4),
    wave([1, groups, keys, features], mx.float16, 5),
    mx.array(7, mx.int32),
  ] as const
  const wanted = mx.stream(mx.cpu, () => step(...given).map(valuesOf))
  const got = compile(step)(...given).map(valuesOf)
  got.forEach((values, n) => {
    values.forEach((x, i) => {
      if (!(Math.abs(x - wanted[n][i]) <= 5e-3)) expect([n, i, x]).toEqual([n, i, wanted[n][i]])
    })
  })
})
