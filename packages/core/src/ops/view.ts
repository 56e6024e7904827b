/**
 * Views: reshape, transpose, added and removed axes. Nothing is copied unless strides cannot express the result.
 */
import { type Axes, operation, type StreamOptions } from "../graph/args"
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import { type Array, Array as ArrayClass, type VmapContext, type VmapResult } from "../graph/graph"
import { type Apply, definePrimitive, type NoParams } from "../graph/primitive"
import {
  format,
  isContiguous,
  normalizeAxes,
  normalizeAxis,
  reshapeStrides,
  type Shape,
  sameShape,
  sizeOf,
} from "../graph/shape"

/** The batched input of a rule with its batch axis in front, for primitives of one input. */
function front({ inputs: [x], axes: [axis] }: Pick<VmapContext<unknown>, "inputs" | "axes">): Array {
  return moveToFront(x, axis as number)
}
const batched = (output: Array): VmapResult => ({ outputs: [output], axes: [0] })

/** `x` with `axis` moved to the front. */
export function moveToFront(x: Array, axis: number): Array {
  if (axis === 0) return x
  const axes = [axis]
  for (let i = 0; i < x.ndim; i++) if (i !== axis) axes.push(i)
  return permute([x], { axes })
}

const reshapeTo: Apply<{ shape: readonly number[] }> = definePrimitive({
  name: "reshape",
  facts: { keepsOrder: true },
  params: { shape: "i64[]" },
  infer: ([x], { shape }) => {
    if (sizeOf(shape) !== sizeOf(x.shape))
      throw new ShapeError(
        "reshape",
        `cannot reshape an array of shape ${format(x.shape)} into ${format(shape)}: ${sizeOf(x.shape)} elements do not fill ${sizeOf(shape)}`,
      )
    return { shape, dtype: x.dtype }
  },
  view: ({ shape, strides, offset }, { shape: to }) => {
    const result = reshapeStrides(shape, strides, to)
    return result && { offset, strides: result }
  },
  vjp: ({ inputs: [x], cotangents: [g] }) => [reshapeTo([g], { shape: x.shape })],
  jvp: ({ tangents: [t], params }) => [t && reshapeTo([t], params)],
  vmap: (c) => batched(reshapeTo([front(c)], { shape: [c.size, ...c.params.shape] })),
})

/** Infers the size given as -1. */
function resolveShape(op: string, size: number, shape: readonly number[]): number[] {
  const out = shape.slice()
  let unknown = -1
  let known = 1
  for (let i = 0; i < shape.length; i++) {
    const n = shape[i]
    if (!Number.isInteger(n) || n < -1)
      throw new ShapeError(
        op,
        `a shape must consist of non-negative integers and at most one -1, received ${describe(n)}`,
      )
    if (n === -1) {
      if (unknown >= 0) throw new ShapeError(op, `only one size can be -1, received ${format(shape)}`)
      unknown = i
    } else known *= n
  }
  if (unknown >= 0) {
    if (known === 0 || size % known !== 0)
      throw new ShapeError(
        op,
        `cannot infer the size -1 in ${format(shape)}: ${size} elements are not a multiple of ${known}`,
      )
    out[unknown] = size / known
  }
  return out
}

/** Combines numbers after the array into a list: `x.reshape(2, 3)` is `x.reshape([2, 3])`. */
function gathered(args: readonly unknown[]): readonly unknown[] {
  if (typeof args[1] !== "number") return args
  let end = 2
  while (end < args.length && typeof args[end] === "number") end++
  return [args[0], args.slice(1, end), ...args.slice(end)]
}

const reshapeArgs = operation("reshape", { a: "array", shape: "shape" }, (x: Array, shape: unknown) => {
  const list = typeof shape === "number" ? [shape] : shape
  if (!globalThis.Array.isArray(list))
    throw new ArgumentError("reshape", `shape must be a list of sizes, received ${describe(shape)}`)
  return reshapeTo([x], { shape: resolveShape("reshape", x.size, list as number[]) })
})
/**
 * Reshapes an array, in row-major order. The shape is a list or separate sizes; one size may be -1, which is inferred.
 * @throws ShapeError if the number of elements differs
 * @example
 * mx.arange(6).reshape(2, -1).shape // => [2, 3]
 */
export function reshape(a: Array, shape: number | readonly number[], options?: StreamOptions): Array
export function reshape(a: Array, ...shape: number[]): Array
export function reshape(a: Array, ...shape: [...sizes: number[], options: StreamOptions]): Array
export function reshape(a: Array, options: { shape: number | readonly number[] } & StreamOptions): Array
export function reshape(...args: unknown[]): Array {
  return reshapeArgs(gathered(args))
}

/** A shape with other sizes in place of those from `start` to before `end`; by loops, as most products call this twice. */
function replaced(shape: Shape, start: number, end: number, sizes: Shape): number[] {
  const added = start + sizes.length
  const out = new globalThis.Array<number>(added + shape.length - end)
  for (let i = 0; i < start; i++) out[i] = shape[i]
  for (let i = 0; i < sizes.length; i++) out[start + i] = sizes[i]
  for (let i = end; i < shape.length; i++) out[added + i - end] = shape[i]
  return out
}

const flattenArgs = operation(
  "flatten",
  { a: "array", startAxis: "axis?", endAxis: "axis?" },
  (x: Array, start: number = 0, end: number = -1) => {
    if (x.ndim === 0) return reshapeTo([x], { shape: [1] })
    const first = normalizeAxis("flatten", start, x.ndim)
    const last = normalizeAxis("flatten", end, x.ndim)
    if (first > last) throw new ShapeError("flatten", `startAxis ${start} comes after endAxis ${end}`)
    return flattenAxes([x], { start: first, end: last })
  },
)
/** The primitive of {@link flatten}, with axes that are not negative. */
export const flattenAxes: Apply<{ start: number; end: number }> = definePrimitive({
  name: "flatten",
  facts: { keepsOrder: true },
  params: { start: "i64", end: "i64" },
  infer: ([x], { start, end }) => {
    let size = 1
    for (let i = start; i <= end; i++) size *= x.shape[i]
    return { shape: replaced(x.shape, start, end + 1, [size]), dtype: x.dtype }
  },
  view: ({ shape, strides, offset }, _params, output) => {
    const result = reshapeStrides(shape, strides, output.shape)
    return result && { offset, strides: result }
  },
  vjp: ({ inputs: [x], cotangents: [g], params: { start, end } }) => [
    unflattenAxis([g], { axis: start, shape: x.shape.slice(start, end + 1) }),
  ],
  jvp: ({ tangents: [t], params }) => [t && flattenAxes([t], params)],
  vmap: (c) => batched(flattenAxes([front(c)], { start: c.params.start + 1, end: c.params.end + 1 })),
})
/**
 * Flattens the axes from `startAxis` to `endAxis` (all by default) into one.
 * @example
 * mx.zeros([2, 3, 4]).flatten(1).shape // => [2, 12]
 */
export function flatten(a: Array, startAxis?: number, endAxis?: number, options?: StreamOptions): Array
export function flatten(a: Array, startAxis: number, options: { endAxis?: number } & StreamOptions): Array
export function flatten(a: Array, options: { startAxis?: number; endAxis?: number } & StreamOptions): Array
export function flatten(...args: unknown[]): Array {
  return flattenArgs(args)
}

/** The primitive of {@link unflatten}, likewise. */
export const unflattenAxis: Apply<{ axis: number; shape: readonly number[] }> = definePrimitive({
  name: "unflatten",
  facts: { keepsOrder: true },
  params: { axis: "i64", shape: "i64[]" },
  infer: ([x], { axis, shape }) => {
    const inner = resolveShape("unflatten", x.shape[axis], shape)
    if (sizeOf(inner) !== x.shape[axis])
      throw new ShapeError(
        "unflatten",
        `axis ${axis} of size ${x.shape[axis]} cannot be split into ${format(shape)}`,
      )
    return { shape: replaced(x.shape, axis, axis + 1, inner), dtype: x.dtype }
  },
  view: ({ shape, strides, offset }, _params, output) => {
    const result = reshapeStrides(shape, strides, output.shape)
    return result && { offset, strides: result }
  },
  vjp: ({ cotangents: [g], params: { axis, shape } }) => [
    flattenAxes([g], { start: axis, end: axis + shape.length - 1 }),
  ],
  jvp: ({ tangents: [t], params }) => [t && unflattenAxis([t], params)],
  vmap: (c) => batched(unflattenAxis([front(c)], { axis: c.params.axis + 1, shape: c.params.shape })),
})

const unflattenArgs = operation(
  "unflatten",
  { a: "array", axis: "axis", shape: "integerList" },
  (x: Array, axis: number, shape: readonly number[]) => {
    if (!globalThis.Array.isArray(shape) || shape.length === 0)
      throw new ShapeError(
        "unflatten",
        `shape must be a list of one or more sizes, received ${describe(shape)}`,
      )
    return unflattenAxis([x], { axis: normalizeAxis("unflatten", axis, x.ndim), shape })
  },
)
/**
 * Splits one axis into several; one size may be -1.
 * @example
 * mx.zeros([2, 12]).unflatten(1, [3, -1]).shape // => [2, 3, 4]
 */
export function unflatten(a: Array, axis: number, shape: readonly number[], options?: StreamOptions): Array
export function unflatten(...args: unknown[]): Array {
  return unflattenArgs(args)
}

const permute: Apply<{ axes: readonly number[] }> = definePrimitive({
  name: "transpose",
  params: { axes: "i64[]" },
  infer: ([x], { axes }) => ({ shape: pick(x.shape, axes), dtype: x.dtype }),
  view: ({ strides, offset }, { axes }) => ({ offset, strides: pick(strides, axes) }),
  vjp: ({ cotangents: [g], params: { axes } }) => {
    const inverse = new globalThis.Array<number>(axes.length)
    for (let i = 0; i < axes.length; i++) inverse[axes[i]] = i
    return [permuted(g, inverse)]
  },
  jvp: ({ tangents: [t], params }) => [t && permute([t], params)],
  vmap: (c) => batched(permute([front(c)], { axes: [0, ...c.params.axes.map((a) => a + 1)] })),
})
/** The values at the given positions. */
function pick(values: readonly number[], positions: readonly number[]): number[] {
  const out = new globalThis.Array<number>(positions.length)
  for (let i = 0; i < positions.length; i++) out[i] = values[positions[i]]
  return out
}

/** Permutes axes, for rules. If x is the inverse permutation of an array, returns that array. */
function permuted(x: Array, axes: readonly number[]): Array {
  const { primitive, params, inputs } = x.node
  if (primitive === permute.primitive) {
    const before = (params as { axes: readonly number[] }).axes
    let same = true
    for (let i = 0; i < axes.length; i++) same &&= before[axes[i]] === i
    if (same) return new ArrayClass(inputs[0])
  }
  return permute([x], { axes })
}

/** `x` with all its axes reversed. */
export const reversed = (x: Array): Array => permute([x], reversal(x.node.shape.length))

/** For rules: `x` with its last two axes swapped. */
export const swapLast = (x: Array): Array => permuted(x, swapping(x.ndim, x.ndim - 2, x.ndim - 1))

/** The permutation that swaps two axes. */
function swapping(ndim: number, i: number, j: number): number[] {
  const axes = new globalThis.Array<number>(ndim)
  for (let k = 0; k < ndim; k++) axes[k] = k === i ? j : k === j ? i : k
  return axes
}

/** By rank: the parameters that reverse all axes, which every layer's product has. */
const reversals: { axes: readonly number[] }[] = []
const reversal = (ndim: number): { axes: readonly number[] } =>
  (reversals[ndim] ??= { axes: globalThis.Array.from({ length: ndim }, (_, i) => ndim - 1 - i) })

const transposeArgs = operation(
  "transpose",
  { a: "array", axes: "integerList?" },
  (x: Array, axes?: readonly number[] | null) => {
    if (axes === undefined || axes === null) return reversed(x)
    if (axes.length !== x.ndim)
      throw new ShapeError("transpose", `expected ${x.ndim} axes, received ${axes.length}`)
    const order: number[] = []
    for (let i = 0; i < axes.length; i++) order.push(normalizeAxis("transpose", axes[i], axes.length))
    // It names the axis that is repeated.
    for (let i = 0; i < order.length; i++)
      if (order.indexOf(order[i]) < i) normalizeAxes("transpose", axes, x.ndim)
    return permute([x], { axes: order })
  },
)
/**
 * Permutes the axes, given as a list or as separate numbers; reverses them by default.
 * @example
 * mx.zeros([2, 3, 4]).transpose(1, 0, 2).shape // => [3, 2, 4]
 */
export function transpose(a: Array, axes?: readonly number[] | null, options?: StreamOptions): Array
export function transpose(a: Array, ...axes: number[]): Array
export function transpose(a: Array, ...axes: [...axes: number[], options: StreamOptions]): Array
export function transpose(a: Array, options: { axes?: readonly number[] | null } & StreamOptions): Array
export function transpose(...args: unknown[]): Array {
  return transposeArgs(gathered(args))
}
export { transpose as permuteDims }

const matrixTransposeArgs = operation(
  "matrixTranspose",
  { a: "array", axes: "axes?" },
  (a: Array, axes?: readonly number[] | null) => {
    if (a.ndim < 2)
      throw new ShapeError(
        "matrixTranspose",
        `needs an array of at least 2 dimensions, received shape ${format(a.shape)}`,
      )
    return transpose(a, axes)
  },
)
/**
 * Like {@link transpose}, but requires at least two dimensions.
 * @throws ShapeError for an array of fewer than 2 dimensions
 * @example
 * mx.matrixTranspose(mx.zeros([2, 3])).shape // => [3, 2]
 */
export function matrixTranspose(a: Array, axes?: readonly number[] | null, options?: StreamOptions): Array
export function matrixTranspose(a: Array, options: { axes?: readonly number[] | null } & StreamOptions): Array
export function matrixTranspose(...args: unknown[]): Array {
  return matrixTransposeArgs(args)
}

const swapaxesArgs = operation(
  "swapaxes",
  { a: "array", axis1: "axis", axis2: "axis" },
  (x: Array, axis1: number, axis2: number) => {
    const { ndim } = x
    const [i, j] = [normalizeAxis("swapaxes", axis1, ndim), normalizeAxis("swapaxes", axis2, ndim)]
    return permute([x], { axes: swapping(ndim, i, j) })
  },
)
/**
 * Swaps two axes.
 * @example
 * mx.zeros([2, 3, 4]).swapaxes(0, 2).shape // => [4, 3, 2]
 */
export function swapaxes(a: Array, axis1: number, axis2: number, options?: StreamOptions): Array
export function swapaxes(...args: unknown[]): Array {
  return swapaxesArgs(args)
}

const moveaxisArgs = operation(
  "moveaxis",
  { a: "array", source: "axis", destination: "axis" },
  (x: Array, source: number, destination: number) => {
    const [from, to] = [
      normalizeAxis("moveaxis", source, x.ndim),
      normalizeAxis("moveaxis", destination, x.ndim),
    ]
    if (from === to) return x
    const axes = globalThis.Array.from({ length: x.ndim }, (_, i) => i).filter((i) => i !== from)
    axes.splice(to, 0, from)
    return permute([x], { axes })
  },
)
/**
 * Moves one axis to another position; the others keep their order.
 * @example
 * mx.zeros([2, 3, 4]).moveaxis(0, 2).shape // => [3, 4, 2]
 */
export function moveaxis(a: Array, source: number, destination: number, options?: StreamOptions): Array
export function moveaxis(...args: unknown[]): Array {
  return moveaxisArgs(args)
}

/** The primitive of {@link expandDims}. */
export const insertAxes: Apply<{ axes: readonly number[] }> = definePrimitive({
  name: "expandDims",
  facts: { keepsOrder: true },
  params: { axes: "i64[]" },
  infer: ([x], { axes }) => ({ shape: spread(x.shape, axes, 1), dtype: x.dtype }),
  view: ({ strides, offset }, { axes }) => ({ offset, strides: spread(strides, axes, 0) }),
  vjp: ({ cotangents: [g], params }) => [dropAxes([g], params)],
  jvp: ({ tangents: [t], params }) => [t && insertAxes([t], params)],
  vmap: (c) => batched(insertAxes([front(c)], { axes: c.params.axes.map((a) => a + 1) })),
})
/** Inserts `filler` at the positions `axes` (ascending) of the result. */
function spread(values: readonly number[], axes: readonly number[], filler: number): number[] {
  const out = new globalThis.Array<number>(values.length + axes.length)
  for (let i = 0, next = 0; i < out.length; i++) {
    if (axes[i - next] === i) out[i] = filler
    else out[i] = values[next++]
  }
  return out
}
const expandDimsArgs = operation(
  "expandDims",
  { a: "array", axis: "axes" },
  (x: Array, axis: number | readonly number[]) => {
    if (axis === null || axis === undefined)
      throw new ArgumentError("expandDims", `axis must be a number or a list of numbers, received ${axis}`)
    const count = typeof axis === "number" ? 1 : axis.length
    return insertAxes([x], { axes: normalizeAxes("expandDims", axis, x.ndim + count) })
  },
)
/**
 * Inserts axes of size 1 at the given positions of the result.
 * @example
 * mx.zeros([2, 3]).expandDims([0, -1]).shape // => [1, 2, 3, 1]
 */
export function expandDims(a: Array, axis: number | readonly number[], options?: StreamOptions): Array
export function expandDims(...args: unknown[]): Array {
  return expandDimsArgs(args)
}

const dropAxes: Apply<{ axes: readonly number[] }> = definePrimitive({
  name: "squeeze",
  facts: { keepsOrder: true },
  params: { axes: "i64[]" },
  infer: ([x], { axes }) => {
    for (const axis of axes)
      if (x.shape[axis] !== 1)
        throw new ShapeError(
          "squeeze",
          `axis ${axis} has size ${x.shape[axis]}, not 1, in shape ${format(x.shape)}`,
        )
    return { shape: without(x.shape, axes), dtype: x.dtype }
  },
  view: ({ strides, offset }, { axes }) => ({ offset, strides: without(strides, axes) }),
  vjp: ({ cotangents: [g], params }) => [insertAxes([g], params)],
  jvp: ({ tangents: [t], params }) => [t && dropAxes([t], params)],
  vmap: (c) => batched(dropAxes([front(c)], { axes: c.params.axes.map((a) => a + 1) })),
})
/** Removes the values at the given positions. */
function without(values: readonly number[], positions: readonly number[]): number[] {
  const out: number[] = []
  for (let i = 0; i < values.length; i++) if (!positions.includes(i)) out.push(values[i])
  return out
}
const squeezeArgs = operation("squeeze", { a: "array", axis: "axes?" }, (x: Array, axis?: Axes) => {
  const all = axis === undefined || axis === null
  const axes = all ? x.shape.flatMap((n, i) => (n === 1 ? [i] : [])) : normalizeAxes("squeeze", axis, x.ndim)
  return dropAxes([x], { axes })
})
/**
 * Removes axes of size 1: the given ones, or all.
 * @throws ShapeError if a given axis has another size
 * @example
 * mx.zeros([1, 2, 1]).squeeze(0).shape // => [2, 1]
 */
export function squeeze(a: Array, axis?: Axes, options?: StreamOptions): Array
export function squeeze(a: Array, options: { axis?: Axes } & StreamOptions): Array
export function squeeze(...args: unknown[]): Array {
  return squeezeArgs(args)
}

const makeContiguous: Apply<NoParams> = definePrimitive({
  name: "contiguous",
  facts: { keepsOrder: true },
  infer: ([x]) => x,
  view: ({ shape, strides, offset }) => (isContiguous(shape, strides) ? { offset, strides } : null),
  vjp: ({ cotangents: [g] }) => [g],
  jvp: ({ tangents: [t] }) => [t],
  vmap: (c) => batched(makeContiguous([front(c)])),
})
const contiguousArgs = operation(
  "contiguous",
  { a: "array", allowColMajor: "bool?" },
  (a: Array, _allowColMajor?: boolean) => makeContiguous([a]),
)
/**
 * A row-contiguous array with the same elements; copied only if necessary.
 * @example
 * mx.contiguous(mx.zeros([2, 3]).T).shape // => [3, 2]
 */
export function contiguous(a: Array, allowColMajor?: boolean, options?: StreamOptions): Array
export function contiguous(a: Array, options: { allowColMajor?: boolean } & StreamOptions): Array
export function contiguous(...args: unknown[]): Array {
  return contiguousArgs(args)
}

const stop: Apply<NoParams> = definePrimitive({
  name: "stopGradient",
  infer: ([x]) => x,
  view: ({ strides, offset }) => ({ offset, strides }),
  vjp: () => [null],
  jvp: () => [null],
  vmap: ({ inputs, axes }) => ({ outputs: [stop(inputs)], axes: [axes[0]] }),
  facts: { keepsOrder: true, stopsGradient: true },
})
const stopGradientArgs = operation("stopGradient", { a: "array" }, (a: Array) => stop([a]))
/**
 * The same values, treated as constant by grad, vjp and jvp.
 * @example
 * mx.stopGradient(mx.array([1])).tolist() // => [1]
 */
export function stopGradient(a: Array, options?: StreamOptions): Array
export function stopGradient(...args: unknown[]): Array {
  return stopGradientArgs(args)
}

/** True if two shapes have the same sizes: then `x.reshape(y.shape)` has nothing to do. */
export function reshapeLike(x: Array, shape: Shape): Array {
  return sameShape(x.node.shape, shape) ? x : reshapeTo([x], { shape })
}
