/**
 * Cholesky factorization of positive definite matrices, and inverses from their factors.
 */
import { operation, type StreamOptions } from "../../graph/args"
import { NumericError } from "../../graph/errors"
import type { Array } from "../../graph/graph"
import { type Apply, definePrimitive } from "../../graph/primitive"
import { type Dense, eachMatrix } from "./dense"
import { adjoint, batched, hermitian, lowerHalf, squareShape } from "./matrix"
import { inverseOfTriangle, solveTriangularPrimitive } from "./triangular"

/** L of a = L·Lᴴ in place, from and to the lower triangle; zeros above. */
function factorCholesky(a: Dense): Dense {
  const { re, im, rows: n } = a
  for (let i = 0; i < n; i++) {
    im[i * n + i] = 0
    re.fill(0, i * n + i + 1, (i + 1) * n)
    im.fill(0, i * n + i + 1, (i + 1) * n)
  }
  if (!a.isFinite()) {
    for (let i = 0; i < n; i++) re.fill(Number.NaN, i * n, i * n + i + 1)
    return a
  }
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      const at = i * n + j
      let [x, y] = [re[at], im[at]]
      for (let k = 0; k < j; k++) {
        const [p, q] = [i * n + k, j * n + k]
        x -= re[p] * re[q] + im[p] * im[q]
        y -= im[p] * re[q] - re[p] * im[q]
      }
      if (i === j && x <= 0) throw new NumericError("linalg.cholesky", "the matrix is not positive definite")
      re[at] = i === j ? Math.sqrt(x) : x / re[j * n + j]
      im[at] = i === j ? 0 : y / re[j * n + j]
    }
  }
  return a
}

/** Input: Hermitian a [..., N, N], of which one triangle is read. Output: L with a = L·Lᴴ, or U = Lᴴ. */
const choleskyPrimitive: Apply<{ upper: boolean }> = definePrimitive({
  name: "cholesky",
  params: { upper: "bool" },
  infer: ([a]) => {
    squareShape("linalg.cholesky", a)
    return a
  },
  reference: (inputs, outputs, { upper }) =>
    eachMatrix(inputs, outputs, ([a]) => {
      const low = factorCholesky(upper ? a.adjoint() : a)
      return [upper ? low.adjoint() : low]
    }),
  // With Φ the lower triangle with half the diagonal: dL = L·Φ(L⁻¹·dA·L⁻ᴴ), where dA is taken to be Hermitian.
  // Murray, "Differentiation of the Cholesky decomposition", 2016.
  vjp: ({ outputs: [y], cotangents: [given], params: { upper } }) => {
    const [low, g] = upper ? [adjoint(y), adjoint(given)] : [y, given]
    const up = adjoint(low)
    const inner = solveTriangularPrimitive([up, lowerHalf(up.matmul(g))], { upper: true })
    return [hermitian(adjoint(solveTriangularPrimitive([up, adjoint(inner)], { upper: true })))]
  },
  jvp: ({ outputs: [y], tangents: [t], params: { upper } }) => {
    if (!t) return [null]
    const low = upper ? adjoint(y) : y
    const left = solveTriangularPrimitive([low, hermitian(t)], { upper: false })
    const d = low.matmul(lowerHalf(solveTriangularPrimitive([low, adjoint(left)], { upper: false })))
    return [upper ? adjoint(d) : d]
  },
  vmap: (c) => batched(c, choleskyPrimitive),
})

const choleskyArgs = operation(
  "linalg.cholesky",
  { a: "array", upper: "bool?" },
  (a: Array, upper: boolean = false): Array => choleskyPrimitive([a], { upper: Boolean(upper) }),
)
/**
 * The Cholesky factors of positive definite, Hermitian matrices [..., N, N]: the lower triangle L with a = L·Lᴴ, or, with `upper`, U with
 * a = Uᴴ·U. Only that triangle of `a` is read; derivatives take `a` to be Hermitian, and gradients are.
 *
 * @throws ShapeError if the matrices are not square; DTypeError unless float32, float64 or complex64; at evaluation, NumericError for a
 * matrix that is not positive definite
 * @example
 * mx.linalg.cholesky(mx.array([[4, 2], [2, 5]])).tolist() // => [[2, 0], [1, 2]]
 */
export function cholesky(a: Array, upper?: boolean, options?: StreamOptions): Array
export function cholesky(a: Array, options: { upper?: boolean } & StreamOptions): Array
export function cholesky(...args: unknown[]): Array {
  return choleskyArgs(args)
}

const choleskyInvArgs = operation(
  "linalg.choleskyInv",
  { a: "array", upper: "bool?" },
  (a: Array, upper: boolean = false): Array => {
    const inverse = inverseOfTriangle("linalg.choleskyInv", a, Boolean(upper))
    return upper ? inverse.matmul(adjoint(inverse)) : adjoint(inverse).matmul(inverse)
  },
)
/**
 * The inverses of the matrices whose Cholesky factors are given: (L·Lᴴ)⁻¹ for lower triangles L [..., N, N], (Uᴴ·U)⁻¹ for upper ones with
 * `upper`.
 *
 * @throws ShapeError if the matrices are not square; DTypeError unless float32, float64 or complex64; at evaluation, NumericError for a
 * zero on the diagonal
 * @example
 * mx.linalg.choleskyInv(mx.array([[2, 0], [0, 4]])).tolist() // => [[0.25, 0], [0, 0.0625]]
 */
export function choleskyInv(a: Array, upper?: boolean, options?: StreamOptions): Array
export function choleskyInv(a: Array, options: { upper?: boolean } & StreamOptions): Array
export function choleskyInv(...args: unknown[]): Array {
  return choleskyInvArgs(args)
}
