/**
 * view, asStrided and depends.
 */
import { asArrayArgument, isList, operation, type StreamOptions } from "../graph/args"
import { asCall } from "../graph/calls"
import { asDtype, bool_, type Dtype } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, IndexError, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../graph/primitive"
import { contiguousStrides, format, isContiguous } from "../graph/shape"
import { arange } from "./arange"
import { take } from "./take"
import { moveToFront } from "./view"

/** Reinterprets the bytes of x as another dtype, along the last axis. */
const reinterpret: Apply<{ dtype: Dtype }> = definePrimitive({
  name: "view",
  params: { dtype: "dtype" },
  infer: ([x], { dtype }) => {
    if (x.dtype.size === dtype.size) return { shape: x.shape, dtype }
    const bytes = x.shape[x.shape.length - 1] * x.dtype.size
    if (x.shape.length === 0 || bytes % dtype.size !== 0)
      throw new ShapeError(
        "view",
        `the last axis of shape ${format(x.shape)} in ${x.dtype.name} does not fill elements of ${dtype.name}`,
      )
    return { shape: [...x.shape.slice(0, -1), bytes / dtype.size], dtype }
  },
  view: ({ shape, strides, offset, dtype: from }, { dtype }, output) => {
    if (from.size === dtype.size) return { offset, strides }
    const start = (offset * from.size) / dtype.size
    if (!isContiguous(shape, strides) || !Number.isInteger(start)) return null
    return { offset: start, strides: contiguousStrides(output.shape) }
  },
  vjp: () => [null],
  jvp: () => [null],
  vmap: ({ inputs: [x], axes: [axis], params }) => {
    const moved = moveToFront(x, axis as number)
    // A 0-d example has no last axis that could change its size.
    if (moved.ndim === 1 && x.dtype.size !== params.dtype.size)
      throw new ShapeError("view", `a 0-d array of ${x.dtype.name} cannot be viewed as ${params.dtype.name}`)
    return { outputs: [reinterpret([moved], params)], axes: [0] }
  },
})
const viewArgs = operation("view", { a: "array", dtype: "dtype" }, (x: Array, dtype: Dtype): Array => {
  const type = asDtype("view", dtype)
  if (type === x.dtype) return x
  if (type === bool_) throw new DTypeError("view", "bytes that are neither 0 nor 1 are not booleans")
  return reinterpret([x], { dtype: type })
})
/**
 * Reinterprets the bytes of an array as another dtype. If the itemsize differs, the size of the last axis changes.
 * @throws ShapeError if the last axis is not divisible; DTypeError for bool_
 * @example
 * mx.view(mx.array([1]), mx.uint32).tolist() // => [1065353216]
 */
export function view(a: Array, dtype: Dtype, options?: StreamOptions): Array
export function view(...args: unknown[]): Array {
  return viewArgs(args)
}

const asStridedArgs = operation(
  "asStrided",
  { a: "array", shape: "shape?", strides: "integerList?", offset: "integer?" },
  (
    x: Array,
    shape?: readonly number[] | null,
    strides?: readonly number[] | null,
    offset: number = 0,
  ): Array => {
    const to = shape ?? x.shape
    const steps = strides ?? contiguousStrides(to)
    if (!isList(to) || !isList(steps) || to.length !== steps.length)
      throw new ArgumentError(
        "asStrided",
        `shape and strides must have the same length, received ${describe(to)} and ${describe(steps)}`,
      )
    let [low, high] = [offset, offset]
    for (let i = 0; i < to.length; i++) {
      if (to[i] > 0 && steps[i] < 0) low += (to[i] - 1) * steps[i]
      else if (to[i] > 0) high += (to[i] - 1) * steps[i]
    }
    if (!to.includes(0) && (low < 0 || high >= x.size))
      throw new IndexError(
        "asStrided",
        `positions ${low} to ${high} are out of bounds for an array of ${x.size} elements`,
      )
    const positions = to.reduce<Array>(
      (sum, n, i) => {
        const along = arange(n).multiply(steps[i])
        return sum.add(along.reshape(to.map((_, k) => (k === i ? n : 1))))
      },
      arange(1)
        .reshape(to.map(() => 1))
        .add(offset),
    )
    return take(x.flatten(), positions.reshape(to.slice() as number[]), 0)
  },
)
/**
 * A strided view of the flattened, row-major array: element i is at offset + Σ iₖ · strideₖ. Elements may be repeated; their gradients are
 * summed.
 * @throws IndexError if a position is out of bounds
 * @example
 * mx.asStrided(mx.arange(4), [3, 2], [1, 1]).tolist() // => [[0, 1], [1, 2], [2, 3]]
 */
export function asStrided(
  a: Array,
  shape?: readonly number[] | null,
  strides?: readonly number[] | null,
  offset?: number,
  options?: StreamOptions,
): Array
export function asStrided(
  a: Array,
  shape: readonly number[] | null,
  options: { strides?: readonly number[] | null; offset?: number } & StreamOptions,
): Array
export function asStrided(
  a: Array,
  options: {
    shape?: readonly number[] | null
    strides?: readonly number[] | null
    offset?: number
  } & StreamOptions,
): Array
export function asStrided(...args: unknown[]): Array {
  return asStridedArgs(args)
}

/** The first input, evaluated after all others. */
const after: Apply<NoParams> = definePrimitive({
  name: "depends",
  infer: ([x]) => x,
  view: ({ strides, offset }) => ({ offset, strides }),
  vjp: ({ inputs, cotangents: [g] }) => inputs.map((_, i) => (i === 0 ? g : null)),
  jvp: ({ inputs: [x, ...rest], tangents: [t] }) => [t ? after([t, x, ...rest]) : null],
  vmap: ({ inputs, axes }) => ({ outputs: [after(inputs)], axes: [axes[0]] }),
})
/**
 * Returns the inputs with a dependency: they are available only after `dependencies` have been evaluated. An array for an array, a list for
 * a list.
 * @example
 * mx.depends(mx.array([1]), mx.array([2])).tolist() // => [1]
 */
export function depends(inputs: Array, dependencies: Array | readonly Array[]): Array
export function depends(inputs: readonly Array[], dependencies: Array | readonly Array[]): Array[]
export function depends(
  inputs: Array | readonly Array[],
  dependencies: Array | readonly Array[],
): Array | Array[] {
  return dependsOn(inputs, dependencies)
}
const dependsOn = asCall(
  "depends",
  (inputs: Array | readonly Array[], dependencies: Array | readonly Array[]): Array | Array[] => {
    const given = (isList(dependencies) ? dependencies : [dependencies]) as readonly Array[]
    const rest = globalThis.Array.from(given, (x) => asArrayArgument("depends", "a dependency", x))
    const one = (x: Array): Array => after([asArrayArgument("depends", "an input", x), ...rest])
    return isList(inputs) ? globalThis.Array.from(inputs, (x) => one(x as Array)) : one(inputs as Array)
  },
)
