/**
 * Eigenvalues and eigenvectors of general matrices, by the shifted QR algorithm on a Hessenberg matrix.
 */
import { operation, type StreamOptions } from "../../graph/args"
import { complex64 } from "../../graph/dtype"
import { NumericError } from "../../graph/errors"
import type { Array, Meta } from "../../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../../graph/primitive"
import { toDtype } from "../constant"
import { sum } from "../reduce"
import { Dense, eachMatrix, type Rotation, rotateColumns, rotateRows } from "./dense"
import {
  adjoint,
  batched,
  diagonalMatrices,
  diagonalsOf,
  safeReciprocal,
  scaleColumns,
  squareShape,
} from "./matrix"
import { inverse } from "./solve"

const EPSILON = 2 ** -52

/** The rotation of rows p and q that makes element (q, j) zero. */
function annihilate(m: Dense, p: number, q: number, j: number): Rotation | null {
  const [a, b] = [m.abs(p, j), m.abs(q, j)]
  if (b === 0) return null
  const r = Math.hypot(a, b)
  const [x, y] = [p * m.cols + j, q * m.cols + j]
  const [ar, ai] = a === 0 ? [1, 0] : [m.re[x] / a, m.im[x] / a]
  const [br, bi] = [m.re[y] / b, m.im[y] / b]
  // e·b points against a.
  return { c: a / r, s: b / r, re: -(ar * br + ai * bi), im: -(ai * br - ar * bi) }
}

/** A similar matrix with zeros below the subdiagonal; z follows. */
function toHessenberg(h: Dense, z: Dense | null): void {
  const n = h.rows
  for (let j = 0; j < n - 2; j++) {
    for (let i = j + 2; i < n; i++) {
      const rotation = annihilate(h, j + 1, i, j)
      if (!rotation) continue
      rotateRows(h, j + 1, i, rotation)
      rotateColumns(h, j + 1, i, rotation)
      if (z) rotateColumns(z, j + 1, i, rotation)
    }
  }
}

/** The eigenvalue of the last 2×2 block that is nearer to its last element: Wilkinson's shift. */
function shiftOf(h: Dense, hi: number): [number, number] {
  const n = h.cols
  const at = (i: number, j: number): [number, number] => [h.re[i * n + j], h.im[i * n + j]]
  const [[ar, ai], [br, bi]] = [at(hi - 1, hi - 1), at(hi - 1, hi)]
  const [[cr, ci], [dr, di]] = [at(hi, hi - 1), at(hi, hi)]
  // d − λ = −δ ± √(δ² + b·c) with δ = (a − d)/2
  const [xr, xi] = [(ar - dr) / 2, (ai - di) / 2]
  const [sr, si] = squareRoot(xr * xr - xi * xi + br * cr - bi * ci, 2 * xr * xi + br * ci + bi * cr)
  const near = xr * sr + xi * si > 0 ? -1 : 1
  return [dr + xr + near * sr, di + xi + near * si]
}

function squareRoot(re: number, im: number): [number, number] {
  const size = Math.sqrt(Math.hypot(re, im))
  const angle = Math.atan2(im, re) / 2
  return [size * Math.cos(angle), size * Math.sin(angle)]
}

/** An upper triangle that is similar to a Hessenberg matrix; z follows. @throws NumericError */
function toTriangle(h: Dense, z: Dense | null): void {
  const n = h.rows
  let hi = n - 1
  for (let steps = 0; hi > 0; steps++) {
    let lo = hi
    for (; lo > 0; lo--) {
      const beside = h.abs(lo - 1, lo - 1) + h.abs(lo, lo)
      if (h.abs(lo, lo - 1) > EPSILON * (beside || h.largest())) continue
      h.re[lo * n + lo - 1] = 0
      h.im[lo * n + lo - 1] = 0
      break
    }
    if (lo === hi) {
      hi--
      steps = -1
      continue
    }
    if (steps > 300) throw new NumericError("linalg.eig", "the eigenvalues did not converge")
    // Now and then another shift breaks a cycle.
    const odd = steps % 11 === 10
    const [sr, si] = odd ? [h.abs(hi, hi - 1) + h.re[hi * n + hi], h.im[hi * n + hi]] : shiftOf(h, hi)
    const shift = (sign: number): void => {
      for (let i = lo; i <= hi; i++) {
        h.re[i * n + i] += sign * sr
        h.im[i * n + i] += sign * si
      }
    }
    shift(-1)
    const rotations: (Rotation | null)[] = []
    for (let k = lo; k < hi; k++) {
      const rotation = annihilate(h, k, k + 1, k)
      rotations.push(rotation)
      if (rotation) rotateRows(h, k, k + 1, rotation)
    }
    rotations.forEach((rotation, k) => {
      if (!rotation) return
      rotateColumns(h, lo + k, lo + k + 1, rotation)
      if (z) rotateColumns(z, lo + k, lo + k + 1, rotation)
    })
    shift(1)
  }
}

/** Unit eigenvectors of the upper triangle t, turned by z; the largest element of each is real. */
function eigenvectors(t: Dense, z: Dense): Dense {
  const n = t.rows
  const v = new Dense(n, n)
  const small = EPSILON * (t.largest() || 1)
  for (let k = 0; k < n; k++) {
    const [xr, xi] = [new Float64Array(n), new Float64Array(n)]
    xr[k] = 1
    for (let i = k - 1; i >= 0; i--) {
      let [re, im] = [0, 0]
      for (let j = i + 1; j <= k; j++) {
        const p = i * n + j
        re -= t.re[p] * xr[j] - t.im[p] * xi[j]
        im -= t.re[p] * xi[j] + t.im[p] * xr[j]
      }
      let [dr, di] = [t.re[i * n + i] - t.re[k * n + k], t.im[i * n + i] - t.im[k * n + k]]
      if (Math.hypot(dr, di) < small) [dr, di] = [small, 0]
      const norm = dr * dr + di * di
      xr[i] = (re * dr + im * di) / norm
      xi[i] = (im * dr - re * di) / norm
      // Near a defective matrix elements grow without bound.
      if (Math.hypot(xr[i], xi[i]) > 1e100) {
        for (let j = i; j <= k; j++) {
          xr[j] *= 1e-100
          xi[j] *= 1e-100
        }
      }
    }
    for (let i = 0; i < n; i++) {
      for (let j = 0; j <= k; j++) {
        const p = i * n + j
        v.re[i * n + k] += z.re[p] * xr[j] - z.im[p] * xi[j]
        v.im[i * n + k] += z.re[p] * xi[j] + z.im[p] * xr[j]
      }
    }
    normalizeColumn(v, k)
  }
  return v
}

function normalizeColumn(v: Dense, k: number): void {
  const n = v.rows
  let top = 0
  for (let i = 1; i < n; i++) if (v.abs(i, k) > v.abs(top, k)) top = i
  const norm = Math.sqrt(v.dot(k, k)[0]) || 1
  const size = v.abs(top, k) || 1
  const [cr, ci] = [v.re[top * n + k] / size / norm, -v.im[top * n + k] / size / norm]
  for (let i = 0; i < n; i++) {
    const p = i * n + k
    const [re, im] = [v.re[p], v.im[p]]
    v.re[p] = re * cr - im * ci
    v.im[p] = i === top ? 0 : re * ci + im * cr
  }
}

/** Eigenvalues as a column, and eigenvectors when asked for. */
function eigen(a: Dense, vectors: boolean): Dense[] {
  const n = a.rows
  if (!a.isFinite()) {
    const nans = [new Dense(n, 1), new Dense(n, n)]
    for (const x of nans) x.filled(Number.NaN).im.fill(Number.NaN)
    return nans
  }
  const real = a.im.every((x) => x === 0)
  const size = a.largest() || 1
  a.scale(1 / size)
  const z = vectors ? Dense.identity(n) : null
  toHessenberg(a, z)
  toTriangle(a, z)
  const w = new Dense(n, 1)
  for (let i = 0; i < n; i++) {
    const [re, im] = [a.re[i * n + i], a.im[i * n + i]]
    w.re[i] = size * re
    // A rounding error in the imaginary part of a real matrix's real eigenvalue.
    w.im[i] = real && Math.abs(im) < 4 * n * EPSILON ? 0 : size * im
  }
  return z ? [w, eigenvectors(a, z)] : [w]
}

const valuesOf = (op: string, a: Meta): Meta => {
  const { batch, n } = squareShape(op, a)
  return { shape: [...batch, n], dtype: complex64 }
}

/** Input: a [..., N, N]. Outputs: w [..., N] and v [..., N, N], complex64. */
const eigPrimitive: Apply<NoParams> = definePrimitive({
  name: "eig",
  infer: ([a]) => [valuesOf("linalg.eig", a), { shape: a.shape, dtype: complex64 }],
  reference: (inputs, outputs) => eachMatrix(inputs, outputs, ([a]) => eigen(a, true)),
  // P = V⁻¹·dA·V, E[i][j] = 1/(w[j] − w[i]): dw = diag P, dV = V·(E∘P), less what would change the lengths of the columns.
  // Boeddeker et al., "On the computation of complex-valued gradients with application to statistically optimum beamforming", 2017.
  vjp: ({ inputs: [a], outputs: [w, v], cotangents: [gw, gv] }) => {
    const kept = gv.subtract(scaleColumns(v, lengthwise(v, gv)))
    const inner = gaps(w).conjugate().multiply(adjoint(v).matmul(kept)).add(diagonalMatrices(gw))
    return [toDtype(adjoint(inverse(v)).matmul(inner).matmul(adjoint(v)), a.dtype)]
  },
  jvp: ({ outputs: [w, v], tangents: [t] }) => {
    if (!t) return [null, null]
    const p = inverse(v).matmul(toDtype(t, complex64)).matmul(v)
    const d = v.matmul(gaps(w).multiply(p))
    return [diagonalsOf(p), d.subtract(scaleColumns(v, lengthwise(v, d)))]
  },
  vmap: (c) => batched(c, eigPrimitive),
  facts: { ambiguous: true },
})
const gaps = (w: Array): Array => safeReciprocal(w.expandDims(-2).subtract(w.expandDims(-1)))
/** Re(vᴴ·d) of each pair of columns. */
const lengthwise = (v: Array, d: Array): Array => sum(v.conjugate().multiply(d), -2).real.astype(complex64)

/** Input: a [..., N, N]. Output: its eigenvalues, complex64. */
const eigvalsPrimitive: Apply<NoParams> = definePrimitive({
  name: "eigvals",
  infer: ([a]) => valuesOf("linalg.eigvals", a),
  reference: (inputs, outputs) => eachMatrix(inputs, outputs, ([a]) => eigen(a, false)),
  vjp: ({ inputs: [a], cotangents: [gw] }) => {
    const [, v] = eigPrimitive.all([a])
    return [toDtype(scaleColumns(adjoint(inverse(v)), gw).matmul(adjoint(v)), a.dtype)]
  },
  jvp: ({ inputs: [a], tangents: [t] }) => {
    if (!t) return [null]
    const [, v] = eigPrimitive.all([a])
    return [diagonalsOf(inverse(v).matmul(toDtype(t, complex64)).matmul(v))]
  },
  vmap: (c) => batched(c, eigvalsPrimitive),
  facts: { ambiguous: true },
})

const eigArgs = operation("linalg.eig", { a: "array" }, (a: Array): [Array, Array] => {
  const [w, v] = eigPrimitive.all([a])
  return [w, v]
})
/**
 * Eigenvalues w [..., N], in no particular order, and eigenvectors, the columns of length 1 of v [..., N, N], of square matrices: a·v =
 * v·diag(w). Both are complex64. A matrix with a NaN or an infinity gives NaN.
 *
 * Differentiation requires distinct eigenvalues and, with respect to v, a function that does not depend on the phases of its columns. For
 * symmetric matrices use {@link eigh}.
 *
 * @throws ShapeError if the matrices are not square; DTypeError unless float32, float64 or complex64
 * @example
 * const [w, v] = mx.linalg.eig(mx.array([[0, -1], [1, 0]]))
 * w.imag.abs().tolist() // => [1, 1]
 * mx.allclose(mx.array([[0, -1], [1, 0]]).matmul(v), v.multiply(w), 1e-5, 1e-6).item() // => true
 */
export function eig(a: Array, options?: StreamOptions): [w: Array, v: Array]
export function eig(...args: unknown[]): [w: Array, v: Array] {
  return eigArgs(args)
}

const eigvalsArgs = operation("linalg.eigvals", { a: "array" }, (a: Array): Array => eigvalsPrimitive([a]))
/**
 * Only the eigenvalues of {@link eig}.
 *
 * @throws ShapeError if the matrices are not square; DTypeError unless float32, float64 or complex64
 * @example
 * mx.linalg.eigvals(mx.array([[0, -1], [1, 0]])).imag.abs().tolist() // => [1, 1]
 */
export function eigvals(a: Array, options?: StreamOptions): Array
export function eigvals(...args: unknown[]): Array {
  return eigvalsArgs(args)
}
