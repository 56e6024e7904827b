/**
 * Triangular linear systems and inverses.
 */
import { operation, type StreamOptions } from "../../graph/args"
import { NumericError } from "../../graph/errors"
import type { Array } from "../../graph/graph"
import { type Apply, definePrimitive } from "../../graph/primitive"
import { sameShape } from "../../graph/shape"
import { tril, triu } from "../diagonal"
import { broadcastTo } from "../reduce"
import { type Dense, eachMatrix } from "./dense"
import { adjoint, batchedPair, equation, identityFor, squareShape } from "./matrix"

/** b ← t⁻¹·b, reading one triangle of t; `unit` takes ones for its diagonal. */
export function substitute(t: Dense, b: Dense, upper: boolean, unit = false): void {
  const n = t.rows
  for (let step = 0; step < n; step++) {
    const i = upper ? n - 1 - step : step
    const d = i * n + i
    const norm = t.re[d] ** 2 + t.im[d] ** 2
    for (let k = 0; k < b.cols; k++) {
      const at = i * b.cols + k
      let [x, y] = [b.re[at], b.im[at]]
      for (let j = upper ? i + 1 : 0; j < (upper ? n : i); j++) {
        const [p, q] = [i * n + j, j * b.cols + k]
        x -= t.re[p] * b.re[q] - t.im[p] * b.im[q]
        y -= t.re[p] * b.im[q] + t.im[p] * b.re[q]
      }
      const real = t.im[d] === 0
      b.re[at] = unit ? x : real ? x / t.re[d] : (x * t.re[d] + y * t.im[d]) / norm
      b.im[at] = unit ? y : real ? y / t.re[d] : (y * t.re[d] - x * t.im[d]) / norm
    }
  }
}

/** Inputs: a [..., N, N], of which one triangle is read, and b [..., N, K]. Output: x with a·x = b. */
export const solveTriangularPrimitive: Apply<{ upper: boolean }> = definePrimitive({
  name: "solveTriangular",
  params: { upper: "bool" },
  infer: ([a, b]) => {
    squareShape("linalg.solveTriangular", a)
    return b
  },
  reference: (inputs, outputs, { upper }) =>
    eachMatrix(inputs, outputs, ([a, b]) => {
      for (let i = 0; i < a.rows; i++) if (a.abs(i, i) === 0) throw singular("linalg.solveTriangular")
      substitute(a, b, upper)
      return [b]
    }),
  // x = a⁻¹·b: db = a⁻ᴴ·g, da = the triangle of −db·xᴴ.
  vjp: ({ inputs: [a], outputs: [x], cotangents: [g], params: { upper }, wanted }) => {
    const db = solveTriangularPrimitive([adjoint(a), g], { upper: !upper })
    const da = wanted[0] ? triangle(db.matmul(adjoint(x)).negative(), upper) : null
    return [da, db]
  },
  jvp: ({ inputs: [a], outputs: [x], tangents: [ta, tb], params }) => {
    const change = ta && triangle(ta, params.upper).matmul(x).negative()
    const sum = change && tb ? change.add(tb) : (change ?? (tb as Array))
    return [solveTriangularPrimitive([a, sum], params)]
  },
  vmap: (c) => batchedPair(c, solveTriangularPrimitive),
})
const triangle = (x: Array, upper: boolean): Array => (upper ? triu(x) : tril(x))

/** The error of a matrix without an inverse. */
export const singular = (op: string): NumericError => new NumericError(op, "the matrix is singular")

const solveTriangularArgs = operation(
  "linalg.solveTriangular",
  { a: "array", b: "array", upper: "bool?" },
  (first: Array, second: Array, upper: boolean = false): Array => {
    const { a, b, finish } = equation("linalg.solveTriangular", first, second)
    return finish(solveTriangularPrimitive([a, b], { upper: Boolean(upper) }))
  },
)
/**
 * Solves a·x = b for triangular matrices a [..., N, N], of which only one triangle is read: the lower one unless `upper`. b is [..., N, K]
 * or a vector [N]; batch axes broadcast.
 *
 * @named upper
 * @throws ShapeError if a is not square or the number of rows of b differs; DTypeError unless float32, float64 or complex64; at evaluation,
 * NumericError for a zero on the diagonal
 * @example
 * mx.linalg.solveTriangular(mx.array([[2, 0], [1, 4]]), mx.array([2, 9])).tolist() // => [1, 2]
 */
export function solveTriangular(a: Array, b: Array, options?: { upper?: boolean } & StreamOptions): Array
export function solveTriangular(...args: unknown[]): Array {
  return solveTriangularArgs(args)
}

/** The inverses of triangles. */
export function inverseOfTriangle(op: string, a: Array, upper: boolean): Array {
  const { n } = squareShape(op, a)
  const one = identityFor(a, n)
  const full = sameShape(one.shape, a.shape) ? one : broadcastTo(one, a.shape)
  return solveTriangularPrimitive([a, full], { upper })
}

const triInvArgs = operation(
  "linalg.triInv",
  { a: "array", upper: "bool?" },
  (a: Array, upper: boolean = false): Array => inverseOfTriangle("linalg.triInv", a, Boolean(upper)),
)
/**
 * The inverses of triangular matrices [..., N, N], of which only one triangle is read: the lower one unless `upper`.
 *
 * @throws ShapeError if the matrices are not square; DTypeError unless float32, float64 or complex64; at evaluation, NumericError for a
 * zero on the diagonal
 * @example
 * mx.linalg.triInv(mx.array([[2, 0], [1, 4]])).tolist() // => [[0.5, 0], [-0.125, 0.25]]
 */
export function triInv(a: Array, upper?: boolean, options?: StreamOptions): Array
export function triInv(a: Array, options: { upper?: boolean } & StreamOptions): Array
export function triInv(...args: unknown[]): Array {
  return triInvArgs(args)
}
