/**
 * Reading packed weights in Metal, in the formats of @lazuli/core's quantize.ts.
 */

import type { Dtype } from "@lazuli/core/engine"
import { metalType } from "./metal-types"

/** How weights are packed. */
export interface PackedFormat {
  readonly groupSize: number
  readonly bits: number
  readonly mode: "affine" | "mxfp4" | "mxfp8" | "nvfp4"
}

const E4M3 = `inline float lz_fp8(uint code) {
  uint power = code >> 3 & 15;
  float size = power != 0 ? float(8 + (code & 7)) * as_type<float>((power + 117) << 23) : float(code & 7) * 0.001953125f;
  return (code & 0x80) != 0 ? -size : size;
}
`
const E2M1 = `inline float lz_fp4(uint code) {
  float size = (code & 6) != 0 ? float(2 + (code & 1)) * float(1u << (code >> 1 & 3)) * 0.25f : float(code & 1) * 0.5f;
  return (code & 8) != 0 ? -size : size;
}
`
const E8M0 = `inline float lz_power(uint code) { return code == 0 ? as_type<float>(0x00400000u) : as_type<float>(code << 23); }
`

/** The buffers of packed weights, after those of `prefix`. */
export const packedParameters = ({ mode }: PackedFormat, scales: Dtype): string[] =>
  mode === "affine"
    ? [
        "device const uint* words",
        `device const ${metalType(scales)}* scales`,
        `device const ${metalType(scales)}* biases`,
      ]
    : ["device const uint* words", "device const uchar* scales"]

/**
 * `lz_weight(words, scales, biases?, row, j, columns)`: element j of a row of so many columns, as a float. With `stepwise` the product and
 * the sum of mode affine are rounded to the scales' dtype.
 */
export function packedFunctions(
  { groupSize, bits, mode }: PackedFormat,
  scales: Dtype,
  stepwise: boolean,
): string {
  const straddles = 32 % bits !== 0
  const code = `inline uint lz_code(device const uint* words, uint row, uint j, uint columns) {
  uint at = j * ${bits}, shift = at % 32;
  device const uint* word = words + row * (columns / 32 * ${bits} + columns % 32 * ${bits} / 32) + at / 32;
  uint v = word[0] >> shift;
${straddles ? `  if (shift + ${bits} > 32) v |= word[1] << (32 - shift);\n` : ""}  return v & ${2 ** bits - 1}u;
}
`
  const parameters = packedParameters({ groupSize, bits, mode }, scales).join(", ")
  const group = `row * (columns / ${groupSize}) + j / ${groupSize}`
  const type = metalType(scales) as string
  const round = (x: string): string => (stepwise && type !== "float" ? `float(${type}(${x}))` : x)
  const value =
    mode === "affine"
      ? round(
          `${round("float(lz_code(words, row, j, columns)) * float(scales[group])")} + float(biases[group])`,
        )
      : mode === "nvfp4"
        ? "lz_fp4(lz_code(words, row, j, columns)) * lz_fp8(scales[group])"
        : `${bits === 4 ? "lz_fp4" : "lz_fp8"}(lz_code(words, row, j, columns)) * lz_power(scales[group])`
  return `${E4M3}${E2M1}${E8M0}${code}inline float lz_weight(${parameters}, uint row, uint j, uint columns) {
  uint group = ${group};
  return ${value};
}
`
}
