/**
 * Reads quantized blocks of GGUF files as packed weights, in addition to the types of `mx.load`: Q5_0, Q5_1, Q4_K and Q5_K become groups
 * of 32 with a scale and a bias, Q2_K, Q3_K and Q6_K groups of 16, and MXFP4 the mode of that name.
 * Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
 */
import * as mx from "@lazuli/core"
import { arrayFromStore, type BlockFormat, fromFloat16Bits, blockFormats as known } from "@lazuli/core/engine"

const half = (data: Uint8Array, at: number): number => fromFloat16Bits(data[at] | (data[at + 1] << 8))

/** Decodes a block to its codes, and a scale and a bias for each group. */
type Decode = (
  data: Uint8Array,
  at: number,
  codes: Uint8Array,
  scales: Float32Array,
  biases: Float32Array,
) => void

/** Bits per packed code. */
type Bits = 2 | 4 | 5 | 6

/** Blocks of groups with values scale · code + bias. */
function affine(
  name: string,
  [bits, group]: readonly [Bits, 16 | 32],
  [elements, bytes]: readonly [number, number],
  decode: Decode,
): BlockFormat {
  return {
    name,
    elements,
    bytes,
    split: true,
    read(data, shape) {
      const blocks = data.length / bytes
      const each = elements / group
      const packed = new Uint8Array((blocks * elements * bits) / 8)
      const [scales, biases] = [new Float32Array(blocks * each), new Float32Array(blocks * each)]
      const codes = new Uint8Array(elements)
      for (let i = 0; i < blocks; i++) {
        const [from, to] = [i * each, (i + 1) * each]
        decode(data, i * bytes, codes, scales.subarray(from, to), biases.subarray(from, to))
        pack(codes, bits, packed, (i * elements * bits) / 8)
      }
      const rows = shape.slice(0, -1)
      const inner = shape[shape.length - 1]
      const groups = [...rows, inner / group]
      return [
        arrayFromStore(packed, [...rows, (inner * bits) / 32], mx.uint32),
        arrayFromStore(scales, groups, mx.float32),
        arrayFromStore(biases, groups, mx.float32),
      ]
    },
  }
}

/** Packs codes as one stream of bits, minimum significant first. */
function pack(codes: Uint8Array, bits: Bits, out: Uint8Array, to: number): void {
  if (bits === 4) {
    for (let i = 0; i < codes.length; i += 2) out[to + (i >> 1)] = codes[i] | (codes[i + 1] << 4)
    return
  }
  if (bits === 5) {
    packFive(codes, out, to)
    return
  }
  for (let i = 0, at = to; i < codes.length; i += 4) {
    const [a, b, c, d] = [codes[i], codes[i + 1], codes[i + 2], codes[i + 3]]
    if (bits === 2) out[at++] = a | (b << 2) | (c << 4) | (d << 6)
    else {
      out[at++] = a | (b << 6)
      out[at++] = (b >> 2) | (c << 4)
      out[at++] = (c >> 4) | (d << 2)
    }
  }
}

function packFive(codes: Uint8Array, out: Uint8Array, to: number): void {
  for (let i = 0, at = to; i < codes.length; i += 8, at += 5) {
    const [a, b, c, d] = [codes[i], codes[i + 1], codes[i + 2], codes[i + 3]]
    const [e, f, g, h] = [codes[i + 4], codes[i + 5], codes[i + 6], codes[i + 7]]
    out[at] = a | (b << 5)
    out[at + 1] = (b >> 3) | (c << 2) | (d << 7)
    out[at + 2] = (d >> 1) | (e << 4)
    out[at + 3] = (e >> 4) | (f << 1) | (g << 6)
    out[at + 4] = (g >> 2) | (h << 3)
  }
}

/** The fifth bits are in four bytes, the others as in Q4_0. */
function fiveBits(data: Uint8Array, high: number, codes: Uint8Array): void {
  const low = high + 4
  for (let j = 0; j < 16; j++) {
    const byte = data[low + j]
    codes[j] = (byte & 15) | (((data[high + (j >> 3)] >> (j & 7)) & 1) << 4)
    codes[j + 16] = (byte >> 4) | (((data[high + 2 + (j >> 3)] >> (j & 7)) & 1) << 4)
  }
}

/** Eight groups of 32, whose 6-bit scales and minima are packed in twelve bytes. */
function scalesOf(data: Uint8Array, at: number, scales: Float32Array, biases: Float32Array): void {
  const [scale, minimum] = [half(data, at), half(data, at + 2)]
  const six = at + 4
  for (let j = 0; j < 8; j++) {
    const [a, b] = [data[six + j], data[six + j + 4]]
    const before = data[six + j - 4]
    scales[j] = scale * (j < 4 ? a & 63 : (b & 15) | ((before >> 6) << 4))
    biases[j] = -minimum * (j < 4 ? b & 63 : (b >> 4) | ((a >> 6) << 4))
  }
}

/** Pairs of groups share bytes, one in the low and one in the high four bits. `high` is the offset of the fifth bits. */
function largeCodes(data: Uint8Array, low: number, high: number | null, codes: Uint8Array): void {
  for (let i = 0; i < 256; i++) {
    const group = i >> 5
    const byte = data[low + (group >> 1) * 32 + (i & 31)]
    const fifth = high === null ? 0 : ((data[high + (i & 31)] >> group) & 1) << 4
    codes[i] = (group & 1 ? byte >> 4 : byte & 15) | fifth
  }
}

/** 4-bit codes with a power of two per group. */
const mxfp4: BlockFormat = {
  name: "MXFP4",
  elements: 32,
  bytes: 17,
  split: true,
  read(data, shape) {
    const blocks = data.length / 17
    const [packed, scales] = [new Uint8Array(blocks * 16), new Uint8Array(blocks)]
    for (let i = 0; i < blocks; i++) {
      scales[i] = data[i * 17]
      for (let j = 0; j < 8; j++) {
        const [a, b] = [data[i * 17 + 1 + 2 * j], data[i * 17 + 2 + 2 * j]]
        packed[i * 16 + j] = (a & 15) | ((b & 15) << 4)
        packed[i * 16 + 8 + j] = (a >> 4) | (b & 240)
      }
    }
    const rows = shape.slice(0, -1)
    const inner = shape[shape.length - 1]
    return [
      arrayFromStore(packed, [...rows, inner / 8], mx.uint32),
      arrayFromStore(scales, [...rows, inner / 32], mx.uint8),
    ]
  },
}

/** Sixteen groups of 16, with 4-bit scales and minima relative to common ones. */
const twoBits: Decode = (data, at, codes, scales, biases) => {
  const [scale, minimum] = [half(data, at + 80), half(data, at + 82)]
  for (let j = 0; j < 16; j++) {
    scales[j] = scale * (data[at + j] & 15)
    biases[j] = -minimum * (data[at + j] >> 4)
  }
  for (let i = 0; i < 256; i++)
    codes[i] = (data[at + 16 + (i >> 7) * 32 + (i & 31)] >> (((i >> 5) & 3) * 2)) & 3
}

/** Sixteen symmetric groups of 16, with 6-bit scales; the third bits of codes are separate. */
const threeBits: Decode = (data, at, codes, scales, biases) => {
  const [low, packed] = [at + 32, at + 96]
  const scale = half(data, at + 108)
  for (let j = 0; j < 16; j++) {
    const four = (data[packed + (j & 7)] >> (j < 8 ? 0 : 4)) & 15
    const two = (data[packed + 8 + (j & 3)] >> (2 * (j >> 2))) & 3
    scales[j] = scale * ((four | (two << 4)) - 32)
    biases[j] = -4 * scales[j]
  }
  for (let i = 0; i < 256; i++) {
    const code = (data[low + (i >> 7) * 32 + (i & 31)] >> (((i >> 5) & 3) * 2)) & 3
    codes[i] = code | (((data[at + (i & 31)] >> (i >> 5)) & 1) << 2)
  }
}

/** Sixteen symmetric groups of 16, with 8-bit scales; the upper two bits of codes are separate. */
const sixBits: Decode = (data, at, codes, scales, biases) => {
  const scale = half(data, at + 208)
  for (let j = 0; j < 16; j++) {
    scales[j] = scale * ((data[at + 192 + j] << 24) >> 24)
    biases[j] = -32 * scales[j]
  }
  for (let i = 0; i < 64; i++) {
    const [part, k] = [i >> 5, i & 31]
    const [a, b] = [data[at + part * 64 + k], data[at + part * 64 + 32 + k]]
    const high = data[at + 128 + part * 32 + k]
    const from = part * 128 + k
    codes[from] = (a & 15) | ((high & 3) << 4)
    codes[from + 32] = (b & 15) | ((high & 12) << 2)
    codes[from + 64] = (a >> 4) | (high & 48)
    codes[from + 96] = (b >> 4) | ((high & 192) >> 2)
  }
}

const formats: readonly (readonly [number, BlockFormat])[] = [
  [
    6,
    affine("Q5_0", [5, 32], [32, 22], (data, at, codes, scales, biases) => {
      scales[0] = half(data, at)
      biases[0] = -16 * scales[0]
      fiveBits(data, at + 2, codes)
    }),
  ],
  [
    7,
    affine("Q5_1", [5, 32], [32, 24], (data, at, codes, scales, biases) => {
      scales[0] = half(data, at)
      biases[0] = half(data, at + 2)
      fiveBits(data, at + 4, codes)
    }),
  ],
  [10, affine("Q2_K", [2, 16], [256, 84], twoBits)],
  // Stored as 4-bit codes, because sixteen 3-bit codes do not fill 32-bit words.
  [11, affine("Q3_K", [4, 16], [256, 110], threeBits)],
  [
    12,
    affine("Q4_K", [4, 32], [256, 144], (data, at, codes, scales, biases) => {
      scalesOf(data, at, scales, biases)
      largeCodes(data, at + 16, null, codes)
    }),
  ],
  [
    13,
    affine("Q5_K", [5, 32], [256, 176], (data, at, codes, scales, biases) => {
      scalesOf(data, at, scales, biases)
      largeCodes(data, at + 48, at + 16, codes)
    }),
  ],
  [14, affine("Q6_K", [6, 16], [256, 210], sixBits)],
  [39, mxfp4],
]

/** The bits and the group size of packed weights, by the type that they are read from. */
export const packedSizes: Readonly<Record<string, readonly [bits: number, group: number]>> = {
  ...{ Q4_0: [4, 32], Q4_1: [4, 32], Q5_0: [5, 32], Q5_1: [5, 32], Q8_0: [8, 32], MXFP4: [4, 32] },
  ...{ Q2_K: [2, 16], Q3_K: [4, 16], Q4_K: [4, 32], Q5_K: [5, 32], Q6_K: [6, 16] },
}

/** Block formats by the number of the ggml type, all of which stay packed. */
export const blockFormats: ReadonlyMap<number, BlockFormat> = new Map([...known, ...formats])
