/**
 * Conversions between numbers and the bits of float16 and bfloat16, correctly rounded to nearest, ties to even: the intermediate rounding
 * to float32 is to odd, which makes double rounding harmless (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
 * Formats: IEEE 754-2019 binary16; bfloat16 is the upper half of binary32.
 */
const f32 = new Float32Array(1)
const u32 = new Uint32Array(f32.buffer)
const f64 = new Float64Array(1)
const u64 = new BigUint64Array(f64.buffer)

/** Stores `value` in `f32`, rounded to odd: if inexact, to the neighbor with an odd last bit. */
function roundToOdd(value: number | bigint): void {
  const number = typeof value === "bigint" ? oddNumber(value) : value
  f32[0] = number
  const nearest = f32[0]
  if (nearest === number || Number.isNaN(number) || (u32[0] & 1) === 1) return
  u32[0] += Math.abs(number) > Math.abs(nearest) ? 1 : -1
}

/** Converts an integer to a number, rounded to odd. */
function oddNumber(value: bigint): number {
  const nearest = Number(value)
  if (Number.isSafeInteger(nearest) || !Number.isFinite(nearest)) return nearest
  const exact = BigInt(nearest)
  f64[0] = nearest
  if (exact === value || (u64[0] & 1n) === 1n) return nearest
  u64[0] += value < 0n === value < exact ? 1n : -1n
  return f64[0]
}

/** The bits of `value` rounded to bfloat16. */
export function toBfloat16Bits(value: number | bigint): number {
  roundToOdd(value)
  const bits = u32[0]
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff
}

/** The value of bfloat16 bits. */
export function fromBfloat16Bits(bits: number): number {
  u32[0] = bits << 16
  return f32[0]
}

/** The bits of `value` rounded to float16. */
export function toFloat16Bits(value: number | bigint): number {
  roundToOdd(value)
  const bits = u32[0]
  const sign = (bits >>> 16) & 0x8000
  const magnitude = bits & 0x7fffffff
  if (magnitude > 0x7f800000) return sign | 0x7e00
  if (magnitude >= 0x477ff000) return sign | 0x7c00
  if (magnitude < 0x38800000) {
    // Subnormal: the unit is 2^-24, and scaling by a power of two is exact.
    const units = Math.abs(f32[0]) * 16777216
    const floor = Math.floor(units)
    const rest = units - floor
    return sign | (floor + (rest > 0.5 || (rest === 0.5 && (floor & 1) === 1) ? 1 : 0))
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13)
}

/** The value of float16 bits. */
export function fromFloat16Bits(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >>> 10) & 31
  const fraction = bits & 1023
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}
