/**
 * Blocks of GGUF files as packed weights, beyond those that `mx.load` keeps packed: Q5_0, Q5_1, Q4_K and Q5_K are groups of 32 with a
 * scale and a bias each, MXFP4 is the mode of that name. Q6_K, Q3_K and Q2_K have groups of 16, for which there is no mode: they become
 * floating point, as `mx.load` has it. Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
 */
import * as mx from "@lazuli/core"
import { arrayFromStore, type BlockFormat, fromFloat16Bits, blockFormats as known } from "@lazuli/core/engine"

const half = (data: Uint8Array, at: number): number => fromFloat16Bits(data[at] | (data[at + 1] << 8))

/** One block: its codes, and for each of its groups of 32 a scale and a bias. */
type Decode = (
  data: Uint8Array,
  at: number,
  codes: Uint8Array,
  scales: Float32Array,
  biases: Float32Array,
) => void

/** Blocks whose groups of 32 are scale · code + bias, with codes of so many bits in one stream. */
function affine(name: string, bits: 4 | 5, elements: number, bytes: number, decode: Decode): BlockFormat {
  return {
    name,
    elements,
    bytes,
    split: true,
    read(data, shape) {
      const blocks = data.length / bytes
      const each = elements / 32
      const packed = new Uint8Array(blocks * each * bits * 4)
      const [scales, biases] = [new Float32Array(blocks * each), new Float32Array(blocks * each)]
      const codes = new Uint8Array(elements)
      for (let i = 0; i < blocks; i++) {
        const [from, to] = [i * each, (i + 1) * each]
        decode(data, i * bytes, codes, scales.subarray(from, to), biases.subarray(from, to))
        pack(codes, bits, packed, from * bits * 4)
      }
      const rows = shape.slice(0, -1)
      const inner = shape[shape.length - 1]
      const groups = [...rows, inner / 32]
      return [
        arrayFromStore(packed, [...rows, (inner * bits) / 32], mx.uint32),
        arrayFromStore(scales, groups, mx.float32),
        arrayFromStore(biases, groups, mx.float32),
      ]
    },
  }
}

/** Codes as one stream of bits, least significant first. */
function pack(codes: Uint8Array, bits: 4 | 5, out: Uint8Array, to: number): void {
  if (bits === 4) {
    for (let i = 0; i < codes.length; i += 2) out[to + (i >> 1)] = codes[i] | (codes[i + 1] << 4)
    return
  }
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

/** The fifth bits lie in four bytes, the others as in Q4_0. */
function fiveBits(data: Uint8Array, high: number, codes: Uint8Array): void {
  const low = high + 4
  for (let j = 0; j < 16; j++) {
    const byte = data[low + j]
    codes[j] = (byte & 15) | (((data[high + (j >> 3)] >> (j & 7)) & 1) << 4)
    codes[j + 16] = (byte >> 4) | (((data[high + 2 + (j >> 3)] >> (j & 7)) & 1) << 4)
  }
}

/** Eight groups of 32, whose scales and minima have six bits each, packed into twelve bytes. */
function scalesOf(data: Uint8Array, at: number, scales: Float32Array, biases: Float32Array): void {
  const [scale, least] = [half(data, at), half(data, at + 2)]
  const six = at + 4
  for (let j = 0; j < 8; j++) {
    const [a, b] = [data[six + j], data[six + j + 4]]
    const before = data[six + j - 4]
    scales[j] = scale * (j < 4 ? a & 63 : (b & 15) | ((before >> 6) << 4))
    biases[j] = -least * (j < 4 ? b & 63 : (b >> 4) | ((a >> 6) << 4))
  }
}

/** Pairs of groups share bytes: the one has their low halves, the other their high ones. `high` has a fifth bit for each. */
function largeCodes(data: Uint8Array, low: number, high: number | null, codes: Uint8Array): void {
  for (let i = 0; i < 256; i++) {
    const group = i >> 5
    const byte = data[low + (group >> 1) * 32 + (i & 31)]
    const fifth = high === null ? 0 : ((data[high + (i & 31)] >> group) & 1) << 4
    codes[i] = (group & 1 ? byte >> 4 : byte & 15) | fifth
  }
}

/** Codes of four bits with a power of two a group. */
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

/** Sixteen groups of 16: the scales have six bits, the codes two and a third in `high`. */
function threeBits(data: Uint8Array, at: number, out: Float32Array, to: number): void {
  const [low, packed] = [at + 32, at + 96]
  const scale = half(data, at + 108)
  for (let i = 0; i < 256; i++) {
    const group = i >> 4
    const four = (data[packed + (group & 7)] >> (group < 8 ? 0 : 4)) & 15
    const two = (data[packed + 8 + (group & 3)] >> (2 * (group >> 2))) & 3
    const code = (data[low + (i >> 7) * 32 + (i & 31)] >> (((i >> 5) & 3) * 2)) & 3
    const third = (data[at + (i & 31)] >> (i >> 5)) & 1
    out[to + i] = scale * ((four | (two << 4)) - 32) * (code - (third ? 0 : 4))
  }
}

/** Sixteen groups of 16 with scales of eight bits; the codes have four bits, and two in bytes of their own. */
function sixBits(data: Uint8Array, at: number, out: Float32Array, to: number): void {
  const scale = half(data, at + 208)
  for (let i = 0; i < 64; i++) {
    const [part, k] = [i >> 5, i & 31]
    const [a, b] = [data[at + part * 64 + k], data[at + part * 64 + 32 + k]]
    const high = data[at + 128 + part * 32 + k]
    const first = at + 192 + part * 8 + (k >> 4)
    const from = to + part * 128 + k
    const times = (group: number): number => scale * ((data[first + group] << 24) >> 24)
    out[from] = times(0) * (((a & 15) | ((high & 3) << 4)) - 32)
    out[from + 32] = times(2) * (((b & 15) | ((high & 12) << 2)) - 32)
    out[from + 64] = times(4) * (((a >> 4) | (high & 48)) - 32)
    out[from + 96] = times(6) * (((b >> 4) | ((high & 192) >> 2)) - 32)
  }
}

/** Blocks of 256 that become float16. */
const floats = (name: string, bytes: number, decode: typeof threeBits): BlockFormat => ({
  name,
  elements: 256,
  bytes,
  split: false,
  read(data, shape) {
    const out = new Float32Array((data.length / bytes) * 256)
    for (let i = 0; i * bytes < data.length; i++) decode(data, i * bytes, out, i * 256)
    return [arrayFromStore(out, shape, mx.float32).astype(mx.float16)]
  },
})

const formats: readonly (readonly [number, BlockFormat])[] = [
  [
    6,
    affine("Q5_0", 5, 32, 22, (data, at, codes, scales, biases) => {
      scales[0] = half(data, at)
      biases[0] = -16 * scales[0]
      fiveBits(data, at + 2, codes)
    }),
  ],
  [
    7,
    affine("Q5_1", 5, 32, 24, (data, at, codes, scales, biases) => {
      scales[0] = half(data, at)
      biases[0] = half(data, at + 2)
      fiveBits(data, at + 4, codes)
    }),
  ],
  [11, floats("Q3_K", 110, threeBits)],
  [14, floats("Q6_K", 210, sixBits)],
  [
    12,
    affine("Q4_K", 4, 256, 144, (data, at, codes, scales, biases) => {
      scalesOf(data, at, scales, biases)
      largeCodes(data, at + 16, null, codes)
    }),
  ],
  [
    13,
    affine("Q5_K", 5, 256, 176, (data, at, codes, scales, biases) => {
      scalesOf(data, at, scales, biases)
      largeCodes(data, at + 48, at + 16, codes)
    }),
  ],
  [39, mxfp4],
]

const packed = new Map(formats)

/**
 * The ways of reading blocks, by the number of the ggml type.
 * @param converted - told of each tensor whose type has no packed form
 */
export function blockFormats(converted: (type: string) => void): ReadonlyMap<number, BlockFormat> {
  const all = new Map([...known, ...packed])
  for (const [type, format] of all) {
    if (format.split) continue
    const read: BlockFormat["read"] = (data, shape) => {
      converted(format.name)
      return format.read(data, shape)
    }
    all.set(type, { ...format, read })
  }
  return all
}
