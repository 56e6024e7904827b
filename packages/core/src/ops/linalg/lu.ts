/**
 * LU factorization with partial pivoting.
 */
import { operation, type StreamOptions } from "../../graph/args"
import { uint32 } from "../../graph/dtype"
import type { Array } from "../../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../../graph/primitive"
import { triu } from "../diagonal"
import { concatenate } from "../join"
import { broadcastTo } from "../reduce"
import { argsort } from "../sort"
import { takeAlongAxis } from "../take"
import { Dense, eachMatrix } from "./dense"
import { adjoint, batched, block, identityFor, matrixShape, strictlyLower } from "./matrix"
import { solveTriangularPrimitive } from "./triangular"

/**
 * Factors in place, the factors packed into one matrix. As LAPACK's getrf does, the pivot is the largest |re| + |im| of its
 * column. Gives the row each step was exchanged with.
 */
export function factorLu(a: Dense): number[] {
  const { re, im, rows, cols } = a
  const pivots: number[] = []
  for (let j = 0; j < Math.min(rows, cols); j++) {
    let pivot = j
    const size = (i: number): number => Math.abs(re[i * cols + j]) + Math.abs(im[i * cols + j])
    for (let i = j + 1; i < rows; i++) if (size(i) > size(pivot)) pivot = i
    pivots.push(pivot)
    a.swapRows(j, pivot)
    const d = j * cols + j
    const norm = re[d] ** 2 + im[d] ** 2
    if (norm === 0) continue
    for (let i = j + 1; i < rows; i++) {
      const at = i * cols + j
      const [x, y] = [re[at], im[at]]
      const [fr, fi] =
        im[d] === 0
          ? [x / re[d], y / re[d]]
          : [(x * re[d] + y * im[d]) / norm, (y * re[d] - x * im[d]) / norm]
      re[at] = fr
      im[at] = fi
      for (let k = j + 1; k < cols; k++) {
        const [from, to] = [j * cols + k, i * cols + k]
        re[to] -= fr * re[from] - fi * im[from]
        im[to] -= fr * im[from] + fi * re[from]
      }
    }
  }
  return pivots
}

/** The rows of the original in the order of the factors' rows. */
function orderAfter(pivots: readonly number[], rows: number): number[] {
  const order = globalThis.Array.from({ length: rows }, (_, i) => i)
  pivots.forEach((p, i) => {
    const kept = order[i]
    order[i] = order[p]
    order[p] = kept
  })
  return order
}

/** Inputs: a [..., M, N]. Outputs: the factors packed, K = min(M, N) pivots, and the M row numbers p with a = L[p]·U. */
export const luPrimitive: Apply<NoParams> = definePrimitive({
  name: "lu",
  infer: ([a]) => {
    const { batch, rows, cols } = matrixShape("linalg.lu", a)
    return [
      { shape: a.shape, dtype: a.dtype },
      { shape: [...batch, Math.min(rows, cols)], dtype: uint32 },
      { shape: [...batch, rows], dtype: uint32 },
    ]
  },
  reference: (inputs, outputs) =>
    eachMatrix(inputs, outputs, ([a]) => {
      const good = a.isFinite()
      const pivots = good
        ? factorLu(a)
        : globalThis.Array.from({ length: Math.min(a.rows, a.cols) }, (_, i) => i)
      const permutation: number[] = []
      orderAfter(pivots, a.rows).forEach((row, i) => {
        permutation[row] = i
      })
      return [good ? a : a.filled(Number.NaN), Dense.column(pivots), Dense.column(permutation)]
    }),
  vjp: ({ outputs: [packed, , permutation], cotangents: [g] }) => [pullLu(packed, permutation, g)],
  jvp: ({ outputs: [packed, , permutation], tangents: [t] }) => [
    t && pushLu(packed, permutation, t),
    null,
    null,
  ],
  vmap: (c) => batched(c, luPrimitive),
  // Of elements that are equal but for rounding either may be the pivot.
  facts: { ambiguous: true },
})

/** Row i of the result is row p[i] of x. */
export function takeRows(x: Array, p: Array): Array {
  return takeAlongAxis(x, broadcastTo(p.expandDims(-1), x.shape), -2)
}

/** L and U of the packed factors. */
function unpack(packed: Array): { low: Array; up: Array; k: number } {
  const [rows, cols] = packed.shape.slice(-2)
  const k = Math.min(rows, cols)
  const left = block(packed, [0, rows], [0, k])
  const one = rows === k ? identityFor(packed, k) : identityRows(packed, rows, k)
  return { low: strictlyLower(left).add(one), up: triu(block(packed, [0, k], [0, cols])), k }
}
const identityRows = (x: Array, rows: number, k: number): Array =>
  block(identityFor(x, Math.max(rows, k)), [0, rows], [0, k])

const joinRows = (top: Array, bottom: Array): Array => concatenate([top, bottom], -2)
const joinColumns = (left: Array, right: Array): Array => concatenate([left, right], -1)

const solveLower = (a: Array, b: Array): Array => solveTriangularPrimitive([a, b], { upper: false })
const solveUpper = (a: Array, b: Array): Array => solveTriangularPrimitive([a, b], { upper: true })
/** x·a⁻¹ for an upper triangle a. */
const overUpper = (x: Array, a: Array): Array => adjoint(solveLower(adjoint(a), adjoint(x)))

/**
 * With a permuted, Φ the strictly lower and Ψ the upper part: H = L₁⁻¹·dA₁·U₁⁻¹, dL₁ = L₁·Φ(H), dU₁ = Ψ(H)·U₁; rows below: dL₂ =
 * dA₂·U₁⁻¹ − L₂·Ψ(H); columns to the right: dU₂ = L₁⁻¹·dA₂ − Φ(H)·U₂.
 */
function pushLu(packed: Array, permutation: Array, t: Array): Array {
  const { low, up, k } = unpack(packed)
  const [rows, cols] = packed.shape.slice(-2)
  const d = takeRows(t, argsort(permutation, -1))
  const [l1, u1] = [block(low, [0, k], [0, k]), block(up, [0, k], [0, k])]
  const left = solveLower(l1, block(d, [0, k], [0, cols]))
  const h = overUpper(block(left, [0, k], [0, k]), u1)
  const dlow1 = l1.matmul(strictlyLower(h))
  const dup1 = triu(h).matmul(u1)
  const square = dlow1.add(dup1)
  if (rows > k) {
    const below = overUpper(block(d, [k, rows], [0, k]), u1).subtract(
      block(low, [k, rows], [0, k]).matmul(triu(h)),
    )
    return joinRows(square, below)
  }
  if (cols > k) {
    const right = block(left, [0, k], [k, cols]).subtract(
      strictlyLower(h).matmul(block(up, [0, k], [k, cols])),
    )
    return joinColumns(square, right)
  }
  return square
}

/** The transpose of {@link pushLu}. */
function pullLu(packed: Array, permutation: Array, g: Array): Array {
  const { low, up, k } = unpack(packed)
  const [rows, cols] = packed.shape.slice(-2)
  const [l1, u1] = [block(low, [0, k], [0, k]), block(up, [0, k], [0, k])]
  const g1 = block(g, [0, k], [0, k])
  let phi = adjoint(l1).matmul(strictlyLower(g1))
  let psi = triu(g1).matmul(adjoint(u1))
  const below = rows > k ? block(g, [k, rows], [0, k]) : null
  const right = cols > k ? block(g, [0, k], [k, cols]) : null
  if (below) psi = psi.subtract(adjoint(block(low, [k, rows], [0, k])).matmul(below))
  if (right) phi = phi.subtract(right.matmul(adjoint(block(up, [0, k], [k, cols]))))
  const overUpperAdjoint = (x: Array): Array => adjoint(solveUpper(u1, adjoint(x)))
  const inner = strictlyLower(phi).add(triu(psi))
  let out = solveUpper(adjoint(l1), overUpperAdjoint(inner))
  if (below) out = joinRows(out, overUpperAdjoint(below))
  if (right) out = joinColumns(out, solveUpper(adjoint(l1), right))
  return takeRows(out, permutation)
}

const luFactorArgs = operation("linalg.luFactor", { a: "array" }, (a: Array): [Array, Array] => {
  const [packed, pivots] = luPrimitive.all([a])
  return [packed, pivots]
})
/**
 * The LU factorization of matrices [..., M, N] in LAPACK's compact form: one array of the shape of `a` with U on and above the
 * diagonal and L, without its ones, below; and uint32 pivots [..., min(M, N)]: at step i, row i was exchanged with row
 * pivots[i]. Singular matrices have zeros on U's diagonal.
 *
 * @throws ShapeError for fewer than two dimensions; DTypeError unless float32, float64 or complex64
 * @example
 * const [packed, pivots] = mx.linalg.luFactor(mx.array([[2, 4], [4, 4]]))
 * packed.tolist() // => [[4, 4], [0.5, 2]]
 * pivots.tolist() // => [1, 1]
 */
export function luFactor(a: Array, options?: StreamOptions): [packed: Array, pivots: Array]
export function luFactor(...args: unknown[]): [packed: Array, pivots: Array] {
  return luFactorArgs(args)
}

const luArgs = operation("linalg.lu", { a: "array" }, (a: Array): [Array, Array, Array] => {
  const [packed, , permutation] = luPrimitive.all([a])
  const { low, up } = unpack(packed)
  return [permutation, low, up]
})
/**
 * The LU factorization of matrices [..., M, N] with partial pivoting: uint32 row numbers p [..., M], a lower triangle L [..., M, K] with
 * ones on its diagonal and an upper triangle U [..., K, N], K = min(M, N), so that a = L[p]·U, with the rows of L in the order p.
 *
 * @throws ShapeError for fewer than two dimensions; DTypeError unless float32, float64 or complex64
 * @example
 * const [p, L, U] = mx.linalg.lu(mx.array([[2, 4], [4, 4]]))
 * p.tolist() // => [1, 0]
 * mx.take(L, p, 0).matmul(U).tolist() // => [[2, 4], [4, 4]]
 */
export function lu(a: Array, options?: StreamOptions): [p: Array, L: Array, U: Array]
export function lu(...args: unknown[]): [p: Array, L: Array, U: Array] {
  return luArgs(args)
}
