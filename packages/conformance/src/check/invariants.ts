/**
 * Invariants of results that are unique only up to a choice: the signs of singular vectors, the order of eigenvalues, the pivot where two
 * are equal but for rounding. A backend's column compares this in place of the numbers.
 */
import * as mx from "@lazuli/core"
import { type AnyParams, isInexact } from "@lazuli/core/engine"
import { onBackendNamed } from "../backend-choice"
import { type HostValues, hostOf } from "../golden/compare"
import { dtypeNamed } from "../golden/values"

/** The arguments of an {@link Invariant}. Arrays are on the reference backend, and what is real and floating in float64. */
export interface InvariantContext {
  readonly inputs: readonly mx.Array[]
  /** The results of a backend, or of the reference. */
  readonly outputs: readonly mx.Array[]
  /** The results of the reference: for those outputs that are unique. */
  readonly reference: readonly mx.Array[]
  readonly params: AnyParams
}

/** Says of a result what must be equal: pairs by name, held to the tolerance of the result's dtype. */
export type Invariant = (
  context: InvariantContext,
) => Readonly<Record<string, readonly [got: mx.Array, want: mx.Array]>>

const adjoint = (x: mx.Array): mx.Array => x.conjugate().swapaxes(-1, -2)
const gram = (x: mx.Array): mx.Array => adjoint(x).matmul(x)
const identity = (like: mx.Array): mx.Array =>
  mx.broadcastTo(mx.eye(like.shape.at(-1) as number, { dtype: like.dtype }), like.shape)
const orthonormal = (x: mx.Array): [mx.Array, mx.Array] => [gram(x), identity(gram(x))]
const zero = (x: mx.Array): [mx.Array, mx.Array] => [x, mx.zerosLike(x)]
const columns = (x: mx.Array, from: number, to: number): mx.Array => x.index("...", `${from}:${to}`)
const rows = (x: mx.Array, from: number, to: number): mx.Array => x.index("...", `${from}:${to}`, ":")

/** Matrices divided by their Frobenius norms, and eigenvalues with them: then sums of products have the size of 1. */
function normalized(a: mx.Array, w: mx.Array): [a: mx.Array, w: mx.Array] {
  const squares = mx.square(mx.abs(a)).sum([-2, -1], true)
  const size = mx.where(squares.equal(0), 1, mx.sqrt(squares))
  return [a.divide(size), w.divide(size.squeeze(-1))]
}

/** Σ wᵏ = tr(Aᵏ) for k = 1 … N: it determines the N eigenvalues, each with its multiplicity, in whatever order they come. */
function eigenvalues(given: mx.Array, values: mx.Array): Record<string, [mx.Array, mx.Array]> {
  const n = given.shape.at(-1) as number
  const [a, w] = normalized(given.astype(mx.complex64), values)
  const pairs: Record<string, [mx.Array, mx.Array]> = {}
  for (let k = 1, power = a, powers = w; k <= n; k++, power = power.matmul(a), powers = powers.multiply(w))
    pairs[`the sum of the eigenvalues to the power ${k}`] = [
      powers.sum(-1),
      mx.diagonal(power, 0, -2, -1).sum(-1),
    ]
  return pairs
}

const eigenvectors = (a: mx.Array, w: mx.Array, v: mx.Array): [mx.Array, mx.Array] => [
  a.astype(v.dtype).matmul(v),
  v.multiply(w.expandDims(-2).astype(v.dtype)),
]

/** The order of rows after exchanges of row i with row pivots[i], as a permutation: where each row went. */
function permutationAfter(pivots: mx.Array, count: number): mx.Array {
  const k = pivots.shape.at(-1) as number
  const lists = pivots.size > 0 ? (pivots.reshape([-1, k]).tolist() as number[][]) : []
  const permutation = lists.flatMap((list) => {
    const order = globalThis.Array.from({ length: count }, (_, i) => i)
    list.forEach((p, i) => {
      ;[order[i], order[p]] = [order[p], order[i]]
    })
    return globalThis.Array.from({ length: count }, (_, row) => order.indexOf(row))
  })
  const without = globalThis.Array.from({ length: count }, (_, i) => i)
  const shape = [...pivots.shape.slice(0, -1), count]
  return lists.length > 0
    ? mx.array(permutation, mx.uint32).reshape(shape)
    : mx.broadcastTo(mx.array(without, mx.uint32), shape)
}

/** The invariants of core's primitives, by name. */
export const INVARIANTS: Readonly<Record<string, Invariant>> = {
  qr: ({ inputs: [a], outputs: [q, r] }) => ({
    Q·R: [q.matmul(r), a],
    Qᴴ·Q: orthonormal(q),
    "R below its diagonal": zero(mx.tril(r, -1)),
  }),
  svd: ({ inputs: [a], outputs: [u, s, vt], reference: [, expected] }) => {
    const k = s.shape.at(-1) as number
    const scaled = columns(u, 0, k).multiply(s.expandDims(-2).astype(u.dtype))
    return {
      U·S·Vᴴ: [scaled.matmul(rows(vt, 0, k)), a],
      Uᴴ·U: orthonormal(u),
      Vᴴ·V: orthonormal(adjoint(vt)),
      "the singular values": [s, expected],
      "what rises in the singular values": zero(
        k > 1 ? mx.maximum(columns(s, 1, k).subtract(columns(s, 0, k - 1)), 0) : mx.zerosLike(s),
      ),
    }
  },
  eigh: ({ inputs: [given], outputs: [w, v], reference: [expected], params }) => {
    const [triangle, strict] =
      params.uplo === "U" ? [mx.triu(given), mx.triu(given, 1)] : [mx.tril(given), mx.tril(given, -1)]
    const diagonal = triangle.subtract(strict)
    // Imaginary parts on the diagonal of a Hermitian matrix are not read.
    const a = strict.add(adjoint(strict)).add(diagonal.add(adjoint(diagonal)).multiply(0.5))
    return {
      A·V: eigenvectors(a, w, v),
      Vᴴ·V: orthonormal(v),
      "the eigenvalues": [w, expected],
    }
  },
  eig: ({ inputs: [given], outputs: [values, v] }) => {
    const [a, w] = normalized(given, values)
    const lengths = mx.square(mx.abs(v)).sum(-2)
    return {
      A·V: eigenvectors(a, w, v),
      "the lengths of the eigenvectors": [lengths, mx.onesLike(lengths)],
      ...eigenvalues(given, values),
    }
  },
  eigvals: ({ inputs: [a], outputs: [w] }) => eigenvalues(a, w),
  lu: ({ inputs: [a], outputs: [packed, pivots, permutation] }) => {
    const [m, n] = packed.shape.slice(-2)
    const k = Math.min(m, n)
    const low = mx.tril(columns(packed, 0, k), -1).add(mx.eye(m, { m: k, dtype: packed.dtype }))
    const up = mx.triu(rows(packed, 0, k))
    const sizes = mx.abs(low)
    // A pivot is the largest |re| + |im| of its column, which is at most √2 times the modulus.
    const bound = mx.full(sizes.shape, packed.dtype === mx.complex64 ? Math.SQRT2 : 1, sizes.dtype)
    const permuted = mx.takeAlongAxis(low, mx.broadcastTo(permutation.expandDims(-1), low.shape), -2)
    return {
      "L[p]·U": [permuted.matmul(up), a],
      "the permutation that follows from the pivots": [permutationAfter(pivots, m), permutation],
      "L where it exceeds what pivots allow": [mx.maximum(sizes, bound), bound],
    }
  },
}

/** An array of such elements: of real floats in float64. */
function arrayOf({ dtype, shape, values }: HostValues): mx.Array {
  if (dtype === "complex64")
    return mx
      .array(Float32Array.from(values as number[]))
      .view(mx.complex64)
      .reshape(shape)
  const kind = dtypeNamed(dtype)
  return mx.array(values as number[], isInexact(kind) ? mx.float64 : kind).reshape(shape)
}

/** The results of one application: its inputs, what came out, and what comes out by the reference. */
export interface Result {
  readonly inputs: readonly HostValues[]
  readonly outputs: readonly HostValues[]
  readonly reference: readonly HostValues[]
  readonly params: AnyParams
}

/** An invariant's pairs for a result. */
export function pairsOf(
  invariant: Invariant,
  { inputs, outputs, reference, params }: Result,
): { what: string; got: HostValues; want: HostValues }[] {
  return onBackendNamed("reference", () => {
    const pairs = invariant({
      inputs: inputs.map(arrayOf),
      outputs: outputs.map(arrayOf),
      reference: reference.map(arrayOf),
      params,
    })
    return Object.entries(pairs).map(([what, [got, want]]) => ({
      what,
      got: hostOf(got),
      want: hostOf(want),
    }))
  })
}
