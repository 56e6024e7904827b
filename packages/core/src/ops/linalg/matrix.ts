/**
 * Shared by the functions of `mx.linalg`: arguments that are matrices, checked, and small steps of formulas over the last two
 * axes. No factorization lives here.
 */
import { asArrayArgument } from "../../graph/args"
import { complex64, type Dtype, float32, float64, promote } from "../../graph/dtype"
import { DTypeError, ShapeError } from "../../graph/errors"
import type { Array, Meta, VmapContext, VmapResult } from "../../graph/graph"
import type { Apply } from "../../graph/primitive"
import { broadcastShapes, format, sameShape } from "../../graph/shape"
import { where } from "../binary"
import { toDtype } from "../constant"
import { eye } from "../creation"
import { diagonal, tril, triu } from "../diagonal"
import { broadcastTo } from "../reduce"
import { sliceRange } from "../slice"
import { moveToFront } from "../view"

/** The dtypes that matrices can be factored in. */
const factored = (dtype: Dtype): boolean => dtype === float32 || dtype === float64 || dtype === complex64

/** Rows and columns of the matrices of a batch. @throws ShapeError, DTypeError */
export function matrixShape(op: string, x: Meta): { batch: number[]; rows: number; cols: number } {
  if (x.shape.length < 2)
    throw new ShapeError(op, `needs an array of at least 2 dimensions, received shape ${format(x.shape)}`)
  if (!factored(x.dtype))
    throw new DTypeError(op, `needs float32, float64 or complex64, received ${x.dtype.name}`, {
      hint: "Convert the array with astype first",
    })
  const [rows, cols] = x.shape.slice(-2)
  return { batch: x.shape.slice(0, -2), rows, cols }
}

/** The same for square matrices. @throws ShapeError, DTypeError */
export function squareShape(op: string, x: Meta): { batch: number[]; n: number } {
  const { batch, rows, cols } = matrixShape(op, x)
  if (rows !== cols)
    throw new ShapeError(op, `needs square matrices, received matrices of shape ${format([rows, cols])}`)
  return { batch, n: rows }
}

/** The dtype of moduli. */
export const realOf = (dtype: Dtype): Dtype => (dtype === complex64 ? float32 : dtype)

/** The two operands of an equation a·x = b, in one dtype and with equal batch axes; `finish` turns x into b's form. */
export function equation(
  op: string,
  first: unknown,
  second: unknown,
): { a: Array; b: Array; finish: (x: Array) => Array } {
  let a = asArrayArgument(op, "a", first)
  let b = asArrayArgument(op, "b", second)
  const dtype = promote(a.dtype, b.dtype)
  const { batch, n } = squareShape(op, { shape: a.shape, dtype })
  if (b.ndim === 0) throw new ShapeError(op, "b needs at least 1 dimension, received a 0-d array")
  const vector = b.ndim === 1
  if (vector) b = b.expandDims(1)
  if (b.shape[b.ndim - 2] !== n)
    throw new ShapeError(
      op,
      `b must have ${n} rows for matrices of shape ${format([n, n])}, received shape ${format((second as Array).shape)}`,
    )
  const common = broadcastShapes(op, batch, b.shape.slice(0, -2))
  const spread = (x: Array): Array => {
    const shape = [...common, ...x.shape.slice(-2)]
    return sameShape(x.shape, shape) ? x : broadcastTo(x, shape)
  }
  a = spread(toDtype(a, dtype))
  b = spread(toDtype(b, dtype))
  return { a, b, finish: (x) => (vector ? x.squeeze(-1) : x) }
}

/** Rows and columns of the last two axes, from their starts. */
export function block(x: Array, rows: [number, number], cols: [number, number]): Array {
  const leading = x.shape.slice(0, -2)
  return sliceRange(
    x,
    [...leading.map(() => 0), rows[0], cols[0]],
    [...leading, rows[1], cols[1]],
    x.shape.map(() => 1),
  )
}

/** The conjugate transpose. */
export const adjoint = (x: Array): Array => x.swapaxes(-1, -2).conjugate()

/** Identity matrices that stand beside x's, n×n. */
export const identityFor = (x: Array, n: number): Array => eye(n, { dtype: x.dtype })

/** The diagonals of matrices, as vectors. */
export const diagonalsOf = (x: Array): Array => diagonal(x, 0, -2, -1)

/** Diagonal matrices with the given diagonals. */
export const diagonalMatrices = (x: Array): Array =>
  x.expandDims(-1).multiply(eye(x.shape[x.ndim - 1], { dtype: x.dtype }))

/** Factors of columns: x·diag(s). */
export const scaleColumns = (x: Array, s: Array): Array => x.multiply(s.expandDims(-2))
/** Factors of rows: diag(s)·x. */
export const scaleRows = (x: Array, s: Array): Array => x.multiply(s.expandDims(-1))

/** The elements below the diagonal. */
export const strictlyLower = (x: Array): Array => tril(x, -1)
/** The elements above the diagonal. */
export const strictlyUpper = (x: Array): Array => triu(x, 1)
/** A lower triangle with half the diagonal. */
export const lowerHalf = (x: Array): Array => tril(x).subtract(diagonalMatrices(diagonalsOf(x).multiply(0.5)))

/** The Hermitian part. */
export const hermitian = (x: Array): Array => x.add(adjoint(x)).multiply(0.5)

/** 1/x, and 0 where x is 0: what derivatives take where eigenvalues meet, so that functions that do not care stay finite. */
export const safeReciprocal = (x: Array): Array => {
  const zero = x.equal(0)
  return where(zero, 0, where(zero, 1, x).reciprocal())
}

/** The vmap of a primitive of one input that takes batches as they are. */
export function batched<P>(
  { inputs: [x], axes: [axis], params }: VmapContext<P>,
  apply: Apply<P>,
): VmapResult {
  const outputs = apply.all([moveToFront(x, axis as number)], params)
  return { outputs, axes: outputs.map(() => 0) }
}

/** The same for two inputs whose batch axes are equal. */
export function batchedPair<P>({ inputs, axes, size, params }: VmapContext<P>, apply: Apply<P>): VmapResult {
  const pair = inputs.map((x, i) => {
    const axis = axes[i]
    return axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)
  })
  return { outputs: [apply(pair, params)], axes: [0] }
}
