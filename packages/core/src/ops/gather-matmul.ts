/**
 * gatherMm, segmentedMm and blockMaskedMm, and what they share with quantized-matmul.ts: matrix indices and their batching.
 */
import { asArrayArgument, operation, type StreamOptions } from "../graph/args"
import { bool_, int32, isInexact, isInteger, promote } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, ShapeError } from "../graph/errors"
import type { Array, Meta } from "../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../graph/primitive"
import { broadcastShapes, format, type Shape, sameShape, sizeOf } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { toDtype } from "./constant"
import { zeros } from "./creation"
import { scatter } from "./gather"
import { matmul } from "./matmul"
import { repeat } from "./rearrange"
import { broadcastTo } from "./reduce"
import { sliceRange } from "./slice"
import { take } from "./take"
import { moveToFront } from "./view"

function checkFloating(op: string, { dtype }: Meta): void {
  if (!isInexact(dtype)) throw new DTypeError(op, `needs a floating dtype, received ${dtype.name}`)
}

const swap = (x: Array): Array => x.swapaxes(-1, -2)
const plus = (a: Array | null, b: Array | null): Array | null => (a && b ? a.add(b) : (a ?? b))

/** Sums the matrices of `updates` at their indices into a stack of the shape of `x`. @internal */
export function addAt(x: Array, indices: Array, updates: Array): Array {
  return scatter([zeros(x.shape, updates.dtype), updates.expandDims(1), indices], { axes: [0], mode: "add" })
}

/** @internal @throws DTypeError, ShapeError */
export function checkMatrixIndices(op: string, lhs: Meta, rhs: Meta): void {
  for (const index of [lhs, rhs])
    if (!isInteger(index.dtype))
      throw new DTypeError(op, `indices must be integers, received ${index.dtype.name}`)
  if (!sameShape(lhs.shape, rhs.shape) || lhs.shape.length !== 1)
    throw new ShapeError(
      op,
      `needs two lists of indices of the same length, received shapes ${format(lhs.shape)} and ${format(rhs.shape)}`,
    )
}

/** Broadcast and flattened index arguments; the matrices in order if omitted. @internal */
export function matrixIndices(
  op: string,
  lhs: Array | undefined,
  rhs: Array | undefined,
  batchLhs: Shape,
  batchRhs: Shape,
): { lhs: Array; rhs: Array; shape: Shape } {
  const inOrder = (batch: Shape): Array => arange(sizeOf(batch), { dtype: int32 }).reshape(batch)
  const both = [lhs ?? inOrder(batchLhs), rhs ?? inOrder(batchRhs)]
  const shape = broadcastShapes(op, both[0].shape, both[1].shape)
  const [left, right] = both.map((index) => broadcastTo(index, shape).flatten())
  return { lhs: left, rhs: right, shape }
}

/**
 * Under vmap the matrices of all examples form one stack: matrix i of example e has index e · count + i. Indices that are out of bounds
 * remain so. @internal
 */
export function stackExamples(
  size: number,
  matrices: readonly Array[],
  axes: readonly (number | null)[],
  index: Array,
  indexAxis: number | null,
): { matrices: Array[]; index: Array } {
  const positions =
    indexAxis === null ? broadcastTo(index, [size, ...index.shape]) : moveToFront(index, indexAxis)
  if (axes.every((axis) => axis === null)) return { matrices: matrices.slice(), index: positions.flatten() }
  const stacked = matrices.map((x, i) => {
    const axis = axes[i]
    return (axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)).flatten(0, 1)
  })
  const count = stacked[0].shape[0] / Math.max(size, 1)
  const signed = toDtype(positions, int32)
  const normal = where(signed.less(0), signed.add(count), signed)
  const inside = normal.greaterEqual(0).logicalAnd(normal.less(count))
  const shifted = normal.add(arange(size, { dtype: int32 }).multiply(count).expandDims(1))
  return { matrices: stacked, index: where(inside, shifted, 2 ** 31 - 1).flatten() }
}

/** out[i] = a[lhs[i]] @ b[rhs[i]]: a [·, M, K], b [·, K, N], lists of indices → [n, M, N]. */
const gatherProduct: Apply<NoParams> = definePrimitive({
  name: "gatherMm",
  infer: ([a, b, lhs, rhs]) => {
    const op = "gatherMm"
    checkMatrixIndices(op, lhs, rhs)
    checkFloating(op, a)
    if (a.shape[2] !== b.shape[1])
      throw new ShapeError(
        op,
        `the last axis of a has size ${a.shape[2]} and the second-to-last of b has size ${b.shape[1]}`,
      )
    return { shape: [lhs.shape[0], a.shape[1], b.shape[2]], dtype: a.dtype }
  },
  decompose: ([a, b, lhs, rhs]) => matmul(take(a, lhs, 0), take(b, rhs, 0)),
  vjp: ({ inputs: [a, b, lhs, rhs], cotangents: [g], wanted }) => {
    const inOrder = arange(g.shape[0], { dtype: int32 })
    return [
      wanted[0] ? addAt(a, lhs, gatherProduct([g, swap(b).conjugate(), inOrder, rhs])) : null,
      wanted[1] ? addAt(b, rhs, gatherProduct([swap(a).conjugate(), g, lhs, inOrder])) : null,
      null,
      null,
    ]
  },
  jvp: ({ inputs: [a, b, lhs, rhs], tangents: [ta, tb] }) => [
    plus(ta && gatherProduct([ta, b, lhs, rhs]), tb && gatherProduct([a, tb, lhs, rhs])),
  ],
  vmap: ({ inputs: [a, b, lhs, rhs], axes, size }) => {
    const left = stackExamples(size, [a], [axes[0]], lhs, axes[2])
    const right = stackExamples(size, [b], [axes[1]], rhs, axes[3])
    const out = gatherProduct([left.matrices[0], right.matrices[0], left.index, right.index])
    return { outputs: [out.unflatten(0, [size, -1])], axes: [0] }
  },
})

/** Two operands of one real floating dtype, with vectors as rows and columns; `finish` removes the added axes. */
function operands(
  op: string,
  a: unknown,
  b: unknown,
): { x: Array; y: Array; finish: (out: Array) => Array; added: number[] } {
  let x = asArrayArgument(op, "a", a)
  let y = asArrayArgument(op, "b", b)
  if (x.ndim === 0 || y.ndim === 0)
    throw new ShapeError(
      op,
      `needs arrays of at least one dimension, received shapes ${format(x.shape)} and ${format(y.shape)}`,
    )
  const dtype = promote(x.dtype, y.dtype)
  if (dtype.kind !== "floating")
    throw new DTypeError(op, `needs real floating arrays, received ${x.dtype.name} and ${y.dtype.name}`)
  const added = [...(x.ndim === 1 ? [-2] : []), ...(y.ndim === 1 ? [-1] : [])]
  x = toDtype(x.ndim === 1 ? x.expandDims(0) : x, dtype)
  y = toDtype(y.ndim === 1 ? y.expandDims(1) : y, dtype)
  if (x.shape[x.ndim - 1] !== y.shape[y.ndim - 2])
    throw new ShapeError(
      op,
      `the last axis of a and the second-to-last of b differ: shapes ${format(x.shape)} and ${format(y.shape)}`,
    )
  return { x, y, finish: (out) => (added.length > 0 ? out.squeeze(added) : out), added }
}

/** A stack of matrices with one axis in front. @internal */
export const asStack = (x: Array): Array => (x.ndim === 2 ? x.expandDims(0) : x.flatten(0, -3))

const gatherMmArgs = operation(
  "gatherMm",
  { a: "array", b: "array", lhsIndices: "any?", rhsIndices: "any?", sortedIndices: "bool?" },
  (
    a: Array,
    b: Array,
    lhsIndices?: Array | null,
    rhsIndices?: Array | null,
    _sorted: boolean = false,
  ): Array => {
    const op = "gatherMm"
    const { x, y, finish } = operands(op, a, b)
    const given = [lhsIndices, rhsIndices].map((index, i) =>
      index === null || index === undefined
        ? undefined
        : asArrayArgument(op, i === 0 ? "lhsIndices" : "rhsIndices", index),
    )
    if (!given[0] && !given[1]) return finish(matmul(x, y))
    const { lhs, rhs, shape } = matrixIndices(
      op,
      given[0],
      given[1],
      x.shape.slice(0, -2),
      y.shape.slice(0, -2),
    )
    const out = gatherProduct([asStack(x), asStack(y), lhs, rhs])
    return finish(out.reshape([...shape, ...out.shape.slice(1)]))
  },
)
/**
 * Matrix products with gathered operands: out[i] = a[lhsIndices[i]] @ b[rhsIndices[i]]. Indices refer to the flattened leading axes and
 * broadcast against each other; by default, the matrices are used in order. Differentiable in both operands. `sortedIndices` has no effect.
 * @method false
 * @named sortedIndices
 * @throws ShapeError if the inner sizes differ; IndexError, at evaluation, for an index out of bounds
 * @example
 * const a = mx.array([[[1, 2]], [[3, 4]]])
 * const b = mx.array([[[1], [1]], [[10], [10]]])
 * mx.gatherMm(a, b, mx.array([0, 1, 1], mx.int32), mx.array([1, 1, 0], mx.int32)).flatten().tolist() // => [30, 70, 7]
 */
export function gatherMm(
  a: Array,
  b: Array,
  lhsIndices?: Array | null,
  rhsIndices?: Array | null,
  options?: { sortedIndices?: boolean } & StreamOptions,
): Array
export function gatherMm(
  a: Array,
  b: Array,
  lhsIndices: Array | null,
  options: { rhsIndices?: Array | null; sortedIndices?: boolean } & StreamOptions,
): Array
export function gatherMm(
  a: Array,
  b: Array,
  options: { lhsIndices?: Array | null; rhsIndices?: Array | null; sortedIndices?: boolean } & StreamOptions,
): Array
export function gatherMm(...args: unknown[]): Array {
  return gatherMmArgs(args)
}

/** out[s] = a[:, from:to] @ b[from:to, :] for the rows (from, to) of segments: a [M, K], b [K, N], [S, 2] → [S, M, N]. */
const segmentedProduct: Apply<NoParams> = definePrimitive({
  name: "segmentedMm",
  infer: ([a, b, segments]) => {
    const op = "segmentedMm"
    if (!isInteger(segments.dtype))
      throw new DTypeError(op, `segments must be integers, received ${segments.dtype.name}`)
    checkFloating(op, a)
    if (a.shape[1] !== b.shape[0] || segments.shape[1] !== 2)
      throw new ShapeError(
        op,
        `shapes ${format(a.shape)}, ${format(b.shape)} and ${format(segments.shape)} do not fit`,
      )
    return { shape: [segments.shape[0], a.shape[0], b.shape[1]], dtype: a.dtype }
  },
  decompose: ([a, b, segments]) => {
    const bound = (i: number): Array => take(segments, i, 1).reshape([-1, 1, 1])
    // The segments' dtype may be too small for the length of the axis.
    const position = arange(a.shape[1], { dtype: segments.dtype.size < int32.size ? int32 : segments.dtype })
    const inside = position.greaterEqual(bound(0)).logicalAnd(position.less(bound(1)))
    return matmul(where(inside, a, 0), b)
  },
})

const segmentedMmArgs = operation(
  "segmentedMm",
  { a: "array", b: "array", segments: "any" },
  (a: Array, b: Array, segments: Array): Array => {
    const op = "segmentedMm"
    const bounds = asArrayArgument(op, "segments", segments)
    const { x, y, added } = operands(op, a, b)
    if (added.length > 0 || x.ndim !== 2 || y.ndim !== 2)
      throw new ShapeError(
        op,
        `needs matrices, received shapes ${format((a as Array).shape)} and ${format((b as Array).shape)}`,
      )
    if (bounds.ndim < 1 || bounds.shape[bounds.ndim - 1] !== 2)
      throw new ShapeError(op, `segments must have shape [..., 2], received ${format(bounds.shape)}`)
    const leading = bounds.shape.slice(0, -1)
    const out = segmentedProduct([x, y, bounds.reshape([sizeOf(leading), 2])])
    return out.reshape([...leading, ...out.shape.slice(1)])
  },
)
/**
 * Matrix products over segments of the inner axis: out[s] = a[:, from:to] @ b[from:to, :] for every pair (from, to) in `segments`, which
 * has shape [..., 2]. Segments are clipped to the axis.
 * @method false
 * @throws ShapeError unless a and b are compatible matrices and the last axis of segments has size 2; DTypeError unless segments are
 * integers
 * @example
 * const segments = mx.array([[0, 1], [1, 3]], mx.int32)
 * mx.segmentedMm(mx.array([[1, 2, 3]]), mx.ones([3, 1]), segments).flatten().tolist() // => [1, 5]
 */
export function segmentedMm(a: Array, b: Array, segments: Array, options?: StreamOptions): Array
export function segmentedMm(...args: unknown[]): Array {
  return segmentedMmArgs(args)
}

type BlockParams = { blockSize: number; hasOut: boolean; hasLhs: boolean; hasRhs: boolean }

/** Expands a block mask to elements and applies it: a bool mask selects, any other multiplies. */
function applyMask(x: Array, mask: Array, blockSize: number): Array {
  const start = new globalThis.Array<number>(x.ndim).fill(0)
  const spread = sliceRange(repeat(repeat(mask, blockSize, -2), blockSize, -1), start, x.shape)
  return mask.dtype === bool_ ? where(spread, x, 0) : x.multiply(spread)
}

/** a [..., M, K] @ b [..., K, N] with block masks of the result and of both factors. Inputs: a, b, and the given masks. */
const blockProduct: Apply<BlockParams> = definePrimitive({
  name: "blockMaskedMm",
  params: { blockSize: "i64", hasOut: "bool", hasLhs: "bool", hasRhs: "bool" },
  infer: ([a, b, ...masks], { blockSize, hasOut, hasLhs, hasRhs }) => {
    const op = "blockMaskedMm"
    checkFloating(op, a)
    const leading = a.shape.slice(0, -2)
    const [m, k] = a.shape.slice(-2)
    const n = b.shape[b.shape.length - 1]
    const blocks = (size: number): number => Math.ceil(size / blockSize)
    const names = [
      ...(hasOut ? [["maskOut", m, n] as const] : []),
      ...(hasLhs ? [["maskLhs", m, k] as const] : []),
      ...(hasRhs ? [["maskRhs", k, n] as const] : []),
    ]
    names.forEach(([name, rows, columns], i) => {
      const expected = [...leading, blocks(rows), blocks(columns)]
      if (!sameShape(masks[i].shape, expected))
        throw new ShapeError(
          op,
          `${name} must have shape ${format(expected)}, received ${format(masks[i].shape)}`,
        )
    })
    return { shape: [...leading, m, n], dtype: a.dtype }
  },
  decompose: ([a, b, ...masks], { blockSize, hasOut, hasLhs, hasRhs }) => {
    const [out, lhs, rhs] = [hasOut, hasLhs, hasRhs].map((has) => (has ? masks.shift() : undefined))
    const product = matmul(lhs ? applyMask(a, lhs, blockSize) : a, rhs ? applyMask(b, rhs, blockSize) : b)
    return out ? applyMask(product, out, blockSize) : product
  },
})

const blockMaskedMmArgs = operation(
  "blockMaskedMm",
  { a: "array", b: "array", blockSize: "integer?", maskOut: "array?", maskLhs: "array?", maskRhs: "array?" },
  (
    a: Array,
    b: Array,
    blockSize: number = 64,
    maskOut?: Array | null,
    maskLhs?: Array | null,
    maskRhs?: Array | null,
  ): Array => {
    const op = "blockMaskedMm"
    if (blockSize !== 32 && blockSize !== 64)
      throw new ArgumentError(op, `blockSize must be 32 or 64, received ${describe(blockSize)}`)
    const { x, y, finish, added } = operands(op, a, b)
    const batch = broadcastShapes(op, x.shape.slice(0, -2), y.shape.slice(0, -2))
    const count = (size: number): number => Math.ceil(size / blockSize)
    const [m, k, n] = [x.shape[x.ndim - 2], x.shape[x.ndim - 1], y.shape[y.ndim - 1]].map(count)
    const mask = (name: string, value: unknown, sizes: number[], vectors: number[]): Array[] => {
      if (value === null || value === undefined) return []
      let given = asArrayArgument(op, name, value)
      for (const axis of vectors) given = given.expandDims(axis)
      if (given.dtype !== bool_ && !isInteger(given.dtype) && given.dtype.kind !== "floating")
        throw new DTypeError(op, `${name} must be bool_ or real, received ${given.dtype.name}`)
      return [broadcastTo(given.dtype === bool_ ? given : toDtype(given, x.dtype), [...batch, ...sizes])]
    }
    const masks = [
      mask("maskOut", maskOut, [m, n], added),
      mask(
        "maskLhs",
        maskLhs,
        [m, k],
        added.filter((axis) => axis === -2),
      ),
      mask(
        "maskRhs",
        maskRhs,
        [k, n],
        added.filter((axis) => axis === -1),
      ),
    ]
    const out = blockProduct(
      [
        broadcastTo(x, [...batch, ...x.shape.slice(-2)]),
        broadcastTo(y, [...batch, ...y.shape.slice(-2)]),
        ...masks.flat(),
      ],
      { blockSize, hasOut: masks[0].length > 0, hasLhs: masks[1].length > 0, hasRhs: masks[2].length > 0 },
    )
    return finish(out)
  },
)
/** The masks of {@link blockMaskedMm}: one element per block of blockSize × blockSize; blocks at the edges may be partial. */
export interface BlockMasks {
  /** Over blocks of the result, [..., ⌈M / blockSize⌉, ⌈N / blockSize⌉]. */
  maskOut?: Array | null
  /** Over blocks of a. */
  maskLhs?: Array | null
  /** Over blocks of b. */
  maskRhs?: Array | null
}
/**
 * The matrix product a @ b with block masks: a bool mask keeps a block or replaces it by zeros, any other multiplies it. Masks broadcast
 * along the leading axes.
 * @method false
 * @throws ShapeError if the shapes of operands or masks are incompatible; ArgumentError unless blockSize is 32 or 64; DTypeError unless a
 * and b are floating
 * @example
 * const maskOut = mx.array([[true, false]])
 * mx.blockMaskedMm(mx.ones([1, 8]), mx.ones([8, 64]), 32, { maskOut }).sum().item() // => 256
 */
export function blockMaskedMm(
  a: Array,
  b: Array,
  blockSize?: number,
  maskOut?: Array | null,
  maskLhs?: Array | null,
  maskRhs?: Array | null,
  options?: StreamOptions,
): Array
export function blockMaskedMm(
  a: Array,
  b: Array,
  blockSize: number,
  options: BlockMasks & StreamOptions,
): Array
export function blockMaskedMm(
  a: Array,
  b: Array,
  options: { blockSize?: number } & BlockMasks & StreamOptions,
): Array
export function blockMaskedMm(...args: unknown[]): Array {
  return blockMaskedMmArgs(args)
}
