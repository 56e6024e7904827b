/**
 * Norms of vectors and matrices.
 */
import { type Axes, operation, type StreamOptions } from "../../graph/args"
import { atLeastFloat, complex64, float16, float32 } from "../../graph/dtype"
import { ArgumentError, describe, ShapeError } from "../../graph/errors"
import type { Array } from "../../graph/graph"
import { normalizeAxes, normalizeAxis } from "../../graph/shape"
import { toDtype } from "../constant"
import { max, min, sum } from "../reduce"
import { singularValuesOf } from "./svd"

/** The order of a norm: p for vectors; 1, −1, 2, −2, ±Infinity, "fro", "f" or "nuc" for matrices; null for the Euclidean length. */
export type NormOrder = number | "fro" | "f" | "nuc" | null

/** Powers of float16 overflow long before the norm does. */
const wide = (x: Array): Array => (x.dtype === float16 ? toDtype(x, float32) : x)

/** √Σ|x|². */
function euclidean(x: Array, axes: readonly number[], keepdims: boolean): Array {
  const modulus = x.dtype === complex64 ? x.abs() : x
  return toDtype(sum(wide(modulus).square(), axes, keepdims).sqrt(), modulus.dtype)
}

/** As in MLX, these norms of complex arrays are complex64, with imaginary parts 0. */
function vectorNorm(x: Array, order: number, axis: number, keepdims: boolean): Array {
  if (order === 2) return euclidean(x, [axis], keepdims)
  const modulus = x.abs()
  const norm = (): Array => {
    if (order === 0) return sum(x.notEqual(0), axis, keepdims)
    if (order === 1) return sum(modulus, axis, keepdims)
    if (order === Number.POSITIVE_INFINITY) return max(modulus, axis, keepdims)
    if (order === Number.NEGATIVE_INFINITY) return min(modulus, axis, keepdims)
    return sum(wide(modulus).power(order), axis, keepdims).power(1 / order)
  }
  return toDtype(norm(), x.dtype)
}

function matrixNormOf(
  x: Array,
  order: number | string,
  rows: number,
  cols: number,
  keepdims: boolean,
): Array {
  const reduced = (y: Array): Array => toDtype(keepdims ? y : y.squeeze([rows, cols]), x.dtype)
  switch (order) {
    case "f":
    case "fro":
      return euclidean(x, [rows, cols], keepdims)
    case "nuc":
    case 2:
    case -2: {
      const others = x.shape.map((_, i) => i).filter((i) => i !== rows && i !== cols)
      const s = singularValuesOf(x.transpose([...others, rows, cols]))
      const y = order === "nuc" ? sum(s, -1) : order === 2 ? max(s, -1) : min(s, -1)
      const shaped = keepdims ? y.expandDims([rows, cols].sort((a, b) => a - b)) : y
      // As in MLX, the nuclear norm of complex matrices is real, and these two are complex.
      return order === "nuc" ? shaped : toDtype(shaped, x.dtype)
    }
    case 1:
      return reduced(max(sum(x.abs(), rows, true), cols, true))
    case -1:
      return reduced(min(sum(x.abs(), rows, true), cols, true))
    case Number.POSITIVE_INFINITY:
      return reduced(max(sum(x.abs(), cols, true), rows, true))
    case Number.NEGATIVE_INFINITY:
      return reduced(min(sum(x.abs(), cols, true), rows, true))
    default:
      throw new ArgumentError("linalg.norm", `${describe(order)} is not the order of a matrix norm`, {
        hint: 'Matrices have the norms 1, -1, 2, -2, Infinity, -Infinity, "fro", "f" and "nuc"',
      })
  }
}

const normArgs = operation(
  "linalg.norm",
  { a: "array", ord: "any?", axis: "axes?", keepdims: "bool?" },
  (given: Array, order: NormOrder = null, axis: Axes = null, keepdims: boolean = false): Array => {
    const op = "linalg.norm"
    const x = toDtype(given, atLeastFloat(given.dtype))
    if (order !== null && typeof order !== "number" && typeof order !== "string")
      throw new ArgumentError(op, `ord must be a number or a string, received ${describe(order)}`)
    normalizeAxes(op, axis, x.ndim)
    const axes =
      axis === null
        ? normalizeAxes(op, null, x.ndim)
        : (typeof axis === "number" ? [axis] : axis).map((i) => normalizeAxis(op, i, x.ndim))
    if (order === null && (axis === null || axes.length < 3)) return euclidean(x, axes, keepdims)
    if (axes.length === 2) return matrixNormOf(x, order as number | string, axes[0], axes[1], keepdims)
    if (axes.length !== 1 || typeof order === "string")
      throw new ShapeError(
        op,
        typeof order === "string"
          ? `the norm ${JSON.stringify(order)} is for matrices (two axes), received ${axes.length}`
          : `takes one axis or two, received ${axes.length}`,
      )
    return vectorNorm(x, order as number, axes[0], keepdims)
  },
)
/**
 * Norms of vectors, along one axis, or of matrices, along two.
 *
 * | `ord` | vectors | matrices |
 * |---|---|---|
 * | null | √Σ\|x\|² (over any axes if `axis` is null) | the same |
 * | p | (Σ\|x\|ᵖ)^(1/p) | – |
 * | 0 | the number of nonzero elements | – |
 * | 1, −1 | Σ\|x\|, p = −1 | largest, smallest column sum of moduli |
 * | 2, −2 | √Σ\|x\|², p = −2 | largest, smallest singular value |
 * | ±Infinity | largest, smallest modulus | largest, smallest row sum of moduli |
 * | "fro", "f" | – | √Σ\|x\|² |
 * | "nuc" | – | sum of the singular values |
 *
 * Without `axis`, the whole array is taken as a vector or, if `ord` is given and it is 2-d, as a matrix. Integers are converted to float32.
 * For complex arrays, norms without squares are complex64, as in MLX, but for the nuclear norm.
 *
 * @throws ShapeError if the number of axes does not match `ord`; ArgumentError for another `ord`
 * @example
 * const a = mx.array([[3, 0], [4, 0]])
 * mx.linalg.norm(a).item() // => 5
 * mx.linalg.norm(a, 1).item() // => 7
 * mx.linalg.norm(a, 'nuc').item() // => 5
 * mx.linalg.norm(a, { ord: 1, axis: 1 }).tolist() // => [3, 4]
 */
export function norm(
  a: Array,
  ord?: NormOrder,
  axis?: Axes,
  keepdims?: boolean,
  options?: StreamOptions,
): Array
export function norm(
  a: Array,
  ord: NormOrder,
  options: { axis?: Axes; keepdims?: boolean } & StreamOptions,
): Array
export function norm(
  a: Array,
  options: { ord?: NormOrder; axis?: Axes; keepdims?: boolean } & StreamOptions,
): Array
export function norm(...args: unknown[]): Array {
  return normArgs(args)
}
