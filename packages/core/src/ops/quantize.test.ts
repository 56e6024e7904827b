import { noise } from "@lazuli/conformance/generator"
import { describe, expect, test } from "vitest"
import * as mx from "../index"

const most = (a: mx.Array): number => a.abs().max().item() as number
const affine = [
  ...[2, 3, 4, 5, 6, 8].flatMap((bits) =>
    [32, 64, 128].map((groupSize) => ({ bits, groupSize, mode: "affine" as const })),
  ),
  ...[2, 4, 6, 8].map((bits) => ({ bits, groupSize: 16, mode: "affine" as const })),
]
const floats = (["mxfp4", "mxfp8", "nvfp4"] as const).map((mode) => ({ mode }))

describe("quantize and dequantize", () => {
  test.each(affine)("$bits bits in groups of $groupSize", (q) => {
    const w = noise([3, 256])
    const [packed, scales, biases] = mx.quantize(w, q)
    expect([packed.shape, packed.dtype]).toEqual([[3, (256 * q.bits) / 32], mx.uint32])
    expect(scales.shape).toEqual([3, 256 / q.groupSize])
    const back = mx.dequantize(packed, scales, biases, q)
    // Half a step, but beyond the last code a whole one: the scale was adjusted so that 0 and an edge are exact.
    expect(most(back.subtract(w))).toBeLessThan(1.01 * (2 / (2 ** q.bits - 1)))
  })

  test.each(floats)("$mode", (q) => {
    const w = noise([3, 64])
    const [packed, scales, ...none] = mx.quantize(w, q)
    expect(none).toEqual([])
    expect([packed.dtype, scales.dtype]).toEqual([mx.uint32, mx.uint8])
    const back = mx.dequantize(packed, scales, { ...q, dtype: mx.float32 })
    expect(most(back.subtract(w))).toBeLessThan(0.3)
    expect(mx.dequantize(packed, scales, q).dtype).toBe(mx.bfloat16)
  })

  test("bits of a row are one stream, least significant first", () => {
    const codes = mx.arange(32).remainder(8).reshape([1, 32]).astype(mx.float32)
    const [packed] = mx.quantize(mx.subtract(codes, 7), { bits: 3, groupSize: 32 })
    let stream = 0n
    for (let i = 0; i < 32; i++) stream |= BigInt(i % 8) << BigInt(3 * i)
    const words = [0n, 1n, 2n].map((i) => Number((stream >> (32n * i)) & 0xffffffffn))
    expect(packed.tolist()).toEqual([words])
  })

  test("zeros, equal elements and negative zeros", () => {
    for (const q of [...affine.slice(6, 9), ...floats]) {
      for (const value of [0, -0, 1.5, -3]) {
        const [packed, ...rest] = mx.quantize(mx.full([2, 128], value), q)
        const back = mx.dequantize(packed, rest[0], rest[1], { ...q, dtype: mx.float32 })
        expect(most(back.subtract(value))).toBe(0)
      }
    }
  })

  test("rows of none, and other dtypes", () => {
    const [packed, scales, biases] = mx.quantize(mx.zeros([0, 64]))
    expect([packed.shape, scales.shape]).toEqual([
      [0, 8],
      [0, 1],
    ])
    expect(mx.dequantize(packed, scales, biases).shape).toEqual([0, 64])
    expect(mx.quantize(mx.zeros([2, 0]))[0].shape).toEqual([2, 0])
    for (const dtype of [mx.float16, mx.bfloat16, mx.float64]) {
      const [w, s, b] = mx.quantize(noise([2, 64]).astype(dtype), { bits: 8 })
      expect([s.dtype, b.dtype]).toEqual([dtype, dtype])
      const back = mx.dequantize(w, s, b, { bits: 8 })
      expect(back.dtype).toBe(dtype)
      expect(most(back.astype(mx.float32).subtract(noise([2, 64])))).toBeLessThan(0.03)
    }
  })

  test("a global scale moves the scales of nvfp4", () => {
    const w = noise([2, 32]).multiply(1e-4)
    const globalScale = w.abs().max()
    const plain = mx.quantize(w, { mode: "nvfp4" })
    const [packed, scales] = mx.quantize(w, { mode: "nvfp4", globalScale })
    const error = (a: mx.Array): number => most(a.subtract(w))
    const back = mx.dequantize(packed, scales, { mode: "nvfp4", globalScale })
    expect(back.dtype).toBe(mx.float32)
    expect(error(back)).toBeLessThan(2.6e-5)
    expect(error(mx.dequantize(plain[0], plain[1], { mode: "nvfp4", dtype: mx.float32 }))).toBeGreaterThan(
      5e-5,
    )
  })

  test("NaN stays NaN and spoils its group alone", () => {
    const w = mx.concatenate([mx.full([1, 64], Number.NaN), mx.ones([1, 64])], 1)
    const [packed, scales, biases] = mx.quantize(w)
    expect(
      mx
        .isnan(mx.dequantize(packed, scales, biases))
        .sum()
        .item(),
    ).toBe(64)
  })

  const w = mx.zeros([2, 64])
  const [packed, scales, biases] = mx.quantize(w)
  const stack = (): [mx.Array, mx.Array, mx.Array] =>
    mx.quantize(mx.zeros([2, 2, 64])) as [mx.Array, mx.Array, mx.Array]
  const refused: [string, () => unknown][] = [
    ["bits", () => mx.quantize(w, { bits: 7 })],
    ["bits of no number", () => mx.quantize(w, { bits: Number.NaN })],
    ["group size", () => mx.quantize(w, 48)],
    ["mode", () => mx.quantize(w, { mode: "afine" as "affine" })],
    ["mode of a prototype", () => mx.quantize(w, { mode: "constructor" as "affine" })],
    ["group size of the mode", () => mx.quantize(w, { mode: "nvfp4", groupSize: 32 })],
    ["global scale of the mode", () => mx.quantize(w, { mode: "mxfp8", globalScale: mx.array(1) })],
    ["size of the global scale", () => mx.quantize(w, { mode: "nvfp4", globalScale: mx.ones([2]) })],
    ["one axis", () => mx.quantize(mx.zeros([64]))],
    ["no axis", () => mx.quantize(mx.array(1))],
    ["rest of a group", () => mx.quantize(mx.zeros([2, 40]))],
    ["integers", () => mx.quantize(mx.zeros([2, 64], mx.int32))],
    ["complex", () => mx.quantize(mx.zeros([2, 64], mx.complex64))],
    ["weights that are not packed", () => mx.dequantize(w, scales, biases)],
    ["no biases", () => mx.dequantize(packed, scales)],
    [
      "biases in a mode without",
      () => mx.dequantize(packed, scales.astype(mx.uint8), biases, { mode: "mxfp4" }),
    ],
    ["scales' dtype", () => mx.dequantize(packed, scales, { mode: "mxfp4" })],
    ["scales' shape", () => mx.dequantize(packed, mx.zeros([2, 2]), mx.zeros([2, 2]))],
    ["packed width", () => mx.dequantize(packed.index(":", ":7"), scales, biases)],
    ["biases' shape", () => mx.dequantize(packed, scales, mx.zeros([1, 1]))],
    ["another width", () => mx.dequantize(packed, scales, biases, { bits: 8 })],
    ["dtype", () => mx.dequantize(packed, scales, biases, { dtype: mx.int32 })],
    ["inner sizes", () => mx.quantizedMatmul(mx.zeros([2, 32]), packed, scales, biases)],
    ["x of none", () => mx.quantizedMatmul(mx.array(1), packed, scales, biases)],
    ["integral x", () => mx.quantizedMatmul(mx.zeros([1, 64], mx.int32), packed, scales, biases)],
    ["complex x", () => mx.quantizedMatmul(mx.zeros([1, 64], mx.complex64), packed, scales, biases)],
    ["batches", () => mx.quantizedMatmul(mx.zeros([3, 1, 64]), ...stack())],
    [
      "fractional indices",
      () =>
        mx.gatherQmm(mx.zeros([1, 1, 64]), ...stack(), {
          rhsIndices: mx.array([0]),
        }),
    ],
    [
      "index out of bounds",
      () =>
        mx
          .gatherQmm(mx.zeros([1, 1, 64]), ...stack(), {
            rhsIndices: mx.array([2], mx.int32),
          })
          .tolist(),
    ],
    ["mode of qqmm", () => mx.qqmm(w, w, { mode: "affine" })],
    ["weights without scales", () => mx.qqmm(w, packed)],
    ["scales without weights", () => mx.qqmm(w, w, scales)],
    ["toFp8 of integers", () => mx.toFp8(mx.zeros([1], mx.int32))],
    ["fromFp8 of floats", () => mx.fromFp8(mx.zeros([1]))],
    ["fromFp8 to integers", () => mx.fromFp8(mx.zeros([1], mx.uint8), mx.int32)],
  ]
  test.each(refused)("refuses: %s", (_what, call) => {
    expect(call).toThrow(mx.LazuliError)
  })

  test("errors say what was expected", () => {
    expect(() => mx.quantize(w, { bits: 7 })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [quantize] mode affine has bits 2, 3, 4, 5, 6, 8, received the number 7]`,
    )
    expect(() => mx.dequantize(packed, scales, biases, { bits: 8 })).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [dequantize] 8 words of 32 bits do not hold groups of 64 elements of 8 bits]`,
    )
    expect(() =>
      mx.dequantize(packed, mx.zeros([2, 2]), mx.zeros([2, 2])),
    ).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [dequantize] scales must have shape (2, 1) beside weights of shape (2, 8) with 4 bits in groups of 64, received (2, 2)]`,
    )
    expect(() =>
      mx.quantizedMatmul(mx.zeros([2, 32]), packed, scales, biases),
    ).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [quantizedMatmul] the last axis of x has size 32, but weights of shape (2, 8) with 4 bits and transpose=true are a 64 × 2 matrix]`,
    )
  })
})

test("fp8: every code comes back, and rounding is to the nearest", () => {
  const codes = mx.arange(256).astype(mx.uint8)
  const values = mx.fromFp8(codes, mx.float32)
  const list = values.tolist() as number[]
  // The code of all ones is 480, which rounds to 448.
  const want = (codes.tolist() as number[]).map((c) => ((c & 127) === 127 ? c - 1 : c))
  expect(mx.toFp8(values).tolist()).toEqual(want)
  const positive = list.slice(0, 127)
  for (let i = 0; i + 1 < positive.length; i++) {
    const middle = (positive[i] + positive[i + 1]) / 2
    const around = mx.array([middle - middle * 1e-6, middle, middle + middle * 1e-6])
    expect(mx.toFp8(around).tolist()).toEqual([i, i % 2 === 0 ? i : i + 1, i + 1])
  }
  expect(mx.toFp8(mx.array([Infinity, -Infinity, 1e-30])).tolist()).toEqual([126, 254, 0])
  expect(mx.toFp8(mx.array(Number.NaN)).item()).toBe(126)
})

describe("products with packed weights", () => {
  const reference = (x: mx.Array, full: mx.Array): mx.Array => x.astype(mx.float32).matmul(full)
  for (const q of [...affine.filter((_, i) => i % 2 === 0), ...floats]) {
    for (const transpose of [true, false]) {
      test(`${JSON.stringify(q)} transpose ${transpose}`, () => {
        const w = noise([2, 3, 128], 5)
        const packed = mx.quantize(w, q)
        let full = mx.dequantize(packed[0], packed[1], packed[2], { ...q, dtype: mx.float32 })
        if (transpose) full = full.swapaxes(-1, -2)
        const k = transpose ? 128 : 3
        for (const shape of [[k], [5, k], [2, 1, k], [4, 1, 2, k]]) {
          const batched = shape.length > 2 || shape.length === 1
          const use = batched ? packed : packed.map((a) => a.index(1))
          const right = batched ? full : full.index(1)
          const x = noise(shape, 6)
          const y = mx.quantizedMatmul(x, use[0], use[1], use[2], { transpose, ...q })
          const want = reference(shape.length === 1 ? x.reshape([1, k]) : x, right)
          expect(y.shape).toEqual(shape.length === 1 ? want.squeeze(-2).shape : want.shape)
          expect(most(y.reshape(want.shape).subtract(want))).toBeLessThan(2e-5)
        }
      })
    }
  }

  test("rows rounded to 8 bits: the exact product of what they are rounded to, with its derivatives", () => {
    const packed = mx.quantize(noise([5, 64], 2), { bits: 8 })
    const x = noise([3, 64], 3)
    const q = { bits: 8, activations: "int8" as const }
    const y = mx.quantizedMatmul(x, packed[0], packed[1], packed[2], q)
    const rounded = (x.tolist() as number[][]).map((row) =>
      [0, 32].flatMap((from) => {
        const block = row.slice(from, from + 32)
        const scale = Math.fround(Math.max(...block.map(Math.abs)) / 127)
        return block.map((v) => Math.round(v / scale) * scale)
      }),
    )
    const exact = mx.quantizedMatmul(mx.array(rounded), packed[0], packed[1], packed[2], { bits: 8 })
    expect(most(y.subtract(exact))).toBeLessThan(1e-6)
    expect(
      most(y.subtract(mx.quantizedMatmul(x, packed[0], packed[1], packed[2], { bits: 8 }))),
    ).toBeGreaterThan(1e-5)
    expect(() =>
      mx.quantizedMatmul(
        mx.ones([1, 16]),
        ...(mx.quantize(mx.ones([2, 16]), { mode: "nvfp4" }) as [mx.Array, mx.Array]),
        {
          mode: "nvfp4",
          activations: "int8",
        },
      ),
    ).toThrowErrorMatchingInlineSnapshot(
      `[ShapeError: [quantizedMatmul] activations int8 need a last axis of x in blocks of 32, received size 16]`,
    )
  })

  test("gatherQmm takes matrices as gatherMm does", () => {
    const w = noise([3, 4, 64], 2)
    const packed = mx.quantize(w, { bits: 8 })
    const full = mx.dequantize(packed[0], packed[1], packed[2], { bits: 8 }).swapaxes(-1, -2)
    const x = noise([2, 2, 2, 64], 3)
    const lhsIndices = mx.array([[3], [-1], [0]], mx.int32)
    const rhsIndices = mx.array([2, 0], mx.uint8)
    for (const indices of [{ lhsIndices, rhsIndices }, { lhsIndices: lhsIndices.flatten() }]) {
      const got = mx.gatherQmm(x, packed[0], packed[1], packed[2], { bits: 8, ...indices })
      const want = mx.gatherMm(x, full, indices)
      expect(got.shape).toEqual(want.shape)
      expect(most(got.subtract(want))).toBeLessThan(1e-5)
    }
    expect(
      mx.gatherQmm(x, packed[0].index(0), packed[1].index(0), packed[2].index(0), { bits: 8 }).shape,
    ).toEqual([2, 2, 2, 4])
  })

  test("qqmm rounds both factors", () => {
    for (const q of floats) {
      const [x, w] = [noise([2, 64], 1), noise([3, 64], 2)]
      const rounded = (a: mx.Array): mx.Array => {
        const [words, scales] = mx.quantize(a, q)
        return mx.dequantize(words, scales, { ...q, dtype: mx.float32 })
      }
      const want = rounded(x).matmul(rounded(w).T)
      const [words, scales] = mx.quantize(w, q)
      expect(most(mx.qqmm(x, w, q).subtract(want))).toBeLessThan(1e-5)
      expect(most(mx.qqmm(x, words, scales, q).subtract(want))).toBeLessThan(1e-5)
      expect(mx.qqmm(x.index(0), words, scales, q).shape).toEqual([3])
      const stacked = mx.gatherQqmm(x.reshape([2, 1, 64]), words.expandDims(0), scales.expandDims(0), {
        ...q,
        rhsIndices: mx.array([0, 0], mx.int32),
      })
      expect(most(stacked.squeeze(1).subtract(want))).toBeLessThan(1e-5)
    }
    const [x, w] = [noise([2, 32]).multiply(1e-3), noise([3, 32], 4).multiply(1e-3)]
    const [globalScaleX, globalScaleW] = [x.abs().max(), w.abs().max()]
    const [words, scales] = mx.quantize(w, { mode: "nvfp4", globalScale: globalScaleW })
    const both = { globalScaleX, globalScaleW }
    const packed = mx.qqmm(x, words, scales, both)
    expect(most(packed.subtract(mx.qqmm(x, w, both)))).toBeLessThan(1e-9)
    expect(most(packed.subtract(x.matmul(w.T)))).toBeLessThan(1.5e-6)
  })

  test("halves keep their dtype", () => {
    const packed = mx.quantize(noise([3, 64]).astype(mx.bfloat16))
    const multiply = (dtype: mx.Dtype): mx.Dtype =>
      mx.quantizedMatmul(mx.ones([1, 64], dtype), packed[0], packed[1], packed[2]).dtype
    expect([multiply(mx.bfloat16), multiply(mx.float16), multiply(mx.float32)]).toEqual([
      mx.bfloat16,
      mx.float32,
      mx.float32,
    ])
  })
})
