/**
 * Determinants.
 */
import { asArrayArgument, operation, type StreamOptions } from "../../graph/args"
import { atLeastFloat, complex64, type Dtype } from "../../graph/dtype"
import type { Array } from "../../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../../graph/primitive"
import { arange } from "../arange"
import { where } from "../binary"
import { toDtype, wide } from "../constant"
import { ones } from "../creation"
import { prod, sum } from "../reduce"
import { cumprod } from "../scan"
import { luPrimitive } from "./lu"
import { adjoint, batched, block, diagonalsOf, realOf, scaleColumns, squareShape } from "./matrix"
import { inverse } from "./solve"
import { thinSvd } from "./svd"

/** U's diagonal of a's LU factorization, and the sign of the row exchanges, ±1. */
function triangleOf(a: Array): { diagonal: Array; parity: Array } {
  const [packed, pivots] = luPrimitive.all([a])
  const n = a.shape[a.ndim - 1]
  const exchanges = sum(pivots.notEqual(arange(n).astype(pivots.dtype)), -1)
  const parity = where(exchanges.remainder(2).equal(0), 1, -1)
  return { diagonal: diagonalsOf(packed), parity: toDtype(parity, a.dtype) }
}

const trace = (x: Array): Array => sum(diagonalsOf(x), -1)
/** A number a matrix, beside matrices. */
const beside = (x: Array): Array => x.expandDims([-2, -1])

/** Input: a [..., N, N]. Output: its determinants. */
const detPrimitive: Apply<NoParams> = definePrimitive({
  name: "det",
  infer: ([a]) => ({ shape: squareShape("linalg.det", a).batch, dtype: a.dtype }),
  decompose: ([a]) => {
    const n = a.shape[a.ndim - 1]
    if (n <= 3) return expand(a, n)
    const { diagonal, parity } = triangleOf(a)
    return prod(diagonal, -1).multiply(parity)
  },
  // d det = tr(adj(A)·dA), with the adjugate adj(A).
  vjp: ({ inputs: [a], cotangents: [g] }) => [cofactors([a]).multiply(beside(g))],
  jvp: ({ inputs: [a], tangents: [t] }) => [t && sum(cofactors([a]).conjugate().multiply(t), [-2, -1])],
  vmap: (c) => batched(c, detPrimitive),
})

/** The determinant as the polynomial it is. */
function expand(a: Array, n: number): Array {
  const at = (i: number, j: number): Array => block(a, [i, i + 1], [j, j + 1]).squeeze([-2, -1])
  const minor = (j: number, k: number): Array =>
    at(n - 2, j)
      .multiply(at(n - 1, k))
      .subtract(at(n - 2, k).multiply(at(n - 1, j)))
  if (n === 0) return ones(a.shape.slice(0, -2), { dtype: a.dtype })
  if (n === 1) return at(0, 0)
  if (n === 2) return minor(0, 1)
  return at(0, 0)
    .multiply(minor(1, 2))
    .subtract(at(0, 1).multiply(minor(0, 2)))
    .add(at(0, 2).multiply(minor(0, 1)))
}

/**
 * Input: a [..., N, N]. Output: the conjugate transposes of the adjugates, which singular matrices have too: with a = U·S·Vᴴ,
 * det(U)·det(Vᴴ) conjugated times U·adj(S)·Vᴴ, where adj(S) holds the products of all singular values but one.
 */
const cofactors: Apply<NoParams> = definePrimitive({
  name: "cofactors",
  infer: ([a]) => a,
  decompose: ([a]) => {
    const [u, s, vt] = thinSvd(a)
    const before = cumprod(s, -1, { inclusive: false })
    const others = before.multiply(cumprod(s, -1, { inclusive: false, reverse: true }))
    const phase = determinants(u).multiply(determinants(vt)).conjugate()
    return scaleColumns(u, others.astype(u.dtype)).matmul(vt).multiply(beside(phase))
  },
  // For an invertible matrix C = conj(D)·B with D = det A, B = A⁻ᴴ, so that dC = conj(D·tr(A⁻¹·dA))·B − conj(D)·B·dAᴴ·B.
  vjp: ({ inputs: [a], cotangents: [g] }) => {
    const b = adjoint(inverse(a))
    const factor = sum(g.conjugate().multiply(b), [-2, -1])
    return [
      beside(factor)
        .multiply(b)
        .subtract(b.matmul(adjoint(g)).matmul(b))
        .multiply(beside(determinants(a).conjugate())),
    ]
  },
  jvp: ({ inputs: [a], tangents: [t] }) => {
    if (!t) return [null]
    const b = adjoint(inverse(a))
    const growth = trace(adjoint(b).matmul(t)).conjugate()
    return [
      beside(growth)
        .multiply(b)
        .subtract(b.matmul(adjoint(t)).matmul(b))
        .multiply(beside(determinants(a).conjugate())),
    ]
  },
  vmap: (c) => batched(c, cofactors),
})
const determinants = (a: Array): Array =>
  a.shape[a.ndim - 1] <= 3 ? expand(a, a.shape[a.ndim - 1]) : detPrimitive([a])

/** Matrices of a floating dtype, from integers too, and in at least float32; and the dtype of results. */
const floats = (op: string, a: unknown): { matrices: Array; dtype: Dtype } => {
  const x = asArrayArgument(op, "a", a)
  const dtype = atLeastFloat(x.dtype)
  const matrices = toDtype(x, wide(dtype))
  squareShape(op, matrices)
  return { matrices, dtype }
}

const detArgs = operation("linalg.det", { a: "array" }, (a: Array): Array => {
  const { matrices, dtype } = floats("linalg.det", a)
  return toDtype(determinants(matrices), dtype)
})
/**
 * The determinants of square matrices [..., N, N]; integers are converted to float32. 16-bit floats are computed in float32. Also
 * differentiable at singular matrices.
 *
 * @throws ShapeError if the matrices are not square
 * @example
 * mx.linalg.det(mx.array([[1, 2], [3, 4]])).item() // => -2
 */
export function det(a: Array, options?: StreamOptions): Array
export function det(...args: unknown[]): Array {
  return detArgs(args)
}

/** Input: a [..., N, N]. Outputs: the sign, or phase, of its determinants, and the logarithms of their moduli. */
const slogdetPrimitive: Apply<NoParams> = definePrimitive({
  name: "slogdet",
  infer: ([a]) => {
    const { batch } = squareShape("linalg.slogdet", a)
    return [
      { shape: batch, dtype: a.dtype },
      { shape: batch, dtype: realOf(a.dtype) },
    ]
  },
  decompose: ([a]) => {
    const { diagonal, parity } = triangleOf(a)
    return [prod(diagonal.sign(), -1).multiply(parity), sum(diagonal.abs().log(), -1)]
  },
  // With τ = tr(A⁻¹·dA): d log|det| = Re τ, and d sign = sign·i·Im τ.
  vjp: ({ inputs: [a], outputs: [sign], cotangents: [gs, gl] }) => {
    let z = toDtype(gl, a.dtype)
    if (a.dtype === complex64) {
      const phase = gs.multiply(sign.conjugate())
      z = z.add(phase.subtract(phase.conjugate()).multiply(0.5))
    }
    return [beside(z).multiply(adjoint(inverse(a)))]
  },
  jvp: ({ inputs: [a], outputs: [sign], tangents: [t] }) => {
    if (!t) return [null, null]
    const growth = trace(inverse(a).matmul(t))
    const phase =
      a.dtype === complex64 ? growth.subtract(growth.conjugate()).multiply(0.5).multiply(sign) : null
    return [phase, growth.real]
  },
  vmap: (c) => batched(c, slogdetPrimitive),
})

const slogdetArgs = operation("linalg.slogdet", { a: "array" }, (a: Array): [Array, Array] => {
  const { matrices, dtype } = floats("linalg.slogdet", a)
  const [sign, logabs] = slogdetPrimitive.all([matrices])
  return [toDtype(sign, dtype), toDtype(logabs, realOf(dtype))]
})
/**
 * The determinants of square matrices [..., N, N] as sign·exp(logabs), which neither overflows nor underflows: signs 1, −1, or 0 for a
 * singular matrix (phases for complex matrices), and the logarithms of the moduli. Integers are converted to float32. 16-bit
 * floats are computed in float32.
 *
 * @throws ShapeError if the matrices are not square; at evaluation of a derivative for a singular matrix, NumericError
 * @example
 * const [sign, logabs] = mx.linalg.slogdet(mx.array([[1, 2], [3, 4]]))
 * sign.item() // => -1
 * logabs.item() // => 0.6931
 */
export function slogdet(a: Array, options?: StreamOptions): [sign: Array, logabs: Array]
export function slogdet(...args: unknown[]): [sign: Array, logabs: Array] {
  return slogdetArgs(args)
}
