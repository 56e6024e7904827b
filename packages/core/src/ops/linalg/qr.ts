/**
 * QR factorization by Householder reflections.
 */
import { operation, type StreamOptions } from "../../graph/args"
import type { Array } from "../../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../../graph/primitive"
import { triu } from "../diagonal"
import { concatenate } from "../join"
import { Dense, eachMatrix } from "./dense"
import {
  adjoint,
  batched,
  block,
  diagonalMatrices,
  diagonalsOf,
  matrixShape,
  strictlyLower,
  strictlyUpper,
} from "./matrix"
import { solveTriangularPrimitive } from "./triangular"

/** The Euclidean length of column j from row i on. */
function columnNorm(a: Dense, i: number, j: number): number {
  let most = 0
  for (let k = i; k < a.rows; k++) most = Math.max(most, a.abs(k, j))
  if (most === 0) return 0
  let sum = 0
  for (let k = i; k < a.rows; k++) sum += (a.abs(k, j) / most) ** 2
  return most * Math.sqrt(sum)
}

/** m ← (I − t·v·vᴴ)·m on rows from j, for columns from `first`; v is 1 and column j of `a` below its diagonal. */
function reflect(a: Dense, j: number, [tr, ti]: readonly [number, number], m: Dense, first: number): void {
  const at = (i: number): number => i * a.cols + j
  for (let k = first; k < m.cols; k++) {
    let [x, y] = [m.re[j * m.cols + k], m.im[j * m.cols + k]]
    for (let i = j + 1; i < a.rows; i++) {
      const p = i * m.cols + k
      x += a.re[at(i)] * m.re[p] + a.im[at(i)] * m.im[p]
      y += a.re[at(i)] * m.im[p] - a.im[at(i)] * m.re[p]
    }
    const [fr, fi] = [tr * x - ti * y, tr * y + ti * x]
    m.re[j * m.cols + k] -= fr
    m.im[j * m.cols + k] -= fi
    for (let i = j + 1; i < a.rows; i++) {
      const p = i * m.cols + k
      m.re[p] -= fr * a.re[at(i)] - fi * a.im[at(i)]
      m.im[p] -= fr * a.im[at(i)] + fi * a.re[at(i)]
    }
  }
}

/** Q and R; the reflections and with them R's real diagonal have the signs of LAPACK's geqrf. */
function factorQr(a: Dense): [q: Dense, r: Dense] {
  const { rows, cols } = a
  const k = Math.min(rows, cols)
  const factors: [number, number][] = []
  for (let j = 0; j < k; j++) {
    const d = j * cols + j
    const [re, im] = [a.re[d], a.im[d]]
    if (columnNorm(a, j + 1, j) === 0 && im === 0) {
      factors.push([0, 0])
      continue
    }
    const beta = (re >= 0 ? -1 : 1) * columnNorm(a, j, j)
    const [x, y] = [re - beta, im]
    const norm = x * x + y * y
    for (let i = j + 1; i < rows; i++) {
      const p = i * cols + j
      const [u, v] = [a.re[p], a.im[p]]
      a.re[p] = (u * x + v * y) / norm
      a.im[p] = (v * x - u * y) / norm
    }
    factors.push([(beta - re) / beta, -im / beta])
    reflect(a, j, [factors[j][0], -factors[j][1]], a, j + 1)
    a.re[d] = beta
    a.im[d] = 0
  }
  const q = Dense.identity(rows, k)
  for (let j = k - 1; j >= 0; j--) reflect(a, j, factors[j], q, j)
  const r = new Dense(k, cols)
  for (let i = 0; i < k; i++) {
    for (let j = i; j < cols; j++) {
      r.re[i * cols + j] = a.re[i * cols + j]
      r.im[i * cols + j] = a.im[i * cols + j]
    }
  }
  return [q, r]
}

/** Input: a [..., M, N]. Outputs: Q [..., M, K] and R [..., K, N], K = min(M, N). */
const qrPrimitive: Apply<NoParams> = definePrimitive({
  name: "qr",
  infer: ([a]) => {
    const { batch, rows, cols } = matrixShape("linalg.qr", a)
    const k = Math.min(rows, cols)
    return [
      { shape: [...batch, rows, k], dtype: a.dtype },
      { shape: [...batch, k, cols], dtype: a.dtype },
    ]
  },
  reference: (inputs, outputs) =>
    eachMatrix(inputs, outputs, ([a]) => {
      if (a.isFinite()) return factorQr(a)
      const [q, r] = factorQr(new Dense(a.rows, a.cols))
      return [q.filled(Number.NaN), r.filled(Number.NaN)]
    }),
  vjp: ({ inputs: [a], outputs: [q, r], cotangents: [gq, gr] }) => [pullQr(a, q, r, gq, gr)],
  jvp: ({ outputs: [q, r], tangents: [t] }) => (t ? pushQr(q, r, t) : [null, null]),
  vmap: (c) => batched(c, qrPrimitive),
  facts: { ambiguous: true },
})

const realDiagonal = (x: Array): Array => diagonalMatrices(diagonalsOf(x).real)
/** x·r⁻ᴴ and x·r⁻¹ for an upper triangle r. */
const overAdjoint = (x: Array, r: Array): Array =>
  adjoint(solveTriangularPrimitive([r, adjoint(x)], { upper: true }))
const over = (x: Array, r: Array): Array =>
  adjoint(solveTriangularPrimitive([adjoint(r), adjoint(x)], { upper: false }))

/**
 * C = Qᴴ·dA·R⁻¹ is the sum of a skew-Hermitian matrix, Qᴴ·dQ, and an upper triangle with a real diagonal, T = dR·R⁻¹: T = upper(C) +
 * lower(C)ᴴ + Re diag(C). Then dR = T·R and dQ = (dA − Q·dR)·R⁻¹. Columns beyond the rows: dR₂ = dQᴴ·A₂ + Qᴴ·dA₂, A₂ = Q·R₂.
 * Walter and Lehmann, "Algorithmic differentiation of linear algebra functions", 2010.
 */
function pushQr(q: Array, r: Array, t: Array): Array[] {
  const k = q.shape[q.ndim - 1]
  const [rows, cols] = t.shape.slice(-2)
  const [t1, r1] = [block(t, [0, rows], [0, k]), block(r, [0, k], [0, k])]
  const c = over(adjoint(q).matmul(t1), r1)
  const s = strictlyUpper(c)
    .add(adjoint(strictlyLower(c)))
    .add(realDiagonal(c).astype(c.dtype))
  const dr = s.matmul(r1)
  const dq = over(t1.subtract(q.matmul(dr)), r1)
  if (cols === k) return [dq, dr]
  const right = adjoint(dq)
    .matmul(q.matmul(block(r, [0, k], [k, cols])))
    .add(adjoint(q).matmul(block(t, [0, rows], [k, cols])))
  return [dq, concatenate([dr, right], -1)]
}

/** The transpose of {@link pushQr}: with W = gR·Rᴴ − Qᴴ·gQ, gA = (gQ + Q·(upper(W) + upper(W)ᴴ + Re diag(W)))·R⁻ᴴ. */
function pullQr(a: Array, q: Array, r: Array, gq: Array, gr: Array): Array {
  const k = q.shape[q.ndim - 1]
  const [rows, cols] = a.shape.slice(-2)
  const r1 = block(r, [0, k], [0, k])
  const right = cols > k ? block(gr, [0, k], [k, cols]) : null
  // R₂ = Qᴴ·A₂ gives Q the cotangent A₂·gR₂ᴴ and A₂ the cotangent Q·gR₂.
  const g = right ? gq.add(block(a, [0, rows], [k, cols]).matmul(adjoint(right))) : gq
  const w = triu(block(gr, [0, k], [0, k]))
    .matmul(adjoint(r1))
    .subtract(adjoint(q).matmul(g))
  const up = strictlyUpper(w)
  const inner = up.add(adjoint(up)).add(realDiagonal(w).astype(w.dtype))
  const left = overAdjoint(g.add(q.matmul(inner)), r1)
  return right ? concatenate([left, q.matmul(right)], -1) : left
}

const qrArgs = operation("linalg.qr", { a: "array" }, (a: Array): [Array, Array] => {
  const [q, r] = qrPrimitive.all([a])
  return [q, r]
})
/**
 * The reduced QR factorization a = Q·R of matrices [..., M, N]: Q [..., M, K] with orthonormal columns and an upper triangle R [..., K, N],
 * K = min(M, N). A matrix with a NaN or an infinity gives NaN. Differentiation requires the first K columns to be linearly independent.
 *
 * @throws ShapeError for fewer than two dimensions; DTypeError unless float32, float64 or complex64
 * @example
 * const [Q, R] = mx.linalg.qr(mx.array([[3, 1], [4, 2]]))
 * R.abs().tolist() // => [[5.000, 2.200], [0, 0.400]]
 * Q.matmul(R).tolist() // => [[3.000, 1.000], [4.000, 2.000]]
 */
export function qr(a: Array, options?: StreamOptions): [Q: Array, R: Array]
export function qr(...args: unknown[]): [Q: Array, R: Array] {
  return qrArgs(args)
}
