/**
 * Writes weights as quantized blocks of GGUF files: quantizes dense ones, and copies packed ones unchanged.
 */
import { fromFloat16Bits } from "@lazuli/core/engine"

/** A ggml type: its number, and the size of a block. */
export interface BlockType {
  readonly type: number
  readonly elements: number
  readonly bytes: number
  /** Writes one block. */
  encode(values: Float32Array, out: DataView): void
}

const scratch = new Float32Array(1)
const bits = new Uint32Array(scratch.buffer)

/** The bits of the nearest float16. */
export function float16Bits(value: number): number {
  scratch[0] = value
  const sign = (bits[0] >>> 16) & 0x8000
  scratch[0] = Math.abs(value)
  if (!(scratch[0] < 65520)) return sign | 0x7c00
  if (scratch[0] < 2 ** -14) return sign | roundHalfEven(scratch[0] * 2 ** 24)
  const rest = bits[0] & 0x1fff
  let top = bits[0] >>> 13
  if (rest > 0x1000 || (rest === 0x1000 && top & 1)) top++
  return sign | (top - (112 << 10))
}

/** Rounds to the nearest integer, halves to even. */
function roundHalfEven(x: number): number {
  const below = Math.floor(x)
  const over = x - below
  return over > 0.5 || (over === 0.5 && below % 2 === 1) ? below + 1 : below
}

/** Writes a float16. Returns its value. */
function putHalf(out: DataView, at: number, value: number): number {
  const rounded = float16Bits(value)
  out.setUint16(at, rounded, true)
  return fromFloat16Bits(rounded)
}

const clamp = (x: number, min: number, max: number): number => Math.min(max, Math.max(min, Math.round(x)))
const over = (x: number, scale: number): number => (scale === 0 ? 0 : x / scale)

/** The value with the largest magnitude. */
function extreme(values: Float32Array): number {
  let found = 0
  for (const x of values) if (Math.abs(x) > Math.abs(found)) found = x
  return found
}

/** Writes 4-bit codes, two per byte; with `five`, the fifth bits come first. */
function putCodes(out: DataView, at: number, codes: ArrayLike<number>, five: boolean): void {
  const low = five ? at + 4 : at
  if (five) {
    let high = 0
    for (let j = 0; j < 32; j++) high |= (codes[j] >> 4) << j
    out.setUint32(at, high >>> 0, true)
  }
  for (let j = 0; j < 16; j++) out.setUint8(low + j, (codes[j] & 15) | ((codes[j + 16] & 15) << 4))
}

/** Symmetric groups of 32: scale · (code − middle). */
function symmetric(type: number, five: boolean): BlockType {
  const middle = five ? 16 : 8
  return {
    type,
    elements: 32,
    bytes: five ? 22 : 18,
    encode(values, out) {
      const scale = putHalf(out, 0, extreme(values) / -middle)
      putCodes(
        out,
        2,
        Array.from(values, (x) => clamp(over(x, scale) + middle, 0, 2 * middle - 1)),
        five,
      )
    },
  }
}

/** Groups of 32: scale · code + minimum. */
function affine(type: number, five: boolean): BlockType {
  const max = five ? 31 : 15
  return {
    type,
    elements: 32,
    bytes: five ? 24 : 20,
    encode(values, out) {
      const minimum = Math.min(...values)
      const scale = putHalf(out, 0, (Math.max(...values) - minimum) / max)
      const base = putHalf(out, 2, minimum)
      putCodes(
        out,
        4,
        Array.from(values, (x) => clamp(over(x - base, scale), 0, max)),
        five,
      )
    },
  }
}

const q8: BlockType = {
  type: 8,
  elements: 32,
  bytes: 34,
  encode(values, out) {
    const scale = putHalf(out, 0, Math.abs(extreme(values)) / 127)
    values.forEach((x, j) => {
      out.setInt8(2 + j, clamp(over(x, scale), -128, 127))
    })
  },
}

/** Eight groups of 32: scale · code − minimum, with 6-bit scales and minima relative to common ones. */
function large(type: number, five: boolean): BlockType {
  const max = five ? 31 : 15
  return {
    type,
    elements: 256,
    bytes: five ? 176 : 144,
    encode(values, out) {
      const groups = Array.from({ length: 8 }, (_, j) => values.subarray(j * 32, j * 32 + 32))
      const minima = groups.map((group) => Math.max(0, -Math.min(...group)))
      const scales = groups.map((group, j) => (Math.max(...group) + minima[j]) / max)
      const scale = putHalf(out, 0, Math.max(0, ...scales) / 63)
      const minimum = putHalf(out, 2, Math.max(...minima) / 63)
      const sixScales = scales.map((s) => clamp(over(s, scale), 0, 63))
      const sixMinima = minima.map((m) => clamp(over(m, minimum), 0, 63))
      for (let j = 0; j < 4; j++) {
        out.setUint8(4 + j, sixScales[j] | ((sixScales[j + 4] >> 4) << 6))
        out.setUint8(8 + j, sixMinima[j] | ((sixMinima[j + 4] >> 4) << 6))
        out.setUint8(12 + j, (sixScales[j + 4] & 15) | ((sixMinima[j + 4] & 15) << 4))
      }
      const codes = Array.from(values, (x, i) => {
        const j = i >> 5
        return clamp(over(x + minimum * sixMinima[j], scale * sixScales[j]), 0, max)
      })
      const low = five ? 48 : 16
      for (let i = 0; i < 32; i++) {
        let high = 0
        for (let j = 0; j < 8; j++) high |= (codes[j * 32 + i] >> 4) << j
        if (five) out.setUint8(16 + i, high)
        for (let pair = 0; pair < 4; pair++)
          out.setUint8(
            low + pair * 32 + i,
            (codes[pair * 64 + i] & 15) | ((codes[pair * 64 + 32 + i] & 15) << 4),
          )
      }
    },
  }
}

/** Sixteen symmetric groups of 16, with 8-bit scales relative to a common one. */
const q6k: BlockType = {
  type: 14,
  elements: 256,
  bytes: 210,
  encode(values, out) {
    const scales = Array.from({ length: 16 }, (_, j) => extreme(values.subarray(j * 16, j * 16 + 16)) / -32)
    const scale = putHalf(out, 208, Math.abs(extreme(Float32Array.from(scales))) / 127)
    const eight = scales.map((s) => clamp(over(s, scale), -127, 127))
    eight.forEach((s, j) => {
      out.setInt8(192 + j, s)
    })
    const codes = Array.from(values, (x, i) => clamp(over(x, scale * eight[i >> 4]) + 32, 0, 63))
    for (let part = 0; part < 2; part++)
      for (let l = 0; l < 32; l++) {
        const [a, b, c, d] = [0, 32, 64, 96].map((k) => codes[part * 128 + k + l])
        out.setUint8(part * 64 + l, (a & 15) | ((c & 15) << 4))
        out.setUint8(part * 64 + 32 + l, (b & 15) | ((d & 15) << 4))
        out.setUint8(128 + part * 32 + l, (a >> 4) | ((b >> 4) << 2) | ((c >> 4) << 4) | ((d >> 4) << 6))
      }
  },
}

/** The types that dense weights can be quantized to. */
export const BLOCK_TYPES = {
  Q4_0: symmetric(2, false),
  Q4_1: affine(3, false),
  Q5_0: symmetric(6, true),
  Q5_1: affine(7, true),
  Q8_0: q8,
  Q4_K: large(12, false),
  Q5_K: large(13, true),
  Q6_K: q6k,
} as const satisfies Readonly<Record<string, BlockType>>

/** Quantizes values to blocks. */
export function encodeBlocks(values: Float32Array, format: BlockType): Uint8Array {
  const blocks = values.length / format.elements
  const out = new Uint8Array(blocks * format.bytes)
  for (let i = 0; i < blocks; i++)
    format.encode(
      values.subarray(i * format.elements, (i + 1) * format.elements),
      new DataView(out.buffer, i * format.bytes, format.bytes),
    )
  return out
}

/** Packed weights: a stream of codes, with a scale and, in some formats, a bias per group of 32. */
export interface PackedRows {
  readonly bits: 4 | 5 | 8
  readonly codes: Uint8Array
  /** Bits of float16, or exponents for MXFP4. */
  readonly scales: Uint16Array | Uint8Array
  readonly biases: Uint16Array | null
}

/** The nth code of a stream of bits. */
function codeAt(codes: Uint8Array, bits: number, n: number): number {
  const at = n * bits
  return (((codes[at >> 3] | ((codes[(at >> 3) + 1] ?? 0) << 8)) >> (at & 7)) & ((1 << bits) - 1)) >>> 0
}

/** Copies packed weights to blocks, unchanged. */
export function copyBlocks({ bits, codes, scales, biases }: PackedRows): Uint8Array {
  const groups = scales.length
  const bytes = (scales.BYTES_PER_ELEMENT === 1 ? 1 : 2) + (biases ? 2 : 0) + bits * 4
  const out = new Uint8Array(groups * bytes)
  const unpacked = new Uint8Array(32)
  for (let i = 0; i < groups; i++) {
    const view = new DataView(out.buffer, i * bytes, bytes)
    for (let j = 0; j < 32; j++) unpacked[j] = codeAt(codes, bits, i * 32 + j)
    let at = 2
    if (scales instanceof Uint16Array) view.setUint16(0, scales[i], true)
    else {
      view.setUint8(0, scales[i])
      at = 1
    }
    if (biases) {
      view.setUint16(2, biases[i], true)
      at = 4
    }
    if (bits === 8) for (let j = 0; j < 32; j++) view.setUint8(at + j, unpacked[j] ^ 128)
    else putCodes(view, at, unpacked, bits === 5)
  }
  return out
}
