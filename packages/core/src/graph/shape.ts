/**
 * Shapes, strides and axes: plain lists of numbers. Shapes are shared between nodes and never modified.
 */
import { ArgumentError, describe, ShapeError } from "./errors"

/** Sizes of the axes, outermost first. */
export type Shape = readonly number[]
/** The stride of each axis in elements; 0 for broadcast axes, negative for reversed ones. */
export type Strides = readonly number[]

/** The most axes of an array, on which kernels rely. */
export const MAX_RANK = 64

/** Rejects a shape with more than {@link MAX_RANK} axes. @throws ShapeError */
export function refuseRank(op: string, shape: Shape): never {
  throw new ShapeError(op, `expected at most ${MAX_RANK} axes, received ${shape.length}`)
}

/** The shape of a scalar. */
export const SCALAR: Shape = []

/** The product of the sizes. */
export function sizeOf(shape: Shape): number {
  let size = 1
  for (let i = 0; i < shape.length; i++) size *= shape[i]
  return size
}

/** True if two shapes are equal. */
export function sameShape(a: Shape, b: Shape): boolean {
  if (a === b) return true
  if (a.length !== b.length) return false
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return true
}

/** Row-major strides without gaps. */
export function contiguousStrides(shape: Shape): number[] {
  const strides = new globalThis.Array<number>(shape.length)
  let step = 1
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = step
    step *= shape[i]
  }
  return strides
}

/** True if strides are row-contiguous; those of axes of size 1 do not matter. */
export function isContiguous(shape: Shape, strides: Strides): boolean {
  let step = 1
  for (let i = shape.length - 1; i >= 0; i--) {
    if (shape[i] === 1) continue
    if (shape[i] === 0) return true
    if (strides[i] !== step) return false
    step *= shape[i]
  }
  return true
}

/** The shape that both broadcast to, by NumPy's rules. @throws ShapeError */
export function broadcastShapes(op: string, a: Shape, b: Shape): Shape {
  if (a === b) return a
  const long = a.length >= b.length ? a : b
  const short = long === a ? b : a
  const leading = long.length - short.length
  let out: number[] | null = null
  for (let i = 0; i < short.length; i++) {
    const x = long[leading + i]
    const y = short[i]
    if (x === y || y === 1) continue
    if (x !== 1) {
      throw new ShapeError(
        op,
        `shapes ${format(a)} and ${format(b)} cannot be broadcast: ${x} and ${y} differ and neither is 1`,
      )
    }
    out ??= long.slice()
    out[leading + i] = y
  }
  return out ?? long
}

/** Formats a shape as in MLX: `(2, 3)`, or `(2,)` for one axis. */
export function format(shape: Shape): string {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`
}

/** Converts a negative axis, which counts from the end, to a non-negative one. @throws ShapeError */
export function normalizeAxis(op: string, axis: number, ndim: number): number {
  if (!Number.isInteger(axis))
    throw new ArgumentError(op, `an axis must be an integer, received ${describe(axis)}`)
  const normal = axis < 0 ? axis + ndim : axis
  if (normal < 0 || normal >= ndim) {
    throw new ShapeError(
      op,
      `axis ${axis} is out of bounds for an array of ${ndim} dimension${ndim === 1 ? "" : "s"}`,
    )
  }
  return normal
}

/** Non-negative axes in ascending order; null means all. @throws ShapeError for repeated axes */
export function normalizeAxes(
  op: string,
  axes: number | readonly number[] | null | undefined,
  ndim: number,
): number[] {
  if (axes === null || axes === undefined) {
    const all = new globalThis.Array<number>(ndim)
    for (let i = 0; i < ndim; i++) all[i] = i
    return all
  }
  if (typeof axes === "number") return [normalizeAxis(op, axes, ndim)]
  const list = axes
  if (!globalThis.Array.isArray(list))
    throw new ArgumentError(op, `axes must be a number or a list of numbers, received ${describe(axes)}`)
  const normal = list.map((axis) => normalizeAxis(op, axis, ndim)).sort((a, b) => a - b)
  for (let i = 1; i < normal.length; i++) {
    if (normal[i] === normal[i - 1]) throw new ShapeError(op, `axis ${normal[i]} is repeated`)
  }
  return normal
}

/** Validates a shape argument: a size or a list of sizes. */
export function asShape(op: string, value: unknown): number[] {
  const list = typeof value === "number" ? [value] : value
  if (!globalThis.Array.isArray(list))
    throw new ArgumentError(op, `expected a shape (a list of sizes), received ${describe(value)}`)
  for (const n of list) {
    if (typeof n !== "number" || !Number.isInteger(n) || n < 0) {
      throw new ShapeError(op, `a shape must consist of non-negative integers, received ${describe(n)}`)
    }
  }
  return list.slice() as number[]
}

/** The strides of an array broadcast to the shape `to`: 0 along broadcast axes. */
export function broadcastStrides(shape: Shape, strides: Strides, to: Shape): number[] {
  const leading = to.length - shape.length
  const out = new globalThis.Array<number>(to.length)
  for (let i = 0; i < to.length; i++)
    out[i] = i < leading || (shape[i - leading] === 1 && to[i] !== 1) ? 0 : strides[i - leading]
  return out
}

/**
 * The strides of a reshaped view of the same memory, or null if a copy is needed. Groups of mutually contiguous old axes are matched with
 * groups of new axes of equal product.
 */
export function reshapeStrides(shape: Shape, strides: Strides, to: Shape): number[] | null {
  const size = sizeOf(shape)
  if (size === 0) return contiguousStrides(to)
  const out = new globalThis.Array<number>(to.length)
  let i = 0
  let j = 0
  while (i < shape.length || j < to.length) {
    let oldProduct = i < shape.length ? shape[i] : 1
    let newProduct = j < to.length ? to[j] : 1
    const i0 = i++
    const j0 = j++
    while (oldProduct !== newProduct) {
      if (oldProduct < newProduct) oldProduct *= shape[i++]
      else newProduct *= to[j++]
    }
    // Old axes i0..i-1 must be mutually contiguous, except those of size 1.
    let step = 0
    let last = -1
    for (let k = Math.min(i, shape.length) - 1; k >= i0; k--) {
      if (shape[k] === 1) continue
      if (last < 0) step = strides[k]
      else if (strides[k] !== strides[last] * shape[last]) return null
      last = k
    }
    for (let k = Math.min(j, to.length) - 1; k >= j0; k--) {
      out[k] = step
      step *= to[k]
    }
  }
  return out
}
