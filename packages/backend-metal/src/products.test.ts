/**
 * Products by simdgroup matrices and what shares their kernels, in sizes beyond one tile and beside its edges. Against the reference
 * backend.
 */
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { onStream } from "@lazuli/core/engine"
import { vjp, vmap } from "@lazuli/transforms"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import "./index"

beforeAll(() => mx.setDefaultDevice(mx.gpu))
afterAll(() => mx.setDefaultDevice(mx.cpu))
beforeEach(() => mx.resetBackendStats())

function agree(make: () => mx.Array, tolerance: number): void {
  const values = make().astype(mx.float32).flatten().tolist() as number[]
  expect(mx.backendStats().metal ?? {}).toEqual({})
  const wanted = onStream("cpu", () => make().astype(mx.float32).flatten().tolist()) as number[]
  expect(values.length).toBe(wanted.length)
  values.forEach((value, i) => {
    const want = wanted[i]
    if (!(Math.abs(value - want) <= tolerance * (1 + Math.abs(want))))
      expect.fail(`element ${i}: ${value} instead of ${want}`)
  })
}

it.each([
  [65, 129, 100],
  [64, 64, 64],
  [9, 200, 33],
  [100, 3, 70],
  [130, 1, 80],
  [1, 70, 300],
  [5, 33, 129],
  [200, 2, 5],
])("multiplies %i × %i matrices of depth %i, however they lie", (m, n, k) => {
  for (const dtype of [mx.float32, mx.bfloat16, mx.float16]) {
    const tolerance = dtype === mx.float32 ? 1e-5 : dtype === mx.float16 ? 1e-2 : 5e-2
    agree(() => noise([m, k], 1, dtype).matmul(noise([k, n], 2, dtype)), tolerance)
    agree(() => noise([m, k], 1, dtype).matmul(noise([n, k], 2, dtype).T), tolerance)
    agree(() => noise([k, m], 1, dtype).T.matmul(noise([k, n], 2, dtype)), tolerance)
  }
  agree(() => mx.addmm(noise([n], 3), noise([m, k]), noise([k, n], 2), 0.5, 2), 1e-5)
})

it("multiplies so many columns that a simdgroup has several, and rows longer than a threadgroup keeps", () => {
  agree(() => noise([1100, 1030]).matmul(noise([1030], 2)), 1e-5)
  agree(() => noise([3, 520], 1, mx.bfloat16).matmul(noise([1025, 520], 2, mx.bfloat16).T), 5e-2)
  agree(() => noise([2, 7, 513]).matmul(noise([2, 530, 513], 2).transpose([0, 2, 1])), 1e-5)
})

it("multiplies batches that broadcast or lie apart", () => {
  agree(() => noise([3, 1, 20, 12]).matmul(noise([4, 12, 17], 2)), 1e-5)
  agree(
    () =>
      noise([5, 12, 2, 20])
        .transpose([2, 0, 3, 1])
        .matmul(noise([2, 5, 12, 17], 2)),
    1e-5,
  )
})

it("multiplies chosen matrices, segments and blocks", () => {
  const index = (...values: number[]): mx.Array => mx.array(values, mx.uint32)
  const a = (): mx.Array => noise([4, 20, 70])
  const b = (): mx.Array => noise([3, 70, 33], 2)
  agree(() => mx.gatherMm(a(), b(), index(3, 0, 1), index(2, 2, 0)), 1e-5)
  agree(
    () =>
      mx.segmentedMm(
        noise([20, 70]),
        noise([70, 33], 2),
        mx.array(
          [
            [0, 10],
            [10, 70],
            [5, 5],
          ],
          mx.uint32,
        ),
      ),
    1e-5,
  )
  const mask = (rows: number, columns: number): mx.Array => noise([rows, columns], 5).greater(0)
  agree(
    () => mx.blockMaskedMm(noise([70, 100]), noise([100, 66], 2), 32, mask(3, 3), mask(3, 4), mask(4, 3)),
    1e-5,
  )
})

it.each([
  ["affine", 64, [2, 3, 4, 5, 6, 8]],
  ["affine", 32, [4]],
  ["mxfp4", 32, [4]],
  ["mxfp8", 32, [8]],
  ["nvfp4", 16, [4]],
] as const)("unpacks weights of mode %s in groups of %i as it multiplies", (mode, groupSize, widths) => {
  for (const bits of widths) {
    const packed = (rows: number): [mx.Array, mx.Array, mx.Array?] =>
      onStream("cpu", () => mx.quantize(noise([rows, 128], 2), { mode, groupSize, bits })) as never
    const options = { mode, groupSize, bits }
    agree(() => {
      const [w, scales, biases] = packed(70)
      return mx.dequantize(w, scales, biases ?? null, { ...options, dtype: mx.float32 })
    }, 0)
    for (const m of [1, 20])
      for (const transpose of [true, false])
        agree(() => {
          const [w, scales, biases] = packed(70)
          const x = noise([m, transpose ? 128 : 70], 3)
          return mx.quantizedMatmul(x, w, scales, biases ?? null, { ...options, transpose })
        }, 2e-5)
  }
})

it("multiplies rows rounded to 8 bits by the definition, an exact product of what they are rounded to", () => {
  const packed = onStream("cpu", () => mx.quantize(noise([70, 128], 2)))
  const make = (): mx.Array =>
    mx.quantizedMatmul(noise([2, 128], 3), packed[0], packed[1], packed[2], { activations: "int8" })
  const got = make().tolist() as number[][]
  expect(mx.backendStats().metal).toEqual({ quantizedMatmul: expect.objectContaining({ decomposed: 1 }) })
  mx.resetBackendStats()
  const want = onStream("cpu", () => make().tolist()) as number[][]
  got.flat().forEach((value, i) => expect(Math.abs(value - want.flat()[i])).toBeLessThan(2e-5))
})

it("packs weights in every mode", () => {
  for (const dtype of [mx.float32, mx.bfloat16]) {
    const w = (): mx.Array =>
      mx
        .where(
          mx
            .arange(5 * 256)
            .reshape([5, 256])
            .less(64),
          0,
          noise([5, 256], 3).multiply(7),
        )
        .astype(dtype)
    for (const [bits, groupSize] of [
      ...[2, 3, 4, 5, 6, 8].map((bits) => [bits, 64]),
      ...[32, 128].map((groupSize) => [4, groupSize]),
    ])
      for (const k of [0, 1, 2]) agree(() => mx.quantize(w(), { bits, groupSize })[k].astype(mx.float32), 0)
    for (const mode of ["mxfp4", "mxfp8", "nvfp4"] as const)
      for (const k of [0, 1]) agree(() => mx.quantize(w(), { mode })[k].astype(mx.float32), 0)
    const globalScale = mx.array([9])
    for (const k of [0, 1])
      agree(
        () => mx.quantize(w().index(":3", ":48"), { mode: "nvfp4", globalScale })[k].astype(mx.float32),
        0,
      )
  }
})

it.each([0, 1, 2, 3.5, Number.POSITIVE_INFINITY])("measures distances of rows with p = %d", (p) => {
  for (const [rows, others, width] of [
    [1, 1, 1],
    [33, 65, 17],
    [40, 3, 128],
    // Of few features, which stay in registers.
    [21, 130, 4],
    [3, 1100, 2],
  ]) {
    agree(() => mx.cdist(noise([2, rows, width]), noise([others, width], 2), p), 2e-5)
    agree(() => mx.cdist(noise([rows, width], 1, mx.float16), noise([others, width], 2, mx.float16), p), 2e-3)
  }
  const broken = (): mx.Array => mx.array([[Number.NaN, 3, 1]])
  expect(mx.isnan(mx.cdist(broken(), mx.ones([2, 3]), p)).tolist()).toEqual([[p !== 0, p !== 0]])
})

it("convolves over one to three axes, in groups, with steps and gaps", () => {
  agree(() => mx.conv1d(noise([2, 40, 6]), noise([10, 3, 6], 2), { stride: 2, padding: 1 }), 1e-5)
  agree(() => mx.conv2d(noise([2, 20, 19, 8]), noise([12, 3, 3, 8], 2), { padding: 1 }), 1e-5)
  agree(() => mx.conv2d(noise([1, 12, 12, 8]), noise([16, 3, 3, 1], 2), { groups: 8 }), 1e-5)
  agree(() => mx.conv3d(noise([1, 6, 7, 8, 4]), noise([9, 2, 3, 3, 4], 2), { dilation: 2 }), 1e-5)
})

const heads = (): [mx.Array, mx.Array, mx.Array] => [
  noise([2, 6, 37, 40]),
  noise([2, 2, 51, 40], 2),
  noise([2, 2, 51, 72], 3),
]
const masks: [string, () => string | mx.Array | null][] = [
  ["no mask", () => null],
  ["a causal mask", () => "causal"],
  ["a boolean mask", () => noise([37, 51], 4).greater(-0.5)],
  ["an additive mask of heads", () => noise([6, 37, 51], 5)],
]
it.each(masks)("attends with %s and grouped heads, and differentiates", (_, mask) => {
  agree(() => {
    const [q, k, v] = heads()
    return mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.2, mask: mask() as never })
  }, 1e-5)
  for (const i of [0, 1, 2])
    agree(() => {
      const f = (q: mx.Array, k: mx.Array, v: mx.Array): mx.Array =>
        mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.2, mask: mask() as never })
      return vjp(f, heads(), [noise([2, 6, 37, 72], 6)])[1][i]
    }, 1e-4)
})

it.each([
  ["one query", 1, 300, 64],
  ["a few queries", 5, 20, 33],
  ["more queries than keys", 70, 9, 16],
  ["wide features", 3, 40, 160],
  ["wide features of many queries", 20, 17, 130],
  ["features of a whole tile", 40, 70, 128],
])("attends to %s in every dtype, causal and not", (_, length, keys, features) => {
  for (const dtype of [mx.float32, mx.float16, mx.bfloat16])
    for (const mask of [null, "causal"] as const)
      agree(
        () =>
          mx.fast.scaledDotProductAttention(
            noise([2, 4, length, features], 1, dtype),
            noise([2, 2, keys, features], 2, dtype),
            noise([2, 2, keys, features], 3, dtype),
            { scale: 0.3, mask },
          ),
        dtype === mx.float32 ? 1e-5 : dtype === mx.float16 ? 2e-3 : 2e-2,
      )
})

it.each([
  ["tiles", 37, 41, 72],
  ["one query", 1, 300, 64],
  ["wide features", 3, 40, 160],
  ["one query of many keys", 1, 2500, 24],
])("attends with sinks by %s, and differentiates", (_, length, keys, features) => {
  const inputs = (): [mx.Array, mx.Array, mx.Array, mx.Array] => [
    noise([2, 4, length, features], 1),
    noise([2, 2, keys, features], 2),
    noise([2, 2, keys, features], 3),
    noise([4], 4).multiply(3),
  ]
  const f = (q: mx.Array, k: mx.Array, v: mx.Array, sinks: mx.Array): mx.Array =>
    mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.2, mask: "causal", sinks })
  agree(() => f(...inputs()), 1e-5)
  // The derivative's kernels take up to 128 features.
  for (const i of features > 128 ? [] : [0, 1, 2, 3])
    agree(() => vjp(f, inputs(), [noise([2, 4, length, features], 6)])[1][i], i === 3 ? 4e-4 : 1e-4)
  // Each example of a batch has sinks of its own.
  const batched = (): mx.Array => {
    const [q, k, v] = inputs()
    return vmap((sinks: mx.Array) => f(q, k, v, sinks))(noise([3, 4], 5))
  }
  agree(batched, 1e-5)
})

it.each([
  [1, 1025, "causal"],
  [2, 5000, null],
  [5, 2050, "causal"],
  [1, 3000, "mask"],
] as const)("divides %i queries' %i keys among threadgroups (%s)", (length, keys, mask) => {
  for (const dtype of [mx.float32, mx.bfloat16])
    agree(
      () =>
        mx.fast.scaledDotProductAttention(
          noise([1, 2, length, 40], 1, dtype),
          noise([1, 1, keys, 40], 2, dtype),
          noise([1, 1, keys, 33], 3, dtype),
          // The first parts see nothing.
          { scale: 0.3, mask: mask === "mask" ? mx.arange(keys).greater(2100) : mask },
        ),
      dtype === mx.float32 ? 1e-5 : 2e-2,
    )
})

it("gives zeros to queries that see no key", () => {
  for (const length of [3, 40])
    agree(() => {
      const x = noise([1, 1, length, 16])
      return mx.fast.scaledDotProductAttention(x, x, x, {
        scale: 1,
        mask: mx.zeros([length, length], mx.bool_),
      })
    }, 0)
})

it("differentiates causal attention of halves and of more queries than keys", () => {
  for (const [length, keys, dtype] of [
    [70, 40, mx.float32],
    [33, 65, mx.float16],
  ] as const)
    for (const i of [0, 1, 2])
      agree(
        () => {
          const f = (q: mx.Array, k: mx.Array, v: mx.Array): mx.Array =>
            mx.fast.scaledDotProductAttention(q, k, v, { scale: 0.2, mask: "causal" })
          const inputs: [mx.Array, mx.Array, mx.Array] = [
            noise([1, 4, length, 64], 1, dtype),
            noise([1, 2, keys, 64], 2, dtype),
            noise([1, 2, keys, 64], 3, dtype),
          ]
          return vjp(f, inputs, [noise([1, 4, length, 64], 6, dtype)])[1][i]
        },
        dtype === mx.float32 ? 1e-4 : 1e-2,
      )
})

it.each([1, 2, 8, 12, 35, 64, 97, 240, 1000, 2048, 2006])(
  "transforms %i numbers, whole and half spectra",
  (n) => {
    const parts = (z: mx.Array): mx.Array => mx.stack([mx.real(z), mx.imag(z)])
    const z = (shape: number[]): mx.Array =>
      onStream("cpu", () =>
        noise([...shape, 2])
          .view(mx.complex64)
          .squeeze(-1),
      )
    agree(() => parts(mx.fft.fft(z([3, n]))), 2e-5)
    agree(() => parts(mx.fft.ifft(z([n, 3]), null, 0)), 2e-5)
    agree(() => parts(mx.fft.rfft(noise([3, n]))), 2e-5)
    agree(() => mx.fft.irfft(z([3, Math.floor(n / 2) + 1]), n), 2e-5)
    if (n < 100) agree(() => parts(mx.fft.fft2(z([n, 12]))), 2e-5)
  },
)

it.each([4, 24, 40, 56, 1024, 1536])("transforms rows of %i by Hadamard's matrix", (n) => {
  agree(() => mx.hadamardTransform(noise([3, n])), 1e-5)
})
