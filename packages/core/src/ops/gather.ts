/**
 * Reading and writing at positions that are values: gather and its transpose scatter, and the same along one axis. Indexing
 * with arrays (indexing.ts) is built on them. Negative positions count from the end.
 */
import { asArrayArgument, isList, operation, type StreamOptions } from "../args"
import { isInteger, storeWidth } from "../dtype"
import { ArgumentError, DTypeError, describe, IndexError, ShapeError } from "../errors"
import type { Array, HostArray, Meta } from "../graph"
import { type Apply, definePrimitive } from "../primitive"
import {
  broadcastShapes,
  contiguousStrides,
  format,
  normalizeAxis,
  type Shape,
  sameShape,
  sizeOf,
} from "../shape"
import { where } from "./binary"
import { toDtype } from "./constant"
import { arange, array, ones, zeros } from "./creation"
import { broadcastTo } from "./reduce"
import { combineAt, sliceRange, type UpdateMode } from "./slice"
import { moveToFront } from "./view"

/** A stored index counted from the front. @throws IndexError */
function position(op: string, value: number | bigint, axis: number, size: number, span = 1): number {
  const index = Number(value)
  const normal = index < 0 ? index + size : index
  if (normal < 0 || normal + span > size)
    throw new IndexError(op, `index ${index} is out of bounds for axis ${axis} with size ${size}`)
  return normal
}

function checkIndices(op: string, indices: readonly Meta[]): void {
  for (const index of indices) {
    if (!isInteger(index.dtype))
      throw new DTypeError(op, `indices must be integers, received ${index.dtype.name}`)
    if (!sameShape(index.shape, indices[0].shape))
      throw new ShapeError(
        op,
        `all index arrays must have one shape, received ${format(indices[0].shape)} and ${format(index.shape)}`,
      )
  }
}

/** Calls `visit(element of the slices, element of x)` for every element of every slice. */
function eachSlice(
  op: string,
  x: HostArray,
  indices: readonly HostArray[],
  axes: readonly number[],
  sliceSizes: readonly number[],
  visit: (element: number, place: number) => void,
): void {
  const strides = contiguousStrides(x.shape)
  const inner = offsetsOf(sliceSizes, strides)
  const count = indices.length > 0 ? sizeOf(indices[0].shape) : 1
  let element = 0
  for (let b = 0; b < count; b++) {
    let start = 0
    for (let k = 0; k < axes.length; k++) {
      const axis = axes[k]
      start += position(op, indices[k].data[b], axis, x.shape[axis], sliceSizes[axis]) * strides[axis]
    }
    for (const offset of inner) visit(element++, start + offset)
  }
}

/** The offsets of a block's elements, row-major. */
function offsetsOf(shape: Shape, strides: readonly number[]): number[] {
  let out = [0]
  for (let axis = 0; axis < shape.length; axis++) {
    const next: number[] = []
    for (const base of out) for (let i = 0; i < shape[axis]; i++) next.push(base + i * strides[axis])
    out = next
  }
  return out
}

function copyElement(from: HostArray, i: number, to: HostArray, j: number): void {
  if (storeWidth(to.dtype) === 1) to.data[j] = from.data[i]
  else {
    to.data[2 * j] = from.data[2 * i]
    to.data[2 * j + 1] = from.data[2 * i + 1]
  }
}

/** Index arrays with the batch in front, those without one repeated. */
function batchedIndices(indices: readonly Array[], axes: readonly (number | null)[], size: number): Array[] {
  return indices.map((index, i) => {
    const axis = axes[i]
    return axis === null ? broadcastTo(index, [size, ...index.shape]) : moveToFront(index, axis)
  })
}

/** Every example's own number, shaped to stand beside its index arrays. */
function exampleNumbers(size: number, ndim: number, shape: Shape): Array {
  return broadcastTo(arange(size).reshape([size, ...new globalThis.Array<number>(ndim).fill(1)]), shape)
}

type GatherParams = { axes: readonly number[]; sliceSizes: readonly number[] }

/** out[b…, s…] = x[index₀[b…] + s₀, …]: one slice of x for every place of the index arrays. */
export const gather: Apply<GatherParams> = definePrimitive({
  name: "gather",
  params: { axes: "i64[]", sliceSizes: "i64[]" },
  infer: ([x, ...indices], { axes, sliceSizes }) => {
    checkIndices("gather", indices)
    const batch = indices.length > 0 ? indices[0].shape : []
    for (let i = 0; i < sliceSizes.length; i++)
      if (sliceSizes[i] > x.shape[i] && (sizeOf(batch) > 0 || !axes.includes(i)))
        throw new ShapeError(
          "gather",
          `slices of shape ${format(sliceSizes)} do not fit an array of shape ${format(x.shape)}`,
        )
    return { shape: [...batch, ...sliceSizes], dtype: x.dtype }
  },
  reference: ([x, ...indices], [out], { axes, sliceSizes }) =>
    eachSlice("gather", x, indices, axes, sliceSizes, (i, place) => copyElement(x, place, out, i)),
  vjp: ({ inputs: [x, ...indices], cotangents: [g], params: { axes } }) => [
    scatter([zeros(x.shape, x.dtype), g, ...indices], { axes, mode: "add" }),
    ...indices.map(() => null),
  ],
  jvp: ({ inputs: [, ...indices], tangents: [t], params }) => [t && gather([t, ...indices], params)],
  vmap: ({ inputs: [x, ...indices], axes: [xAxis, ...batches], params: { axes, sliceSizes }, size }) => {
    const shifted = axes.map((axis) => axis + 1)
    if (batches.every((axis) => axis === null)) {
      // The batch is one more axis of the slices.
      const params = { axes: shifted, sliceSizes: [size, ...sliceSizes] }
      const batch = indices.length > 0 ? indices[0].ndim : 0
      return { outputs: [gather([moveToFront(x, xAxis as number), ...indices], params)], axes: [batch] }
    }
    const places = batchedIndices(indices, batches, size)
    if (xAxis === null) return { outputs: [gather([x, ...places], { axes, sliceSizes })], axes: [0] }
    const { shape, ndim } = places[0]
    const out = gather([moveToFront(x, xAxis), exampleNumbers(size, ndim - 1, shape), ...places], {
      axes: [0, ...shifted],
      sliceSizes: [1, ...sliceSizes],
    })
    return { outputs: [out.squeeze(ndim)], axes: [0] }
  },
})

const modes = ["set", "add", "multiply", "maximum", "minimum"] as const
type ScatterParams = { axes: readonly number[]; mode: UpdateMode }

/** A copy of x in which the slices at the index arrays are combined with the updates, in their order. */
export const scatter: Apply<ScatterParams> = definePrimitive({
  name: "scatter",
  params: { axes: "i64[]", mode: modes },
  infer: ([x, updates, ...indices]) => {
    checkIndices("scatter", indices)
    const batch = indices.length > 0 ? indices[0].shape : []
    const lead = updates.shape.slice(0, batch.length)
    if (updates.shape.length !== batch.length + x.shape.length || !sameShape(lead, batch))
      throw new ShapeError(
        "scatter",
        `updates must have the indices' axes ${format(batch)} and then the ${x.shape.length} axes of a slice, received shape ${format(updates.shape)}`,
      )
    return x
  },
  reference: ([x, updates, ...indices], [out], { axes, mode }) => {
    for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[i]
    const sliceSizes = updates.shape.slice(updates.shape.length - x.shape.length)
    eachSlice("scatter", x, indices, axes, sliceSizes, (i, place) => combineAt(out, place, updates, i, mode))
  },
  vjp: ({ inputs: [x, updates, ...indices], outputs: [y], cotangents: [g], params, wanted }) => {
    const { axes, mode } = params
    const at = (a: Array): Array => gather([a, ...indices], { axes, sliceSizes: sliceOf(x, updates) })
    const none = indices.map(() => null)
    if (mode === "add") return [g, wanted[1] ? at(g) : null, ...none]
    if (mode === "set")
      return [
        wanted[0] ? scatter([g, zeros(updates.shape, g.dtype), ...indices], params) : null,
        // Of several updates of one element the last one counts.
        wanted[1] ? where(lastWriters(x, updates, indices, params), at(g), 0) : null,
        ...none,
      ]
    if (mode === "multiply")
      return [
        wanted[0] ? scatter([g, updates.conjugate(), ...indices], params) : null,
        wanted[1]
          ? at(g.multiply(x.conjugate())).multiply(productOfOthers(x, updates, indices, axes).conjugate())
          : null,
        ...none,
      ]
    const { kept, weight } = winners(x, updates, y, indices, axes)
    return [wanted[0] ? where(kept, g, 0) : null, wanted[1] ? at(g).multiply(weight) : null, ...none]
  },
  jvp: ({ inputs: [x, updates, ...indices], outputs: [y], tangents: [tx, tu], params }) => {
    const { axes, mode } = params
    const dx = tx ?? zeros(x.shape, x.dtype)
    const du = tu ?? zeros(updates.shape, updates.dtype)
    const add = (target: Array, values: Array): Array =>
      scatter([target, values, ...indices], { axes, mode: "add" })
    if (mode === "set" || mode === "add") return [scatter([dx, du, ...indices], params)]
    if (mode === "multiply") {
      const at = gather([x, ...indices], { axes, sliceSizes: sliceOf(x, updates) })
      const scaled = scatter([dx, updates, ...indices], params)
      return [tu ? add(scaled, tu.multiply(at).multiply(productOfOthers(x, updates, indices, axes))) : scaled]
    }
    const { kept, weight } = winners(x, updates, y, indices, axes)
    return [add(where(kept, dx, 0), du.multiply(weight))]
  },
  vmap: ({ inputs: [x, updates, ...indices], axes: [xAxis, uAxis, ...batches], params, size }) => {
    const { axes, mode } = params
    const target = xAxis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, xAxis)
    const values =
      uAxis === null ? broadcastTo(updates, [size, ...updates.shape]) : moveToFront(updates, uAxis)
    const shifted = axes.map((axis) => axis + 1)
    if (batches.every((axis) => axis === null)) {
      const batch = indices.length > 0 ? indices[0].ndim : 0
      return {
        outputs: [scatter([target, values.moveaxis(0, batch), ...indices], { axes: shifted, mode })],
        axes: [0],
      }
    }
    const places = batchedIndices(indices, batches, size)
    const { shape, ndim } = places[0]
    const inputs = [target, values.expandDims(ndim), exampleNumbers(size, ndim - 1, shape), ...places]
    return { outputs: [scatter(inputs, { axes: [0, ...shifted], mode })], axes: [0] }
  },
})

const sliceOf = (x: Array, updates: Array): number[] => updates.shape.slice(updates.ndim - x.ndim)

/** Where an update is the last one of its element: numbers written in the same way, then read back. */
function lastWriters(x: Array, updates: Array, indices: readonly Array[], params: ScatterParams): Array {
  const numbers = arange(updates.size).reshape(updates.shape)
  const written = scatter([zeros(x.shape, numbers.dtype), numbers, ...indices], params)
  const { axes } = params
  return gather([written, ...indices], { axes, sliceSizes: sliceOf(x, updates) }).equal(numbers)
}

/** For each update the product of the other updates of its element, right where some of them are zero. */
function productOfOthers(
  x: Array,
  updates: Array,
  indices: readonly Array[],
  axes: readonly number[],
): Array {
  const isZero = updates.equal(0)
  const zeroCount = scatter([zeros(x.shape, updates.dtype), toDtype(isZero, updates.dtype), ...indices], {
    axes,
    mode: "add",
  })
  const nonzero = where(isZero, 1, updates)
  const product = scatter([ones(x.shape, updates.dtype), nonzero, ...indices], { axes, mode: "multiply" })
  const at = (a: Array): Array => gather([a, ...indices], { axes, sliceSizes: sliceOf(x, updates) })
  const otherZeros = at(zeroCount).subtract(toDtype(isZero, updates.dtype))
  return where(otherZeros.equal(0), at(product).divide(nonzero), 0)
}

/** maximum and minimum: where x kept its value (ties included), and the share of each update that took its place. */
function winners(
  x: Array,
  updates: Array,
  y: Array,
  indices: readonly Array[],
  axes: readonly number[],
): { kept: Array; weight: Array } {
  const at = (a: Array): Array => gather([a, ...indices], { axes, sliceSizes: sliceOf(x, updates) })
  const kept = x.equal(y)
  const hit = toDtype(updates.equal(at(y)).logicalAnd(at(kept).logicalNot()), updates.dtype)
  const hits = scatter([zeros(x.shape, updates.dtype), hit, ...indices], { axes, mode: "add" })
  return { kept, weight: hit.divide(at(hits).maximum(1)) }
}

/** Calls `visit(element of the indices, element of x)` for indices along one axis. */
function eachAlong(
  op: string,
  shape: Shape,
  indices: HostArray,
  axis: number,
  visit: (element: number, place: number) => void,
): void {
  const outer = sizeOf(shape.slice(0, axis))
  const inner = sizeOf(shape.slice(axis + 1))
  const n = indices.shape[axis]
  for (let o = 0; o < outer; o++)
    for (let k = 0; k < n; k++)
      for (let i = 0; i < inner; i++) {
        const element = (o * n + k) * inner + i
        const at = position(op, indices.data[element], axis, shape[axis])
        visit(element, (o * shape[axis] + at) * inner + i)
      }
}

function checkAlong(op: string, x: Meta, indices: Meta, axis: number): void {
  if (!isInteger(indices.dtype))
    throw new DTypeError(op, `indices must be integers, received ${indices.dtype.name}`)
  if (x.shape.length !== indices.shape.length || x.shape.some((n, i) => i !== axis && n !== indices.shape[i]))
    throw new ShapeError(
      op,
      `the sizes of the array and of the indices must agree but for axis ${axis}, received shapes ${format(x.shape)} and ${format(indices.shape)}`,
    )
}

const inFront = (inputs: readonly Array[], axes: readonly (number | null)[], size: number): Array[] =>
  inputs.map((x, i) => {
    const axis = axes[i]
    return axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)
  })

/** out[…, i, …] = x[…, indices[…, i, …], …] */
export const gatherAlong: Apply<{ axis: number }> = definePrimitive({
  name: "takeAlongAxis",
  params: { axis: "i64" },
  infer: ([x, indices], { axis }) => {
    checkAlong("takeAlongAxis", x, indices, axis)
    return { shape: indices.shape, dtype: x.dtype }
  },
  reference: ([x, indices], [out], { axis }) =>
    eachAlong("takeAlongAxis", x.shape, indices, axis, (i, place) => copyElement(x, place, out, i)),
  vjp: ({ inputs: [x, indices], cotangents: [g], params: { axis } }) => [
    scatterAlong([zeros(x.shape, x.dtype), indices, g], { axis, mode: "add" }),
    null,
  ],
  jvp: ({ inputs: [, indices], tangents: [t], params }) => [t && gatherAlong([t, indices], params)],
  vmap: ({ inputs, axes, params: { axis }, size }) => ({
    outputs: [gatherAlong(inFront(inputs, axes, size), { axis: axis + 1 })],
    axes: [0],
  }),
})

/** A copy of x with x[…, indices[…, i, …], …] replaced by, or increased by, values[…, i, …]. */
export const scatterAlong: Apply<{ axis: number; mode: "set" | "add" }> = definePrimitive({
  name: "putAlongAxis",
  params: { axis: "i64", mode: ["set", "add"] },
  infer: ([x, indices], { axis }) => {
    checkAlong("putAlongAxis", x, indices, axis)
    return x
  },
  reference: ([x, indices, values], [out], { axis, mode }) => {
    for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[i]
    eachAlong("putAlongAxis", x.shape, indices, axis, (i, place) => combineAt(out, place, values, i, mode))
  },
  vjp: ({ inputs: [x, indices, values], cotangents: [g], params, wanted }) => {
    const { axis, mode } = params
    const at = gatherAlong([g, indices], { axis })
    if (mode === "add") return [g, null, at]
    const numbers = (): Array => arange(values.size).reshape(values.shape)
    return [
      wanted[0] ? scatterAlong([g, indices, zeros(values.shape, g.dtype)], params) : null,
      null,
      wanted[2]
        ? where(
            gatherAlong(
              [scatterAlong([zeros(x.shape, numbers().dtype), indices, numbers()], params), indices],
              {
                axis,
              },
            ).equal(numbers()),
            at,
            0,
          )
        : null,
    ]
  },
  jvp: ({ inputs: [x, indices, values], tangents: [tx, , tv], params }) => [
    scatterAlong([tx ?? zeros(x.shape, x.dtype), indices, tv ?? zeros(values.shape, values.dtype)], params),
  ],
  vmap: ({ inputs, axes, params: { axis, mode }, size }) => ({
    outputs: [scatterAlong(inFront(inputs, axes, size), { axis: axis + 1, mode })],
    axes: [0],
  }),
})

/** Index arrays as users give them: an integer array, or a list of integers. */
export type Indices = Array | readonly number[]

/** @internal An argument that holds indices, as an integer array. @throws DTypeError */
export function asIndices(op: string, value: unknown): Array {
  const index = isList(value)
    ? array(value as number[], { dtype: value.length > 0 ? integerList(op, value) : null })
    : value
  const x = asArrayArgument(op, "indices", index)
  if (isList(value) && value.length === 0) return toDtype(x, arange(0).dtype)
  if (!isInteger(x.dtype)) throw new DTypeError(op, `indices must be integers, received ${x.dtype.name}`)
  return x
}

function integerList(op: string, list: readonly unknown[]): Array["dtype"] {
  const visit = (v: unknown): void => {
    if (isList(v)) v.forEach(visit)
    else if (!Number.isInteger(v))
      throw new ArgumentError(op, `indices must be integers, received ${describe(v)}`)
  }
  visit(list)
  return arange(0).dtype
}

/** @internal An index known now, counted from the front. @throws IndexError */
export function staticIndex(op: string, index: number, axis: number, size: number): number {
  if (!Number.isInteger(index))
    throw new ArgumentError(op, `an index must be an integer, received ${describe(index)}`)
  return position(op, index, axis, size)
}

const takeArgs = operation(
  "take",
  ["a", "indices", "axis"],
  (a: unknown, indices: unknown, axis?: number | null): Array => {
    const given = asArrayArgument("take", "a", a)
    const flat = axis === undefined || axis === null
    const x = flat ? given.flatten() : given
    const along = flat ? 0 : normalizeAxis("take", axis, x.ndim)
    const n = x.shape[along]
    if (typeof indices === "number") {
      const at = staticIndex("take", indices, along, n)
      const start = x.shape.map((_, i) => (i === along ? at : 0))
      const stop = x.shape.map((size, i) => (i === along ? at + 1 : size))
      return sliceRange(x, start, stop).squeeze(along)
    }
    const index = asIndices("take", indices)
    if (n === 0 && index.size > 0)
      throw new IndexError("take", `cannot take from axis ${along} with size 0 of shape ${format(x.shape)}`)
    const sliceSizes = x.shape.map((size, i) => (i === along ? 1 : size))
    if (n === 0)
      return zeros([...x.shape.slice(0, along), ...index.shape, ...x.shape.slice(along + 1)], x.dtype)
    const out = gather([x, index], { axes: [along], sliceSizes }).squeeze(index.ndim + along)
    if (along === 0 || index.ndim === 0) return out
    const order = [
      ...globalThis.Array.from({ length: along }, (_, i) => index.ndim + i),
      ...index.shape.map((_, i) => i),
      ...globalThis.Array.from({ length: x.ndim - 1 - along }, (_, i) => index.ndim + along + i),
    ]
    return out.transpose(order)
  },
)
/**
 * The elements at `indices` along an axis, or of the flattened array; the axes of the indices take the axis's place. Negative
 * indices count from the end.
 * @throws IndexError for an index out of bounds: at once for a number, when computed for an array
 * @example
 * mx.take(mx.array([10, 20, 30]), [2, 0]).tolist() // => [30, 10]
 */
export function take(
  a: Array,
  indices: Array | readonly number[] | number,
  axis?: number | null,
  options?: StreamOptions,
): Array
export function take(
  a: Array,
  indices: Array | readonly number[] | number,
  options: { axis?: number | null } & StreamOptions,
): Array
export function take(...args: unknown[]): Array {
  return takeArgs(args)
}

/** Broadcasts an array and its indices against each other but for the axis, or flattens both. */
function alignAlong(
  op: string,
  a: unknown,
  indices: unknown,
  axis: number | null | undefined,
): { x: Array; index: Array; along: number } {
  const x = asArrayArgument(op, "a", a)
  const index = asIndices(op, indices)
  if (axis === undefined || axis === null) return { x: x.flatten(), index: index.flatten(), along: 0 }
  const along = normalizeAxis(op, axis, x.ndim)
  if (index.ndim !== x.ndim)
    throw new ShapeError(
      op,
      `indices must have ${x.ndim} dimension${x.ndim === 1 ? "" : "s"} like the array, received shape ${format(index.shape)}`,
    )
  const one = (shape: Shape): number[] => shape.map((n, i) => (i === along ? 1 : n))
  const common = broadcastShapes(op, one(x.shape), one(index.shape))
  const withAxis = (n: number): number[] => common.map((m, i) => (i === along ? n : m))
  return {
    x: broadcastTo(x, withAxis(x.shape[along])),
    index: broadcastTo(index, withAxis(index.shape[along])),
    along,
  }
}

const takeAlongAxisArgs = operation(
  "takeAlongAxis",
  ["a", "indices", "axis"],
  (a: unknown, indices: unknown, axis?: number | null): Array => {
    const { x, index, along } = alignAlong("takeAlongAxis", a, indices, axis)
    return gatherAlong([x, index], { axis: along })
  },
)
/**
 * The elements at `indices` along an axis, where the indices have the array's other axes: what undoes argsort. Without an axis
 * both are flattened.
 * @throws IndexError, when computed, for an index out of bounds; ShapeError when other sizes do not broadcast
 * @example
 * mx.takeAlongAxis(mx.array([[1, 2], [3, 4]]), mx.array([[1], [0]], mx.int32), 1).tolist() // => [[2], [3]]
 */
export function takeAlongAxis(
  a: Array,
  indices: Array | readonly number[],
  axis?: number | null,
  options?: StreamOptions,
): Array
export function takeAlongAxis(
  a: Array,
  indices: Array | readonly number[],
  options: { axis?: number | null } & StreamOptions,
): Array
export function takeAlongAxis(...args: unknown[]): Array {
  return takeAlongAxisArgs(args)
}

const putAlongAxisArgs = operation(
  "putAlongAxis",
  ["a", "indices", "values", "axis"],
  (a: unknown, indices: unknown, values: unknown, axis?: number | null): Array => {
    const x = asArrayArgument("putAlongAxis", "a", a)
    const index = asIndices("putAlongAxis", indices)
    const given = typeof values === "number" ? array(values, x.dtype) : values
    const value = toDtype(asArrayArgument("putAlongAxis", "values", given), x.dtype)
    if (axis === undefined || axis === null) {
      const flat = broadcastTo(value, index.shape).flatten()
      return scatterAlong([x.flatten(), index.flatten(), flat], { axis: 0, mode: "set" }).reshape(x.shape)
    }
    const along = normalizeAxis("putAlongAxis", axis, x.ndim)
    if (index.ndim !== x.ndim)
      throw new ShapeError(
        "putAlongAxis",
        `indices must have ${x.ndim} dimension${x.ndim === 1 ? "" : "s"} like the array, received shape ${format(index.shape)}`,
      )
    const places = broadcastTo(
      index,
      x.shape.map((n, i) => (i === along ? index.shape[i] : n)),
    )
    return scatterAlong([x, places, broadcastTo(value, places.shape)], { axis: along, mode: "set" })
  },
)
/**
 * A copy of `a` with `values` written at `indices` along an axis, or into the flattened array. Of several values for one element the
 * last one stays.
 * @throws IndexError, when computed, for an index out of bounds
 * @example
 * mx.putAlongAxis(mx.array([1, 2, 3]), [0], mx.array([9]), 0).tolist() // => [9, 2, 3]
 */
export function putAlongAxis(
  a: Array,
  indices: Array | readonly number[],
  values: Array | number,
  axis?: number | null,
  options?: StreamOptions,
): Array
export function putAlongAxis(
  a: Array,
  indices: Array | readonly number[],
  values: Array | number,
  options: { axis?: number | null } & StreamOptions,
): Array
export function putAlongAxis(...args: unknown[]): Array {
  return putAlongAxisArgs(args)
}

/** The start of a slice along each of `axes`, as 0-d index arrays. */
function startsOf(
  op: string,
  start: unknown,
  axes: readonly number[],
  x: Array,
): { starts: Array[]; normal: number[] } {
  const index = asIndices(op, start)
  const normal = axes.map((axis) => normalizeAxis(op, axis, x.ndim))
  if (new Set(normal).size !== normal.length) throw new ShapeError(op, `axes ${format(axes)} repeat an axis`)
  const flat = index.ndim === 0 ? index.reshape([1]) : index
  if (flat.ndim !== 1 || flat.shape[0] !== axes.length)
    throw new ShapeError(
      op,
      `needs one start index for each of ${axes.length} axes, received indices of shape ${format(index.shape)}`,
    )
  return { starts: normal.map((_, i) => take(flat, i, 0)), normal }
}

const sliceArgs = operation(
  "slice",
  ["a", "startIndices", "axes", "sliceSize"],
  (a: unknown, start: unknown, axes: readonly number[], sliceSize: readonly number[]): Array => {
    const x = asArrayArgument("slice", "a", a)
    const { starts, normal } = startsOf("slice", start, axes, x)
    if (sliceSize.length !== x.ndim || sliceSize.some((n, i) => n > x.shape[i]))
      throw new ShapeError(
        "slice",
        `a slice of size ${format(sliceSize)} does not fit an array of shape ${format(x.shape)}`,
      )
    return gather([x, ...starts], { axes: normal, sliceSizes: sliceSize.slice() })
  },
)
/**
 * The block of size `sliceSize` that starts at computed indices along `axes`, and at 0 along the others.
 * @throws ShapeError when the size does not fit; IndexError, when computed, for a start that lets it leave the array
 * @example
 * mx.slice(mx.array([1, 2, 3, 4]), [1], [0], [2]).tolist() // => [2, 3]
 */
export function slice(
  a: Array,
  startIndices: Array | readonly number[],
  axes: readonly number[],
  sliceSize: readonly number[],
  options?: StreamOptions,
): Array
export function slice(...args: unknown[]): Array {
  return sliceArgs(args)
}

const sliceUpdateArgs = operation(
  "sliceUpdate",
  ["a", "update", "startIndices", "axes"],
  (a: unknown, update: unknown, start: unknown, axes: readonly number[]): Array => {
    const x = asArrayArgument("sliceUpdate", "a", a)
    let values = toDtype(asArrayArgument("sliceUpdate", "update", update), x.dtype)
    const { starts, normal } = startsOf("sliceUpdate", start, axes, x)
    const lead = x.ndim - values.ndim
    // Axes without a start are written whole; the update broadcasts along them.
    const shape = x.shape.map((n, i) => (normal.includes(i) ? (values.shape[i - lead] ?? 1) : n))
    values = broadcastTo(values, shape)
    if (shape.some((n, i) => n > x.shape[i]))
      throw new ShapeError(
        "sliceUpdate",
        `an update of shape ${format(shape)} does not fit an array of shape ${format(x.shape)}`,
      )
    return scatter([x, values, ...starts], { axes: normal, mode: "set" })
  },
)
/**
 * A copy of `a` with a block replaced that starts at computed indices along `axes`, and at 0 along the others.
 * @throws ShapeError when the update does not fit; IndexError, when computed, for a start that lets it leave the array
 * @example
 * mx.sliceUpdate(mx.array([1, 2, 3]), mx.array([9]), [1], [0]).tolist() // => [1, 9, 3]
 */
export function sliceUpdate(
  a: Array,
  update: Array,
  startIndices: Array | readonly number[],
  axes: readonly number[],
  options?: StreamOptions,
): Array
export function sliceUpdate(...args: unknown[]): Array {
  return sliceUpdateArgs(args)
}
