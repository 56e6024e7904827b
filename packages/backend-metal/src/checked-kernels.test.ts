/**
 * Kernels of every family in the checked mode, around the sizes at which they change: none reports anything, and those that pass over
 * operands once move no more bytes than there are. `LAZULI_METAL_CHECK=1 npm run conformance:ops -- --suite --backend metal` runs all.
 */

import { compile } from "@lazuli/compile"
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { vjp } from "@lazuli/transforms"
import { beforeAll, expect, it, vi } from "vitest"
import { hostNative } from "./host-native"
import { metalBackend } from "./index"

vi.hoisted(() => {
  process.env.LAZULI_METAL_CHECK = "1"
})

const whole = (n: number, most: number): mx.Array =>
  noise([n], 5).abs().multiply(most).floor().astype(mx.int32)

type Programs = Record<string, (n: number) => mx.Array | mx.Array[]>
const attention = (n: number, mask: "causal" | null): mx.Array => {
  const x = noise([1, 2, n, 16])
  return mx.fast.scaledDotProductAttention(x, x, x, { scale: 0.3, mask })
}
/** Several results of one length. */
const programs: Programs = {
  elementwise: (n) => [
    noise([n]).exp(),
    noise([n, 3]).add(noise([3], 2)),
    noise([3, n]).T.multiply(noise([n, 3], 2)),
    noise([n]).astype(mx.float16).negative(),
  ],
  copies: (n) => [
    mx.contiguous(noise([n, 40]).T),
    mx.concatenate([noise([n]), noise([3], 2)]),
    mx.pad(noise([n, 2]), 1),
    mx.contiguous(noise([n]).index("::-1")),
  ],
  reductions: (n) => [
    noise([n]).sum(),
    noise([5, n]).max(1),
    noise([n, 5]).sum(0),
    noise([n, 5]).argmax(0),
    mx.var(noise([5, n]), 1),
  ],
  rows: (n) => [
    mx.softmax(noise([3, n]), -1),
    mx.softmax(noise([n, 3]), 0),
    mx.logsumexp(noise([3, n]), -1),
    mx.fast.layerNorm(noise([3, n]), noise([n], 2), noise([n], 3), 1e-5),
    ...vjp(
      (x: mx.Array, w: mx.Array) => mx.fast.rmsNorm(x, w, 1e-5),
      [noise([3, n]), noise([n], 2)],
      [noise([3, n], 4)],
    )[1],
  ],
  scans: (n) => [noise([2, n]).cumsum(1), noise([n, 3]).cumsum(0), noise([2, n]).cummax(1, true, false)],
  sorts: (n) => [mx.sort(noise([2, n])), mx.argsort(whole(n, 9))],
  gathers: (n) => [
    mx.take(noise([20, 5]), whole(n, 20), 0),
    noise([20, 5])
      .at(whole(n, 20))
      .add(noise([n, 5], 3)),
    noise([20])
      .astype(mx.float16)
      .at(whole(n, 20))
      .add(noise([n], 3).astype(mx.float16)),
    mx.array(new Array(21).fill(3), mx.uint8).at(whole(n, 21)).maximum(whole(n, 99).astype(mx.uint8)),
    mx
      .zeros([20])
      .at(whole(n, 20))
      .maximum(noise([n], 3)),
    mx.putAlongAxis(noise([20]), whole(n, 20), noise([n], 3), 0),
  ],
  products: (n) => [
    noise([n, 17]).matmul(noise([17, 9], 2)),
    noise([9, n]).matmul(noise([n], 2)),
    noise([1024 + n, 40]).matmul(noise([40, 3], 2)),
    noise([2, n, 70]).matmul(noise([2, 70, n], 2)),
  ],
  attention: (n) => [
    attention(n, null),
    attention(n, "causal"),
    ...vjp(
      (q: mx.Array, k: mx.Array) =>
        mx.fast.scaledDotProductAttention(q, k, k, { scale: 0.3, mask: "causal" }),
      [noise([1, 2, n, 16]), noise([1, 1, n, 16], 2)],
      [noise([1, 2, n, 16], 3)],
    )[1],
  ],
  random: (n) => [mx.random.normal([n], { key: mx.random.key(3) }), mx.arange(n)],
  quantized: (n) => {
    const [w, scales, biases] = mx.quantize(noise([n, 64]), { groupSize: 32, bits: 4 })
    return [mx.quantizedMatmul(noise([3, 64], 2), w, scales, biases, { groupSize: 32, bits: 4 })]
  },
  convolutions: (n) => [mx.conv1d(noise([1, n, 4]), noise([6, 3, 4], 2), { padding: 1 })],
  transforms: (n) => [mx.abs(mx.fft.fft(noise([2, n])))],
}

beforeAll(() => mx.setDefaultDevice(mx.gpu))
const sizes: Record<string, number[]> = { sorts: [1, 7, 300, 4100], transforms: [1, 7, 64] }

it.each(Object.keys(programs))(
  "%s run silently",
  async (name) => {
    const run = (): void => {
      for (const n of sizes[name] ?? [1, 7, 33, 300]) mx.eval(...[programs[name](n)].flat())
    }
    await metalBackend.rehearse(run)
    run()
  },
  120_000,
)

const permutation = (n: number): mx.Array =>
  mx.array(
    Array.from({ length: n }, (_, i) => (i * 7) % n),
    mx.int32,
  )

const attend = (q: mx.Array, k: mx.Array, v: mx.Array): mx.Array =>
  mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.3 })
const derivatives = (x: mx.Array, w: mx.Array): mx.Array[] =>
  vjp((y: mx.Array, v: mx.Array) => mx.fast.rmsNorm(y, v, 1e-5), [x, w], [noise([64, 512], 3)])[1]

it.each<[string, () => mx.Array, (x: mx.Array) => mx.Array | mx.Array[]]>([
  ["elementwise", () => noise([3001]), (x) => x.exp()],
  ["a compiled chain", () => noise([64, 64]), compile((x: mx.Array) => x.multiply(x).add(1).sqrt())],
  [
    "a compiled norm with work around it",
    () => noise([16, 300]),
    compile((x: mx.Array) => mx.fast.rmsNorm(x.add(1), null, 1e-5).multiply(mx.sigmoid(x))),
  ],
  ["a compiled sum of squares", () => noise([40, 300]), compile((x: mx.Array) => mx.sum(x.multiply(x), 0))],
  ["a transposed copy", () => noise([100, 70]), (x) => mx.contiguous(x.T)],
  ["a cast", () => noise([1000]), (x) => x.astype(mx.float16)],
  ["a sum along rows", () => noise([20, 3000]), (x) => x.sum(1)],
  ["a sum down columns", () => noise([200, 64]), (x) => x.sum(0)],
  ["softmax", () => noise([8, 3000]), (x) => mx.softmax(x, -1)],
  ["a norm", () => noise([8, 1024]), (x) => mx.fast.rmsNorm(x, null, 1e-5)],
  ["a scan", () => noise([8, 1000]), (x) => x.cumsum(1)],
  ["a scan down columns", () => noise([100, 48]), (x) => x.cumprod(0)],
  ["where", () => noise([50, 60]), (x) => mx.where(x.greater(0), x, 1)],
  ["a vector of complex numbers", () => noise([900]), (x) => x.multiply(mx.complex(0, 1))],
  ["joined arrays", () => noise([500]), (x) => mx.concatenate([x, mx.zeros([3]), x])],
  ["a reversed copy", () => noise([1000]), (x) => mx.contiguous(x.index("::-1"))],
  ["a sum of all", () => noise([5000]), (x) => x.sum()],
  ["any", () => noise([20, 300]).greater(9), (x) => x.any(1)],
  ["the greatest along middle axes", () => noise([6, 40, 20]), (x) => x.max(1)],
  ["positions of the least", () => noise([16, 500]), (x) => x.argmin(1)],
  ["a variance", () => noise([16, 700]), (x) => mx.var(x, { axis: -1 })],
  ["a layer's norm", () => noise([8, 1024]), (x) => mx.fast.layerNorm(x, null, null, 1e-5)],
  ["log-sum-exp", () => noise([8, 2000]), (x) => mx.logsumexp(x, -1)],
  ["a range", () => noise([1]), () => mx.arange(3000)],
  ["Hadamard's transform", () => noise([8, 64]), (x) => mx.hadamardTransform(x)],
  ...([2, 3, 4, 8] as const).map((bits): [string, () => mx.Array, (x: mx.Array) => mx.Array | mx.Array[]] => [
    `unpacking ${bits} bits`,
    () => noise([16, 128]),
    (x) => {
      const packed = mx.quantize(x, { groupSize: 64, bits })
      mx.eval(...packed)
      hostNative().traffic()
      return mx.dequantize(...(packed as [mx.Array, mx.Array, mx.Array]), { groupSize: 64, bits })
    },
  ]),
  ["a row beside each element", () => noise([100, 64]), (x) => x.add(mx.arange(100).reshape([100, 1]))],
  ["one element beside all", () => noise([5000]), (x) => x.add(mx.zeros([1]))],
  ["padding", () => noise([60, 50]), (x) => mx.pad(x, 1)],
  [
    "rotary positions",
    () => noise([1, 2, 32, 64]),
    (x) => mx.fast.rope(x, 64, { traditional: false, base: 1e4, scale: 1, offset: 3 }),
  ],
  ["rows at positions", () => noise([50, 5]), (x) => mx.take(x, permutation(50), 0)],
  ["elements along an axis", () => noise([1000]), (x) => mx.takeAlongAxis(x, permutation(1000), 0)],
  ["updates at positions", () => noise([100, 32]), (x) => x.at(permutation(100)).add(x)],
  ["random bits", () => mx.random.key(3), (key) => mx.random.bits([4000], { key })],
  ["a Fourier transform", () => noise([16, 64]), (x) => mx.fft.fft(x)],
  ["a long real one along the first axis", () => noise([1000, 3]), (x) => mx.fft.rfft(x, { axis: 0 })],
  ["an inverse one in two axes", () => noise([12, 33]), (x) => mx.fft.irfft2(x.astype(mx.complex64))],
  ["one that threadgroup memory does not hold", () => noise([2, 6144]), (x) => mx.fft.fft(x)],
  ["one of odd factors", () => noise([2, 5005]), (x) => mx.fft.fft(x)],
  ["one of a large prime factor", () => noise([2, 2042]), (x) => mx.fft.fft(x, { axis: 1 })],
  ["a product by a matrix's columns", () => noise([256, 128]), (x) => noise([256], 2).matmul(x)],
  ["sums of middle axes", () => noise([100, 32]), (x) => x.reshape([20, 5, 32]).sum(1)],
  ["sums of segments", () => noise([100, 32]), (x) => mx.segmentSum(x, { lengths: [30, 0, 50, 20] })],
  ["packing", () => noise([16, 128]), (x) => mx.quantize(x, { groupSize: 64, bits: 4 })],
  ["short rows in order", () => noise([16, 500]), (x) => mx.sort(x)],
  ["positions of short rows in order", () => noise([16, 500]), (x) => mx.argsort(x)],
  [
    "one query's attention",
    () => noise([1, 2, 300, 64]),
    (x) => attend(noise([1, 2, 1, 64], 2), x, noise([1, 2, 300, 64], 3)),
  ],
  [
    "one element of each row",
    () => noise([100, 64]),
    (x) => mx.takeAlongAxis(x, permutation(100).remainder(64).reshape([100, 1]), 1),
  ],
  ["a short product", () => noise([2000, 8]), (x) => x.matmul(noise([8, 1], 2))],
  ["the greatest at positions", () => noise([100, 32]), (x) => x.at(permutation(100)).maximum(x)],
  // Large enough for threads with several rows each, and simdgroups with several columns.
  ["a row beside all rows", () => noise([4096, 128]), (x) => x.add(mx.arange(128))],
  ["a product with a vector", () => noise([1024, 256]), (x) => x.matmul(mx.ones([256]).add(0))],
])("%s moves each byte once", (_, make, body) => {
  const x = make()
  mx.eval(x)
  hostNative().traffic()
  mx.eval(...[body(x)].flat())
  const [loads, stores, distinctLoads, distinctStores] = hostNative().traffic()
  expect(loads + stores).toBeGreaterThan(0)
  expect((loads + stores) / (distinctLoads + distinctStores)).toBeLessThanOrEqual(1.05)
})

// A threadgroup takes a row, and reads the weights of its elements, kilobytes that stay in a cache: so many bytes more than there are.
it.each<[string, (x: mx.Array, w: mx.Array) => mx.Array | mx.Array[], number]>([
  ["a weighted norm", (x, w) => mx.fast.rmsNorm(x, w, 1e-5), 1],
  ["a layer's weighted norm", (x, w) => mx.fast.layerNorm(x, w, w.add(1), 1e-5), 2],
  ["the derivatives of a weighted norm", (x, w) => derivatives(x, w), 1],
])("%s reads again only its weights", (_, body, weights) => {
  const [x, w] = [noise([64, 512]), noise([512], 2)]
  mx.eval(x, w)
  hostNative().traffic()
  mx.eval(...[body(x, w)].flat())
  const [loads, stores, distinctLoads, distinctStores] = hostNative().traffic()
  const again = 63 * 512 * 4 * weights
  expect((loads + stores - again) / (distinctLoads + distinctStores)).toBeLessThanOrEqual(1.05)
})

it.each<[string, (x: mx.Array) => mx.Array]>([
  ["softmax", (x) => mx.softmax(x, -1)],
  ["log-sum-exp", (x) => mx.logsumexp(x, -1)],
  ["a layer's norm", (x) => mx.fast.layerNorm(x, null, null, 1e-5)],
  ["a root mean square's norm", (x) => mx.fast.rmsNorm(x, null, 1e-5)],
])("%s reads rows that are too long to be kept at most twice", (_, body) => {
  const x = noise([1, 33_000])
  mx.eval(x)
  hostNative().traffic()
  mx.eval(body(x))
  const [loads, , distinctLoads] = hostNative().traffic()
  expect(loads / distinctLoads).toBeLessThanOrEqual(2.01)
})

it("rotary positions of halves have a kernel for frequencies in float32", () => {
  const x = noise([1, 2, 5, 64])
  const freqs = mx.arange(1, 33, { dtype: mx.float32 })
  const rotated = (y: mx.Array): mx.Array =>
    mx.fast.rope(y, 64, { traditional: false, base: null, scale: 1, offset: 3, freqs })
  const got = rotated(x.astype(mx.bfloat16)).astype(mx.float32)
  mx.eval(got)
  expect(mx.backendStats()).toEqual({})
  expect(got.subtract(rotated(x)).abs().max().item()).toBeLessThan(0.02)
})
