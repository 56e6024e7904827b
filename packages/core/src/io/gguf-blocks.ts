/**
 * GGUF's quantized block formats. Blocks of 32 elements of four or eight bits with one scale stay quantized: they become the packed
 * weights, scales and biases of quantizedMatmul, w = q·scale + bias. Other formats are dequantized to float16. Layouts:
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
 */
import { type Dtype, float16, uint32 } from "../graph/dtype"
import type { Array } from "../graph/graph"
import { fromFloat16Bits, toFloat16Bits } from "../graph/half"
import { arrayFromStore } from "../ops/creation"

/** A block format. */
export interface BlockFormat {
  readonly name: string
  /** Elements and bytes per block. */
  readonly elements: number
  readonly bytes: number
  /** True if it loads as three arrays: weights, scales and biases. */
  readonly split: boolean
  /** Decodes the blocks of a tensor of the given shape. */
  read(data: Uint8Array, shape: readonly number[]): Array[]
}

const half = (data: Uint8Array, at: number): number => fromFloat16Bits(data[at] | (data[at + 1] << 8))

/** Creates an array from a store that `fill` writes. */
function filledArray<T extends Uint16Array | Uint8Array>(
  store: T,
  dtype: Dtype,
  shape: readonly number[],
  fill: (store: T) => void,
): Array {
  fill(store)
  return arrayFromStore(store, shape, dtype)
}

/**
 * Formats of 32 elements with one scale, which stay quantized. `bias` computes the bias in w = q·scale + bias; `unpack` repacks a block's
 * elements.
 */
function quantized(
  name: string,
  bits: 4 | 8,
  bytes: number,
  bias: (data: Uint8Array, at: number, scale: number) => number,
  unpack: (data: Uint8Array, at: number, packed: Uint8Array, to: number) => void,
): BlockFormat {
  const packedBytes = bits * 4
  return {
    name,
    elements: 32,
    bytes,
    split: true,
    read(data, shape) {
      const blocks = data.length / bytes
      const rows = shape.slice(0, -1)
      const inner = shape[shape.length - 1]
      const weights = filledArray(
        new Uint8Array(blocks * packedBytes),
        uint32,
        [...rows, (inner * bits) / 32],
        (packed) => {
          for (let i = 0; i < blocks; i++) unpack(data, i * bytes, packed, i * packedBytes)
        },
      )
      const groups = [...rows, inner / 32]
      const scales = filledArray(new Uint16Array(blocks), float16, groups, (view) => {
        for (let i = 0; i < blocks; i++) view[i] = data[i * bytes] | (data[i * bytes + 1] << 8)
      })
      const biases = filledArray(new Uint16Array(blocks), float16, groups, (view) => {
        for (let i = 0; i < blocks; i++) view[i] = toFloat16Bits(bias(data, i * bytes, half(data, i * bytes)))
      })
      return [weights, scales, biases]
    },
  }
}

/** Sixteen bytes hold elements 0 … 15 in their low nibbles and 16 … 31 in their high ones; repacked, adjacent elements share a byte. */
function unpackNibbles(data: Uint8Array, at: number, packed: Uint8Array, to: number): void {
  for (let j = 0; j < 8; j++) {
    const [a, b] = [data[at + 2 * j], data[at + 2 * j + 1]]
    packed[to + j] = (a & 15) | ((b & 15) << 4)
    packed[to + 8 + j] = (a >> 4) | (b & 240)
  }
}

/** Formats that are dequantized: `decode` writes a block's elements. */
function dequantized(
  name: string,
  elements: number,
  bytes: number,
  decode: (data: Uint8Array, at: number, out: Float64Array) => void,
): BlockFormat {
  return {
    name,
    elements,
    bytes,
    split: false,
    read(data, shape) {
      const block = new Float64Array(elements)
      return [
        filledArray(new Uint16Array((data.length / bytes) * elements), float16, shape, (view) => {
          for (let i = 0; i * bytes < data.length; i++) {
            decode(data, i * bytes, block)
            for (let j = 0; j < elements; j++) view[i * elements + j] = toFloat16Bits(Math.fround(block[j]))
          }
        }),
      ]
    },
  }
}

/** The six-bit scale and minimum of group j of eight, packed into twelve bytes. */
function scaleAndMin(data: Uint8Array, at: number, j: number): [number, number] {
  if (j < 4) return [data[at + j] & 63, data[at + j + 4] & 63]
  return [
    (data[at + j + 4] & 15) | ((data[at + j - 4] >> 6) << 4),
    (data[at + j + 4] >> 4) | ((data[at + j] >> 6) << 4),
  ]
}

/** Eight groups of 32 with a scale and a minimum each; `high` has a fifth bit for each element. */
function fourOrFiveBits(data: Uint8Array, at: number, high: number | null, out: Float64Array): void {
  const [scale, min] = [half(data, at), half(data, at + 2)]
  const low = at + 16 + (high === null ? 0 : 32)
  for (let i = 0; i < 256; i++) {
    const [group, lane] = [i >> 5, i & 31]
    const byte = data[low + (group >> 1) * 32 + lane]
    let q = group & 1 ? byte >> 4 : byte & 15
    if (high !== null && data[high + lane] & (1 << group)) q += 16
    const [d, m] = scaleAndMin(data, at + 4, group)
    out[i] = d * scale * q - m * min
  }
}

const formats: [number, BlockFormat][] = [
  [
    2,
    quantized(
      "Q4_0",
      4,
      18,
      (_data, _at, scale) => -8 * scale,
      (d, at, p, to) => unpackNibbles(d, at + 2, p, to),
    ),
  ],
  [
    3,
    quantized(
      "Q4_1",
      4,
      20,
      (data, at) => half(data, at + 2),
      (d, at, p, to) => unpackNibbles(d, at + 4, p, to),
    ),
  ],
  [
    8,
    // Signed elements become unsigned by adding 128.
    quantized(
      "Q8_0",
      8,
      34,
      (_data, _at, scale) => -128 * scale,
      (data, at, packed, to) => {
        for (let j = 0; j < 32; j++) packed[to + j] = data[at + 2 + j] ^ 128
      },
    ),
  ],
  [
    6,
    dequantized("Q5_0", 32, 22, (data, at, out) => {
      const scale = half(data, at)
      for (let i = 0; i < 32; i++) out[i] = scale * (fiveBits(data, at + 2, i) - 16)
    }),
  ],
  [
    7,
    dequantized("Q5_1", 32, 24, (data, at, out) => {
      const [scale, min] = [half(data, at), half(data, at + 2)]
      for (let i = 0; i < 32; i++) out[i] = scale * fiveBits(data, at + 4, i) + min
    }),
  ],
  [
    10,
    dequantized("Q2_K", 256, 84, (data, at, out) => {
      const [scale, min] = [half(data, at + 80), half(data, at + 82)]
      for (let i = 0; i < 256; i++) {
        const both = data[at + (i >> 4)]
        const q = (data[at + 16 + (i >> 7) * 32 + (i & 31)] >> (((i >> 5) & 3) * 2)) & 3
        out[i] = scale * (both & 15) * q - min * (both >> 4)
      }
    }),
  ],
  [12, dequantized("Q4_K", 256, 144, (data, at, out) => fourOrFiveBits(data, at, null, out))],
  [13, dequantized("Q5_K", 256, 176, (data, at, out) => fourOrFiveBits(data, at, at + 16, out))],
  [
    14,
    dequantized("Q6_K", 256, 210, (data, at, out) => {
      const scale = half(data, at + 208)
      for (let i = 0; i < 256; i++) {
        const [part, k] = [i >> 7, i & 127]
        const low = (data[at + part * 64 + (k & 63)] >> ((k >> 6) * 4)) & 15
        const high = (data[at + 128 + part * 32 + (k & 31)] >> ((k >> 5) * 2)) & 3
        const group = (data[at + 192 + (i >> 4)] << 24) >> 24
        out[i] = scale * group * ((low | (high << 4)) - 32)
      }
    }),
  ],
]

/** Element i: four bits in the last sixteen bytes, the fifth bit in the first four. */
function fiveBits(data: Uint8Array, at: number, i: number): number {
  const byte = data[at + 4 + (i & 15)]
  const low = i < 16 ? byte & 15 : byte >> 4
  return low | (((data[at + (i >> 3)] >> (i & 7)) & 1) << 4)
}

/** By ggml type number. */
export const blockFormats: ReadonlyMap<number, BlockFormat> = new Map(formats)
