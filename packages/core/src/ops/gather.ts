/**
 * The primitives gather, which reads slices at dynamic indices, and scatter, its transpose. Array indexing (indexing.ts) uses them.
 */
import { isInteger, storeWidth } from "../graph/dtype"
import { DTypeError, ShapeError } from "../graph/errors"
import type { Array, HostArray, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { contiguousStrides, format, SCALAR, type Shape, sameShape, sizeOf } from "../graph/shape"
import { arange } from "./arange"
import { argsortAlong } from "./argsort"
import { where } from "./binary"
import { toDtype, wide } from "./constant"
import { full, ones, zeros } from "./creation"
import { concatenate } from "./join"
import { position } from "./positions"
import { broadcastTo } from "./reduce"
import { combineAt, sliceRange, type UpdateMode } from "./slice"
import { moveToFront } from "./view"

/** Checks the inputs from `first` on, which are indices, and gives the shape of each. */
function shapeOfIndices(op: string, inputs: readonly Meta[], first: number): Shape {
  for (let i = first; i < inputs.length; i++) {
    const { shape, dtype } = inputs[i]
    if (!isInteger(dtype)) throw new DTypeError(op, `indices must be integers, received ${dtype.name}`)
    if (!sameShape(shape, inputs[first].shape))
      throw new ShapeError(
        op,
        `all index arrays must have the same shape, received ${format(inputs[first].shape)} and ${format(shape)}`,
      )
  }
  return inputs.length > first ? inputs[first].shape : SCALAR
}

/** Calls `visit` with the offset of each element within the slices and within x. */
function eachSlice(
  op: string,
  x: HostArray,
  indices: readonly HostArray[],
  axes: readonly number[],
  sliceSizes: readonly number[],
  visit: (element: number, position: number) => void,
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

export function copyElement(from: HostArray, i: number, to: HostArray, j: number): void {
  if (storeWidth(to.dtype) === 1) to.data[j] = from.data[i]
  else {
    to.data[2 * j] = from.data[2 * i]
    to.data[2 * j + 1] = from.data[2 * i + 1]
  }
}

/** Index arrays with the batch axis in front, broadcast if they have none. */
function batchedIndices(indices: readonly Array[], axes: readonly (number | null)[], size: number): Array[] {
  return indices.map((index, i) => {
    const axis = axes[i]
    return axis === null ? broadcastTo(index, [size, ...index.shape]) : moveToFront(index, axis)
  })
}

/** The index of each example, broadcast to the shape of its index arrays. */
function exampleNumbers(size: number, ndim: number, shape: Shape): Array {
  return broadcastTo(arange(size).reshape([size, ...new globalThis.Array<number>(ndim).fill(1)]), shape)
}

type GatherParams = { axes: readonly number[]; sliceSizes: readonly number[] }

/** out[b…, s…] = x[index₀[b…] + s₀, …]: one slice of x for each element of the index arrays. */
export const gather: Apply<GatherParams> = definePrimitive({
  name: "gather",
  params: { axes: "i64[]", sliceSizes: "i64[]" },
  infer: (inputs, { axes, sliceSizes }) => {
    const [x] = inputs
    const batch = shapeOfIndices("gather", inputs, 1)
    for (let i = 0; i < sliceSizes.length; i++)
      if (sliceSizes[i] > x.shape[i] && (sizeOf(batch) > 0 || !axes.includes(i)))
        throw new ShapeError(
          "gather",
          `slices of shape ${format(sliceSizes)} do not fit an array of shape ${format(x.shape)}`,
        )
    return { shape: [...batch, ...sliceSizes], dtype: x.dtype }
  },
  reference: ([x, ...indices], [out], { axes, sliceSizes }) =>
    eachSlice("gather", x, indices, axes, sliceSizes, (i, position) => copyElement(x, position, out, i)),
  vjp: ({ inputs: [x, ...indices], cotangents: [g], params: { axes } }) => [
    scatter([zeros(x.shape, x.dtype), g, ...indices], { axes, mode: "add" }),
    ...indices.map(() => null),
  ],
  jvp: ({ inputs: [, ...indices], tangents: [t], params }) => [t && gather([t, ...indices], params)],
  vmap: ({ inputs: [x, ...indices], axes: [xAxis, ...batches], params: { axes, sliceSizes }, size }) => {
    const shifted = axes.map((axis) => axis + 1)
    if (batches.every((axis) => axis === null)) {
      // The batch becomes an additional axis of the slices.
      const params = { axes: shifted, sliceSizes: [size, ...sliceSizes] }
      const batch = indices.length > 0 ? indices[0].ndim : 0
      return { outputs: [gather([moveToFront(x, xAxis as number), ...indices], params)], axes: [batch] }
    }
    const positions = batchedIndices(indices, batches, size)
    if (xAxis === null) return { outputs: [gather([x, ...positions], { axes, sliceSizes })], axes: [0] }
    const { shape, ndim } = positions[0]
    const out = gather([moveToFront(x, xAxis), exampleNumbers(size, ndim - 1, shape), ...positions], {
      axes: [0, ...shifted],
      sliceSizes: [1, ...sliceSizes],
    })
    return { outputs: [out.squeeze(ndim)], axes: [0] }
  },
})

const modes = ["set", "add", "multiply", "maximum", "minimum"] as const
type ScatterParams = { axes: readonly number[]; mode: UpdateMode }

/** A copy of x with the slices at the indices combined with the updates, in order. */
export const scatter: Apply<ScatterParams> = definePrimitive({
  name: "scatter",
  params: { axes: "i64[]", mode: modes },
  infer: (inputs) => {
    const x = inputs[0]
    const batch = shapeOfIndices("scatter", inputs, 2)
    const { shape } = inputs[1]
    const leading = batch.length
    let isAligned = shape.length === leading + x.shape.length
    for (let i = 0; i < leading; i++) isAligned &&= shape[i] === batch[i]
    if (!isAligned)
      throw new ShapeError(
        "scatter",
        `updates must have the indices' axes ${format(batch)} and then the ${x.shape.length} axes of a slice, received shape ${format(shape)}`,
      )
    for (let i = leading; i < shape.length; i++)
      if (shape[i] > x.shape[i - leading] && sizeOf(shape) > 0)
        throw new ShapeError(
          "scatter",
          `slices of shape ${format(shape.slice(leading))} do not fit an array of shape ${format(x.shape)}`,
        )
    return x
  },
  reference: ([x, updates, ...indices], [out], { axes, mode }) => {
    for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[i]
    const sliceSizes = updates.shape.slice(updates.shape.length - x.shape.length)
    eachSlice("scatter", x, indices, axes, sliceSizes, (i, position) =>
      combineAt(out, position, updates, i, mode),
    )
  },
  vjp: ({ inputs: [x, updates, ...indices], outputs: [y], cotangents: [g], params, wanted }) => {
    const { axes, mode } = params
    const at = (a: Array): Array => gather([a, ...indices], { axes, sliceSizes: sliceOf(x, updates) })
    const none = indices.map(() => null)
    if (mode === "add") return [g, wanted[1] ? at(g) : null, ...none]
    if (mode === "set")
      return [
        wanted[0] ? scatter([g, zeros(updates.shape, g.dtype), ...indices], params) : null,
        // The last update of an element wins.
        wanted[1] ? where(lastWriters(x, updates, indices, params), at(g), 0) : null,
        ...none,
      ]
    if (mode === "multiply")
      return [
        wanted[0] ? scatter([g, updates.conjugate(), ...indices], params) : null,
        wanted[1] ? at(g).multiply(productOfOthers(x, updates, indices, axes).conjugate()) : null,
        ...none,
      ]
    const { kept, weight } = winners(x, updates, y, indices, axes)
    return [wanted[0] ? where(kept, g, 0) : null, wanted[1] ? at(g).multiply(weight()) : null, ...none]
  },
  jvp: ({ inputs: [x, updates, ...indices], outputs: [y], tangents: [tx, tu], params }) => {
    const { axes, mode } = params
    const dx = tx ?? zeros(x.shape, x.dtype)
    const du = tu ?? zeros(updates.shape, updates.dtype)
    const add = (target: Array, values: Array): Array =>
      scatter([target, values, ...indices], { axes, mode: "add" })
    if (mode === "set" || mode === "add") return [scatter([dx, du, ...indices], params)]
    if (mode === "multiply") {
      const scaled = scatter([dx, updates, ...indices], params)
      if (!tu) return [scaled]
      return [add(scaled, tu.multiply(productOfOthers(x, updates, indices, axes)))]
    }
    const { kept, weight } = winners(x, updates, y, indices, axes)
    return [add(where(kept, dx, 0), du.multiply(weight()))]
  },
  undo: ([x, updates, ...indices], { axes }) => ({
    part: gather([x, ...indices], { axes, sliceSizes: sliceOf(x, updates) }),
    restore: (changed, part) => scatter([changed, part, ...indices], { axes, mode: "set" }),
  }),
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
    const positions = batchedIndices(indices, batches, size)
    const { shape, ndim } = positions[0]
    const inputs = [target, values.expandDims(ndim), exampleNumbers(size, ndim - 1, shape), ...positions]
    return { outputs: [scatter(inputs, { axes: [0, ...shifted], mode })], axes: [0] }
  },
})

const sliceOf = (x: Array, updates: Array): number[] => updates.shape.slice(updates.ndim - x.ndim)

/** True for the last update of each element: scatters the updates' numbers and gathers them again. */
function lastWriters(x: Array, updates: Array, indices: readonly Array[], params: ScatterParams): Array {
  const numbers = arange(updates.size).reshape(updates.shape)
  const written = scatter([zeros(x.shape, numbers.dtype), numbers, ...indices], params)
  const { axes } = params
  return gather([written, ...indices], { axes, sliceSizes: sliceOf(x, updates) }).equal(numbers)
}

/**
 * For each update, its element of x times the other updates of that element. The updates are sorted by their elements and multiplied from
 * both ends, which needs no division by zero, nor by what overflowed.
 */
function productOfOthers(
  x: Array,
  updates: Array,
  indices: readonly Array[],
  axes: readonly number[],
): Array {
  const sliceSizes = sliceOf(x, updates)
  const at = (a: Array): Array => gather([a, ...indices], { axes, sliceSizes })
  const width = sizeOf(sliceSizes)
  if (updates.size <= width) return at(x)
  const most = updates.size / width
  // Slices that can overlap in part are sorted element by element.
  const isWhole = axes.every((axis) => sliceSizes[axis] === 1)
  const rows = isWhole ? [most, width] : [updates.size, 1]
  const [n] = rows
  const targets = sliceRange(at(arange(x.size).reshape(x.shape)).reshape(rows), [0, 0], [n, 1])
  const order = argsortAlong([targets.squeeze(1)], { axis: 0 })
  const ordered = (a: Array): Array =>
    gather([a, order], { axes: [0], sliceSizes: [1, a.shape[1]] }).squeeze(1)
  const sorted = (a: Array): Array => ordered(toDtype(a, wide(a.dtype)).reshape(rows))
  const reversed = (a: Array): Array => sliceRange(a, [n - 1, 0], [-1, a.shape[1]], [-1, 1])
  const [from, values, first] = [ordered(targets), sorted(updates), sorted(at(x))]
  const before = productsBefore(values, from, first, most)
  const after = productsBefore(reversed(values), reversed(from), ones(rows, values.dtype), most)
  const products = before.multiply(reversed(after)).expandDims(1)
  const unsorted = scatter([zeros(rows, values.dtype), products, order], { axes: [0], mode: "add" })
  return toDtype(unsorted, x.dtype).reshape(updates.shape)
}

/** For each row, `first` times the rows before it that have its target, at most `most` with itself. By doubling. */
function productsBefore(values: Array, targets: Array, first: Array, most: number): Array {
  const earlier = (a: Array, by: number, filler: number): Array => {
    const [n, width] = a.shape
    return concatenate([full([by, width], filler, a.dtype), sliceRange(a, [0, 0], [n - by, width])], 0)
  }
  const same = (by: number): Array => targets.equal(earlier(targets, by, -1))
  let product = where(same(1), earlier(values, 1, 1), first)
  for (let by = 1; by < most; by *= 2) product = product.multiply(where(same(by), earlier(product, by, 1), 1))
  return product
}

/**
 * maximum and minimum: where x kept its value, and the share of each update that equals the result. At ties with x, the update gets the
 * gradient, as the second argument of `minimum`; equal updates share it.
 */
function winners(
  x: Array,
  updates: Array,
  y: Array,
  indices: readonly Array[],
  axes: readonly number[],
): { kept: Array; weight: () => Array } {
  const at = (a: Array): Array => gather([a, ...indices], { axes, sliceSizes: sliceOf(x, updates) })
  const hit = toDtype(updates.equal(at(y)), updates.dtype)
  const hits = scatter([zeros(x.shape, updates.dtype), hit, ...indices], { axes, mode: "add" })
  return { kept: x.equal(y).logicalAnd(hits.equal(0)), weight: () => hit.divide(at(hits).maximum(1)) }
}
