/**
 * The Hadamard transform of the last axis, by orthogonal matrices of 1 and −1.
 */
import { operation, type StreamOptions } from "../graph/args"
import { atLeastFloat, complex64 } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { toDtype } from "./constant"
import { moveToFront } from "./view"

/** @internal The factors m and k of n = m · 2ᵏ, for a supported m, or null. */
export function hadamardFactor(n: number): { m: number; power: number } | null {
  for (const m of [1, 12, 20, 28]) {
    const power = n / m
    if (Number.isInteger(power) && power >= 1 && Number.isInteger(Math.log2(power))) return { m, power }
  }
  return null
}

/**
 * Hadamard matrices of sizes 12, 20 and 28. Paley (1933): for q = 5 the symmetric conference matrix S of quadratic residues gives S ⊗ [[1,
 * 1], [1, −1]] + I ⊗ [[1, −1], [−1, −1]], of size 12. Williamson (1944): four symmetric circulant matrices, here by their first rows, in
 * the Williamson array.
 */
export function hadamardMatrix(m: number): (i: number, j: number) => number {
  if (m === 1) return () => 1
  if (m === 12) {
    const residue = [0, 1, -1, -1, 1]
    const conference = (i: number, j: number): number =>
      i === j ? 0 : i === 0 || j === 0 ? 1 : residue[(j - i + 5) % 5]
    return (i, j) => {
      const [a, b, last] = [i >> 1, j >> 1, i % 2 === 1 && j % 2 === 1]
      if (a !== b) return last ? -conference(a, b) : conference(a, b)
      return i % 2 === 0 && j % 2 === 0 ? 1 : -1
    }
  }
  const rows = { 20: ["+----", "+----", "++--+", "+-++-"], 28: ["+------", "++----+", "+-+--+-", "+--++--"] }
  const [size, circulants] = [m / 4, rows[m as 20 | 28]]
  const signs = [
    [1, 1, 1, 1],
    [-1, 1, -1, 1],
    [-1, 1, 1, -1],
    [-1, -1, 1, 1],
  ]
  return (i, j) => {
    const [a, b] = [Math.floor(i / size), Math.floor(j / size)]
    // Block (a, b) is the circulant a XOR b.
    return circulants[a ^ b][(((j - i) % size) + size) % size] === "+" ? signs[a][b] : -signs[a][b]
  }
}

/** y = scale · H x for each row x, or with the transpose of H. */
const transform: Apply<{ scale: number; transposed: boolean }> = definePrimitive({
  name: "hadamardTransform",
  params: { scale: "f64", transposed: "bool" },
  infer: ([x]) => {
    if (x.dtype.kind !== "floating")
      throw new DTypeError("hadamardTransform", `needs a floating dtype, received ${x.dtype.name}`)
    const n = x.shape[x.shape.length - 1]
    if (n === undefined || !hadamardFactor(n))
      throw new ShapeError(
        "hadamardTransform",
        `the last axis must have a size of m · 2^k with m of 1, 12, 20 or 28, received ${n ?? "a scalar"}`,
      )
    return x
  },
  // H is the Kronecker product of the matrix of size m and k factors [[1, 1], [1, −1]].
  reference: ([x], [y], { scale, transposed }) => {
    const n = x.shape[x.shape.length - 1]
    const { m, power } = hadamardFactor(n) as { m: number; power: number }
    const base = hadamardMatrix(m)
    const row = new Float64Array(n)
    const mixed = new Float64Array(n)
    for (let start = 0; start < x.data.length; start += n) {
      for (let i = 0; i < n; i++) row[i] = x.data[start + i]
      for (let h = 1; h < power; h *= 2) {
        for (let i = 0; i < n; i++) {
          if ((i % power) & h) continue
          const [a, b] = [row[i], row[i + h]]
          row[i] = a + b
          row[i + h] = a - b
        }
      }
      for (let i = 0; i < m; i++) {
        for (let q = 0; q < power; q++) {
          let sum = 0
          for (let j = 0; j < m; j++) sum += (transposed ? base(j, i) : base(i, j)) * row[j * power + q]
          mixed[i * power + q] = sum
        }
      }
      for (let i = 0; i < n; i++) y.data[start + i] = mixed[i] * scale
    }
  },
  vjp: ({ cotangents: [g], params: { scale, transposed } }) => [
    transform([g], { scale, transposed: !transposed }),
  ],
  jvp: ({ tangents: [t], params }) => [t && transform([t], params)],
  vmap: ({ inputs: [x], axes: [axis], params }) => ({
    outputs: [transform([moveToFront(x, axis as number)], params)],
    axes: [0],
  }),
})

const hadamardTransformArgs = operation(
  "hadamardTransform",
  { a: "array", scale: "number?" },
  (given: Array, scale?: number | null) => {
    const op = "hadamardTransform"
    if (scale !== undefined && scale !== null && typeof scale !== "number")
      throw new ArgumentError(op, `scale must be a number, received ${describe(scale)}`)
    if (given.dtype === complex64)
      throw new DTypeError(op, "complex64 is not supported", {
        hint: "Transform the real and imaginary parts separately",
      })
    const x = toDtype(given, atLeastFloat(given.dtype))
    const n = x.ndim === 0 ? 1 : x.shape[x.ndim - 1]
    const factor = scale ?? 1 / Math.sqrt(n)
    // A matrix of one element.
    if (n === 1) return factor === 1 ? x : x.multiply(factor)
    return transform([x], { scale: factor, transposed: false })
  },
)
/**
 * The Walsh–Hadamard transform over the last axis, in Sylvester's order: scale · H x, where H has elements ±1. The size must be m · 2ᵏ with
 * m = 1, 12, 20 or 28. `scale` is 1/√n by default, which makes the transform orthogonal. Integers are converted to float32.
 * @method false
 * @throws ShapeError for another size of the last axis; DTypeError for complex64
 * @example
 * mx.hadamardTransform(mx.array([1, 2, 3, 4]), 1).tolist() // => [10, -2, -4, 0]
 */
export function hadamardTransform(a: Array, scale?: number | null, options?: StreamOptions): Array
export function hadamardTransform(a: Array, options: { scale?: number | null } & StreamOptions): Array
export function hadamardTransform(...args: unknown[]): Array {
  return hadamardTransformArgs(args)
}
