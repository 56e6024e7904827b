/**
 * Linear systems with general matrices, and inverses.
 */
import { operation, type StreamOptions } from "../../graph/args"
import type { Array } from "../../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../../graph/primitive"
import { Dense, eachMatrix } from "./dense"
import { factorLu } from "./lu"
import { adjoint, batched, batchedPair, equation, squareShape } from "./matrix"
import { singular, substitute } from "./triangular"

/** b ← a⁻¹·b; a becomes its factors. @throws NumericError */
function solveDense(op: string, a: Dense, b: Dense): Dense {
  if (!a.isFinite()) return b.filled(Number.NaN)
  factorLu(a).forEach((p, i) => {
    b.swapRows(i, p)
  })
  for (let i = 0; i < a.rows; i++) if (a.abs(i, i) === 0) throw singular(op)
  substitute(a, b, false, true)
  substitute(a, b, true)
  return b
}

/** Inputs: a [..., N, N] and b [..., N, K]. Output: x with a·x = b. */
const solvePrimitive: Apply<NoParams> = definePrimitive({
  name: "solve",
  infer: ([a, b]) => {
    squareShape("linalg.solve", a)
    return b
  },
  reference: (inputs, outputs) => eachMatrix(inputs, outputs, ([a, b]) => [solveDense("linalg.solve", a, b)]),
  // x = a⁻¹·b: db = a⁻ᴴ·g, da = −db·xᴴ.
  vjp: ({ inputs: [a], outputs: [x], cotangents: [g], wanted }) => {
    const db = solvePrimitive([adjoint(a), g])
    return [wanted[0] ? db.matmul(adjoint(x)).negative() : null, db]
  },
  jvp: ({ inputs: [a], outputs: [x], tangents: [ta, tb] }) => {
    const change = ta?.matmul(x).negative()
    return [solvePrimitive([a, change && tb ? change.add(tb) : (change ?? (tb as Array))])]
  },
  vmap: (c) => batchedPair(c, solvePrimitive),
})

const solveArgs = operation(
  "linalg.solve",
  { a: "array", b: "array" },
  (first: Array, second: Array): Array => {
    const { a, b, finish } = equation("linalg.solve", first, second)
    return finish(solvePrimitive([a, b]))
  },
)
/**
 * Solves a·x = b for square matrices a [..., N, N] and b [..., N, K] or a vector [N]; batch axes broadcast.
 *
 * @throws ShapeError if a is not square or the number of rows of b differs; DTypeError unless the two promote to float32, float64 or
 * complex64; at evaluation, NumericError for a singular matrix
 * @example
 * mx.linalg.solve(mx.array([[2, 1], [1, 3]]), mx.array([3, 4])).tolist() // => [1, 1]
 */
export function solve(a: Array, b: Array, options?: StreamOptions): Array
export function solve(...args: unknown[]): Array {
  return solveArgs(args)
}

/** Input: a [..., N, N]. Output: its inverse. */
const invPrimitive: Apply<NoParams> = definePrimitive({
  name: "inv",
  infer: ([a]) => {
    squareShape("linalg.inv", a)
    return a
  },
  reference: (inputs, outputs) =>
    eachMatrix(inputs, outputs, ([a]) => [solveDense("linalg.inv", a, Dense.identity(a.rows))]),
  // d(a⁻¹) = −a⁻¹·da·a⁻¹
  vjp: ({ outputs: [y], cotangents: [g] }) => [adjoint(y).matmul(g).matmul(adjoint(y)).negative()],
  jvp: ({ outputs: [y], tangents: [t] }) => [t && y.matmul(t).matmul(y).negative()],
  vmap: (c) => batched(c, invPrimitive),
})

/** The inverses of checked matrices. @internal */
export const inverse = (a: Array): Array => invPrimitive([a])

const invArgs = operation("linalg.inv", { a: "array" }, (a: Array): Array => invPrimitive([a]))
/**
 * The inverses of square matrices [..., N, N]. For equations, {@link solve} is faster and more precise.
 *
 * @throws ShapeError when the matrices are not square; DTypeError unless float32, float64 or complex64; at evaluation, NumericError for a
 * singular matrix
 * @example
 * mx.linalg.inv(mx.array([[1, 2], [0, 4]])).tolist() // => [[1, -0.5], [0, 0.25]]
 */
export function inv(a: Array, options?: StreamOptions): Array
export function inv(...args: unknown[]): Array {
  return invArgs(args)
}
