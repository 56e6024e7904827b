/**
 * Packed weights in Metal, in the formats of @lazuli/core's quantize.ts: reading them, and packing.
 */

import type { Dtype } from "@lazuli/core/engine"
import { METAL_HEADER, metalType } from "./metal-types"
import { functionsFor } from "./scalar-source"

/** The packing of weights. */
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

/** The statement that reads what the codes of a group share. */
const groupText = (mode: PackedFormat["mode"]): string =>
  `float scale = ${{ affine: "float(scales[group])", nvfp4: "lz_fp8(scales[group])" }[mode as string] ?? "lz_power(scales[group])"}${mode === "affine" ? ", bias = float(biases[group])" : ""};`

/** The value of a code as a float. With `stepwise` the product and the sum of mode affine are rounded to the scales' dtype. */
function valueOf({ bits, mode }: PackedFormat, scales: Dtype, code: string, stepwise: boolean): string {
  if (mode !== "affine") return `${bits === 4 ? "lz_fp4" : "lz_fp8"}(${code}) * scale`
  const type = metalType(scales) as string
  const round = (x: string): string => (stepwise && type !== "float" ? `float(${type}(${x}))` : x)
  return round(`${round(`float(${code}) * scale`)} + bias`)
}

/** `lz_weight(words, scales, biases?, row, j, columns)`: element j of a row of so many columns, as a float. */
export function packedFunctions({ groupSize, bits, mode }: PackedFormat, scales: Dtype): string {
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
  const value = valueOf({ groupSize, bits, mode }, scales, "lz_code(words, row, j, columns)", false)
  return `${E4M3}${E2M1}${E8M0}${code}inline float lz_weight(${parameters}, uint row, uint j, uint columns) {
  uint group = ${group};
  ${groupText(mode)}
  return ${value};
}
`
}

/** Elements that a thread unpacks: whole words of them, all of one group. */
export const unpackRun = (bits: number): number => ({ 3: 32, 5: 32, 2: 16, 6: 16 })[bits] ?? 8

/** Bytes of the vectors that are written. */
const VECTOR = 16

/**
 * Kernel `unpack`: words, scales, in affine biases, the global scale where there is one, the elements and the number of runs. What is
 * written begins at a multiple of 16 bytes where it is `aligned`.
 */
export function unpackSource(
  format: PackedFormat,
  scales: Dtype,
  to: Dtype,
  global: boolean,
  aligned: boolean,
): string {
  const { bits, groupSize } = format
  const run = unpackRun(bits)
  const count = (run * bits) / 32
  const type = metalType(to) as string
  const width = aligned ? VECTOR / to.size : 1
  const parameters = [
    ...packedParameters(format, scales),
    ...(global ? ["device const float* whole"] : []),
    `device ${type}* y`,
    "constant uint& runs",
  ].map((text, i) => `${text} [[buffer(${i})]]`)
  const straddles = 32 % bits !== 0
  return `${METAL_HEADER}${E4M3}${E2M1}${E8M0}struct alignas(${width * to.size}) lz_run { ${type} v[${width}]; };
kernel void unpack(${parameters.join(", ")}, uint i [[thread_position_in_grid]]) {
  if (i >= runs) return;
  uint group = i / ${groupSize / run};
  ${groupText(format.mode)}
  uint several[${count}];
  for (uint w = 0; w < ${count}; w++) several[w] = words[i * ${count} + w];
${global ? "  float factor = whole[0] / 2688.0f;\n" : ""}  for (uint e = 0; e < ${run}; e += ${width}) {
    lz_run part;
    for (uint d = 0; d < ${width}; d++) {
      uint at = (e + d) * ${bits}, shift = at % 32;
      uint code = several[at / 32] >> shift;
${straddles ? `      if (shift + ${bits} > 32) code |= several[at / 32 + 1] << (32 - shift);\n` : ""}      code &= ${2 ** bits - 1}u;
      part.v[d] = ${type}(${valueOf(format, scales, "code", true)}${global ? " * factor" : ""});
    }
    *(device lz_run*)(y + i * ${run} + e) = part;
  }
}
`
}

const TO_E4M3 = `inline uint lz_to_fp8(float x) {
  float size = fabs(x), v = (size <= 448.0f ? size : 448.0f) * 512.0f, code = 0.0f;
  if (v >= 2048.0f) { v *= 0.00390625f; code += 64.0f; }
  if (v >= 128.0f) { v *= 0.0625f; code += 32.0f; }
  if (v >= 32.0f) { v *= 0.25f; code += 16.0f; }
  if (v >= 16.0f) { v *= 0.5f; code += 8.0f; }
  return uint(rint(v) + code) + (x < 0.0f || 1.0f / x < 0.0f ? 128u : 0u);
}
`
const TO_E2M1 = `inline uint lz_to_fp4(float x) {
  float size = fabs(x);
  uint code = (size > 0.25f ? 1u : 0u) + (size > 0.75f ? 1u : 0u) + (size > 1.25f ? 1u : 0u) + (size > 1.75f ? 1u : 0u)
    + (size > 2.5f ? 1u : 0u) + (size > 3.5f ? 1u : 0u) + (size > 5.0f ? 1u : 0u);
  return x < 0.0f && code > 0 ? code + 8 : code;
}
`

/** Elements that a simdgroup packs: whole groups, and whole words of all lanes. */
export const packSpan = (groupSize: number): number => Math.max(32, groupSize)

/** Kernel `pack`: x, the global scale (where `global` says its type), words, scales, in affine biases, and how many elements there are. */
export function packSource({ groupSize, bits, mode }: PackedFormat, x: Dtype, global: string | null): string {
  const type = metalType(x) as string
  const affine = mode === "affine"
  const chunks = packSpan(groupSize) / 32
  const parameters = [
    `device const ${type}* x`,
    ...(global === null ? [] : [`device const ${global}* whole`]),
    "device uint* words",
    `device ${affine ? type : "uchar"}* scales`,
    ...(affine ? [`device ${type}* biases`] : []),
    "constant uint& n",
  ].map((text, i) => `${text} [[buffer(${i})]]`)
  /** A value as x's dtype stores it. */
  const round = (value: string): string => (type === "float" ? `(${value})` : `float(${type}(${value}))`)
  const extreme = (
    name: string,
    of: (v: string) => string,
    which: "maximum" | "minimum",
  ): string => `  float ${name} = ${of("v[0]")};
  for (uint c = 1; c < ${chunks}; c++) ${name} = lz_${which}(${name}, ${of("v[c]")});
  for (ushort d = ${Math.min(32, groupSize) / 2}; d > 0; d /= 2) ${name} = lz_${which}(${name}, simd_shuffle_xor(${name}, d));
`
  const own = (v: string): string => v
  const found = affine
    ? `${extreme("low", own, "minimum")}${extreme("high", own, "maximum")}  bool low_edge = fabs(low) > fabs(high);
  float edge = low_edge ? low : high, size = lz_maximum((high - low) / ${2 ** bits - 1}.0f, 1e-7f), step = low_edge ? size : -size;
  float steps = rint(edge / step), bias = steps == 0.0f ? 0.0f : edge, scale = steps == 0.0f ? step : edge / steps;
  if (first) { scales[number] = ${type}(scale); biases[number] = ${type}(bias); }
`
    : `${extreme("high", (v) => `fabs(${v})`, "maximum")}  float ideal = ${round(`high / ${bits === 4 ? 6 : 448}.0f`)};
${
  mode === "nvfp4"
    ? `${global === null ? "" : "  float encode = 1.0f / float(whole[0]) * 2688.0f;\n"}  uint code = lz_to_fp8(${global === null ? "ideal" : "ideal * encode"});
  float scale = lz_fp8(code);
`
    : `  float power = ideal == 0.0f ? 0.0f : ${round("precise::log2(ideal)")};
  uint code = uint(lz_minimum(lz_maximum(rint(power), -127.0f), 127.0f) + 127.0f);
  float scale = lz_power(code);
`
}  if (first) scales[number] = uchar(code);
`
  const scaled = affine
    ? `float y = rint((v[c] - bias) / scale);
    uint code = y >= 0.0f ? uint(min(y, ${2 ** bits - 1}.0f)) : 0u;`
    : `float y = ${mode === "nvfp4" ? `${round("v[c] / scale")}${global === null ? "" : " * encode"}` : "v[c] / scale"};
    uint code = lz_to_fp${bits}(y);`
  const text = `${E4M3}${E8M0}${TO_E4M3}${TO_E2M1}kernel void pack(${parameters.join(", ")},
    uint group [[threadgroup_position_in_grid]], uint threads [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  uint base = (group * (threads / 32) + simdgroup) * ${32 * chunks};
  float v[${chunks}];
  for (uint c = 0; c < ${chunks}; c++) {
    v[c] = 0.0f;
    if (base + 32 * c + lane < n) v[c] = float(x[base + 32 * c + lane]);
  }
  uint number = (base + lane) / ${groupSize};
  bool first = lane % ${Math.min(32, groupSize)} == 0 && base + lane < n;
${found}  for (uint c = 0; c < ${chunks}; c++) {
    ${scaled}
    uint mine = 0;
    for (uint w = 0; w < ${bits}; w++) {
      int shift = int(lane * ${bits}) - int(32 * w);
      uint word = simd_or(shift >= 32 || shift <= -${bits} ? 0u : shift >= 0 ? code << uint(shift) : code >> uint(-shift));
      if (lane == w) mine = word;
    }
    uint at = (base / 32 + c) * ${bits} + lane;
    if (lane < ${bits} && at < n / 16 * ${bits} / 2) words[at] = mine;
  }
}
`
  return `${METAL_HEADER}${functionsFor(text)}${text}`
}
