import { describe, expect, test } from "vitest"
import { primitiveByName } from "../graph/primitive"
import * as mx from "../index"

const randn = (shape: number[], seed: number) => mx.random.normal(shape, { key: mx.random.key(seed) })
const far = (a: mx.Array, b: mx.Array) => mx.abs(a.subtract(b)).max().item() as number

/** vjp rules against central differences, in float64, along one random direction for each input. */
function checkVjp(name: string, inputs: mx.Array[], params: Record<string, unknown>, wrt: number[]): void {
  const primitive = primitiveByName(name)
  const rules = primitive.rules as Required<typeof primitive.rules>
  const f = (xs: mx.Array[]) => {
    const y = rules.decompose(xs, params)
    return Array.isArray(y) ? (y[0] as mx.Array) : (y as mx.Array)
  }
  const xs = inputs.map((x) => (x.dtype === mx.float32 ? x.astype(mx.float64) : x))
  const all = rules.decompose(xs, params)
  const outputs = (Array.isArray(all) ? all : [all]) as mx.Array[]
  const g = randn(outputs[0].shape, 77).astype(mx.float64)
  const cotangents = outputs.map((y, i) => (i === 0 ? g : mx.zerosLike(y)))
  const wanted = xs.map(() => true)
  const got = rules.vjp({ inputs: xs, outputs, cotangents, params, wanted })
  for (const i of wrt) {
    const d = randn(xs[i].shape, 90 + i).astype(mx.float64)
    const h = 1e-5
    const at = (step: number) => f(xs.map((x, k) => (k === i ? x.add(d.multiply(step)) : x)))
    const want = at(h).subtract(at(-h)).multiply(g).sum().item() as number
    const have = (got[i] as mx.Array).multiply(d).sum().item() as number
    expect(have, `${name}, input ${i}`).toBeCloseTo(want / (2 * h), 5)
  }
}

describe("vjp against finite differences", () => {
  const x = randn([2, 3, 4], 1)
  const [w, b] = [randn([4], 2), randn([4], 3)]
  test("layerNorm", () => {
    checkVjp("layerNorm", [x, w, b], { eps: 0.1, hasWeight: true, hasBias: true }, [0, 1, 2])
    checkVjp("layerNorm", [x, b], { eps: 0.1, hasWeight: false, hasBias: true }, [0, 1])
  })
  test("rmsNorm", () => {
    checkVjp("rmsNorm", [x, w], { eps: 0.1, hasWeight: true }, [0, 1])
    checkVjp("rmsNorm", [x], { eps: 0.1, hasWeight: false }, [0])
  })
  test("rope", () => {
    const offset = mx.array([3, 5], mx.int32)
    for (const traditional of [true, false])
      checkVjp("rope", [x, offset], { dims: 2, traditional, base: 100, scale: 1, inverse: false }, [0])
  })
  test("scaledDotProductAttention", () => {
    const [q, k, v] = [randn([2, 4, 3, 5], 4), randn([2, 2, 6, 5], 5), randn([2, 2, 6, 3], 6)]
    const none = { scale: 0.4, causal: false, hasMask: false, hasSinks: false }
    checkVjp("scaledDotProductAttention", [q, k, v], { ...none, causal: true }, [0, 1, 2])
    const mask = randn([1, 4, 1, 6], 7)
    const masked = { ...none, hasMask: true }
    checkVjp("scaledDotProductAttention", [q, k, v, mask], masked, [0, 1, 2, 3])
    const sinks = randn([1, 4], 8)
    checkVjp("scaledDotProductAttention", [q, k, v, sinks], { ...none, hasSinks: true }, [0, 1, 2, 3])
    const both = { ...masked, hasSinks: true }
    checkVjp("scaledDotProductAttention", [q, k, v, mask, sinks], both, [0, 1, 2, 3, 4])
  })
  test("softmax and logsumexp", () => {
    checkVjp("softmax", [x], { axis: 1, precise: false }, [0])
    checkVjp("logsumexp", [x], { axis: 2 }, [0])
  })
})

describe("vmap rules against a loop", () => {
  const run = (
    name: string,
    inputs: mx.Array[],
    axes: (number | null)[],
    params: Record<string, unknown>,
  ) => {
    const primitive = primitiveByName(name)
    const rules = primitive.rules as Required<typeof primitive.rules>
    const size = 3
    const got = rules.vmap({ inputs, axes, params, size })
    for (let i = 0; i < size; i++) {
      const one = inputs.map((x, k) => (axes[k] === null ? x : mx.take(x, i, axes[k])))
      const y = rules.decompose(one, params)
      const want = (Array.isArray(y) ? y : [y]) as mx.Array[]
      for (let o = 0; o < want.length; o++)
        expect(far(mx.take(got.outputs[o], i, got.axes[o]), want[o])).toBeLessThan(1e-5)
    }
  }
  test("norms", () => {
    const params = { eps: 0.1, hasWeight: true, hasBias: true }
    run("layerNorm", [randn([2, 4, 3], 1), randn([4], 2), randn([4], 3)], [2, null, null], params)
    run("layerNorm", [randn([2, 4], 1), randn([4, 3], 2), randn([3, 4], 3)], [null, 1, 0], params)
    run("rmsNorm", [randn([3, 5, 4], 1), randn([3, 4], 2)], [0, 0], { eps: 0.1, hasWeight: true })
  })
  test("rope", () => {
    const params = { dims: 4, traditional: false, base: 100, scale: 1, inverse: false }
    run("rope", [randn([2, 3, 5, 4], 1), mx.array([1, 7], mx.int32)], [1, null], params)
    run("rope", [randn([2, 5, 4], 1), mx.array([4, 2, 9], mx.int32)], [null, 0], params)
  })
  test("attention", () => {
    const [q, k, v] = [randn([2, 4, 3, 3, 5], 4), randn([2, 2, 6, 5], 5), randn([3, 2, 2, 6, 3], 6)]
    const mask = randn([1, 4, 1, 6, 3], 7)
    const none = { scale: 0.4, causal: false, hasMask: false, hasSinks: false }
    run("scaledDotProductAttention", [q, k, v], [2, null, 0], { ...none, causal: true })
    run("scaledDotProductAttention", [q, k, v, mask], [2, null, 0, 4], { ...none, hasMask: true })
    const sunk = { ...none, hasSinks: true }
    run("scaledDotProductAttention", [q, k, v, randn([1, 4], 8)], [2, null, 0, null], sunk)
    const [o, lse, g] = [randn([3, 2, 4, 3, 3], 9), randn([3, 2, 4, 3], 10), randn([3, 2, 4, 3, 3], 11)]
    for (const [sinks, axis] of [
      [randn([1, 4], 8), null],
      [randn([2, 4], 8), null],
      [randn([1, 4, 3], 8), 2],
      [randn([2, 3, 4], 8), 1],
    ] as const) {
      run("scaledDotProductAttention", [q, k, v, mask, sinks], [2, null, 0, 4, axis], {
        ...sunk,
        hasMask: true,
      })
      const axes = [2, null, 0, axis, 0, 0, 0]
      run("scaledDotProductAttentionVjp", [q, k, v, sinks, o, lse, g], axes, sunk)
    }
  })
})

test("errors", () => {
  const x = mx.zeros([2, 4])
  const q = mx.zeros([1, 4, 3, 8])
  const a = mx.fast
  expect(() => a.layerNorm(x, mx.zeros([3]), null, 1e-5)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [layerNorm] weight must have shape (4,) like the last axis of x, received (3,)]`,
  )
  expect(() => a.rmsNorm(mx.zeros([2], mx.int32), null, 1e-5)).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [rmsNorm] needs a floating dtype, received int32]`,
  )
  expect(() => a.rmsNorm(x, null, "a" as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [rmsNorm] eps must be a number, received the string "a"]`,
  )
  expect(() => a.rope(q, 7, { base: 10 })).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [rope] dims must be an even number up to the last axis's 8, received the number 7]`,
  )
  expect(() => a.rope(q, 4, {})).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [rope] needs either base or freqs, received neither]`,
  )
  expect(() => a.rope(q, 4, { base: 10, offset: mx.zeros([2]) })).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [rope] offset must be an integer, received float32]`,
  )
  const sdpa = (k: mx.Array, mask: unknown) =>
    a.scaledDotProductAttention(q, k, k, { scale: 1, mask: mask as null })
  expect(() => sdpa(mx.zeros([1, 3, 3, 8]), null)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [scaledDotProductAttention] the heads of q are not a multiple of those of k: q (1, 4, 3, 8), k (1, 3, 3, 8), v (1, 3, 3, 8)]`,
  )
  expect(() => sdpa(mx.zeros([1, 2, 3, 6]), null)).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [scaledDotProductAttention] the features of q and k differ: q (1, 4, 3, 8), k (1, 2, 3, 6), v (1, 2, 3, 6)]`,
  )
  expect(() => sdpa(q, "nope")).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [scaledDotProductAttention] mask must be an array, "causal" or null, received the string "nope"]`,
  )
  expect(() => sdpa(q, mx.zeros([2, 5, 5, 5]))).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [scaledDotProductAttention] shapes (2, 5, 5, 5) and (1, 4, 3, 3) cannot be broadcast: 5 and 4 differ and neither is 1]`,
  )
})

test("norms of mixed dtypes have MLX's dtypes", () => {
  const x = (dtype: mx.Dtype) => mx.array([[1, 2, 4]], dtype)
  const p = (dtype: mx.Dtype) => mx.array([1, 2, 3], dtype)
  const { float16, float32, int32 } = mx
  const layer = (x: mx.Array, weight: mx.Dtype | null, bias: mx.Dtype | null) => {
    const y = mx.fast.layerNorm(x, weight && p(weight), bias && p(bias), 1e-5)
    return [y.dtype, y.tolist()]
  }
  const rms = (x: mx.Array, weight: mx.Dtype) => {
    const y = mx.fast.rmsNorm(x, p(weight), 1e-5)
    return [y.dtype, y.tolist()]
  }
  const biased = layer(x(float16), null, float16)
  expect(biased[0]).toBe(float16)
  expect(layer(x(float16), null, float32)).toEqual(biased)
  expect(layer(x(float16), null, int32)).toEqual(biased)
  expect(layer(x(float16), float16, float32)).toEqual(layer(x(float32), float32, float32))
  expect(layer(x(int32), float16, float32)).toEqual(layer(x(float32), float32, float32))
  const weighted = layer(x(float16), float16, null)
  expect(layer(x(float16), int32, null)).toEqual(weighted)
  expect(layer(x(int32), float16, null)).toEqual(weighted)
  const scaled = rms(x(float16), float16)
  expect(rms(x(float16), int32)).toEqual(scaled)
  expect(rms(x(int32), float16)).toEqual(scaled)
  expect(() => layer(x(int32), null, float32)).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [layerNorm] needs a floating dtype, received int32]`,
  )
  expect(() => rms(x(int32), int32)).toThrow("[rmsNorm] needs a floating dtype, received int32")
})

test("attention takes integers beside floats, as MLX does", () => {
  const attend = (...dtypes: mx.Dtype[]) => {
    const [q, k, v] = dtypes.map((dtype) => mx.array([1, 2, 3, 1], dtype).reshape([1, 1, 2, 2]))
    const y = mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.5 })
    return [y.dtype, y.flatten().tolist()]
  }
  const { float16, float32, int32 } = mx
  for (const dtypes of [
    [float16, int32, int32],
    [int32, float16, float16],
  ])
    expect(attend(...dtypes)).toEqual(attend(float16, float16, float16))
  expect(attend(int32, int32, float32)).toEqual(attend(float32, float32, float32))
  expect(() => attend(int32, int32, int32)).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [scaledDotProductAttention] needs a floating dtype, received int32]`,
  )
})

test("a query that may attend to no key gives zeros", () => {
  const x = mx.array([1, 2, 3, 1]).reshape([1, 1, 2, 2])
  const mask = mx.array([
    [false, false],
    [true, false],
  ])
  const masked = mx.fast.scaledDotProductAttention(x, x, x, { scale: 1, mask })
  expect(masked.flatten().tolist()).toEqual([0, 0, 1, 2])
  const causal = mx.fast.scaledDotProductAttention(mx.ones([1, 1, 3, 2]), x, x, { scale: 1, mask: "causal" })
  expect(causal.flatten().index(":4").tolist()).toEqual([0, 0, 1, 2])
})

test("sinks fit the dtype of the arrays", () => {
  const q = mx.zeros([1, 2, 3, 4], mx.float16)
  const attend = (sinks: mx.Array) => mx.fast.scaledDotProductAttention(q, q, q, { scale: 1, sinks })
  expect(attend(mx.zeros([2], mx.float16)).dtype).toBe(mx.float16)
  expect(() => attend(mx.zeros([2]))).toThrowErrorMatchingInlineSnapshot(
    `[DTypeError: [scaledDotProductAttention] sinks of float32 do not fit arrays of float16]`,
  )
})
