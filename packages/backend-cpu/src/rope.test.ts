import "./index"
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { vjp } from "@lazuli/transforms"
import { afterEach, expect, test } from "vitest"

// A primitive without a kernel would run by its decomposition, and be counted.
afterEach(() => expect(mx.backendStats()).toEqual({}))

interface Rotation {
  readonly dims: number
  readonly traditional: boolean
  readonly base: number | null
  readonly scale: number
  readonly offset: number | mx.Array
  readonly freqs?: mx.Array
}

const rope = (x: mx.Array, { dims, ...options }: Rotation): mx.Array => mx.fast.rope(x, dims, options)

/** The rotation op by op, each rounding to its own dtype, as the primitive is defined. */
function steps(x: mx.Array, { dims, traditional, base, scale, offset, freqs }: Rotation): mx.Array {
  const half = dims / 2
  const last = x.shape[x.ndim - 1]
  const wide = x.astype(mx.float32)
  const start = typeof offset === "number" ? mx.array(offset) : offset.astype(mx.float32)
  const begins = start.ndim === 0 ? start : start.reshape([-1, ...x.shape.slice(1).map(() => 1)])
  const positions = mx
    .arange(x.shape[x.ndim - 2], { dtype: mx.float32 })
    .reshape([-1, 1])
    .add(begins)
    .multiply(scale)
  const rates =
    base === null
      ? (freqs as mx.Array).reciprocal()
      : mx
          .arange(half, { dtype: mx.float32 })
          .multiply(-Math.log(base) / half)
          .exp()
  const angles = positions.multiply(rates)
  const [cos, sin] = [angles.cos(), angles.sin()]
  const [p, q] = traditional
    ? [wide.index("...", mx.s(0, dims, 2)), wide.index("...", mx.s(1, dims, 2))]
    : [wide.index("...", mx.s(0, half)), wide.index("...", mx.s(half, dims))]
  const [a, b] = [p.multiply(cos).subtract(q.multiply(sin)), p.multiply(sin).add(q.multiply(cos))]
  const turned = traditional ? mx.stack([a, b], -1).flatten(-2) : mx.concatenate([a, b], -1)
  return mx.concatenate([turned, wide.index("...", mx.s(dims, last))], -1).astype(x.dtype)
}

test("the kernel gives the bits of its steps, in every layout and dtype", () => {
  const perExample = mx.array([5, 0, 1000], mx.int32)
  for (const dtype of [mx.float32, mx.float16, mx.bfloat16])
    for (const [dims, features] of [
      [64, 64],
      [6, 8],
      [2, 2],
      [40, 41],
    ])
      for (const traditional of [false, true])
        for (const offset of [0, 1027, mx.array(-3, mx.int32), perExample]) {
          const x = noise([3, 5, 4, features], 7).astype(dtype)
          const layouts = [
            x,
            noise([3, 4, 5, features], 8).astype(dtype).swapaxes(1, 2),
            noise([3, 5, features, 4], 9).astype(dtype).swapaxes(2, 3),
            x.index(":", "::-2", "::3"),
          ]
          const freqs = mx.array(Float32Array.from({ length: dims / 2 }, (_, i) => 1.5 ** i))
          for (const each of layouts)
            for (const rotation of [
              { dims, traditional, base: 10000, scale: 1, offset },
              { dims, traditional, base: null, freqs, scale: 0.25, offset },
            ]) {
              const got = rope(each, rotation)
              expect(mx.arrayEqual(got, steps(each, rotation)).item(), JSON.stringify(rotation)).toBe(true)
            }
        }
})

test("many positions, one row each, and none", () => {
  for (const shape of [
    [1, 3, 700, 16],
    [300, 1, 1, 16],
    [2, 0, 3, 16],
  ]) {
    const x = noise(shape, 3)
    const offset = mx.arange(shape[0], { dtype: mx.int32 })
    const rotation = { dims: 16, traditional: false, base: 500, scale: 1, offset }
    expect(mx.arrayEqual(rope(x, rotation), steps(x, rotation)).item()).toBe(true)
  }
})

test("a derivative turns back", () => {
  const x = noise([1, 2, 3, 8], 4)
  const rotation = { dims: 8, traditional: false, base: 10, scale: 1, offset: 2 }
  const [, [back]] = vjp((y: mx.Array) => rope(y, rotation), [x], [rope(x, rotation)])
  expect(back.subtract(x).abs().max().item() as number).toBeLessThan(1e-6)
})
