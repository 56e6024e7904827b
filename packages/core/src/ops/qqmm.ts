/**
 * Matrix products with both operands quantized: the input on the fly, the weights in advance or on the fly. For products of unquantized
 * inputs see quantized-matmul.ts.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import { float32, promote, uint32 } from "../graph/dtype"
import { ArgumentError, DTypeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { toDtype } from "./constant"
import { gatherMm } from "./gather-matmul"
import { matmul } from "./matmul"
import {
  checkGlobalScale,
  dequantizePacked,
  formatSchema,
  NVFP4_RANGE,
  optionalArray,
  type Quantization,
  type QuantizationMode,
  quantizePacked,
  resolveFormat,
} from "./quantize"
import { multiplyGathered, multiplyPacked } from "./quantized-matmul"
import { stopGradient } from "./view"

const swap = (x: Array): Array => x.swapaxes(-1, -2)

/** x quantized and dequantized, with a straight-through gradient: x − stopGradient(x) is 0, but has the gradient of x. */
function roundTrip(x: Array, globalScale: Array | undefined, q: Quantization): Array {
  const global = globalScale ? [globalScale] : []
  const row = x.ndim === 1 ? x.expandDims(0) : x
  const rounded = dequantizePacked([...quantizePacked.all([row, ...global], q), ...global], {
    ...q,
    dtype: x.dtype,
  })
  return stopGradient(rounded.reshape(x.shape)).add(x.subtract(stopGradient(x)))
}

/** Validation shared by qqmm and gatherQqmm; returns the rounded x and w, and the packed form of w if given. */
function asQuantized(
  op: string,
  x: unknown,
  w: unknown,
  scales: unknown,
  q: Quantization,
  globalScaleX: unknown,
  globalScaleW: unknown,
): { a: Array; weights: Array; scale: Array | undefined; global: Array | undefined } {
  if (q.mode === "affine")
    throw new ArgumentError(op, "quantizes to floats: mode must be mxfp4, mxfp8 or nvfp4, received affine")
  const given = asArrayArgument(op, "x", x)
  let weights = asArrayArgument(op, "w", w)
  const scale = optionalArray(op, "scales", scales)
  const globals = [
    optionalArray(op, "globalScaleX", globalScaleX),
    optionalArray(op, "globalScaleW", globalScaleW),
  ]
  globals.forEach((g, i) => {
    if (g) checkGlobalScale(op, i === 0 ? "globalScaleX" : "globalScaleW", g.node, q.mode)
  })
  if (given.dtype.kind !== "floating")
    throw new DTypeError(op, `x must be of a real floating dtype, received ${given.dtype.name}`)
  if ((weights.dtype === uint32) !== (scale !== undefined))
    throw new ArgumentError(
      op,
      scale
        ? `scales belong to quantized weights in uint32, received weights in ${weights.dtype.name}`
        : "quantized weights need scales",
    )
  if (!scale) weights = roundTrip(weights, globals[1], q)
  return { a: roundTrip(given, globals[0], q), weights, scale, global: scale && globals[1] }
}

/** Applies the global scale of packed weights to a product. */
function scaled(y: Array, global: Array | undefined): Array {
  if (!global) return y
  const factor = toDtype(global.reshape([]), float32).divide(NVFP4_RANGE)
  return toDtype(toDtype(y, promote(y.dtype, float32)).multiply(factor), y.dtype)
}

const qqmmArgs = operation(
  "qqmm",
  {
    x: "array",
    w: "array",
    scales: "array?",
    groupSize: "integer?",
    bits: "integer?",
    mode: formatSchema.mode,
    globalScaleX: "any?",
    globalScaleW: "any?",
  },
  (
    x: Array,
    w: Array,
    scales: Array | null | undefined,
    groupSize?: number | null,
    bits?: number | null,
    mode: QuantizationMode = "nvfp4",
    globalScaleX?: Array | null,
    globalScaleW?: Array | null,
  ): Array => {
    const op = "qqmm"
    const q = resolveFormat(op, groupSize, bits, mode)
    const { a, weights, scale, global } = asQuantized(op, x, w, scales, q, globalScaleX, globalScaleW)
    const params = { transpose: true, activations: "exact", ...q } as const
    if (scale) return scaled(multiplyPacked(op, a, [weights, scale], params), global)
    return toDtype(matmul(a, swap(weights)), a.dtype)
  },
)
/** The options of {@link qqmm}. */
export interface QqmmOptions extends StreamOptions {
  /** Of packed weights. */
  scales?: Array | null
  groupSize?: number | null
  bits?: number | null
  /** nvfp4 (the default), mxfp8 or mxfp4. */
  mode?: QuantizationMode
  /** In nvfp4, the global scale x is quantized with. */
  globalScaleX?: Array | null
  /** In nvfp4, the global scale of the weights. */
  globalScaleW?: Array | null
}
/**
 * x @ wᵀ with both operands quantized: x on the fly, and w too unless it is packed with scales. The result is the product of the rounded
 * operands, in x's dtype. Gradients with respect to x and unpacked w are those of that product, with a straight-through estimate for the
 * rounding.
 * @method false
 * @throws ShapeError, DTypeError if the arrays are incompatible; ArgumentError for mode affine, or weights without scales
 * @example
 * const [w, scales] = mx.quantize(mx.full([2, 32], 0.875), { mode: 'mxfp8' })
 * mx.qqmm(mx.full([1, 32], 0.875), w, scales, { mode: 'mxfp8' }).tolist() // => [[24.5, 24.5]]
 */
export function qqmm(
  x: Array,
  w: Array,
  scales?: Array | null,
  groupSize?: number | null,
  bits?: number | null,
  mode?: QuantizationMode,
  globalScaleX?: Array | null,
  globalScaleW?: Array | null,
  options?: StreamOptions,
): Array
export function qqmm(
  x: Array,
  w: Array,
  scales: Array | null | undefined,
  options: Omit<QqmmOptions, "scales">,
): Array
export function qqmm(x: Array, w: Array, options: QqmmOptions): Array
export function qqmm(...args: unknown[]): Array {
  return qqmmArgs(args)
}

const gatherQqmmArgs = operation(
  "gatherQqmm",
  {
    x: "array",
    w: "array",
    scales: "array?",
    lhsIndices: "any?",
    rhsIndices: "any?",
    groupSize: "integer?",
    bits: "integer?",
    mode: formatSchema.mode,
    globalScaleX: "any?",
    globalScaleW: "any?",
    sortedIndices: "bool?",
  },
  (
    x: Array,
    w: Array,
    scales: Array | null | undefined,
    lhsIndices?: Array | null,
    rhsIndices?: Array | null,
    groupSize?: number | null,
    bits?: number | null,
    mode: QuantizationMode = "nvfp4",
    globalScaleX?: Array | null,
    globalScaleW?: Array | null,
    _sorted: boolean = false,
  ): Array => {
    const op = "gatherQqmm"
    const q = resolveFormat(op, groupSize, bits, mode)
    const { a, weights, scale, global } = asQuantized(op, x, w, scales, q, globalScaleX, globalScaleW)
    const lhs = optionalArray(op, "lhsIndices", lhsIndices)
    const rhs = optionalArray(op, "rhsIndices", rhsIndices)
    if (!scale) return toDtype(gatherMm(a, swap(weights), lhs, rhs), a.dtype)
    const params = { transpose: true, activations: "exact", ...q } as const
    const packed = [weights, scale]
    const y =
      lhs || rhs ? multiplyGathered(op, a, packed, lhs, rhs, params) : multiplyPacked(op, a, packed, params)
    return scaled(y, global)
  },
)
/**
 * {@link qqmm} with operands gathered as in {@link gatherMm}.
 * @method false
 * @named sortedIndices
 * @throws ShapeError, DTypeError if the arrays are incompatible; IndexError, at evaluation, for an index out of bounds
 * @example
 * const [w, scales] = mx.quantize(mx.ones([3, 2, 32]), { mode: 'nvfp4' })
 * const rhsIndices = mx.array([2, 0], mx.int32)
 * mx.gatherQqmm(mx.ones([2, 1, 32]), w, scales, { rhsIndices }).shape // => [2, 1, 2]
 */
export function gatherQqmm(
  x: Array,
  w: Array,
  scales?: Array | null,
  lhsIndices?: Array | null,
  rhsIndices?: Array | null,
  groupSize?: number | null,
  bits?: number | null,
  mode?: QuantizationMode,
  globalScaleX?: Array | null,
  globalScaleW?: Array | null,
  options?: { sortedIndices?: boolean } & StreamOptions,
): Array
export function gatherQqmm(
  x: Array,
  w: Array,
  scales: Array | null | undefined,
  options: { lhsIndices?: Array | null; rhsIndices?: Array | null; sortedIndices?: boolean } & Omit<
    QqmmOptions,
    "scales"
  >,
): Array
export function gatherQqmm(
  x: Array,
  w: Array,
  options: { lhsIndices?: Array | null; rhsIndices?: Array | null; sortedIndices?: boolean } & QqmmOptions,
): Array
export function gatherQqmm(...args: unknown[]): Array {
  return gatherQqmmArgs(args)
}
