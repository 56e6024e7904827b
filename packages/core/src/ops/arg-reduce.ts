/**
 * `argmax` and `argmin`.
 */
import { operation, type StreamOptions } from "../graph/args"
import { complex64, uint32 } from "../graph/dtype"
import { ShapeError } from "../graph/errors"
import type { Array, HostArray } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, normalizeAxis, sizeOf } from "../graph/shape"
import { asOperand } from "./constant"
import { moveToFront } from "./view"

type Better = (a: number | bigint, b: number | bigint) => boolean

/** The index of the first element that no other one beats. NaN beats all numbers. */
function positions(better: Better) {
  return ([x]: readonly HostArray[], [out]: readonly HostArray[], { axis }: { axis: number }): void => {
    const n = x.shape[axis]
    const outer = sizeOf(x.shape.slice(0, axis))
    const inner = sizeOf(x.shape.slice(axis + 1))
    const { data } = x
    // Complex numbers compare by their real parts, then by their imaginary parts.
    const beats =
      x.dtype === complex64
        ? (p: number, q: number): boolean =>
            better(data[2 * p], data[2 * q]) ||
            (data[2 * p] === data[2 * q] && better(data[2 * p + 1], data[2 * q + 1]))
        : (p: number, q: number): boolean =>
            better(data[p], data[q]) || (Number.isNaN(data[p]) && !Number.isNaN(data[q]))
    for (let o = 0; o < outer; o++) {
      for (let i = 0; i < inner; i++) {
        let best = 0
        for (let k = 1; k < n; k++) if (beats((o * n + k) * inner + i, (o * n + best) * inner + i)) best = k
        out.data[o * inner + i] = best
      }
    }
  }
}

function argReduction(name: "argmax" | "argmin", better: Better): Apply<{ axis: number }> {
  const apply: Apply<{ axis: number }> = definePrimitive({
    name,
    params: { axis: "i64" },
    infer: ([x], { axis }) => {
      if (x.shape[axis] === 0)
        throw new ShapeError(name, `has no value over an empty axis, received shape ${format(x.shape)}`)
      return { shape: x.shape.map((n, i) => (i === axis ? 1 : n)), dtype: uint32 }
    },
    reference: positions(better),
    vjp: () => [null],
    jvp: () => [null],
    vmap: ({ inputs: [x], axes: [batch], params: { axis } }) => ({
      outputs: [apply([moveToFront(x, batch as number)], { axis: axis + 1 })],
      axes: [0],
    }),
  })
  return apply
}
const argmaxAlong = argReduction("argmax", (a, b) => a > b)
const argminAlong = argReduction("argmin", (a, b) => a < b)

/** The public body: over one axis, or over the flattened array. */
function search(name: string, apply: Apply<{ axis: number }>): (args: readonly unknown[]) => Array {
  return operation(
    name,
    { a: "operand", axis: "axis?", keepdims: "bool?" },
    (a: Array, axis?: number | null, keepdims: boolean = false) => {
      const x = asOperand(name, a)
      if (axis === undefined || axis === null) {
        const y = apply([x.flatten()], { axis: 0 })
        return keepdims ? y.reshape(x.shape.map(() => 1)) : y.squeeze(0)
      }
      const along = normalizeAxis(name, axis, x.ndim)
      const y = apply([x], { axis: along })
      return keepdims ? y : y.squeeze(along)
    },
  )
}
const argmaxArgs = search("argmax", argmaxAlong)
const argminArgs = search("argmin", argminAlong)

/**
 * The index (uint32) of the largest element along an axis, or in the flattened array; the first of equal ones.
 * @throws ShapeError over an empty axis
 * @example
 * mx.argmax(mx.array([1, 3, 2])).item() // => 1
 */
export function argmax(a: Array, axis?: number | null, keepdims?: boolean, options?: StreamOptions): Array
export function argmax(a: Array, axis: number | null, options: { keepdims?: boolean } & StreamOptions): Array
export function argmax(a: Array, options: { axis?: number | null; keepdims?: boolean } & StreamOptions): Array
export function argmax(...args: unknown[]): Array {
  return argmaxArgs(args)
}

/**
 * The index (uint32) of the smallest element along an axis, or in the flattened array; the first of equal ones.
 * @throws ShapeError over an empty axis
 * @example
 * mx.argmin(mx.array([3, 1, 2])).item() // => 1
 */
export function argmin(a: Array, axis?: number | null, keepdims?: boolean, options?: StreamOptions): Array
export function argmin(a: Array, axis: number | null, options: { keepdims?: boolean } & StreamOptions): Array
export function argmin(a: Array, options: { axis?: number | null; keepdims?: boolean } & StreamOptions): Array
export function argmin(...args: unknown[]): Array {
  return argminArgs(args)
}
