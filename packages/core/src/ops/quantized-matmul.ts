/**
 * Products with packed weights. The formats are in quantize.ts, products of two quantized operands in qqmm.ts. Products are defined as
 * computed in at least float32, from weights without intermediate rounding.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import { type Dtype, int32, promote } from "../graph/dtype"
import { ArgumentError, DTypeError, ShapeError } from "../graph/errors"
import type { Array, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { broadcastShapes, format, sameShape } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { toDtype, wide } from "./constant"
import { ones, zeros } from "./creation"
import { addAt, asStack, checkMatrixIndices, gatherMm, matrixIndices, stackExamples } from "./gather-matmul"
import { matmul } from "./matmul"
import {
  checkPacked,
  dequantizePacked,
  formatSchema,
  optionalArray,
  type Quantization,
  type QuantizationMode,
  resolveFormat,
} from "./quantize"
import { broadcastTo } from "./reduce"
import { take } from "./take"
import { moveToFront } from "./view"

const swap = (x: Array): Array => x.swapaxes(-1, -2)
const plus = (a: Array | null, b: Array | null): Array | null => (a && b ? a.add(b) : (a ?? b))

/**
 * The rounding of x in a product: none, or to 8 bits, where each group of 32 elements along the last axis is rounded to integers from −127
 * to 127 times 1/127 of its largest magnitude.
 */
export type ProductActivations = "exact" | "int8"
type ProductParams = Quantization & { transpose: boolean; activations: ProductActivations }
const productSchema = { transpose: "bool", ...formatSchema, activations: ["exact", "int8"] } as const

/** The product without rounding, whose derivatives are used. */
const exact = (params: ProductParams): ProductParams => ({ ...params, activations: "exact" })

/** The inputs of an exact product, with x rounded: the definition of `int8`. */
function withRounded(inputs: readonly Array[]): Array[] {
  const inner = wide(inputs[0].dtype)
  const [x, ...rest] = inputs.map((a) => (a.dtype.kind === "floating" ? toDtype(a, inner) : a))
  const blocks = x.unflatten(-1, [x.shape[x.ndim - 1] / 32, 32])
  const scale = blocks.abs().max(-1, true).divide(127)
  const codes = blocks.divide(where(scale.equal(0), 1, scale)).round()
  return [codes.multiply(scale).flatten(-2, -1), ...rest]
}

/** Dequantized weights, in the dtype of the computation. */
function unpacked(w: Array, scales: Array, biases: Array | undefined, dtype: Dtype, q: Quantization): Array {
  const { groupSize, bits, mode } = q
  const inputs = biases ? [w, toDtype(scales, dtype), toDtype(biases, dtype)] : [w, scales]
  return dequantizePacked(inputs, { groupSize, bits, mode, dtype })
}

/** Validates the packed weights and the inner axis, and returns the number of columns of the result. */
function checkProduct(
  op: string,
  x: Meta,
  w: Meta,
  scales: Meta,
  biases: Meta | undefined,
  { transpose, activations, ...q }: ProductParams,
): number {
  if (x.dtype.kind !== "floating")
    throw new DTypeError(op, `x must be of a real floating dtype, received ${x.dtype.name}`)
  const columns = checkPacked(op, w, scales, biases, q)
  const rows = w.shape[w.shape.length - 2]
  const [inner, outer] = transpose ? [columns, rows] : [rows, columns]
  const k = x.shape[x.shape.length - 1]
  if (k !== inner)
    throw new ShapeError(
      op,
      `the last axis of x has size ${k}, but weights of shape ${format(w.shape)} with ${q.bits} bits and transpose=${transpose} are a ${inner} × ${outer} matrix`,
    )
  if (activations === "int8" && k % 32 !== 0)
    throw new ShapeError(op, `activations int8 need a last axis of x in blocks of 32, received size ${k}`)
  return outer
}

/** The gradient of scales and biases from that of the weights: Σ over a group of dw · code, and of dw. */
function scaleGradients(x: Array, w: Array, scales: Array, g: Array, params: ProductParams): [Array, Array] {
  const { transpose, groupSize } = params
  const inner = wide(x.dtype)
  const dw = toDtype(transpose ? matmul(swap(g), x) : matmul(swap(x), g), inner)
  const codes = unpacked(w, ones(scales.shape, inner), zeros(scales.shape, inner), inner, params)
  const sums = (a: Array): Array =>
    toDtype(a.unflatten(-1, [scales.shape[scales.ndim - 1], groupSize]).sum(-1), scales.dtype)
  return [sums(dw.multiply(codes)), sums(dw)]
}

/** x [..., M, K] times packed weights [..., N, ·] transposed, or [..., K, ·]; equal leading axes. Inputs: x, w, scales, biases?. */
const packedProduct: Apply<ProductParams> = definePrimitive({
  name: "quantizedMatmul",
  params: productSchema,
  infer: ([x, w, scales, biases], params) => {
    const op = "quantizedMatmul"
    const outer = checkProduct(op, x, w, scales, biases, params)
    if (!sameShape(x.shape.slice(0, -2), w.shape.slice(0, -2)))
      throw new ShapeError(
        op,
        `x and w must have the same leading axes, received shapes ${format(x.shape)} and ${format(w.shape)}`,
      )
    return { shape: [...x.shape.slice(0, -1), outer], dtype: x.dtype }
  },
  decompose: (inputs, params) => {
    const [x, w, scales, biases] = inputs
    if (params.activations === "int8")
      return toDtype(packedProduct(withRounded(inputs), exact(params)), x.dtype)
    const inner = wide(x.dtype)
    const full = unpacked(w, scales, biases, inner, params)
    return toDtype(matmul(toDtype(x, inner), params.transpose ? swap(full) : full), x.dtype)
  },
  vjp: ({ inputs: [x, w, scales, biases], cotangents: [g], params, wanted }) => {
    const flipped = { ...exact(params), transpose: !params.transpose }
    const dx = wanted[0] ? packedProduct(biases ? [g, w, scales, biases] : [g, w, scales], flipped) : null
    if (!biases) return [dx, null, null]
    const [ds, db] = wanted[2] || wanted[3] ? scaleGradients(x, w, scales, g, params) : [null, null]
    return [dx, null, ds, db]
  },
  // Linear in x, and in scales and biases together.
  jvp: ({ inputs: [x, w, scales, biases], tangents: [tx, , ts, tb], params: rounding }) => {
    const params = exact(rounding)
    const byX = tx && packedProduct(biases ? [tx, w, scales, biases] : [tx, w, scales], params)
    if (!biases || (!ts && !tb)) return [byX]
    const [ds, db] = [ts, tb].map((t) => t ?? zeros(scales.shape, scales.dtype))
    return [plus(byX, packedProduct([x, w, ds, db], params))]
  },
  vmap: ({ inputs, axes, params, size }) => {
    const [x, ...packed] = inputs
    if (packed[0].ndim === 2 && axes.slice(1).every((axis) => axis === null)) {
      const rows = moveToFront(x, axes[0] as number)
      const y = packedProduct([rows.flatten(0, 1), ...packed], params)
      return { outputs: [y.unflatten(0, [size, -1])], axes: [0] }
    }
    const batched = inputs.map((a, i) => {
      const axis = axes[i]
      return axis === null ? broadcastTo(a, [size, ...a.shape]) : moveToFront(a, axis)
    })
    return { outputs: [packedProduct(batched, params)], axes: [0] }
  },
})

/** Converts x, scales and biases to the dtype of the result. */
function asOperands(
  op: string,
  x: unknown,
  w: unknown,
  scales: unknown,
  biases: unknown,
  mode: QuantizationMode,
): { a: Array; packed: Array[] } {
  let a = asArrayArgument(op, "x", x)
  const weights = asArrayArgument(op, "w", w)
  const scale = asArrayArgument(op, "scales", scales)
  const bias = optionalArray(op, "biases", biases)
  if (mode === "affine" ? !bias : bias)
    throw new ArgumentError(op, mode === "affine" ? "mode affine needs biases" : `mode ${mode} has no biases`)
  if (!bias || a.dtype === scale.dtype) return { a, packed: bias ? [weights, scale, bias] : [weights, scale] }
  const dtype = promote(a.dtype, scale.dtype)
  if (a.dtype.kind !== "floating" || dtype.kind !== "floating")
    throw new DTypeError(
      op,
      `needs real floating x and scales, received ${a.dtype.name} and ${scale.dtype.name}`,
    )
  a = toDtype(a, dtype)
  return { a, packed: [weights, toDtype(scale, dtype), toDtype(bias, dtype)] }
}

/** The product with broadcast leading axes; if the weights are a single matrix, these are folded into the rows of x. @internal */
export function multiplyPacked(op: string, a: Array, packed: Array[], params: ProductParams): Array {
  if (a.ndim === 0) throw new ShapeError(op, "x must have at least one dimension")
  const x = a.ndim === 1 ? a.expandDims(0) : a
  const [w] = packed
  let out: Array
  if (w.ndim <= 2) {
    const flat = x.ndim === 2 ? x : x.flatten(0, -2)
    const y = packedProduct([flat, ...packed], params)
    out = x.ndim === 2 ? y : y.unflatten(0, x.shape.slice(0, -1))
  } else {
    const batch = broadcastShapes(op, x.shape.slice(0, -2), w.shape.slice(0, -2))
    const spread = (y: Array): Array => broadcastTo(y, [...batch, ...y.shape.slice(-2)])
    checkProduct(op, x.node, w.node, packed[1].node, packed[2]?.node, params)
    out = packedProduct([x, ...packed].map(spread), params)
  }
  return a.ndim === 1 ? out.squeeze(-2) : out
}

const quantizedMatmulArgs = operation(
  "quantizedMatmul",
  {
    x: "array",
    w: "array",
    scales: "array",
    biases: "array?",
    transpose: "bool?",
    groupSize: "integer?",
    bits: "integer?",
    mode: formatSchema.mode,
    activations: productSchema.activations,
  },
  (
    x: Array,
    w: Array,
    scales: Array,
    biases: Array | null | undefined,
    transpose: boolean = true,
    groupSize?: number | null,
    bits?: number | null,
    mode: QuantizationMode = "affine",
    activations: ProductActivations = "exact",
  ): Array => {
    const op = "quantizedMatmul"
    const q = resolveFormat(op, groupSize, bits, mode)
    const { a, packed } = asOperands(op, x, w, scales, biases, q.mode)
    return multiplyPacked(op, a, packed, {
      transpose: transpose === null || Boolean(transpose),
      ...q,
      activations,
    })
  },
)
/** The format of packed weights, as {@link quantize} was given it. */
export interface PackedOptions extends StreamOptions {
  /** Mode affine only: the offsets of the groups. */
  biases?: Array | null
  /** True (the default) if the weights are stored as [N, K] and used transposed. */
  transpose?: boolean
  groupSize?: number | null
  bits?: number | null
  mode?: QuantizationMode
  /** The rounding of x: `'int8'` rounds to 8 bits, which is faster if the backend has byte products; none by default. */
  activations?: ProductActivations
}
/**
 * x @ wᵀ, or x @ w with `transpose: false`, for weights packed by {@link quantize}: x [..., K], w [..., N, K] → [..., N]. Leading axes
 * broadcast. Differentiable in x and, in mode affine, in scales and biases. Sums are accumulated in float32. On processors with byte
 * products, a row may first be rounded to 2⁻²³ of the largest magnitude of each group (2⁻¹⁵ for 16-bit floats), which reduces the precision
 * of much smaller elements; on processors with bfloat16 products, for many bfloat16 rows, and with `transpose: false` for one, too, weights
 * are rounded to bfloat16 (a relative error of at most 2⁻⁹). A group is summed before its scale is applied: elements beyond 10³⁴ may give
 * infinities, and those below 10⁻³⁰ lose digits.
 *
 * With `activations: 'int8'`, each group of 32 elements x of a row becomes s · round(x / s), s = max |x| / 127, in at least float32: an
 * element of the result differs from the exact product by at most Σ |w| s / 2. The last axis of x must be a multiple of 32. Derivatives are
 * those of the product without that rounding.
 * @method false
 * @named activations
 * @throws ShapeError, DTypeError if the arrays are incompatible; ArgumentError for an unknown format
 * @example
 * const [w, scales, biases] = mx.quantize(mx.ones([2, 64]))
 * mx.quantizedMatmul(mx.ones([1, 64]), w, scales, biases).tolist() // => [[64, 64]]
 */
export function quantizedMatmul(
  x: Array,
  w: Array,
  scales: Array,
  biases?: Array | null,
  transpose?: boolean,
  groupSize?: number | null,
  bits?: number | null,
  mode?: QuantizationMode,
  options?: { activations?: ProductActivations } & StreamOptions,
): Array
export function quantizedMatmul(
  x: Array,
  w: Array,
  scales: Array,
  biases: Array | null | undefined,
  options: Omit<PackedOptions, "biases">,
): Array
export function quantizedMatmul(x: Array, w: Array, scales: Array, options: PackedOptions): Array
export function quantizedMatmul(...args: unknown[]): Array {
  return quantizedMatmulArgs(args)
}

/** out[i] = x[lhs[i]] times packed weights w[rhs[i]]. Inputs: x [·, M, K], w, scales, biases?, lists lhs and rhs → [n, M, N]. */
const gatherPacked: Apply<ProductParams> = definePrimitive({
  name: "gatherQmm",
  params: productSchema,
  infer: (inputs, params) => {
    const op = "gatherQmm"
    const { packed, lhs, rhs } = gathered(inputs)
    checkMatrixIndices(op, lhs, rhs)
    const outer = checkProduct(op, inputs[0], packed[0], packed[1], packed[2], params)
    return { shape: [lhs.shape[0], inputs[0].shape[1], outer], dtype: inputs[0].dtype }
  },
  decompose: (inputs, params) => {
    if (params.activations === "int8")
      return toDtype(gatherPacked(withRounded(inputs), exact(params)), inputs[0].dtype)
    const { packed, lhs, rhs } = gathered(inputs)
    return packedProduct([take(inputs[0], lhs, 0), ...packed.map((a) => take(a, rhs, 0))], params)
  },
  vjp: ({ inputs, cotangents: [g], params, wanted }) => {
    const [x] = inputs
    const { packed, lhs, rhs } = gathered(inputs)
    const flipped = { ...exact(params), transpose: !params.transpose }
    const inOrder = arange(g.shape[0], { dtype: int32 })
    const dx = wanted[0] ? addAt(x, lhs, gatherPacked([g, ...packed, inOrder, rhs], flipped)) : null
    const [w, scales, biases] = packed
    if (!biases) return [dx, null, null, null, null]
    const [ds, db] =
      wanted[2] || wanted[3]
        ? scaleGradients(take(x, lhs, 0), take(w, rhs, 0), take(scales, rhs, 0), g, params)
        : [null, null]
    return [dx, null, ds && addAt(scales, rhs, ds), db && addAt(biases, rhs, db), null, null]
  },
  jvp: ({ inputs, tangents, params: rounding }) => {
    const params = exact(rounding)
    const { packed, lhs, rhs } = gathered(inputs)
    const [w, scales, biases] = packed
    const byX = tangents[0] && gatherPacked([tangents[0], ...packed, lhs, rhs], params)
    if (!biases || (!tangents[2] && !tangents[3])) return [byX]
    const [ds, db] = [tangents[2], tangents[3]].map((t) => t ?? zeros(scales.shape, scales.dtype))
    return [plus(byX, gatherPacked([inputs[0], w, ds, db, lhs, rhs], params))]
  },
  vmap: ({ inputs, axes, params, size }) => {
    const { packed, lhs, rhs } = gathered(inputs)
    const last = inputs.length - 2
    const left = stackExamples(size, [inputs[0]], [axes[0]], lhs, axes[last])
    const right = stackExamples(size, packed, axes.slice(1, last), rhs, axes[last + 1])
    const out = gatherPacked([...left.matrices, ...right.matrices, left.index, right.index], params)
    return { outputs: [out.unflatten(0, [size, -1])], axes: [0] }
  },
})
function gathered<A>(inputs: readonly A[]): { packed: A[]; lhs: A; rhs: A } {
  const last = inputs.length - 2
  return { packed: inputs.slice(1, last), lhs: inputs[last], rhs: inputs[last + 1] }
}

/** The product of gathered matrices, for any leading axes. @internal */
export function multiplyGathered(
  op: string,
  a: Array,
  packed: Array[],
  lhsIndices: Array | undefined,
  rhsIndices: Array | undefined,
  params: ProductParams,
): Array {
  if (a.ndim < 2)
    throw new ShapeError(op, `x must have at least 2 dimensions, received shape ${format(a.shape)}`)
  checkProduct(op, a.node, packed[0].node, packed[1].node, packed[2]?.node, params)
  const { lhs, rhs, shape } = matrixIndices(
    op,
    lhsIndices,
    rhsIndices,
    a.shape.slice(0, -2),
    packed[0].shape.slice(0, -2),
  )
  const out = gatherPacked([asStack(a), ...packed.map(asStack), lhs, rhs], params)
  return out.reshape([...shape, ...out.shape.slice(1)])
}

const gatherQmmArgs = operation(
  "gatherQmm",
  {
    x: "array",
    w: "array",
    scales: "array",
    biases: "array?",
    lhsIndices: "any?",
    rhsIndices: "any?",
    transpose: "bool?",
    groupSize: "integer?",
    bits: "integer?",
    mode: formatSchema.mode,
    sortedIndices: "bool?",
    activations: productSchema.activations,
  },
  (
    x: Array,
    w: Array,
    scales: Array,
    biases: Array | null | undefined,
    lhsIndices?: Array | null,
    rhsIndices?: Array | null,
    transpose: boolean = true,
    groupSize?: number | null,
    bits?: number | null,
    mode: QuantizationMode = "affine",
    _sorted: boolean = false,
    activations: ProductActivations = "exact",
  ): Array => {
    const op = "gatherQmm"
    const params = {
      transpose: transpose === null || Boolean(transpose),
      ...resolveFormat(op, groupSize, bits, mode),
      activations,
    }
    const { a, packed } = asOperands(op, x, w, scales, biases, params.mode)
    const lhs = optionalArray(op, "lhsIndices", lhsIndices)
    const rhs = optionalArray(op, "rhsIndices", rhsIndices)
    if (!lhs && !rhs) return multiplyPacked(op, a, packed, params)
    return multiplyGathered(op, a, packed, lhs, rhs, params)
  },
)
/** The indices of the matrices to multiply; see {@link gatherMm}. */
export interface GatherOptions {
  lhsIndices?: Array | null
  rhsIndices?: Array | null
  /** Asserts ascending indices; has no effect. */
  sortedIndices?: boolean
}
/**
 * {@link quantizedMatmul} with gathered operands: out[i] = x[lhsIndices[i]] @ w[rhsIndices[i]]ᵀ, as in {@link gatherMm}. For mixtures of
 * experts: w contains one packed matrix per expert.
 * @method false
 * @named sortedIndices activations
 * @throws ShapeError, DTypeError if the arrays are incompatible; IndexError, at evaluation, for an index out of bounds
 * @example
 * const [w, scales, biases] = mx.quantize(mx.stack([mx.ones([2, 64]), mx.zeros([2, 64])]))
 * const rhsIndices = mx.array([1, 0], mx.int32)
 * mx.gatherQmm(mx.ones([2, 1, 64]), w, scales, biases, { rhsIndices }).tolist() // => [[[0, 0]], [[64, 64]]]
 */
export function gatherQmm(
  x: Array,
  w: Array,
  scales: Array,
  biases?: Array | null,
  lhsIndices?: Array | null,
  rhsIndices?: Array | null,
  transpose?: boolean,
  groupSize?: number | null,
  bits?: number | null,
  mode?: QuantizationMode,
  options?: { sortedIndices?: boolean; activations?: ProductActivations } & StreamOptions,
): Array
export function gatherQmm(
  x: Array,
  w: Array,
  scales: Array,
  biases: Array | null | undefined,
  options: Omit<PackedOptions, "biases"> & GatherOptions,
): Array
export function gatherQmm(x: Array, w: Array, scales: Array, options: PackedOptions & GatherOptions): Array
export function gatherQmm(...args: unknown[]): Array {
  return gatherQmmArgs(args)
}
