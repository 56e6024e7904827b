import * as mx from "@lazuli/core"
import { grad } from "@lazuli/transforms"
import { describe, expect, test, vi } from "vitest"
import * as nn from "./index"

const { losses } = nn
const list = (x: mx.Array): number[] => x.flatten().tolist() as number[]

describe("shifts", () => {
  const target = mx.array([0], mx.int32)

  test("logSoftmax keeps differences beside large values", () => {
    const x = mx.array([
      [1e4, 1e4],
      [1e8, 1e8],
    ])
    for (const y of list(nn.logSoftmax(x))) expect(y).toBeCloseTo(-Math.LN2, 6)
    const shifted = mx.array([[2 + 1e6, -1 + 1e6]])
    const near = list(nn.logSoftmax(mx.array([[2, -1]])))
    list(nn.logSoftmax(shifted)).forEach((y, i) => expect(y).toBeCloseTo(near[i], 6))
  })

  test("logSoftmax's derivatives are those without the shift", () => {
    const second = (x: mx.Array) =>
      list(grad((z: mx.Array) => grad((y: mx.Array) => nn.logSoftmax(y).index(0, 0))(z).index(0, 1))(x))
    const slope = (x: mx.Array) => list(grad((y: mx.Array) => nn.logSoftmax(y).index(0, 0))(x))
    const [at, shifted] = [mx.array([[2, -1]]), mx.array([[2 + 1e6, -1 + 1e6]])]
    slope(shifted).forEach((g, i) => expect(g).toBeCloseTo(slope(at)[i], 6))
    second(shifted).forEach((g, i) => expect(g).toBeCloseTo(second(at)[i], 6))
    expect(slope(at)[0]).toBeCloseTo(1 / (1 + Math.exp(3)), 6)
  })

  test.each([
    ["indices", target, {}],
    ["probabilities", mx.array([[0.75, 0.25]]), {}],
    ["smoothed labels", target, { labelSmoothing: 0.1 }],
  ])("crossEntropy of %s keeps differences beside large logits", (_name, targets, options) => {
    const loss = (x: mx.Array) => losses.crossEntropy(x, targets, { ...options, reduction: "sum" })
    const [at, shifted] = [mx.array([[2, -1]]), mx.array([[2 + 1e6, -1 + 1e6]])]
    expect(loss(shifted).item()).toBeCloseTo(loss(at).item() as number, 6)
    const slopes = list(grad(loss)(at))
    list(grad(loss)(shifted)).forEach((g, i) => expect(g).toBeCloseTo(slopes[i], 6))
  })

  test("crossEntropy of a target that is masked is infinite", () => {
    const x = mx.array([[0, Number.NEGATIVE_INFINITY]])
    expect(list(losses.crossEntropy(x, mx.array([1], mx.int32)))).toEqual([Number.POSITIVE_INFINITY])
  })

  test("binaryCrossEntropy keeps small losses of logits", () => {
    const loss = (x: mx.Array, t: number) =>
      losses.binaryCrossEntropy(x, mx.array([t]), { reduction: "sum" }).item() as number
    for (const [x, t] of [
      [20, 1],
      [-20, 0],
    ])
      expect(loss(mx.array([x]), t) / Math.log1p(Math.exp(-20))).toBeCloseTo(1, 5)
    const slope = grad((x: mx.Array) => losses.binaryCrossEntropy(x, mx.array([1]), { reduction: "sum" }))
    expect(list(slope(mx.array([20])))[0] / -1 / Math.exp(-20)).toBeCloseTo(1, 5)
    expect(list(slope(mx.array([0])))).toEqual([-0.5])
  })

  test("binaryCrossEntropy keeps small losses of probabilities, and finite slopes at 0 and 1", () => {
    const loss = (p: mx.Array, t: number) =>
      losses.binaryCrossEntropy(p, mx.array([t]), { withLogits: false, reduction: "sum" })
    expect((loss(mx.array([1e-9]), 0).item() as number) / 1e-9).toBeCloseTo(1, 5)
    for (const p of [0, 1])
      for (const t of [0, 1]) {
        const [slope] = list(grad((x: mx.Array) => loss(x, t))(mx.array([p])))
        expect([p, t, Number.isFinite(slope)]).toEqual([p, t, true])
      }
  })

  test("logCoshLoss keeps small errors and does not overflow", () => {
    const loss = (e: number) =>
      losses.logCoshLoss(mx.array([e]), mx.array([0]), { reduction: "sum" }).item() as number
    expect(loss(1e-3) / 5e-7).toBeCloseTo(1, 4)
    for (const e of [0.5, -3, 9.99, 10.01, -80]) expect(loss(e)).toBeCloseTo(Math.log(Math.cosh(e)), 4)
    expect(loss(1000)).toBeCloseTo(1000 - Math.LN2, 3)
    const slope = grad((x: mx.Array) => losses.logCoshLoss(x, mx.array([0]), { reduction: "sum" }))
    for (const e of [0, 0.5, -9, 11, -1000])
      expect(list(slope(mx.array([e])))[0]).toBeCloseTo(Math.tanh(e), 6)
  })
})

test("cosineSimilarityLoss computes nothing to know its dtype", () => {
  const x = mx.ones([1, 2], mx.float16)
  const multiply = vi.spyOn(mx.Array.prototype, "multiply")
  const loss = losses.cosineSimilarityLoss(x, x)
  expect(multiply).toHaveBeenCalledTimes(2)
  multiply.mockRestore()
  expect(loss.dtype).toBe(mx.float16)
  expect(losses.cosineSimilarityLoss(x, mx.ones([1, 2])).dtype).toBe(mx.float32)
})

test("distances of float16 do not overflow in the squares", () => {
  const [x, y, z] = [
    [512, 512],
    [0, 0],
    [1024, 1024],
  ].map((row) => mx.array([row], mx.float16))
  const cosine = losses.cosineSimilarityLoss(x, x)
  expect(cosine.dtype).toBe(mx.float16)
  expect(list(cosine)[0]).toBeCloseTo(1, 2)
  const triplet = losses.tripletLoss(x, y, z)
  expect(triplet.dtype).toBe(mx.float16)
  expect(list(triplet)).toEqual([1])
})

test("losses of integers, and of float16 beside integers, have MLX's dtypes", () => {
  const of = (values: number[], dtype: mx.Dtype) => mx.array([values], dtype)
  const half = of([1, 2], mx.float16)
  const whole = of([3, 5], mx.int32)
  for (const loss of [losses.cosineSimilarityLoss(half, whole), losses.cosineSimilarityLoss(whole, half)]) {
    expect(loss.dtype).toBe(mx.float32)
    expect(list(loss)[0]).toBeCloseTo(0.997, 3)
  }
  const rank = (dtype: mx.Dtype, margin?: number) =>
    losses.marginRankingLoss(of([1, 2, 3], dtype), of([3, 2, 1], dtype), of([1, 1, -1], mx.int32), margin)
  expect(rank(mx.int32).dtype).toBe(mx.float32)
  expect(list(rank(mx.int32))).toEqual([2, 0, 2])
  expect(rank(mx.float16).dtype).toBe(mx.float16)
  expect(rank(mx.int32, 1).dtype).toBe(mx.int32)
  expect(list(rank(mx.int32, 1))).toEqual([3, 1, 3])
})
