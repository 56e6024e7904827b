/**
 * Products of gathered operands, summed where they belong: matrices by vectors (mvmr) and vectors by vectors (vvor), in groups. They are
 * each other's derivatives, and stay bilinear under every transform.
 */
import * as mx from "@lazuli/core"
import {
  type Apply,
  definePrimitive,
  format,
  type Meta,
  operation,
  promoteOperands,
} from "@lazuli/core/plugin"
import { asPositions, type Integers, inFront, stackPositions, unsigned } from "./positions"

const PACKAGE = "@lazuli/ext-pointcloud"
type Params = { rows: number }

function check(op: string, [x, b, ...lists]: readonly Meta[], ndim: number): void {
  if (x.dtype !== b.dtype || !mx.issubdtype(x.dtype, mx.floating))
    throw new mx.DTypeError(
      op,
      `expected operands of the same floating dtype, received ${x.dtype.name} and ${b.dtype.name}`,
    )
  const fits = x.shape.length === ndim && b.shape.length === 3 && x.shape[1] === b.shape[1]
  if (!fits || (ndim === 4 && x.shape[3] !== b.shape[2]))
    throw new mx.ShapeError(op, `operands of shapes ${format(x.shape)} and ${format(b.shape)} do not fit`)
  for (const list of lists)
    if (list.shape.length !== 1 || list.shape[0] !== lists[0].shape[0])
      throw new mx.ShapeError(op, "expected three lists of positions of the same length")
}

/** Operands of 16 bits as those that have kernels everywhere: sums are rounded once. */
const inFloat32 = (operands: readonly mx.Array[]): mx.Array[] => operands.map((x) => x.astype(mx.float32))

const plus = (a: mx.Array | null, b: mx.Array | null): mx.Array | null => (a && b ? a.add(b) : (a ?? b))
const unlisted = (lists: readonly (number | null)[]): boolean => lists.every((axis) => axis === null)

/** The operands with the examples among the groups: [rows, size · groups, …]. */
const amongGroups = (x: mx.Array, axis: number | null, size: number): mx.Array =>
  mx.swapaxes(inFront(x, axis, size), 0, 1).flatten(1, 2)

/** The operands and lists of all examples in one stack. */
function stacked(
  inputs: readonly mx.Array[],
  axes: readonly (number | null)[],
  size: number,
  rows: number,
): mx.Array[] {
  const operands = [0, 1].map((i) => inFront(inputs[i], axes[i], size))
  const counts = [operands[0].shape[1], operands[1].shape[1], rows]
  return [
    ...operands.map((x) => x.flatten(0, 1)),
    ...counts.map((count, i) => stackPositions(inputs[i + 2], axes[i + 2], size, count)),
  ]
}

/** a [A, G, M, C], b [B, G, C], positions i, j, o → [rows, G, M]: out[o[t]] += a[i[t]] · b[j[t]]. */
const matrixProducts: Apply<Params> = definePrimitive({
  name: `${PACKAGE}/mvmr`,
  api: 1,
  params: { rows: "i64" },
  infer: (inputs, { rows }) => {
    check("mvmr", inputs, 4)
    const [, groups, height] = inputs[0].shape
    return { shape: [rows, groups, height], dtype: inputs[0].dtype }
  },
  decompose: ([a, b, ...lists], { rows }) => {
    const { dtype } = a
    if (dtype.size === 2) return matrixProducts([...inFloat32([a, b]), ...lists], { rows }).astype(dtype)
    const [i, j, o] = lists.map(unsigned)
    const products = mx
      .take(a, i, 0)
      .multiply(mx.take(b, j, 0).expandDims(2))
      .sum(-1)
    return mx.segmentSum(products, o, { numSegments: rows })
  },
  vjp: ({ inputs: [a, b, i, j, o], cotangents: [g], wanted }) => {
    const both = wanted[0] && wanted[1] ? matrixGradients.all([a, b, g, i, j, o]) : []
    const [byA = null, byB = null] = both
    return [
      byA ?? (wanted[0] ? outerProducts([g, b, o, j, i], { rows: a.shape[0] }) : null),
      byB ?? (wanted[1] ? matrixProducts([mx.swapaxes(a, 2, 3), g, i, o, j], { rows: b.shape[0] }) : null),
      null,
      null,
      null,
    ]
  },
  jvp: ({ inputs: [a, b, ...lists], tangents: [ta, tb], params }) => [
    plus(ta && matrixProducts([ta, b, ...lists], params), tb && matrixProducts([a, tb, ...lists], params)),
  ],
  vmap: ({ inputs, axes, params: { rows }, size }) => {
    if (unlisted(axes.slice(2))) {
      const [a, b] = [amongGroups(inputs[0], axes[0], size), amongGroups(inputs[1], axes[1], size)]
      const out = matrixProducts([a, b, ...inputs.slice(2)], { rows })
      return { outputs: [out.unflatten(1, [size, out.shape[1] / Math.max(size, 1)])], axes: [1] }
    }
    const out = matrixProducts(stacked(inputs, axes, size, rows), { rows: size * rows })
    return { outputs: [out.unflatten(0, [size, rows])], axes: [0] }
  },
})

/** x [X, G, M], b [B, G, C], positions i, j, o → [rows, G, M, C]: out[o[t]] += x[i[t]] ⊗ b[j[t]]. */
const outerProducts: Apply<Params> = definePrimitive({
  name: `${PACKAGE}/vvor`,
  api: 1,
  params: { rows: "i64" },
  infer: (inputs, { rows }) => {
    check("vvor", inputs, 3)
    const [, groups, height] = inputs[0].shape
    return { shape: [rows, groups, height, inputs[1].shape[2]], dtype: inputs[0].dtype }
  },
  decompose: ([x, b, ...lists], { rows }) => {
    const { dtype } = x
    if (dtype.size === 2) return outerProducts([...inFloat32([x, b]), ...lists], { rows }).astype(dtype)
    const [i, j, o] = lists.map(unsigned)
    const products = mx
      .take(x, i, 0)
      .expandDims(3)
      .multiply(mx.take(b, j, 0).expandDims(2))
    return mx.segmentSum(products, o, { numSegments: rows })
  },
  vjp: ({ inputs: [x, b, i, j, o], cotangents: [g], wanted }) => [
    wanted[0] ? matrixProducts([g, b, o, j, i], { rows: x.shape[0] }) : null,
    wanted[1] ? matrixProducts([mx.swapaxes(g, 2, 3), x, o, i, j], { rows: b.shape[0] }) : null,
    null,
    null,
    null,
  ],
  jvp: ({ inputs: [x, b, ...lists], tangents: [tx, tb], params }) => [
    plus(tx && outerProducts([tx, b, ...lists], params), tb && outerProducts([x, tb, ...lists], params)),
  ],
  vmap: ({ inputs, axes, params: { rows }, size }) => {
    if (unlisted(axes.slice(2))) {
      const [x, b] = [amongGroups(inputs[0], axes[0], size), amongGroups(inputs[1], axes[1], size)]
      const out = outerProducts([x, b, ...inputs.slice(2)], { rows })
      return { outputs: [out.unflatten(1, [size, out.shape[1] / Math.max(size, 1)])], axes: [1] }
    }
    const out = outerProducts(stacked(inputs, axes, size, rows), { rows: size * rows })
    return { outputs: [out.unflatten(0, [size, rows])], axes: [0] }
  },
})

/**
 * Both derivatives of mvmr at once, since their kernel reads each matrix once: a [A, G, M, C], b [B, G, C], g [rows, G, M] and positions
 * i, j, o → those by a and by b.
 */
const matrixGradients: Apply<Record<never, never>> = definePrimitive({
  name: `${PACKAGE}/mvmrGradients`,
  api: 1,
  infer: ([a, b, g, ...lists]) => {
    check("mvmr", [a, b, ...lists], 4)
    check("mvmr", [g, b, ...lists], 3)
    return [a, b].map(({ shape, dtype }) => ({ shape, dtype }))
  },
  decompose: ([a, b, g, i, j, o]) => [
    outerProducts([g, b, o, j, i], { rows: a.shape[0] }),
    matrixProducts([mx.swapaxes(a, 2, 3), g, i, o, j], { rows: b.shape[0] }),
  ],
})

/** Operands of one floating dtype. */
function operands(op: string, a: mx.Array, b: mx.Array, names: [string, string], ndim: number): mx.Array[] {
  const [x, y] = promoteOperands(op, a, b, ...names)
  const [left, right] = [x, y].map((v) => (mx.issubdtype(v.dtype, mx.inexact) ? v : v.astype(mx.float32)))
  if (left.ndim !== ndim || right.ndim !== 3)
    throw new mx.ShapeError(
      op,
      `expected ${names[0]} of ${ndim} and ${names[1]} of 3 dimensions, received shapes ${format(left.shape)} and ${format(right.shape)}`,
    )
  return [left, right]
}

const mvmrArgs = operation(
  `${PACKAGE}/mvmr`,
  { a: "array", b: "array", bIndices: "indices", outIndices: "indices", numRows: "size" },
  (a: mx.Array, b: mx.Array, bIndices: Integers, outIndices: Integers, numRows: number): mx.Array => {
    const [x, y] = operands("mvmr", a, b, ["a", "b"], 4)
    const count = x.shape[0]
    const lists = [
      mx.arange(count, { dtype: mx.int32 }),
      asPositions("mvmr", "bIndices", bIndices, y.shape[0], count),
      asPositions("mvmr", "outIndices", outIndices, numRows, count),
    ]
    return matrixProducts([x, y, ...lists], { rows: numRows })
  },
)
/**
 * Matrices times gathered vectors, summed: out[outIndices[t]] += a[t] · b[bIndices[t]] in each group, for a (T, G, M, C), b (B, G, C) and
 * out (numRows, G, M). Rows without a product are 0. Differentiable in a and b; sums are taken in a fixed order.
 * @named numRows
 * @throws IndexError for a position out of bounds: at once where lists are given, when computed for arrays. (GPU backends leave such
 *   products out.)
 * @throws ShapeError when shapes or the numbers of positions do not fit
 * @example
 * const [a, b] = [mx.ones([2, 1, 1, 2]), mx.array([[[1, 2]], [[3, 4]]])]
 * mvmr(a, b, [1, 0], [0, 0], { numRows: 2 }).flatten().tolist() // => [10, 0]
 */
export function mvmr(
  a: mx.Array,
  b: mx.Array,
  bIndices: Integers,
  outIndices: Integers,
  options: { numRows: number } & mx.StreamOptions,
): mx.Array
export function mvmr(...args: unknown[]): mx.Array {
  return mvmrArgs(args)
}

const vvorArgs = operation(
  `${PACKAGE}/vvor`,
  {
    x: "array",
    b: "array",
    xIndices: "indices",
    bIndices: "indices",
    outIndices: "indices",
    numRows: "size",
  },
  (
    x: mx.Array,
    b: mx.Array,
    xIndices: Integers,
    bIndices: Integers,
    outIndices: Integers,
    numRows: number,
  ): mx.Array => {
    const [left, right] = operands("vvor", x, b, ["x", "b"], 3)
    const first = asPositions("vvor", "xIndices", xIndices, left.shape[0])
    const count = first.shape[0]
    const lists = [
      asPositions("vvor", "bIndices", bIndices, right.shape[0], count),
      asPositions("vvor", "outIndices", outIndices, numRows, count),
    ]
    return outerProducts([left, right, first, ...lists], { rows: numRows })
  },
)
/**
 * Outer products of gathered vectors, summed: out[outIndices[t]] += x[xIndices[t]] ⊗ b[bIndices[t]] in each group, for x (X, G, M),
 * b (B, G, C) and out (numRows, G, M, C). Rows without a product are 0. Differentiable in x and b; sums are taken in a fixed
 * order.
 * @named numRows
 * @throws IndexError for a position out of bounds: at once where lists are given, when computed for arrays. (GPU backends leave such
 *   products out.)
 * @throws ShapeError when shapes or the numbers of positions do not fit
 * @example
 * const [x, b] = [mx.array([[[1, 2]]]), mx.array([[[3, 4]], [[5, 6]]])]
 * vvor(x, b, [0, 0], [0, 1], [0, 0], { numRows: 1 }).tolist() // => [[[[8, 10], [16, 20]]]]
 */
export function vvor(
  x: mx.Array,
  b: mx.Array,
  xIndices: Integers,
  bIndices: Integers,
  outIndices: Integers,
  options: { numRows: number } & mx.StreamOptions,
): mx.Array
export function vvor(...args: unknown[]): mx.Array {
  return vvorArgs(args)
}
