/** Convolutions on the CPU: every algorithm against the reference implementation of the same primitive. */
import { quarters } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import type { HostArray } from "@lazuli/core/engine"
import { primitiveByName } from "@lazuli/core/engine"
import { beforeEach, describe, expect, test } from "vitest"
import "./index"

type Rules = Required<ReturnType<typeof primitiveByName>["rules"]>
const rules = primitiveByName("conv").rules as Rules
const halves: mx.Dtype[] = [mx.float16, mx.bfloat16]

const pick = (random: () => number, low: number, high: number): number =>
  low + (Math.floor((random() + 2) * 4 + 16 * ((random() + 2) * 4)) % (high - low + 1))

function host(a: mx.Array): HostArray {
  const wide = halves.includes(a.dtype) ? a.astype(mx.float32) : a
  return { shape: a.shape, dtype: a.dtype, data: wide.toTypedArray() as unknown as HostArray["data"] }
}

const apply = (inputs: mx.Array[], params: Params): mx.Array => {
  const f = {
    stride: params.stride,
    padding: [params.low, params.high],
    groups: params.groups,
    flip: params.flip,
  }
  const { kernelDilation, inputDilation } = params
  return mx.convGeneral(inputs[0], inputs[1], { ...f, kernelDilation, inputDilation } as object)
}

type Params = {
  stride: number[]
  low: number[]
  high: number[]
  kernelDilation: number[]
  inputDilation: number[]
  groups: number
  flip: boolean
}
const plain = (axes: number, more: Partial<Params> = {}): Params => {
  const all = (n: number): number[] => Array.from({ length: axes }, () => n)
  return { stride: all(1), low: all(0), high: all(0), kernelDilation: all(1), inputDilation: all(1), groups: 1, flip: false, ...more } // biome-ignore format: one line
}

/** The result of the reference for inputs that are already on the host. */
function reference(inputs: mx.Array[], params: Params, shape: number[], dtype: mx.Dtype): ArrayLike<number> {
  const out: HostArray = { shape, dtype, data: new Float64Array(shape.reduce((a, b) => a * b, 1)) }
  rules.reference(inputs.map(host), [out], params)
  return out.data
}

function check(inputs: mx.Array[], params: Params): void {
  const y = apply(inputs, params)
  const want = reference(inputs, params, y.shape, y.dtype)
  const got = (halves.includes(y.dtype) ? y.astype(mx.float32) : y).toTypedArray() as Float32Array
  const epsilon = y.dtype === mx.bfloat16 ? 2 ** -8 : y.dtype === mx.float16 ? 2 ** -11 : 1e-6
  for (let i = 0; i < got.length; i++)
    if (!(Math.abs(got[i] - want[i]) <= epsilon * (1 + Math.abs(want[i]))))
      throw new Error(`${JSON.stringify(params)} of [${inputs[0].shape}] and [${inputs[1].shape}], element ${i}: ${got[i]}, expected ${want[i]}`) // biome-ignore format: one line
}

/** The input gradient and the weight gradient of the convolution, as the kernel gets them, against the reference. */
function checkGradients(inputs: mx.Array[], params: Params, cotangent?: mx.Array): void {
  const y = apply(inputs, params)
  const random = quarters(7)
  const g = cotangent ?? fill(y.shape, y.dtype, random)
  const gradients = rules.vjp({ inputs, outputs: [y], cotangents: [g], params, wanted: [true, true] })
  mx.eval(gradients)
  // <g, conv(dx, w)> = <dx, gradient>: exact, since all numbers have few bits.
  for (const which of [0, 1]) {
    const d = fill(inputs[which].shape, inputs[which].dtype, random)
    const moved = inputs.map((x, i) => (i === which ? d : x))
    const change = reference(moved, params, y.shape, y.dtype)
    const cotangents = host(g).data
    let want = 0
    let scale = 0
    for (let i = 0; i < change.length; i++) {
      want += change[i] * cotangents[i]
      scale += Math.abs(change[i] * cotangents[i])
    }
    const gradient = gradients[which] as mx.Array
    const [a, b] = [host(gradient).data, host(d).data]
    let got = 0
    for (let i = 0; i < a.length; i++) got += a[i] * b[i]
    const epsilon = y.dtype === mx.bfloat16 ? 2 ** -7 : y.dtype === mx.float16 ? 2 ** -10 : 1e-6
    if (!(Math.abs(got - want) <= epsilon * (1 + scale)))
      throw new Error(`gradient ${which} of ${JSON.stringify(params)} of [${inputs[0].shape}] and [${inputs[1].shape}]: ${got}, expected ${want}`) // biome-ignore format: one line
  }
}

const fill = (shape: number[], dtype: mx.Dtype, random: () => number): mx.Array =>
  mx.array(Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, random)).reshape(shape).astype(dtype) // biome-ignore format: one line

/** The same numbers in another layout: axes reversed in memory, every second element, reversed, or repeated. */
function laidOut(x: mx.Array, kind: number): mx.Array {
  if (kind === 1) return mx.contiguous(x.transpose()).transpose()
  if (kind === 2) return mx.contiguous(mx.repeat(x, 2, -1)).index("...", "::2")
  if (kind === 3) return mx.contiguous(x.index("::-1")).index("::-1")
  if (kind === 4 && x.ndim > 3) return mx.contiguous(x.swapaxes(1, 2)).swapaxes(1, 2)
  return x
}

beforeEach(() => mx.resetBackendStats())

describe("random convolutions", () => {
  for (const dtype of [mx.float32, mx.float64, mx.float16, mx.bfloat16])
    test(`of ${dtype.name} in every layout`, () => {
      const random = quarters(dtype.size + (dtype === mx.bfloat16 ? 100 : 0))
      const n = (low: number, high: number): number => pick(random, low, high)
      for (let round = 0; round < 150; round++) {
        const axes = n(1, 3)
        const groups = n(0, 2) === 0 ? n(2, 5) : 1
        const depthwise = groups > 1 && n(0, 1) === 0
        const channels = depthwise ? 1 : n(1, 5)
        const outputs = depthwise ? n(1, 2) : n(0, 3) === 0 ? n(15, 40) : n(1, 6)
        const wide = depthwise ? n(1, 9) : 1
        const list = (low: number, high: number): number[] => Array.from({ length: axes }, () => n(low, high))
        const size = axes === 1 ? list(1, 40) : list(1, 9)
        const kernel = list(1, n(0, 5) === 0 ? 9 : 3)
        const params: Params = {
          stride: list(1, 3),
          low: list(-1, 3),
          high: list(-1, 3),
          kernelDilation: list(1, 3),
          inputDilation: list(1, n(0, 1) === 0 ? 1 : 3),
          groups: groups * wide,
          flip: n(0, 1) === 0,
        }
        for (let i = 0; i < axes; i++) {
          const room = (size[i] - 1) * params.inputDilation[i] + 1 + params.low[i] + params.high[i]
          const reach = (kernel[i] - 1) * params.kernelDilation[i] + 1
          if (reach > room) params.high[i] += reach - room
        }
        const x = fill([n(1, 3), ...size, channels * groups * wide], dtype, random)
        const w = fill([outputs * groups * wide, ...kernel, channels], dtype, random)
        const inputs = [laidOut(x, n(0, 4)), laidOut(w, n(0, 4))]
        check(inputs, params)
        checkGradients(inputs, params)
      }
      expect(mx.backendStats().cpu?.conv).toBeUndefined()
    })
})

describe("sizes that choose an algorithm", () => {
  const random = quarters(3)
  const x = (shape: number[]): mx.Array => fill(shape, mx.float32, random)
  const both = (inputs: mx.Array[], params: Params): void => {
    check(inputs, params)
    checkGradients(inputs, params)
  }
  test("many channels, in several passes and panels", () => {
    both([x([2, 6, 5, 300]), x([70, 3, 3, 300])], plain(2, { low: [1, 1], high: [1, 1] }))
  })
  test("long rows, in several parts", () => {
    both([x([1, 1500, 3]), x([5, 4, 3])], plain(1, { low: [2], high: [1], stride: [2] }))
  })
  test("one by one, where images are one long image", () => {
    both([x([3, 20, 20, 24]), x([33, 1, 1, 24])], plain(2))
    both([x([3, 9, 9, 8]), x([4, 1, 1, 8])], plain(2, { stride: [2, 2] }))
  })
  test("one by one of many pixels with few channels, as one product", () => {
    both([x([2, 33, 32, 24]), x([33, 1, 1, 24])], plain(2))
    both([x([1, 2200, 1]), x([1, 1, 1])], plain(1))
    check([x([2, 33, 32, 5]), laidOut(x([7, 1, 1, 5]), 1)], plain(2, { flip: true }))
    check([laidOut(x([2, 33, 32, 5]), 1), laidOut(x([7, 1, 1, 5]), 3)], plain(2))
    for (const dtype of [mx.float64, ...halves])
      check([x([1, 64, 40, 6]).astype(dtype), x([9, 1, 1, 6]).astype(dtype)], plain(2))
    // As many positions out as in, and not the same ones.
    const apart = { high: [0, 49], stride: [1, 2] }
    check([x([1, 50, 50, 3]), x([4, 1, 1, 3])], plain(2, apart))
    check([x([1, 50, 50, 3]), x([4, 1, 1, 3])], plain(2, { stride: [1, 2], inputDilation: [1, 2] }))
  })
  test("a kernel as large as the input", () => {
    both([x([4, 7, 7, 20]), x([30, 7, 7, 20])], plain(2))
  })
  test("depthwise, with multipliers, and groups", () => {
    both([x([2, 9, 8, 70]), x([70, 3, 3, 1])], plain(2, { groups: 70, low: [1, 1], high: [1, 1] }))
    both([x([2, 9, 8, 6]), x([18, 3, 3, 1])], plain(2, { groups: 6, stride: [2, 2] }))
    both([x([2, 9, 8, 64]), x([64, 3, 3, 16])], plain(2, { groups: 4, low: [1, 1], high: [1, 1] }))
    both([x([1, 4, 5, 6, 8]), x([8, 2, 3, 3, 2])], plain(3, { groups: 4 }))
  })
  test("depthwise rows of every width, by runs of taps and without", () => {
    for (let kernel = 2; kernel <= 8; kernel++)
      for (const width of [kernel - 1, kernel + 2, 8 + kernel, 15 + kernel, 27])
        for (const channels of [3, 16, 85])
          for (const dilation of [1, 2]) {
            const low = [1, kernel >> 1]
            const params = {
              groups: channels,
              low,
              high: [1, kernel * dilation],
              kernelDilation: [1, dilation],
            }
            check([x([1, 3, width, channels]), x([channels, 3, kernel, 1])], plain(2, params))
          }
  })
  test("groups of few outputs", () => {
    for (const outputs of [1, 2, 3, 4, 5, 7, 8, 9])
      both(
        [x([2, 7, 9, 6 * 5]), x([6 * outputs, 3, 3, 5])],
        plain(2, { groups: 6, low: [1, 1], high: [1, 1] }),
      )
  })
  test("what is not finite in one group shows in no other", () => {
    for (const dtype of [mx.float32, mx.float64, mx.bfloat16])
      for (const value of [Infinity, -Infinity, Number.NaN])
        for (const [channels, outputs, kernel, groups] of [
          [16, 8, [3, 3], 2],
          [4, 4, [1, 1], 2],
          [8, 4, [3, 2], 4],
          [4, 4, [2, 1, 2], 2],
        ] as const) {
          const size = kernel.map(() => 4)
          const pixel = mx.where(mx.arange(channels).equal(0), value, mx.ones([channels]))
          const image = mx.broadcastTo(pixel, [2, ...size, channels]).astype(dtype)
          const weight = mx.ones([outputs, ...kernel, channels / groups], dtype)
          const y = apply([image, weight], plain(kernel.length, { groups }))
          const sum = (kernel.reduce((a: number, b) => a * b, 1) * channels) / groups
          const each = Array.from({ length: outputs }, (_, i) => (i < outputs / groups ? value : sum))
          expect(y.astype(mx.float32).reshape([-1, outputs]).index(-1).tolist()).toEqual(each)
        }
  })
  test("pixels and results that exceed a cache, in place and padded", () => {
    check([x([1, 23, 25, 300]), x([70, 1, 1, 300])], plain(2))
    check([x([1, 47, 25, 40]), x([260, 1, 1, 40])], plain(2, { stride: [2, 1] }))
    check([x([1, 23, 25, 130]), x([70, 2, 1, 130])], plain(2, { high: [1, 0] }))
  })
  test("a cotangent that is one number repeated", () => {
    const inputs = [x([2, 8, 8, 4]), x([20, 3, 3, 4])]
    checkGradients(inputs, plain(2), mx.broadcastTo(mx.array(0.5), [2, 6, 6, 20]))
  })
  test("an empty batch, no channels, and padding alone", () => {
    expect(mx.conv2d(mx.zeros([0, 4, 4, 2]), mx.zeros([3, 2, 2, 2])).tolist()).toEqual([])
    expect(mx.conv1d(mx.zeros([1, 2, 0]), mx.zeros([1, 2, 0])).tolist()).toEqual([[[0]]])
    expect(mx.conv1d(mx.zeros([1, 0, 1]), mx.ones([1, 2, 1]), { padding: 1 }).tolist()).toEqual([[[0]]])
    expect(
      mx
        .conv1d(mx.ones([1, 2, 1]), mx.ones([1, 1, 1]), { padding: 2 })
        .flatten()
        .tolist(),
    ).toEqual([0, 0, 1, 1, 0, 0])
  })
  test("zeros between inputs that no kernel element reaches", () => {
    const inputs = [x([1, 5, 2]), x([3, 2, 2])]
    check(inputs, plain(1, { inputDilation: [3], kernelDilation: [3], low: [2], high: [1] }))
    checkGradients(inputs, plain(1, { inputDilation: [3], kernelDilation: [3], low: [2], high: [1] }))
  })
  test("NaN and infinities reach the outputs that they meet and no others", () => {
    const image = mx.array([1, Number.NaN, 1, 1, Number.POSITIVE_INFINITY, 1]).reshape([1, 6, 1])
    const y = mx
      .conv1d(image, mx.ones([1, 2, 1]), { padding: 1 })
      .flatten()
      .tolist() as number[]
    expect(y).toEqual([1, Number.NaN, Number.NaN, 2, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 1])
  })
})
