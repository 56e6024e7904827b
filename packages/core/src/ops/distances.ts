/**
 * Distances between the rows of two matrices.
 */
import { operation, type StreamOptions } from "../graph/args"
import { complex64, promote } from "../graph/dtype"
import { ArgumentError, DTypeError, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { broadcastShapes, format } from "../graph/shape"
import { where } from "./binary"
import { floatOperand, toDtype, wide } from "./constant"
import { concatenate } from "./join"
import { broadcastTo, max, sum } from "./reduce"
import { sliceRange } from "./slice"
import { moveToFront } from "./view"

/** The most differences computed at a time; rows are processed in chunks, so that memory is proportional to the result. */
const MOST_DIFFERENCES = 1 << 22

/** x^p of x ≥ 0, whose derivative at 0 is 0. */
function powerOf(x: Array, p: number): Array {
  const zero = x.equal(0)
  const safe = where(zero, 1, x)
  return where(zero, 0, p === 0.5 ? safe.sqrt() : safe.power(p))
}

/** (Σ |d|ᵖ)^(1/p) over the last axis; its limits for 0 and ∞. */
function lengths(d: Array, p: number): Array {
  if (p === 0) return sum(toDtype(d.notEqual(0), d.dtype), -1)
  if (p === 1) return sum(d.abs(), -1)
  if (p === Number.POSITIVE_INFINITY) return max(d.abs(), -1)
  return powerOf(sum(p === 2 ? d.square() : powerOf(d.abs(), p), -1), 1 / p)
}

/** a […, N, D], b […, M, D] with equal batch axes → […, N, M]. */
const distances: Apply<{ p: number }> = definePrimitive({
  name: "cdist",
  params: { p: "f64" },
  infer: ([a, b]) => {
    if (a.dtype.kind !== "floating" || a.dtype !== b.dtype)
      throw new DTypeError(
        "cdist",
        `expected rows of the same floating dtype, received ${a.dtype.name} and ${b.dtype.name}`,
      )
    return { shape: [...a.shape.slice(0, -1), b.shape[b.shape.length - 2]], dtype: a.dtype }
  },
  decompose: ([a, b], { p }) => {
    const [dtype, axis] = [a.dtype, a.ndim - 2]
    const [rows, others, width] = [a.shape[axis], b.shape[axis], a.shape[axis + 1]]
    // The maximum over no differences is 0.
    const x = width === 0 ? a.sum(-1, true) : a
    const y = width === 0 ? b.sum(-1, true) : b
    const [from, to] = [toDtype(x, wide(dtype)), toDtype(y, wide(dtype)).expandDims(axis)]
    const part = (begin: number, end: number): Array => {
      const cut = sliceRange(
        from,
        from.shape.map((_, i) => (i === axis ? begin : 0)),
        from.shape.map((n, i) => (i === axis ? end : n)),
      )
      return lengths(cut.expandDims(axis + 1).subtract(to), p)
    }
    const each = (from.size / Math.max(rows, 1)) * others
    const count = Math.max(1, Math.floor(MOST_DIFFERENCES / Math.max(each, 1)))
    const parts: Array[] = []
    for (let begin = 0; begin < rows; begin += count) parts.push(part(begin, Math.min(begin + count, rows)))
    const whole = parts.length === 0 ? part(0, 0) : parts.length === 1 ? parts[0] : concatenate(parts, axis)
    return toDtype(whole, dtype)
  },
  vmap: ({ inputs, axes, params, size }) => {
    const [a, b] = inputs.map((x, i) =>
      axes[i] === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axes[i]),
    )
    return { outputs: [distances([a, b], params)], axes: [0] }
  },
})

const cdistArgs = operation(
  "cdist",
  { a: "array", b: "array", p: "number?" },
  (a: Array, b: Array, p: number = 2): Array => {
    if (!(p >= 0)) throw new ArgumentError("cdist", `p must be a number of at least 0, received ${p}`)
    const [x, y] = [floatOperand("cdist", a), floatOperand("cdist", b)]
    const dtype = promote(x.dtype, y.dtype)
    if (dtype === complex64) throw new DTypeError("cdist", "is not defined for complex64")
    if (x.ndim < 2 || y.ndim < 2 || x.shape[x.ndim - 1] !== y.shape[y.ndim - 1])
      throw new ShapeError(
        "cdist",
        `needs matrices with rows of the same length, received shapes ${format(x.shape)} and ${format(y.shape)}`,
      )
    const batch = broadcastShapes("cdist", x.shape.slice(0, -2), y.shape.slice(0, -2))
    const [left, right] = [x, y].map((z) => broadcastTo(toDtype(z, dtype), [...batch, ...z.shape.slice(-2)]))
    return distances([left, right], { p })
  },
)
/**
 * Pairwise distances between the rows of a […, N, D] and b […, M, D], of shape […, N, M]; leading axes broadcast. The distance is the
 * p-norm (Σ |aᵢ − bᵢ|ᵖ)^(1/p) of the difference; Infinity is the maximum norm, and 0 counts the elements that differ. The gradient is 0
 * where rows are equal. Scratch memory is bounded, also in derivatives. Not in MLX; as in SciPy and PyTorch.
 * @throws ShapeError unless the rows have the same length; DTypeError for complex numbers; ArgumentError for a negative p
 * @example
 * mx.cdist(mx.array([[0, 0]]), mx.array([[3, 4], [0, 0]])).tolist() // => [[5, 0]]
 */
export function cdist(a: Array, b: Array, p?: number, options?: StreamOptions): Array
export function cdist(a: Array, b: Array, options: { p?: number } & StreamOptions): Array
export function cdist(...args: unknown[]): Array {
  return cdistArgs(args)
}
