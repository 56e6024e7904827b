/**
 * softmax and logsumexp. Their primitives operate on one axis; several axes are merged first.
 */
import { type Axes, operation, type StreamOptions } from "../graph/args"
import { float32, isInexact } from "../graph/dtype"
import { ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, normalizeAxes, sizeOf } from "../graph/shape"
import { where } from "./binary"
import { asOperand, floatOperand, toDtype, wide } from "./constant"
import { max, sum } from "./reduce"
import { moveToFront } from "./view"

/** yᵢ = exp(xᵢ − max x) / Σⱼ exp(xⱼ − max x) */
const softmaxAlong: Apply<{ axis: number; precise: boolean }> = definePrimitive({
  name: "softmax",
  params: { axis: "i64", precise: "bool" },
  infer: ([x]) => x,
  decompose: ([x], { axis }) => {
    const w = toDtype(x, wide(x.dtype))
    const e = w.subtract(max(w, axis, true)).exp()
    return toDtype(e.divide(sum(e, axis, true)), x.dtype)
  },
  // dx = y · (g − Σ g·y), from the output alone. Over the complex numbers softmax is holomorphic: conjugate once.
  vjp: ({ outputs: [y], cotangents: [g], params: { axis } }) => {
    const yc = y.conjugate()
    return [yc.multiply(g.subtract(sum(g.multiply(yc), axis, true)))]
  },
  jvp: ({ outputs: [y], tangents: [t], params: { axis } }) => [
    t && y.multiply(t.subtract(sum(t.multiply(y), axis, true))),
  ],
  vmap: ({ inputs: [x], axes: [batch], params: { axis, precise } }) => ({
    outputs: [softmaxAlong([moveToFront(x, batch as number)], { axis: axis + 1, precise })],
    axes: [0],
  }),
  rows: ([x], { axis, precise }) => (axis === x.shape.length - 1 ? { axis: 1, precise } : null),
})

/** y = max x + log Σ exp(x − max x), with 1 on the axis. */
const logsumexpAlong: Apply<{ axis: number }> = definePrimitive({
  name: "logsumexp",
  params: { axis: "i64" },
  infer: ([x], { axis }) => {
    if (x.shape[axis] === 0)
      throw new ShapeError("logsumexp", `has no value over an empty axis, received shape ${format(x.shape)}`)
    return { shape: x.shape.map((n, i) => (i === axis ? 1 : n)), dtype: x.dtype }
  },
  decompose: ([x], { axis }) => {
    const w = toDtype(x, wide(x.dtype))
    const top = max(w, axis, true)
    const y = sum(w.subtract(top).exp(), axis, true).log().add(top)
    // An infinite maximum is the result; ∞ − ∞ above is NaN.
    return toDtype(where(top.abs().equal(Number.POSITIVE_INFINITY), top, y), x.dtype)
  },
  // d(y)/d(xᵢ) = exp(xᵢ − y), which is softmax without another reduction.
  vjp: ({ inputs: [x], outputs: [y], cotangents: [g] }) => [x.subtract(y).exp().conjugate().multiply(g)],
  jvp: ({ inputs: [x], outputs: [y], tangents: [t], params: { axis } }) => [
    t && sum(x.subtract(y).exp().multiply(t), axis, true),
  ],
  vmap: ({ inputs: [x], axes: [batch], params: { axis } }) => ({
    outputs: [logsumexpAlong([moveToFront(x, batch as number)], { axis: axis + 1 })],
    axes: [0],
  }),
  rows: ([x], { axis }) => (axis === x.shape.length - 1 ? { axis: 1 } : null),
})

/** `x` with the axes merged into one, this axis, and a function that restores the original layout of a result. */
function mergeAxes(
  x: Array,
  axes: readonly number[],
): { merged: Array; axis: number; restore(y: Array): Array } {
  if (axes.length === 1) return { merged: x, axis: axes[0], restore: (y) => y }
  const adjacent = axes.every((axis, i) => axis === axes[0] + i)
  const others = x.shape.map((_, i) => i).filter((i) => !axes.includes(i))
  const order = [...others, ...axes]
  const front = adjacent ? x : x.transpose(order)
  const axis = adjacent ? axes[0] : others.length
  const sizes = axes.map((i) => x.shape[i])
  return {
    merged: front.flatten(axis, axis + axes.length - 1),
    axis,
    restore: (y) => {
      const split = y.unflatten(axis, sizes)
      return adjacent ? split : split.transpose(order.map((_, i) => order.indexOf(i)))
    },
  }
}

const softmaxArgs = operation(
  "softmax",
  { a: "operand", axis: "axes?", precise: "bool?" },
  (a: Array, axis?: Axes, precise: boolean = false): Array => {
    const given = asOperand("softmax", a)
    const x = isInexact(given.dtype) ? given : toDtype(given, float32)
    const axes = normalizeAxes("softmax", axis, x.ndim)
    // As in MLX, integers remain integers, except over the last axis, and axes of size 1 right before it.
    const isLast = (axis: number, i: number): boolean =>
      i === axes.length - 1 ? axis === x.ndim - 1 : axis + 1 === axes[i + 1] && x.shape[axis] === 1
    const floats = axes.length > 0 && x.size > 0 && axes.every(isLast)
    const back = (y: Array): Array => (floats ? y : toDtype(y, given.dtype))
    if (axes.length === 0 || sizeOf(x.shape) === 0) return back(axes.length === 0 ? softmaxOfNothing(x) : x)
    const { merged, axis: along, restore } = mergeAxes(x, axes)
    return back(restore(softmaxAlong([merged], { axis: along, precise })))
  },
)
/** The softmax over no axes: exp(0) / exp(0), but NaN for non-finite elements. */
const softmaxOfNothing = (x: Array): Array =>
  softmaxAlong([x.expandDims(-1)], { axis: x.ndim, precise: false }).squeeze(-1)
/**
 * exp(a) / Σ exp(a) over the axes (all by default), computed from a − max a. 16-bit floats are summed in float32, with or without
 * `precise`. Convert integers to floating point first: as in MLX, they become float32 over the last axis (with axes of size 1 right before
 * it), and over other axes the result is converted back.
 * @named precise
 * @throws ShapeError if an axis is out of bounds
 * @example
 * mx.softmax(mx.array([0, 0])).tolist() // => [0.5, 0.5]
 */
export function softmax(a: Array, axis?: Axes, options?: { precise?: boolean } & StreamOptions): Array
export function softmax(a: Array, options: { axis?: Axes; precise?: boolean } & StreamOptions): Array
export function softmax(...args: unknown[]): Array {
  return softmaxArgs(args)
}

const logsumexpArgs = operation(
  "logsumexp",
  { a: "operand", axis: "axes?", keepdims: "bool?" },
  (a: Array, axis?: Axes, keepdims: boolean = false): Array => {
    const x = floatOperand("logsumexp", a)
    const axes = normalizeAxes("logsumexp", axis, x.ndim)
    if (axes.length === 0) return x
    if (x.size === 0)
      throw new ShapeError("logsumexp", `has no value of an empty array, received shape ${format(x.shape)}`)
    const { merged, axis: along } = mergeAxes(x, axes)
    const y = logsumexpAlong([merged], { axis: along })
    if (!keepdims) return y.squeeze(along)
    return axes.length === 1 ? y : y.reshape(x.shape.map((n, i) => (axes.includes(i) ? 1 : n)))
  },
)
/**
 * log Σ exp(a) over the axes (all by default), without overflow, in floating point.
 * @throws ShapeError over an empty axis
 * @example
 * mx.logsumexp(mx.array([0, -Infinity])).item() // => 0
 */
export function logsumexp(a: Array, axis?: Axes, keepdims?: boolean, options?: StreamOptions): Array
export function logsumexp(a: Array, axis: Axes, options: { keepdims?: boolean } & StreamOptions): Array
export function logsumexp(a: Array, options: { axis?: Axes; keepdims?: boolean } & StreamOptions): Array
export function logsumexp(...args: unknown[]): Array {
  return logsumexpArgs(args)
}
