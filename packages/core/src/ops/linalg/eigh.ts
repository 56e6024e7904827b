/**
 * Eigenvalues and eigenvectors of Hermitian matrices, by Jacobi rotations.
 */
import { operation, type StreamOptions } from "../../graph/args"
import { ArgumentError, describe } from "../../graph/errors"
import type { Array, Meta } from "../../graph/graph"
import { type Apply, definePrimitive } from "../../graph/primitive"
import { Dense, eachMatrix, jacobiRotation, rotateColumns, rotateRows } from "./dense"
import {
  adjoint,
  batched,
  diagonalMatrices,
  diagonalsOf,
  hermitian,
  realOf,
  safeReciprocal,
  scaleColumns,
  squareShape,
} from "./matrix"

const SWEEPS = 60

/** The Hermitian matrix of which one triangle is given. */
function completed(a: Dense, upper: boolean): Dense {
  const m = upper ? a.adjoint() : a
  const { re, im, rows: n } = m
  for (let i = 0; i < n; i++) {
    im[i * n + i] = 0
    for (let j = 0; j < i; j++) {
      re[j * n + i] = re[i * n + j]
      im[j * n + i] = -im[i * n + j]
    }
  }
  return m
}

/** Rotates a Hermitian matrix until it is diagonal. Jacobi's method, row by row. */
function diagonalize(a: Dense, v: Dense | null): void {
  const n = a.rows
  const size = a.largest() || 1
  for (let sweep = 0, moved = true; moved && sweep < SWEEPS; sweep++) {
    moved = false
    for (let p = 0; p < n - 1; p++) {
      for (let q = p + 1; q < n; q++) {
        const at = p * n + q
        if (a.abs(p, q) <= 1e-18 * size) continue
        moved = true
        const rotation = jacobiRotation(a.re[p * n + p], a.re[q * n + q], a.re[at], a.im[at])
        rotateColumns(a, p, q, rotation)
        rotateRows(a, p, q, rotation)
        if (v) rotateColumns(v, p, q, rotation)
      }
    }
  }
}

/** Eigenvalues in ascending order, with eigenvectors when asked for. */
function eigenHermitian(given: Dense, upper: boolean, vectors: boolean): Dense[] {
  const a = completed(given, upper)
  const n = a.rows
  if (!a.isFinite()) return [new Dense(n, 1), new Dense(n, n)].map((x) => x.filled(Number.NaN))
  const v = vectors ? Dense.identity(n) : null
  diagonalize(a, v)
  const order = globalThis.Array.from({ length: n }, (_, i) => i)
  order.sort((i, j) => a.re[i * n + i] - a.re[j * n + j])
  const w = Dense.column(order.map((i) => a.re[i * n + i]))
  return v ? [w, v.columns(order)] : [w]
}

type Uplo = { uplo: "L" | "U" }
const schema = { uplo: ["L", "U"] } as const

const valuesOf = (op: string, a: Meta): Meta => {
  const { batch, n } = squareShape(op, a)
  return { shape: [...batch, n], dtype: realOf(a.dtype) }
}

/** Input: Hermitian a [..., N, N], of which one triangle is read. Outputs: w [..., N] and v [..., N, N]. */
const eighPrimitive: Apply<Uplo> = definePrimitive({
  name: "eigh",
  params: schema,
  infer: ([a]) => [valuesOf("linalg.eigh", a), { shape: a.shape, dtype: a.dtype }],
  reference: (inputs, outputs, { uplo }) =>
    eachMatrix(inputs, outputs, ([a]) => eigenHermitian(a, uplo === "U", true)),
  // P = Vᴴ·dA·V, E[i][j] = 1/(w[j] − w[i]): dw = diag P, dV = V·(E∘P), where dA is taken to be Hermitian.
  // Giles, "Collected matrix derivative results", 2008.
  vjp: ({ outputs: [w, v], cotangents: [gw, gv] }) => {
    const inner = diagonalMatrices(gw.astype(v.dtype)).add(
      gaps(w).astype(v.dtype).multiply(adjoint(v).matmul(gv)),
    )
    return [hermitian(v.matmul(inner).matmul(adjoint(v)))]
  },
  jvp: ({ outputs: [w, v], tangents: [t] }) => {
    if (!t) return [null, null]
    const p = adjoint(v).matmul(hermitian(t)).matmul(v)
    return [diagonalsOf(p).real, v.matmul(gaps(w).astype(v.dtype).multiply(p))]
  },
  vmap: (c) => batched(c, eighPrimitive),
  facts: { ambiguous: true },
})
const gaps = (w: Array): Array => safeReciprocal(w.expandDims(-2).subtract(w.expandDims(-1)))

/** Input: Hermitian a [..., N, N], of which one triangle is read. Output: its eigenvalues in ascending order. */
const eigvalshPrimitive: Apply<Uplo> = definePrimitive({
  name: "eigvalsh",
  params: schema,
  infer: ([a]) => valuesOf("linalg.eigvalsh", a),
  reference: (inputs, outputs, { uplo }) =>
    eachMatrix(inputs, outputs, ([a]) => eigenHermitian(a, uplo === "U", false)),
  vjp: ({ inputs: [a], cotangents: [gw], params }) => {
    const [, v] = eighPrimitive.all([a], params)
    return [scaleColumns(v, gw.astype(v.dtype)).matmul(adjoint(v))]
  },
  jvp: ({ inputs: [a], tangents: [t], params }) => {
    if (!t) return [null]
    const [, v] = eighPrimitive.all([a], params)
    return [diagonalsOf(adjoint(v).matmul(hermitian(t)).matmul(v)).real]
  },
  vmap: (c) => batched(c, eigvalshPrimitive),
})

function checkUplo(op: string, value: unknown): Uplo {
  if (value === "L" || value === "U") return { uplo: value }
  throw new ArgumentError(op, `UPLO must be "L" or "U", received ${describe(value)}`)
}

const eighArgs = operation(
  "linalg.eigh",
  { a: "array", UPLO: ["L", "U"] },
  (a: Array, uplo: "L" | "U" = "L"): [Array, Array] => {
    const [w, v] = eighPrimitive.all([a], checkUplo("linalg.eigh", uplo))
    return [w, v]
  },
)
/**
 * Eigenvalues w [..., N] in ascending order and orthonormal eigenvectors, the columns of v [..., N, N], of symmetric or Hermitian matrices:
 * a·v = v·diag(w). Only the lower triangle of `a` is read, or the upper one with UPLO "U"; derivatives assume that `a` is Hermitian, and
 * gradients are Hermitian. A matrix with a NaN or an infinity gives NaN.
 *
 * @throws ShapeError if the matrices are not square; DTypeError unless float32, float64 or complex64; ArgumentError for another UPLO
 * @example
 * const [w, v] = mx.linalg.eigh(mx.array([[2, 1], [1, 2]]))
 * w.tolist() // => [1.000, 3.000]
 * v.multiply(w).matmul(v.T).tolist() // => [[2.000, 1.000], [1.000, 2.000]]
 */
export function eigh(a: Array, UPLO?: "L" | "U", options?: StreamOptions): [w: Array, v: Array]
export function eigh(a: Array, options: { UPLO?: "L" | "U" } & StreamOptions): [w: Array, v: Array]
export function eigh(...args: unknown[]): [w: Array, v: Array] {
  return eighArgs(args)
}

const eigvalshArgs = operation(
  "linalg.eigvalsh",
  { a: "array", UPLO: ["L", "U"] },
  (a: Array, uplo: "L" | "U" = "L"): Array => eigvalshPrimitive([a], checkUplo("linalg.eigvalsh", uplo)),
)
/**
 * Only the eigenvalues of {@link eigh}.
 *
 * @throws ShapeError if the matrices are not square; DTypeError unless float32, float64 or complex64; ArgumentError for another UPLO
 * @example
 * mx.linalg.eigvalsh(mx.array([[2, 1], [1, 2]])).tolist() // => [1.000, 3.000]
 */
export function eigvalsh(a: Array, UPLO?: "L" | "U", options?: StreamOptions): Array
export function eigvalsh(a: Array, options: { UPLO?: "L" | "U" } & StreamOptions): Array
export function eigvalsh(...args: unknown[]): Array {
  return eigvalshArgs(args)
}
