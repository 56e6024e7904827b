/**
 * Quantized weights: few bits per element and a scale per group, packed into uint32 words. The formats, their validation, and both
 * conversions; products are in quantized-matmul.ts.
 *
 * Along the last axis groups of elements share a scale. The codes of a row form a stream of bits, least significant first: element i starts
 * at bit i · bits, so that 32-bit words are filled without gaps even if bits does not divide 32.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import { asDtype, bfloat16, type Dtype, float32, uint8, uint32 } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, nearest, ShapeError } from "../graph/errors"
import type { Array, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, sameShape } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { toDtype, wide } from "./constant"
import { decodeFp8, encodeFp8 } from "./fp8"

/**
 * The quantization mode. `affine`: code · scale + bias, integers of 2 to 8 bits. `mxfp4` and `mxfp8`: floats of 4 (E2M1) or 8 (E4M3) bits
 * and a power of two for each 32. `nvfp4`: floats of 4 bits and an E4M3 for each 16.
 */
export type QuantizationMode = "affine" | "mxfp4" | "mxfp8" | "nvfp4"
/** A format: group size, bits per element, and mode. @internal */
export type Quantization = { groupSize: number; bits: number; mode: QuantizationMode }

/** The schema of a format, for the parameters of primitives. @internal */
export const formatSchema = {
  groupSize: "i64",
  bits: "i64",
  mode: ["affine", "mxfp4", "mxfp8", "nvfp4"],
} as const

/** The group sizes and bits that each mode supports, such that groups fill whole words; defaults first. */
const supported: Record<QuantizationMode, { groupSizes: number[]; bits: number[] }> = {
  affine: { groupSizes: [64, 16, 32, 128], bits: [4, 2, 3, 5, 6, 8] },
  mxfp4: { groupSizes: [32], bits: [4] },
  mxfp8: { groupSizes: [32], bits: [8] },
  nvfp4: { groupSizes: [16], bits: [4] },
}
/** The largest value of an element times the largest scale in nvfp4: what a global scale is relative to. @internal */
export const NVFP4_RANGE = 448 * 6

/**
 * A mode with its group size and bits, by default those of the mode.
 * @internal
 * @throws ArgumentError for unsupported values
 */
export function resolveFormat(
  op: string,
  groupSize: number | null | undefined,
  bits: number | null | undefined,
  mode: string,
): Quantization {
  if (!Object.hasOwn(supported, mode)) {
    const near = typeof mode === "string" ? nearest(mode, Object.keys(supported)) : null
    throw new ArgumentError(
      op,
      `mode must be one of ${Object.keys(supported).join(", ")}, received ${describe(mode)}`,
      near ? { hint: `Did you mean "${near}"?` } : {},
    )
  }
  const known = supported[mode as QuantizationMode]
  const choose = (name: string, given: number | null | undefined, allowed: number[]): number => {
    const value = given ?? allowed[0]
    if (allowed.includes(value)) return value
    const list = allowed.slice().sort((a, b) => a - b)
    throw new ArgumentError(op, `mode ${mode} has ${name} ${list.join(", ")}, received ${describe(given)}`)
  }
  const size = choose("groupSize", groupSize, known.groupSizes)
  const filling = known.bits.filter((n) => (size * n) % 32 === 0)
  return { groupSize: size, bits: choose("bits", bits, filling), mode: mode as QuantizationMode }
}

/**
 * Validates packed weights with their scales and biases, and returns the number of elements per row.
 * @internal
 * @throws DTypeError, ShapeError, ArgumentError
 */
export function checkPacked(
  op: string,
  w: Meta,
  scales: Meta,
  biases: Meta | undefined,
  { groupSize, bits, mode }: Quantization,
): number {
  if (w.dtype !== uint32)
    throw new DTypeError(op, `quantized weights must be uint32, received ${w.dtype.name}`, {
      hint: "mx.quantize packs them",
    })
  if (w.shape.length < 2)
    throw new ShapeError(
      op,
      `quantized weights must have at least 2 dimensions, received shape ${format(w.shape)}`,
    )
  if (mode === "affine") {
    if (!biases) throw new ArgumentError(op, "mode affine needs biases")
    if (scales.dtype.kind !== "floating" || biases.dtype !== scales.dtype)
      throw new DTypeError(
        op,
        `scales and biases must have the same real floating dtype, received ${scales.dtype.name} and ${biases.dtype.name}`,
      )
    if (!sameShape(scales.shape, biases.shape))
      throw new ShapeError(
        op,
        `scales and biases must have the same shape, received ${format(scales.shape)} and ${format(biases.shape)}`,
      )
  } else {
    if (biases) throw new ArgumentError(op, `mode ${mode} has no biases`)
    if (scales.dtype !== uint8)
      throw new DTypeError(op, `scales must be uint8 in mode ${mode}, received ${scales.dtype.name}`)
  }
  const words = w.shape[w.shape.length - 1]
  const columns = (words * 32) / bits
  const expected = [...w.shape.slice(0, -1), columns / groupSize]
  if (!sameShape(scales.shape, expected))
    throw new ShapeError(
      op,
      Number.isInteger(columns / groupSize)
        ? `scales must have shape ${format(expected)} beside weights of shape ${format(w.shape)} with ${bits} bits in groups of ${groupSize}, received ${format(scales.shape)}`
        : `${words} words of 32 bits do not hold groups of ${groupSize} elements of ${bits} bits`,
    )
  return columns
}

/** Splits the last axis into groups: [..., n] → [..., n / size, size]. */
const grouped = (x: Array, size: number): Array => x.unflatten(-1, [x.shape[x.ndim - 1] / size, size])

/** Codes [..., n] in uint32 → words [..., n · bits / 32]. */
function pack(codes: Array, bits: number): Array {
  const shifts = (step: number): Array => arange(0, 32, { step, dtype: uint32 })
  const parts =
    32 % bits === 0
      ? grouped(codes, 32 / bits).leftShift(shifts(bits))
      : grouped(
          codes
            .expandDims(-1)
            .rightShift(arange(bits, { dtype: uint32 }))
            .bitwiseAnd(1)
            .flatten(-2, -1),
          32,
        ).leftShift(shifts(1))
  // The parts have no common bits, so that their sum is the bitwise OR.
  return toDtype(parts.sum(-1), uint32)
}

/** Words → codes: the inverse of {@link pack}. */
function unpack(words: Array, bits: number): Array {
  const parts = (step: number): Array =>
    words.expandDims(-1).rightShift(arange(0, 32, { step, dtype: uint32 }))
  if (32 % bits === 0)
    return parts(bits)
      .bitwiseAnd(2 ** bits - 1)
      .flatten(-2, -1)
  const stream = grouped(parts(1).bitwiseAnd(1).flatten(-2, -1), bits)
  return toDtype(stream.leftShift(arange(bits, { dtype: uint32 })).sum(-1), uint32)
}

/** The code of the nearest E2M1 (ties towards zero); bit 3 is the sign. */
function encodeFp4(y: Array): Array {
  const size = y.abs()
  let code = toDtype(size.greater(0.25), uint32)
  for (const middle of [0.75, 1.25, 1.75, 2.5, 3.5, 5]) code = code.add(toDtype(size.greater(middle), uint32))
  return where(y.less(0).logicalAnd(code.greater(0)), code.add(8), code)
}

/** Sign, two bits of exponent and one of mantissa, without which there is no hidden bit. */
function decodeFp4(codes: Array): Array {
  const isSet = (bit: number): Array => codes.bitwiseAnd(bit).notEqual(0)
  const mantissa = toDtype(codes.bitwiseAnd(1), float32)
  const power = where(isSet(2), 2, 1)
    .multiply(where(isSet(4), 4, 1))
    .multiply(0.25)
  const value = where(isSet(6), mantissa.add(2).multiply(power), mantissa.multiply(0.5))
  return where(isSet(8), value.negative(), value)
}

/** 2^(code − 127), exactly: a product over the bits of the code. */
function decodePower(codes: Array): Array {
  const bit = (k: number, set: number, unset: number): Array =>
    where(codes.bitwiseAnd(1 << k).notEqual(0), set, unset)
  let value = bit(0, 2, 1)
  for (let k = 1; k < 7; k++) value = value.multiply(bit(k, 2 ** (2 ** k), 1))
  return value.multiply(bit(7, 2, 2 ** -127))
}

/** The code of the power of two nearest to x on a logarithmic scale; that of 1 for 0. */
function encodePower(x: Array): Array {
  const exponent = where(x.equal(0), 0, toDtype(x.log2().round(), float32))
  return toDtype(exponent.maximum(-127).minimum(127).add(127), uint8)
}

/** The affine codes, scales and biases: the edge of larger magnitude and 0 are represented exactly. */
function quantizeAffine(w: Array, { groupSize, bits }: Quantization): Array[] {
  const x = grouped(toDtype(w, wide(w.dtype)), groupSize)
  const most = 2 ** bits - 1
  const [low, high] = [x.min(-1, true), x.max(-1, true)]
  const lowEdge = low.abs().greater(high.abs())
  const edge = where(lowEdge, low, high)
  const step = high.subtract(low).divide(most).maximum(1e-7)
  const signed = where(lowEdge, step, step.negative())
  const steps = edge.divide(signed).round()
  const flat = steps.equal(0)
  const scale = where(flat, signed, edge.divide(where(flat, 1, steps)))
  const bias = where(flat, 0, edge)
  const codes = x.subtract(bias).divide(scale).round().maximum(0).minimum(most)
  return [
    pack(toDtype(codes, uint32).flatten(-2, -1), bits),
    toDtype(scale.squeeze(-1), w.dtype),
    toDtype(bias.squeeze(-1), w.dtype),
  ]
}

/** The codes and scales of the floating modes; `unit` is the global scale (if any) over {@link NVFP4_RANGE}. */
function quantizeFloats(w: Array, { groupSize, bits, mode }: Quantization, globalScale?: Array): Array[] {
  const x = grouped(w, groupSize)
  const ideal = x
    .abs()
    .max(-1, true)
    .divide(bits === 4 ? 6 : 448)
  let scales: Array
  let y: Array
  if (mode === "nvfp4") {
    const factor = globalScale && toDtype(globalScale.reshape([]), float32)
    const encode = factor?.reciprocal().multiply(NVFP4_RANGE)
    scales = encodeFp8([encode ? ideal.multiply(encode) : ideal])
    y = x.divide(decodeFp8([scales], { dtype: w.dtype }))
    if (encode) y = y.multiply(encode)
  } else {
    scales = encodePower(ideal)
    y = toDtype(x, wide(w.dtype)).divide(decodePower(scales))
  }
  const codes = bits === 4 ? encodeFp4(y) : toDtype(encodeFp8([y]), uint32)
  return [pack(codes.flatten(-2, -1), bits), scales.squeeze(-1)]
}

/** Inputs: w, and in nvfp4 perhaps a global scale. Outputs: the words, the scales, and in affine the biases. @internal */
export const quantizePacked: Apply<Quantization> = definePrimitive({
  name: "quantize",
  params: formatSchema,
  infer: ([w, globalScale], { groupSize, bits, mode }) => {
    const op = "quantize"
    if (w.dtype.kind !== "floating")
      throw new DTypeError(op, `w must be of a real floating dtype, received ${w.dtype.name}`)
    if (w.shape.length < 2)
      throw new ShapeError(op, `w must have at least 2 dimensions, received shape ${format(w.shape)}`)
    const leading = w.shape.slice(0, -1)
    const n = w.shape[leading.length]
    if (n % groupSize !== 0)
      throw new ShapeError(
        op,
        `the last axis must be a multiple of the group size ${groupSize}, received shape ${format(w.shape)}`,
      )
    if (globalScale) checkGlobalScale(op, "globalScale", globalScale, mode)
    const packed = { shape: [...leading, (n * bits) / 32], dtype: uint32 }
    const scales = { shape: [...leading, n / groupSize], dtype: mode === "affine" ? w.dtype : uint8 }
    return mode === "affine" ? [packed, scales, scales] : [packed, scales]
  },
  decompose: ([w, globalScale], params) =>
    params.mode === "affine" ? quantizeAffine(w, params) : quantizeFloats(w, params, globalScale),
})

/** @internal @throws ArgumentError, ShapeError, DTypeError */
export function checkGlobalScale(op: string, name: string, scale: Meta, mode: QuantizationMode): void {
  if (mode !== "nvfp4") throw new ArgumentError(op, `${name} belongs to mode nvfp4, received mode ${mode}`)
  if (scale.dtype.kind !== "floating")
    throw new DTypeError(op, `${name} must be of a real floating dtype, received ${scale.dtype.name}`)
  if (scale.shape.some((n) => n !== 1))
    throw new ShapeError(op, `${name} must have one element, received shape ${format(scale.shape)}`)
}

/** Inputs: words, scales, in affine biases, in nvfp4 perhaps a global scale. @internal */
export const dequantizePacked: Apply<Quantization & { dtype: Dtype }> = definePrimitive({
  name: "dequantize",
  params: { ...formatSchema, dtype: "dtype" },
  infer: ([w, scales, extra], { dtype, ...params }) => {
    const op = "dequantize"
    const affine = params.mode === "affine"
    const columns = checkPacked(op, w, scales, affine ? extra : undefined, params)
    if (extra && !affine) checkGlobalScale(op, "globalScale", extra, params.mode)
    if (dtype.kind !== "floating")
      throw new DTypeError(op, `dtype must be a real floating dtype, received ${dtype.name}`)
    return { shape: [...w.shape.slice(0, -1), columns], dtype }
  },
  decompose: ([w, scales, extra], { groupSize, bits, mode, dtype }) => {
    const codes = grouped(unpack(w, bits), groupSize)
    let y: Array
    if (mode === "affine") {
      const [scale, bias] = [scales, extra].map((a) => a.expandDims(-1))
      y = toDtype(codes, scales.dtype).multiply(scale).add(bias)
    } else {
      const values = bits === 4 ? decodeFp4(codes) : decodeFp8([toDtype(codes, uint8)], { dtype: float32 })
      let scale = mode === "nvfp4" ? decodeFp8([scales], { dtype: float32 }) : decodePower(scales)
      if (extra) scale = scale.multiply(toDtype(extra.reshape([]), float32).divide(NVFP4_RANGE))
      y = values.multiply(scale.expandDims(-1))
    }
    return toDtype(y.flatten(-2, -1), dtype)
  },
})

/** An optional array argument. @internal @throws ArgumentError */
export function optionalArray(op: string, name: string, value: unknown): Array | undefined {
  return value === null || value === undefined ? undefined : asArrayArgument(op, name, value)
}

const given = (...arrays: (Array | undefined)[]): Array[] => arrays.filter((a) => a !== undefined)

const quantizeArgs = operation(
  "quantize",
  { w: "array", groupSize: "integer?", bits: "integer?", mode: formatSchema.mode, globalScale: "any?" },
  (
    x: Array,
    groupSize?: number | null,
    bits?: number | null,
    mode: QuantizationMode = "affine",
    globalScale?: Array | null,
  ): Array[] => {
    const params = resolveFormat("quantize", groupSize, bits, mode)
    return quantizePacked.all(given(x, optionalArray("quantize", "globalScale", globalScale)), params)
  },
)
/** The options of {@link quantize}. */
export interface QuantizeOptions extends StreamOptions {
  /** The number of elements that share a scale. Affine: 64 (the default), 32, 128, or 16 if bits is even; the other modes have one size. */
  groupSize?: number | null
  /** Bits per element. Affine: 4 (the default), 2, 3, 5, 6 or 8; the other modes have one width. */
  bits?: number | null
  mode?: QuantizationMode
  /** In nvfp4, the largest magnitude to represent, as an array of one element; scales are relative to it. */
  globalScale?: Array | null
}
/**
 * Quantizes along the last axis: [..., N] becomes words [..., N · bits / 32] in uint32 and scales [..., N / groupSize]. In mode
 * affine also biases, as the third array; scales and biases then have w's dtype. In the other modes scales are uint8: powers of two
 * in mxfp4 and mxfp8, E4M3 (see {@link toFp8}) in nvfp4. The rule of affine, with the edge e of larger magnitude and the other
 * edge f of a group: scale s = e / round(e / s₀), where s₀ = (f − e) / (2^bits − 1), bias e, code round((w − e) / s).
 * @method false
 * @named globalScale
 * @throws ShapeError unless N is a multiple of groupSize and w has two axes; DTypeError unless w is floating; ArgumentError for a
 *   group size or width that the mode does not have
 * @example
 * const [packed, scales, biases] = mx.quantize(mx.arange(64).reshape([1, 64]).astype(mx.float32), { bits: 8 })
 * packed.shape // => [1, 16]
 * mx.dequantize(packed, scales, biases, { bits: 8 }).index(0, -1).item() // => 63
 */
export function quantize(
  w: Array,
  groupSize?: number | null,
  bits?: number | null,
  mode?: QuantizationMode,
  options?: { globalScale?: Array | null } & StreamOptions,
): Array[]
export function quantize(
  w: Array,
  groupSize: number | null,
  options: Omit<QuantizeOptions, "groupSize">,
): Array[]
export function quantize(w: Array, options: QuantizeOptions): Array[]
export function quantize(...args: unknown[]): Array[] {
  return quantizeArgs(args)
}

const dequantizeArgs = operation(
  "dequantize",
  {
    w: "array",
    scales: "array",
    biases: "array?",
    groupSize: "integer?",
    bits: "integer?",
    mode: formatSchema.mode,
    globalScale: "any?",
    dtype: "dtype?",
  },
  (
    w: Array,
    scale: Array,
    biases: Array | null | undefined,
    groupSize?: number | null,
    bits?: number | null,
    mode: QuantizationMode = "affine",
    globalScale?: Array | null,
    dtype?: Dtype | null,
  ): Array => {
    const op = "dequantize"
    const params = resolveFormat(op, groupSize, bits, mode)
    const [bias, global] = [
      optionalArray(op, "biases", biases),
      optionalArray(op, "globalScale", globalScale),
    ]
    if (params.mode === "affine" ? !bias : bias)
      throw new ArgumentError(
        op,
        params.mode === "affine" ? "mode affine needs biases" : `mode ${mode} has no biases`,
      )
    if (global) checkGlobalScale(op, "globalScale", global.node, params.mode)
    const natural = params.mode === "affine" ? scale.dtype : (global?.dtype ?? bfloat16)
    return dequantizePacked(given(w, scale, bias, global), {
      ...params,
      dtype: dtype === null || dtype === undefined ? natural : asDtype(op, dtype),
    })
  },
)
/** The options of {@link dequantize}. */
export interface DequantizeOptions extends QuantizeOptions {
  /** Affine only: the offsets of the groups. */
  biases?: Array | null
  /** The dtype of the result. The default is that of scales in mode affine, otherwise that of the global scale, or bfloat16. */
  dtype?: Dtype | null
}
/**
 * Inverts {@link quantize} with the same group size, bits and mode: code · scale + bias in mode affine, code · scale in the others. In mode
 * affine both steps are rounded to the dtype of scales, as in MLX; the others round once.
 * @method false
 * @throws ShapeError, DTypeError if the arrays are incompatible; ArgumentError for an unknown format
 * @example
 * const [packed, scales] = mx.quantize(mx.full([2, 32], 1.5), { mode: 'mxfp4' })
 * mx.dequantize(packed, scales, { mode: 'mxfp4', dtype: mx.float32 }).index(1, 31).item() // => 1.5
 */
export function dequantize(
  w: Array,
  scales: Array,
  biases?: Array | null,
  groupSize?: number | null,
  bits?: number | null,
  mode?: QuantizationMode,
  globalScale?: Array | null,
  dtype?: Dtype | null,
  options?: StreamOptions,
): Array
export function dequantize(
  w: Array,
  scales: Array,
  biases: Array | null | undefined,
  options: Omit<DequantizeOptions, "biases">,
): Array
export function dequantize(w: Array, scales: Array, options: DequantizeOptions): Array
export function dequantize(...args: unknown[]): Array {
  return dequantizeArgs(args)
}
