/**
 * Convolutions with 3 × 3 kernels, stride 1 and many channels, which have an algorithm of their own: against their reference, and where
 * values are wild.
 */

import { compile } from "@lazuli/compile"
import { quarters } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import type { HostArray } from "@lazuli/core/engine"
import { primitiveByName } from "@lazuli/core/engine"
import { grad } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import { bits } from "../test/bits"
import "./index"
import { native } from "./native"

type Pads = readonly [top: number, left: number, bottom: number, right: number]

/** Numbers of a few bits: sums are exact in whatever order, and so are the transforms. */
function coarse(shape: number[], seed: number): mx.Array {
  const next = quarters(seed)
  return mx.array(Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, next)).reshape(shape)
}

const conv = (x: mx.Array, w: mx.Array, [top, left, bottom, right]: Pads): mx.Array =>
  mx.convGeneral(x, w, { padding: [[top, left], [bottom, right]] }) // biome-ignore format: one line

const host = (a: mx.Array): HostArray => ({
  shape: a.shape,
  dtype: a.dtype,
  data: a.toTypedArray() as unknown as HostArray["data"],
})

function reference(x: mx.Array, w: mx.Array, [top, left, bottom, right]: Pads, shape: number[]): number[] {
  const out: HostArray = {
    shape,
    dtype: mx.float32,
    data: new Float64Array(shape.reduce((a, b) => a * b, 1)),
  }
  const one = [1, 1]
  const params = { stride: one, low: [top, left], high: [bottom, right], kernelDilation: one, inputDilation: one, groups: 1, flip: false } // biome-ignore format: one line
  primitiveByName("conv").rules.reference?.([host(x), host(w)], [out], params)
  return Array.from(out.data as Float64Array)
}

function check(x: mx.Array, w: mx.Array, pads: Pads): void {
  const y = conv(x, w, pads)
  expect(Array.from(y.toTypedArray() as Float32Array)).toEqual(reference(x, w, pads, y.shape))
}

describe("squares", () => {
  test("of odd and even sizes, and paddings of every kind", () => {
    const w = coarse([19, 3, 3, 17], 1)
    let seed = 2
    for (const [height, width] of [[4, 4], [5, 4], [6, 7], [9, 5], [2, 30], [31, 3]]) // biome-ignore format: one line
      for (const pads of [[1, 1, 1, 1], [0, 0, 0, 0], [2, 0, 1, 3], [1, -1, 0, 2], [3, 2, -1, 0], [5, 5, 5, 5]] as const) // biome-ignore format: one line
        if (height + pads[0] + pads[2] > 2 && width + pads[1] + pads[3] > 2)
          check(coarse([2, height, width, 17], seed++), w, pads)
  })
  test("of inputs and weights in any layout", () => {
    const [x, w] = [coarse([2, 7, 6, 32], 3), coarse([20, 3, 3, 32], 4)]
    const turned = (a: mx.Array): mx.Array => mx.contiguous(a.transpose()).transpose()
    const spread = (a: mx.Array): mx.Array => mx.contiguous(mx.repeat(a, 2, 2)).index(":", ":", "::2")
    for (const a of [
      x,
      turned(x),
      spread(x),
      x.index("::-1", ":", "::-1"),
      mx.broadcastTo(x.index(":1"), x.shape),
    ])
      for (const b of [w, turned(w), mx.contiguous(w.swapaxes(0, 3)).swapaxes(0, 3), w.index(":", "::-1")])
        check(a, b, [1, 1, 1, 1])
  })
  test("of nothing", () => {
    expect(conv(mx.zeros([0, 8, 8, 16]), mx.ones([16, 3, 3, 16]), [1, 1, 1, 1]).shape).toEqual([0, 8, 8, 16])
    expect(conv(mx.zeros([1, 8, 8, 16]), mx.ones([0, 3, 3, 16]), [1, 1, 1, 1]).shape).toEqual([1, 8, 8, 0])
    expect(
      conv(mx.zeros([1, 8, 8, 0]), mx.ones([16, 3, 3, 0]), [1, 1, 1, 1])
        .abs()
        .max()
        .item(),
    ).toBe(0)
    expect(
      conv(mx.zeros([1, 0, 8, 16]), mx.ones([16, 3, 3, 16]), [3, 1, 3, 1])
        .abs()
        .max()
        .item(),
    ).toBe(0)
  })
  test("as gradients of the input", () => {
    const [w, g] = [coarse([24, 3, 3, 32], 5), coarse([2, 9, 8, 24], 6)]
    const dx = grad((x: mx.Array) => conv(x, w, [1, 1, 1, 1]).multiply(g).sum())(mx.zeros([2, 9, 8, 32]))
    const back = w.index(":", "::-1", "::-1").swapaxes(0, 3)
    expect(dx.tolist()).toEqual(conv(g, mx.contiguous(back), [1, 1, 1, 1]).tolist())
    expect(dx.flatten().tolist()).toEqual(reference(g, back, [1, 1, 1, 1], dx.shape))
  })
  test("with the same bits compiled, and with any number of threads", () => {
    const [x, w] = [mx.random.normal([3, 30, 31, 33]), mx.random.normal([65, 3, 3, 33])]
    const f = (a: mx.Array, b: mx.Array): mx.Array => mx.conv2d(a, b, 1, 1)
    const want = bits(f(x, w))
    expect(bits(compile(f)(x, w))).toEqual(want)
    const before = native.threads()
    for (const threads of [1, 3]) {
      native.setThreads(threads)
      expect(bits(f(x, w))).toEqual(want)
    }
    native.setThreads(before)
  })
})

describe("wild values", () => {
  const [height, width, channels, outputs] = [10, 11, 16, 9]
  /** Where it is not finite, a result is what the definition gives; elsewhere it is the same as without the wild value. */
  const alike = (x: mx.Array, w: mx.Array): void => {
    const y = conv(x, w, [1, 1, 1, 1])
    expect(Array.from(y.toTypedArray() as Float32Array)).toEqual(reference(x, w, [1, 1, 1, 1], y.shape))
  }
  const x = (): Float32Array => coarse([2, height, width, channels], 7).toTypedArray() as Float32Array
  const w = coarse([outputs, 3, 3, channels], 8).add(4)

  test("of the input reach the pixels that they meet and no others", () => {
    for (const value of [Number.NaN, Infinity, -Infinity])
      for (const position of [0, 5, 3 * width + 4, height * width - 1, 2 * height * width - 1]) {
        const spoilt = x()
        spoilt[position * channels + 3] = value
        alike(mx.array(spoilt).reshape([2, height, width, channels]), w)
      }
  })
  test("of the weights reach their output alone", () => {
    const y = conv(
      mx.ones([1, 8, 8, 16]),
      mx.where(mx.arange(9).reshape([9, 1, 1, 1]).equal(4), Infinity, mx.ones([9, 3, 3, 16])),
      [0, 0, 0, 0],
    )
    expect(y.index(0, 0, 0).tolist()).toEqual([144, 144, 144, 144, Infinity, 144, 144, 144, 144])
  })
  test("that would overflow in a transform alone do not", () => {
    const most = 2 ** 127
    const row = Array.from({ length: 8 }, (_, i) => (i % 4 < 2 ? most : -most))
    const image = mx.broadcastTo(mx.array(row).reshape([1, 1, 8, 1]), [1, 8, 8, 16])
    const kernel = mx.broadcastTo(
      mx.where(mx.arange(9).reshape([1, 3, 3, 1]).equal(4), mx.array(1), mx.array(0)).astype(mx.float32),
      [8, 3, 3, 16],
    )
    const one = mx.where(mx.arange(16).equal(2), kernel, mx.zeros([8, 3, 3, 16]))
    expect(conv(image, one, [1, 1, 1, 1]).index(0, 3, ":", 1).tolist()).toEqual(row)
  })
})
