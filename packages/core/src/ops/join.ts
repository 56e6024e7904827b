/**
 * Joining arrays: concatenate and stack.
 */
import { asArrayArgument, isList, operation, type StreamOptions } from "../graph/args"
import { promote, storeWidth } from "../graph/dtype"
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, normalizeAxis, sizeOf } from "../graph/shape"
import { toDtype } from "./constant"
import { sliceRange } from "./slice"
import { moveToFront } from "./view"

/** The primitive: concatenates arrays of one dtype and of equal sizes except along the axis. */
export const join: Apply<{ axis: number }> = definePrimitive({
  name: "concatenate",
  params: { axis: "i64" },
  infer: (inputs, { axis }) => {
    const [first] = inputs
    let total = 0
    for (const x of inputs) {
      if (
        x.shape.length !== first.shape.length ||
        x.shape.some((n, i) => i !== axis && n !== first.shape[i])
      ) {
        throw new ShapeError(
          "concatenate",
          `all sizes except along axis ${axis} must agree: shapes ${format(first.shape)} and ${format(x.shape)}`,
        )
      }
      total += x.shape[axis]
    }
    return { shape: first.shape.map((n, i) => (i === axis ? total : n)), dtype: first.dtype }
  },
  reference: (inputs, [out], { axis }) => {
    const outer = sizeOf(out.shape.slice(0, axis))
    const inner = sizeOf(out.shape.slice(axis + 1)) * storeWidth(out.dtype)
    let position = 0
    for (let o = 0; o < outer; o++) {
      for (const x of inputs) {
        const length = x.shape[axis] * inner
        for (let i = 0; i < length; i++) out.data[position++] = x.data[o * length + i]
      }
    }
  },
  vjp: ({ inputs, cotangents: [g], params: { axis }, wanted }) => {
    let start = 0
    return inputs.map((x, k) => {
      const begin = start
      start += x.shape[axis]
      if (!wanted[k]) return null
      return sliceRange(
        g,
        g.shape.map((_, i) => (i === axis ? begin : 0)),
        g.shape.map((n, i) => (i === axis ? start : n)),
      )
    })
  },
  jvp: ({ inputs, tangents, params }) => [
    join(
      inputs.map((x, i) => tangents[i] ?? x.multiply(0)),
      params,
    ),
  ],
  vmap: ({ inputs, axes, params: { axis }, size }) => ({
    outputs: [
      join(
        inputs.map((x, i) =>
          axes[i] === null ? x.broadcastTo([size, ...x.shape]) : moveToFront(x, axes[i]),
        ),
        { axis: axis + 1 },
      ),
    ],
    axes: [0],
  }),
})

function listOf(op: string, arrays: unknown): Array[] {
  if (!isList(arrays) || arrays.length === 0)
    throw new ArgumentError(op, `expected a list of at least one array, received ${describe(arrays)}`)
  return globalThis.Array.from(arrays, (x, i) => asArrayArgument(op, `arrays[${i}]`, x))
}

const concatenateArgs = operation(
  "concatenate",
  { arrays: "any", axis: "axisOrNone?" },
  (arrays: readonly Array[], axis: number | null = 0) => {
    let list = listOf("concatenate", arrays)
    const dtype = list.map((x) => x.dtype).reduce(promote)
    list = list.map((x) => toDtype(x, dtype))
    if (axis === null) list = list.map((x) => x.flatten())
    return list.length === 1
      ? list[0]
      : join(list, { axis: normalizeAxis("concatenate", axis ?? 0, list[0].ndim) })
  },
)
/**
 * Concatenates arrays along an existing axis; null flattens them first.
 * @throws ShapeError if sizes along other axes differ
 * @example
 * mx.concatenate([mx.array([1]), mx.array([2, 3])]).tolist() // => [1, 2, 3]
 */
export function concatenate(arrays: readonly Array[], axis?: number | null, options?: StreamOptions): Array
export function concatenate(
  arrays: readonly Array[],
  options: { axis?: number | null } & StreamOptions,
): Array
export function concatenate(...args: unknown[]): Array {
  return concatenateArgs(args)
}
export { concatenate as concat }

const stackArgs = operation(
  "stack",
  { arrays: "any", axis: "axis?" },
  (arrays: readonly Array[], axis: number = 0) => {
    const list = listOf("stack", arrays)
    for (const x of list) {
      if (format(x.shape) !== format(list[0].shape))
        throw new ShapeError(
          "stack",
          `all arrays must have the same shape, received ${format(list[0].shape)} and ${format(x.shape)}`,
        )
    }
    return concatenate(
      list.map((x) => x.expandDims(axis)),
      axis,
    )
  },
)
/**
 * Joins arrays of equal shape along a new axis.
 * @throws ShapeError if the shapes differ
 * @example
 * mx.stack([mx.array([1, 2]), mx.array([3, 4])]).tolist() // => [[1, 2], [3, 4]]
 */
export function stack(arrays: readonly Array[], axis?: number, options?: StreamOptions): Array
export function stack(arrays: readonly Array[], options: { axis?: number } & StreamOptions): Array
export function stack(...args: unknown[]): Array {
  return stackArgs(args)
}
