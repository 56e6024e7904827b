/**
 * Products of sparse matrices with dense ones. Sparse matrices are values with their rows and columns (COO) or, with sorted rows, row
 * offsets (CSR). The two primitives are each other's derivatives.
 */
import { asArrayArgument, isList, operation, type StreamOptions } from "../graph/args"
import { complex64, int32, isInexact, isInteger, promote } from "../graph/dtype"
import { DTypeError, IndexError, ShapeError } from "../graph/errors"
import type { Array, HostArray, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, sameShape } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { toDtype } from "./constant"
import { broadcastTo } from "./reduce"
import { asLine, readRuns } from "./segment-arguments"
import { segmentIds } from "./segments"
import { moveToFront } from "./view"

/** Checks row or column indices. @throws IndexError */
function positionsIn(op: string, what: string, list: ArrayLike<number | bigint>, count: number): number[] {
  return globalThis.Array.from(list, (value) => {
    const at = Number(value)
    if (at < 0 || at >= count)
      throw new IndexError(op, `${what} ${at} is out of bounds for a matrix with ${count} ${what}s`)
    return at
  })
}

function checkLines(op: string, rows: Meta, columns: Meta): void {
  for (const list of [rows, columns])
    if (!isInteger(list.dtype))
      throw new DTypeError(op, `rows and columns must be integers, received ${list.dtype.name}`)
  if (rows.shape.length !== 1 || !sameShape(rows.shape, columns.shape))
    throw new ShapeError(
      op,
      `needs a row and a column for each value, received shapes ${format(rows.shape)} and ${format(columns.shape)}`,
    )
}

function checkMatrices(op: string, a: Meta, b: Meta): void {
  if (!isInexact(a.dtype) || a.dtype !== b.dtype)
    throw new DTypeError(
      op,
      `needs operands of the same floating or complex dtype, received ${a.dtype.name} and ${b.dtype.name}`,
    )
}

/** Calls visit(i, a, b, part of the result) for the product of two elements, by parts if complex. */
const multiply =
  (a: HostArray, b: HostArray) =>
  (to: Float64Array, at: number, i: number, j: number): void => {
    const [x, y] = [a.data as ArrayLike<number>, b.data as ArrayLike<number>]
    if (a.dtype !== complex64) {
      to[at] += x[i] * y[j]
      return
    }
    to[2 * at] += x[2 * i] * y[2 * j] - x[2 * i + 1] * y[2 * j + 1]
    to[2 * at + 1] += x[2 * i] * y[2 * j + 1] + x[2 * i + 1] * y[2 * j]
  }

const plus = (a: Array | null, b: Array | null): Array | null => (a && b ? a.add(b) : (a ?? b))

/** The operand with its batch axis in front, broadcast if it has none. */
const inFront = (x: Array, axis: number | null, size: number): Array =>
  axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)

/** Indices into the stacked examples, `count` rows each; those out of bounds remain so. */
function stackedPositions(list: Array, axis: number | null, size: number, count: number): Array {
  const given = inFront(list, axis, size)
  // Wider indices are compared before truncation to 32 bits.
  const each = given.dtype.size < 4 ? toDtype(given, int32) : given
  const inside = each.greaterEqual(0).logicalAnd(each.less(count))
  const shift = arange(size, { dtype: int32 }).multiply(count).expandDims(1)
  return where(inside, toDtype(each, int32).add(shift), 2 ** 31 - 1).flatten()
}

type ProductParams = { rows: number; sorted: boolean }

/** values [T], rows [T], columns [T], dense [K, N] → [rows, N]: out[rows[t]] += values[t] · dense[columns[t]]. */
const sparseProduct: Apply<ProductParams> = definePrimitive({
  name: "sparseMatmul",
  params: { rows: "i64", sorted: "bool" },
  infer: ([values, rows, columns, dense], { rows: count }) => {
    const op = "sparseMatmul"
    checkLines(op, rows, columns)
    checkMatrices(op, values, dense)
    if (!sameShape(values.shape, rows.shape) || dense.shape.length !== 2)
      throw new ShapeError(
        op,
        `needs a value for each row and a matrix, received shapes ${format(values.shape)} and ${format(dense.shape)}`,
      )
    return { shape: [count, dense.shape[1]], dtype: dense.dtype }
  },
  reference: ([values, rows, columns, dense], [out], { rows: count }) => {
    const n = dense.shape[1]
    const [r, c] = [
      positionsIn("sparseMatmul", "row", rows.data as ArrayLike<number | bigint>, count),
      positionsIn("sparseMatmul", "column", columns.data as ArrayLike<number | bigint>, dense.shape[0]),
    ]
    const sums = new Float64Array(out.data.length)
    const add = multiply(values, dense)
    for (let t = 0; t < r.length; t++) for (let j = 0; j < n; j++) add(sums, r[t] * n + j, t, c[t] * n + j)
    for (let i = 0; i < sums.length; i++) out.data[i] = sums[i]
  },
  vjp: ({ inputs: [values, rows, columns, dense], cotangents: [g], params: { sorted }, wanted }) => [
    wanted[0] ? sampledProduct([g, dense.conjugate(), rows, columns], { sorted }) : null,
    null,
    null,
    wanted[3]
      ? sparseProduct([values.conjugate(), columns, rows, g], { rows: dense.shape[0], sorted: false })
      : null,
  ],
  jvp: ({ inputs: [values, rows, columns, dense], tangents: [tv, , , td], params }) => [
    plus(
      tv && sparseProduct([tv, rows, columns, dense], params),
      td && sparseProduct([values, rows, columns, td], params),
    ),
  ],
  vmap: ({ inputs: [values, rows, columns, dense], axes, params, size }) => {
    const count = params.rows
    if (axes[0] === null && axes[1] === null && axes[2] === null) {
      // The examples become additional columns.
      const wide = moveToFront(dense, axes[3] as number).transpose([1, 0, 2])
      const out = sparseProduct([values, rows, columns, wide.flatten(1, 2)], params)
      return { outputs: [out.reshape([count, size, wide.shape[2]])], axes: [1] }
    }
    const stack = inFront(dense, axes[3], size)
    const [, height, width] = stack.shape
    const out = sparseProduct(
      [
        inFront(values, axes[0], size).flatten(),
        stackedPositions(rows, axes[1], size, count),
        stackedPositions(columns, axes[2], size, height),
        stack.reshape([size * height, width]),
      ],
      { rows: size * count, sorted: params.sorted },
    )
    return { outputs: [out.reshape([size, count, width])], axes: [0] }
  },
})

/** a [M, N], b [K, N], rows [T], columns [T] → [T]: Σ a[rows[t]] · b[columns[t]]. `sorted` asserts ascending rows. */
const sampledProduct: Apply<{ sorted: boolean }> = definePrimitive({
  name: "sampledMatmul",
  params: { sorted: "bool" },
  infer: ([a, b, rows, columns]) => {
    const op = "sampledMatmul"
    checkLines(op, rows, columns)
    checkMatrices(op, a, b)
    if (a.shape.length !== 2 || b.shape.length !== 2 || a.shape[1] !== b.shape[1])
      throw new ShapeError(
        op,
        `needs matrices with rows of the same length, received shapes ${format(a.shape)} and ${format(b.shape)}`,
      )
    return { shape: rows.shape, dtype: a.dtype }
  },
  reference: ([a, b, rows, columns], [out]) => {
    const n = a.shape[1]
    const [r, c] = [
      positionsIn("sampledMatmul", "row", rows.data as ArrayLike<number | bigint>, a.shape[0]),
      positionsIn("sampledMatmul", "column", columns.data as ArrayLike<number | bigint>, b.shape[0]),
    ]
    const sums = new Float64Array(out.data.length)
    const add = multiply(a, b)
    for (let t = 0; t < r.length; t++) for (let j = 0; j < n; j++) add(sums, t, r[t] * n + j, c[t] * n + j)
    for (let i = 0; i < sums.length; i++) out.data[i] = sums[i]
  },
  vjp: ({ inputs: [a, b, rows, columns], cotangents: [g], params: { sorted }, wanted }) => [
    wanted[0] ? sparseProduct([g, rows, columns, b.conjugate()], { rows: a.shape[0], sorted }) : null,
    wanted[1] ? sparseProduct([g, columns, rows, a.conjugate()], { rows: b.shape[0], sorted: false }) : null,
    null,
    null,
  ],
  jvp: ({ inputs: [a, b, rows, columns], tangents: [ta, tb], params }) => [
    plus(
      ta && sampledProduct([ta, b, rows, columns], params),
      tb && sampledProduct([a, tb, rows, columns], params),
    ),
  ],
  vmap: ({ inputs: [a, b, rows, columns], axes, params, size }) => {
    const [left, right] = [inFront(a, axes[0], size), inFront(b, axes[1], size)]
    const positions = [
      stackedPositions(rows, axes[2], size, left.shape[1]),
      stackedPositions(columns, axes[3], size, right.shape[1]),
    ]
    const matrices = [left, right].map((x) => x.reshape([size * x.shape[1], x.shape[2]]))
    const out = sampledProduct([...matrices, ...positions], params)
    return { outputs: [out.reshape([size, out.shape[0] / Math.max(size, 1)])], axes: [0] }
  },
})

/** Values and a dense operand of one floating or complex dtype, with a vector as a column, which `finish` removes. */
function operands(
  op: string,
  values: unknown,
  dense: unknown,
): { v: Array; x: Array; finish: (out: Array) => Array } {
  const [v, x] = [asArrayArgument(op, "values", values), asArrayArgument(op, "dense", dense)]
  const dtype = promote(v.dtype, x.dtype)
  if (!isInexact(dtype))
    throw new DTypeError(
      op,
      `needs floating or complex operands, received ${v.dtype.name} and ${x.dtype.name}`,
    )
  if (v.ndim !== 1 || x.ndim < 1 || x.ndim > 2)
    throw new ShapeError(
      op,
      `needs values of one dimension and a vector or a matrix, received shapes ${format(v.shape)} and ${format(x.shape)}`,
    )
  const column = x.ndim === 1
  return {
    v: toDtype(v, dtype),
    x: toDtype(column ? x.expandDims(1) : x, dtype),
    finish: (out) => (column ? out.squeeze(1) : out),
  }
}

/** Converts row or column indices, of which there must be `count` unless null, and checks the bounds of lists. */
function lineOf(op: string, name: string, given: unknown, count: number | null, size: number): Array {
  const line = asLine(op, name, given)
  if (count !== null && line.shape[0] !== count)
    throw new ShapeError(
      op,
      `${name} must have one number for each of ${count} values, received ${line.shape[0]}`,
    )
  if (isList(given)) positionsIn(op, name.slice(0, -1), given as number[], size)
  return line
}

const csrArgs = operation(
  "csrMatmul",
  { values: "array", columns: "indices", offsets: "indices", dense: "array" },
  (
    values: Array,
    columns: Array | readonly number[],
    offsets: Array | readonly number[],
    dense: Array,
  ): Array => {
    const op = "csrMatmul"
    const { v, x, finish } = operands(op, values, dense)
    const count = v.shape[0]
    const line = lineOf(op, "columns", columns, count, x.shape[0])
    const bounds = readRuns(op, count, { offsets })
    const rows = segmentIds([bounds.expandDims(0)], { size: count }).squeeze(0)
    return finish(sparseProduct([v, rows, line, x], { rows: bounds.shape[0] - 1, sorted: true }))
  },
)
/**
 * The product of a sparse matrix in CSR form with a dense matrix or vector: row i of the sparse matrix has the `values` and `columns` from
 * `offsets[i]` up to but excluding `offsets[i + 1]`. The result has offsets.length − 1 rows. Duplicate entries are summed. Differentiable
 * in the values and the dense operand. Not in MLX.
 * @method false
 * @throws IndexError for columns out of bounds or descending offsets: immediately for lists, at evaluation for arrays. (GPU backends drop
 * such values.)
 * @throws ShapeError unless there is a column for each value
 * @example
 * // [[1, 0, 2], [0, 0, 0], [0, 3, 0]]
 * const [values, columns, offsets] = [mx.array([1, 2, 3]), mx.array([0, 2, 1], mx.int32), mx.array([0, 2, 2, 3], mx.int32)]
 * mx.csrMatmul(values, columns, offsets, mx.array([1, 10, 100])).tolist() // => [201, 0, 30]
 */
export function csrMatmul(
  values: Array,
  columns: Array | readonly number[],
  offsets: Array | readonly number[],
  dense: Array,
  options?: StreamOptions,
): Array
export function csrMatmul(...args: unknown[]): Array {
  return csrArgs(args)
}

const cooArgs = operation(
  "cooMatmul",
  {
    values: "array",
    rows: "indices",
    columns: "indices",
    dense: "array",
    numRows: "size",
    sorted: "bool?",
  },
  (
    values: Array,
    rows: Array | readonly number[],
    columns: Array | readonly number[],
    dense: Array,
    numRows: number,
    sorted: boolean = false,
  ): Array => {
    const op = "cooMatmul"
    const { v, x, finish } = operands(op, values, dense)
    const r = lineOf(op, "rows", rows, v.shape[0], numRows)
    const c = lineOf(op, "columns", columns, v.shape[0], x.shape[0])
    return finish(sparseProduct([v, r, c, x], { rows: numRows, sorted }))
  },
)
/**
 * The product of a sparse matrix in COO form with a dense matrix or vector: out[rows[t]] += values[t] · dense[columns[t]], in `numRows`
 * rows. Duplicate entries are summed. Entries may be in any order; `sorted: true` asserts ascending rows (unchecked), for which GPU
 * backends need no atomic additions. Swap rows and columns to multiply by the transpose. Differentiable in the values and the dense
 * operand.
 * @method false
 * @named numRows sorted
 * @throws IndexError for rows or columns out of bounds: immediately for lists, at evaluation for arrays. (GPU backends drop such values.)
 * @throws ShapeError unless there is a row and a column for each value
 * @example
 * const [values, rows, columns] = [mx.array([1, 2, 3]), mx.array([0, 2, 0], mx.int32), mx.array([1, 0, 1], mx.int32)]
 * mx.cooMatmul(values, rows, columns, mx.array([10, 100]), { numRows: 3 }).tolist() // => [400, 0, 20]
 */
export function cooMatmul(
  values: Array,
  rows: Array | readonly number[],
  columns: Array | readonly number[],
  dense: Array,
  options: { numRows: number; sorted?: boolean } & StreamOptions,
): Array
export function cooMatmul(...args: unknown[]): Array {
  return cooArgs(args)
}

const sampledArgs = operation(
  "sampledMatmul",
  { a: "array", b: "array", rows: "indices", columns: "indices", sorted: "bool?" },
  (
    a: Array,
    b: Array,
    rows: Array | readonly number[],
    columns: Array | readonly number[],
    sorted: boolean = false,
  ): Array => {
    const op = "sampledMatmul"
    const dtype = promote(a.dtype, b.dtype)
    if (!isInexact(dtype))
      throw new DTypeError(
        op,
        `needs floating or complex operands, received ${a.dtype.name} and ${b.dtype.name}`,
      )
    const r = lineOf(op, "rows", rows, null, a.shape[0])
    const c = lineOf(op, "columns", columns, r.shape[0], b.shape[0])
    return sampledProduct([toDtype(a, dtype), toDtype(b, dtype), r, c], { sorted })
  },
)
/**
 * Sampled elements of a @ bᵀ: out[t] = Σ a[rows[t]] · b[columns[t]], for a [M, N] and b [K, N]. It is the derivative of {@link cooMatmul}
 * with respect to its values. `sorted: true` asserts ascending rows, which speeds up the derivative on GPUs.
 * @method false
 * @named sorted
 * @throws IndexError for rows or columns out of bounds: immediately for lists, at evaluation for arrays. (GPU backends return NaN.)
 * @throws ShapeError unless the rows of a and b have the same length
 * @example
 * const [a, b] = [mx.array([[1, 2], [3, 4]]), mx.array([[10, 0], [0, 100]])]
 * mx.sampledMatmul(a, b, [0, 1, 1], [1, 0, 1]).tolist() // => [200, 30, 400]
 */
export function sampledMatmul(
  a: Array,
  b: Array,
  rows: Array | readonly number[],
  columns: Array | readonly number[],
  options?: { sorted?: boolean } & StreamOptions,
): Array
export function sampledMatmul(...args: unknown[]): Array {
  return sampledArgs(args)
}
