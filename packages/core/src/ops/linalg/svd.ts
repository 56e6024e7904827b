/**
 * Singular value decomposition by one-sided Jacobi rotations, and pseudo-inverses.
 */
import { operation, type StreamOptions } from "../../graph/args"
import { float64 } from "../../graph/dtype"
import type { Array } from "../../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../../graph/primitive"
import { where } from "../binary"
import { concatenate } from "../join"
import { max } from "../reduce"
import { Dense, eachMatrix, jacobiRotation, rotateColumns } from "./dense"
import {
  adjoint,
  batched,
  block,
  diagonalMatrices,
  diagonalsOf,
  identityFor,
  matrixShape,
  realOf,
  safeReciprocal,
  scaleColumns,
  scaleRows,
} from "./matrix"

const SWEEPS = 60

/**
 * Rotates the columns of `a` until they are orthogonal, and `v` along: a·v⁻¹ stays. Hestenes, "Inversion of matrices by
 * biorthogonalization and related results", 1958.
 */
function orthogonalize(a: Dense, v: Dense | null): void {
  for (let sweep = 0, moved = true; moved && sweep < SWEEPS; sweep++) {
    moved = false
    for (let p = 0; p < a.cols - 1; p++) {
      for (let q = p + 1; q < a.cols; q++) {
        const [alpha, beta] = [a.dot(p, p)[0], a.dot(q, q)[0]]
        const [re, im] = a.dot(p, q)
        if (Math.hypot(re, im) <= 1e-15 * Math.sqrt(alpha * beta)) continue
        moved = true
        const rotation = jacobiRotation(alpha, beta, re, im)
        rotateColumns(a, p, q, rotation)
        if (v) rotateColumns(v, p, q, rotation)
      }
    }
  }
}

/** Sets columns `from`… of `u` to unit vectors that are orthogonal to the columns before them. */
function completeBasis(u: Dense, from: number): void {
  let candidate = 0
  for (let j = from; j < u.cols; j++) {
    for (; candidate < u.rows; candidate++) {
      for (let i = 0; i < u.rows; i++) {
        u.re[i * u.cols + j] = i === candidate ? 1 : 0
        u.im[i * u.cols + j] = 0
      }
      // Two passes give orthogonality to full precision.
      for (let pass = 0; pass < 2; pass++) {
        for (let k = 0; k < j; k++) {
          const [re, im] = u.dot(k, j)
          for (let i = 0; i < u.rows; i++) {
            const [a, b] = [i * u.cols + k, i * u.cols + j]
            u.re[b] -= re * u.re[a] - im * u.im[a]
            u.im[b] -= re * u.im[a] + im * u.re[a]
          }
        }
      }
      const norm = Math.sqrt(u.dot(j, j)[0])
      if (norm * norm * u.rows < 0.5) continue
      for (let i = 0; i < u.rows; i++) {
        u.re[i * u.cols + j] /= norm
        u.im[i * u.cols + j] /= norm
      }
      candidate++
      break
    }
  }
}

/** U, s and V of a matrix with at least as many rows as columns; U has `width` columns. */
function decomposeTall(a: Dense, width: number): { u: Dense; s: number[]; v: Dense } {
  const size = a.largest() || 1
  a.scale(1 / size)
  const v = Dense.identity(a.cols)
  orthogonalize(a, v)
  const norms = globalThis.Array.from({ length: a.cols }, (_, j) => Math.sqrt(a.dot(j, j)[0]))
  const order = norms.map((_, j) => j).sort((i, j) => norms[j] - norms[i])
  const sorted = a.columns(order)
  const s = order.map((j) => norms[j])
  const u = new Dense(a.rows, width)
  // Directions of negligible length are noise: any that complete the basis serve.
  let rank = 0
  while (rank < s.length && s[rank] > 1e-15 * a.rows * s[0]) rank++
  for (let i = 0; i < a.rows; i++) {
    for (let j = 0; j < rank; j++) {
      u.re[i * width + j] = sorted.re[i * a.cols + j] / s[j]
      u.im[i * width + j] = sorted.im[i * a.cols + j] / s[j]
    }
  }
  completeBasis(u, rank)
  return { u, s: s.map((x) => x * size), v: v.columns(order) }
}

/** Singular values alone, largest first. */
function singularValues(a: Dense): number[] {
  const tall = a.rows >= a.cols ? a : a.adjoint()
  const size = tall.largest() || 1
  tall.scale(1 / size)
  orthogonalize(tall, null)
  const norms = globalThis.Array.from({ length: tall.cols }, (_, j) => size * Math.sqrt(tall.dot(j, j)[0]))
  return norms.sort((x, y) => y - x)
}

/** Input: a [..., M, N]. Outputs: U, s, Vᴴ; K = min(M, N) columns and rows of U and Vᴴ, or, when full, M and N. */
const svdPrimitive: Apply<{ full: boolean }> = definePrimitive({
  name: "svd",
  params: { full: "bool" },
  infer: ([a], { full }) => {
    const { batch, rows, cols } = matrixShape("linalg.svd", a)
    const k = Math.min(rows, cols)
    return [
      { shape: [...batch, rows, full ? rows : k], dtype: a.dtype },
      { shape: [...batch, k], dtype: realOf(a.dtype) },
      { shape: [...batch, full ? cols : k, cols], dtype: a.dtype },
    ]
  },
  reference: (inputs, outputs, { full }) =>
    eachMatrix(inputs, outputs, ([a]) => {
      const { rows, cols } = a
      const k = Math.min(rows, cols)
      const [m, n] = full ? [rows, cols] : [k, k]
      if (!a.isFinite())
        return [new Dense(rows, m), new Dense(k, 1), new Dense(n, cols)].map((x) => x.filled(Number.NaN))
      if (rows >= cols) {
        const { u, s, v } = decomposeTall(a, m)
        return [u, Dense.column(s), v.adjoint()]
      }
      const { u, s, v } = decomposeTall(a.adjoint(), n)
      return [v, Dense.column(s), u.adjoint()]
    }),
  vjp: ({ outputs: [u, s, vt], cotangents: [gu, gs, gvt] }) => [pullSvd(u, s, vt, gu, gs, gvt)],
  jvp: ({ outputs: [u, s, vt], tangents: [t] }) => (t ? pushSvd(u, s, vt, t) : [null, null, null]),
  vmap: (c) => batched(c, svdPrimitive),
  facts: { ambiguous: true },
})

/** Input: a [..., M, N]. Output: its singular values, largest first. */
const singularValuesPrimitive: Apply<NoParams> = definePrimitive({
  name: "singularValues",
  infer: ([a]) => {
    const { batch, rows, cols } = matrixShape("linalg.svd", a)
    return { shape: [...batch, Math.min(rows, cols)], dtype: realOf(a.dtype) }
  },
  reference: (inputs, outputs) =>
    eachMatrix(inputs, outputs, ([a]) => [
      a.isFinite()
        ? Dense.column(singularValues(a))
        : new Dense(Math.min(a.rows, a.cols), 1).filled(Number.NaN),
    ]),
  vjp: ({ inputs: [a], cotangents: [gs] }) => {
    const [u, , vt] = thinSvd(a)
    return [scaleColumns(u, gs.astype(u.dtype)).matmul(vt)]
  },
  jvp: ({ inputs: [a], tangents: [t] }) => {
    if (!t) return [null]
    const [u, , vt] = thinSvd(a)
    return [diagonalsOf(adjoint(u).matmul(t).matmul(adjoint(vt))).real]
  },
  vmap: (c) => batched(c, singularValuesPrimitive),
})

/** Singular values of checked matrices. @internal */
export const singularValuesOf = (a: Array): Array => singularValuesPrimitive([a])

/** U, s and Vᴴ of checked matrices, with no more columns and rows than there are singular values. @internal */
export const thinSvd = (a: Array): Array[] => svdPrimitive.all([a], { full: false })

/** F with F[i][j] = 1/(s[j]² − s[i]²), 0 where they are equal. As (s[j] − s[i])·(s[j] + s[i]), it loses no digits. */
function gaps(s: Array): Array {
  const [row, column] = [s.expandDims(-2), s.expandDims(-1)]
  return safeReciprocal(row.subtract(column).multiply(row.add(column)))
}

const first = (x: Array, k: number): Array => block(x, [0, x.shape[x.ndim - 2]], [0, k])
const rest = (x: Array, k: number): Array | null =>
  x.shape[x.ndim - 1] > k ? block(x, [0, x.shape[x.ndim - 2]], [k, x.shape[x.ndim - 1]]) : null
/** The part of x outside the columns of an orthonormal q. */
const outside = (q: Array, x: Array): Array => x.subtract(q.matmul(adjoint(q).matmul(x)))

/** i·Im(diag x), as diagonal matrices; null for real x. */
const skewDiagonal = (x: Array, factors: Array): Array | null => {
  if (x.dtype === realOf(x.dtype)) return null
  const d = diagonalsOf(x)
  return diagonalMatrices(d.subtract(d.conjugate()).multiply(factors.multiply(0.5)))
}
const plus = (x: Array, y: Array | null): Array => (y ? x.add(y) : x)

/**
 * P = Uᴴ·dA·V, ds = Re diag P, dU = U·(F∘(P·S + S·Pᴴ)) + (1 − U·Uᴴ)·dA·V·S⁻¹, and V alike with dAᴴ. The phases that complex columns are
 * free to choose turn as little as possible; the columns that complete U keep to the complement: dU₂ = −U·dUᴴ·U₂. Wan and Zhang, "Automatic
 * differentiation for complex valued SVD", 2019.
 */
function pushSvd(u: Array, s: Array, vt: Array, t: Array): (Array | null)[] {
  const k = s.shape[s.ndim - 1]
  const v = adjoint(vt)
  const [u1, v1] = [first(u, k), first(v, k)]
  const [f, factors] = [gaps(s).astype(u.dtype), s.astype(u.dtype)]
  const inverse = safeReciprocal(s).astype(u.dtype)
  const p = adjoint(u1).matmul(t).matmul(v1)
  const [ps, sp] = [scaleColumns(p, factors), scaleRows(p, factors)]
  const phases = skewDiagonal(p, inverse.multiply(0.5))
  const turnU = plus(f.multiply(ps.add(adjoint(ps))), phases)
  const turnV = plus(f.multiply(sp.add(adjoint(sp))), phases?.negative() ?? null)
  const side = (x: Array, x1: Array, turn: Array, image: Array): Array => {
    const d = x1.matmul(turn).add(outside(x1, scaleColumns(image, inverse)))
    const completion = rest(x, k)
    if (!completion) return d
    return concatenate([d, x1.matmul(adjoint(d).matmul(completion)).negative()], -1)
  }
  const du = side(u, u1, turnU, t.matmul(v1))
  const dv = side(v, v1, turnV, adjoint(t).matmul(u1))
  return [du, diagonalsOf(p).real, adjoint(dv)]
}

/** The transpose of {@link pushSvd}. */
function pullSvd(u: Array, s: Array, vt: Array, gu: Array, gs: Array, gvt: Array): Array {
  const k = s.shape[s.ndim - 1]
  const [v, gv] = [adjoint(vt), adjoint(gvt)]
  const [u1, v1] = [first(u, k), first(v, k)]
  const [f, factors] = [gaps(s).astype(u.dtype), s.astype(u.dtype)]
  const inverse = safeReciprocal(s).astype(u.dtype)
  // Completing columns send their cotangent to the columns before them: dU₂ = −U·dUᴴ·U₂.
  const gathered = (x: Array, x1: Array, g: Array): Array => {
    const [g1, g2, completion] = [first(g, k), rest(g, k), rest(x, k)]
    return g2 && completion ? g1.subtract(completion.matmul(adjoint(g2).matmul(x1))) : g1
  }
  const [gu1, gv1] = [gathered(u, u1, gu), gathered(v, v1, gv)]
  const [x, y] = [adjoint(u1).matmul(gu1), adjoint(v1).matmul(gv1)]
  const [fx, fy] = [f.multiply(x), f.multiply(y)]
  const inner = scaleColumns(fx.add(adjoint(fx)), factors)
    .add(scaleRows(fy.add(adjoint(fy)), factors))
    .add(diagonalMatrices(gs.astype(u.dtype)))
  const phases = skewDiagonal(x.subtract(y), inverse.multiply(0.5))
  const main = u1.matmul(plus(inner, phases)).matmul(adjoint(v1))
  const left = scaleColumns(outside(u1, gu1), inverse).matmul(adjoint(v1))
  const right = u1.matmul(adjoint(scaleColumns(outside(v1, gv1), inverse)))
  return main.add(left).add(right)
}

const svdArgs = operation(
  "linalg.svd",
  { a: "array", computeUv: "bool?" },
  (x: Array, computeUv: boolean = true) => {
    if (!computeUv) return singularValuesPrimitive([x])
    const [u, s, vt] = svdPrimitive.all([x], { full: true })
    return [u, s, vt]
  },
)
/**
 * The singular value decomposition a = U[:, :K]·diag(s)·Vᴴ[:K] of matrices [..., M, N], K = min(M, N): unitary U [..., M, M], real s [...,
 * K] from large to small, and unitary Vᴴ [..., N, N]. Without `computeUv`, only s. A matrix with a NaN or an infinity gives NaN.
 *
 * Singular vectors are unique up to their phases (and within the space of equal singular values); derivatives are those of functions that
 * do not depend on the choice.
 *
 * @throws ShapeError for fewer than two dimensions; DTypeError unless float32, float64 or complex64
 * @example
 * const [U, s, Vt] = mx.linalg.svd(mx.array([[0, 2], [3, 0]]))
 * s.tolist() // => [3.000, 2.000]
 * U.multiply(s).matmul(Vt).tolist() // => [[0, 2.000], [3.000, 0]]
 */
export function svd(a: Array, computeUv: false, options?: StreamOptions): Array
export function svd(a: Array, options: { computeUv: false } & StreamOptions): Array
export function svd(a: Array, computeUv?: true, options?: StreamOptions): [U: Array, s: Array, Vt: Array]
export function svd(a: Array, options: { computeUv?: true } & StreamOptions): [U: Array, s: Array, Vt: Array]
export function svd(
  a: Array,
  computeUv: boolean,
  options?: StreamOptions,
): Array | [U: Array, s: Array, Vt: Array]
// By hand: the number of results depends on `computeUv`.
export function svd(...args: unknown[]): Array | Array[] {
  return svdArgs(args)
}

/** Input: a [..., M, N]. Output: its pseudo-inverse [..., N, M]. */
const pinvPrimitive: Apply<NoParams> = definePrimitive({
  name: "pinv",
  infer: ([a]) => {
    const { batch, rows, cols } = matrixShape("linalg.pinv", a)
    return { shape: [...batch, cols, rows], dtype: a.dtype }
  },
  // V·S⁺·Uᴴ, where singular values below 10·max(M, N)·ε·s₁ count as 0.
  decompose: ([a]) => {
    const [u, s, vt] = thinSvd(a)
    const [rows, cols] = a.shape.slice(-2)
    if (rows === 0 || cols === 0) return adjoint(vt).matmul(adjoint(u))
    const epsilon = a.dtype === float64 ? 2 ** -52 : 2 ** -23
    const limit = max(s, -1, true).multiply(10 * Math.max(rows, cols) * epsilon)
    const inverse = where(s.lessEqual(limit), 0, safeReciprocal(s))
    return scaleColumns(adjoint(vt), inverse.astype(a.dtype)).matmul(adjoint(u))
  },
  // dY = −Y·dA·Y + Y·Yᴴ·dAᴴ·(1 − A·Y) + (1 − Y·A)·dAᴴ·Yᴴ·Y. Golub and Pereyra, "The differentiation of pseudo-inverses", 1973.
  vjp: ({ inputs: [a], outputs: [y], cotangents: [g] }) => {
    const [h, gh] = [adjoint(y), adjoint(g)]
    const [left, right] = projectors(a, y)
    return [
      left
        .matmul(gh)
        .matmul(y.matmul(h))
        .add(h.matmul(y).matmul(gh).matmul(right))
        .subtract(h.matmul(g).matmul(h)),
    ]
  },
  jvp: ({ inputs: [a], outputs: [y], tangents: [t] }) => {
    if (!t) return [null]
    const [h, th] = [adjoint(y), adjoint(t)]
    const [left, right] = projectors(a, y)
    return [
      y
        .matmul(h)
        .matmul(th)
        .matmul(left)
        .add(right.matmul(th).matmul(h.matmul(y)))
        .subtract(y.matmul(t).matmul(y)),
    ]
  },
  vmap: (c) => batched(c, pinvPrimitive),
})

/** 1 − a·y and 1 − y·a. */
const projectors = (a: Array, y: Array): [Array, Array] => [
  identityFor(a, a.shape[a.ndim - 2]).subtract(a.matmul(y)),
  identityFor(a, a.shape[a.ndim - 1]).subtract(y.matmul(a)),
]

const pinvArgs = operation("linalg.pinv", { a: "array" }, (a: Array): Array => pinvPrimitive([a]))
/**
 * The Moore–Penrose pseudo-inverses [..., N, M] of matrices [..., M, N]. Singular values that are smaller than 10·max(M, N)·ε times the
 * largest count as zero, ε being the dtype's.
 *
 * @throws ShapeError for fewer than two dimensions; DTypeError unless float32, float64 or complex64
 * @example
 * mx.linalg.pinv(mx.array([[2, 0], [0, 0], [0, 4]])).tolist() // => [[0.5, 0, 0], [0, 0, 0.25]]
 */
export function pinv(a: Array, options?: StreamOptions): Array
export function pinv(...args: unknown[]): Array {
  return pinvArgs(args)
}
