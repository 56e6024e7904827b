/** The primitives of takeAlongAxis and putAlongAxis. */
import { isInteger } from "../graph/dtype"
import { DTypeError, IndexError, ShapeError } from "../graph/errors"
import type { Array, HostArray, Meta } from "../graph/graph"
import { type Apply, definePrimitive } from "../graph/primitive"
import { format, type Shape, sizeOf } from "../graph/shape"
import { arange } from "./arange"
import { where } from "./binary"
import { zeros } from "./creation"
import { copyElement } from "./gather"
import { position } from "./positions"
import { broadcastTo } from "./reduce"
import { combineAt } from "./slice"
import { moveToFront } from "./view"

/** Calls `visit` with the offsets of each index and of the element of x that it refers to. */
function eachAlong(
  op: string,
  shape: Shape,
  indices: HostArray,
  axis: number,
  visit: (element: number, position: number) => void,
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
      `the sizes of the array and of the indices must agree except along axis ${axis}, received shapes ${format(x.shape)} and ${format(indices.shape)}`,
    )
  // Kernels that cannot report errors would read out of bounds.
  if (x.shape[axis] === 0 && sizeOf(indices.shape) > 0)
    throw new IndexError(op, `cannot index axis ${axis} with size 0 of shape ${format(x.shape)}`)
}

const inFront = (inputs: readonly Array[], axes: readonly (number | null)[], size: number): Array[] =>
  inputs.map((x, i) => {
    const axis = axes[i]
    return axis === null ? broadcastTo(x, [size, ...x.shape]) : moveToFront(x, axis)
  })

/** out[…, i, …] = x[…, indices[…, i, …], …] */
export const gatherAlong: Apply<{ axis: number }> = definePrimitive({
  name: "takeAlongAxis",
  facts: { along: true },
  params: { axis: "i64" },
  infer: ([x, indices], { axis }) => {
    checkAlong("takeAlongAxis", x, indices, axis)
    return { shape: indices.shape, dtype: x.dtype }
  },
  reference: ([x, indices], [out], { axis }) =>
    eachAlong("takeAlongAxis", x.shape, indices, axis, (i, position) => copyElement(x, position, out, i)),
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
  facts: { along: true },
  params: { axis: "i64", mode: ["set", "add"] },
  infer: ([x, indices], { axis }) => {
    checkAlong("putAlongAxis", x, indices, axis)
    return x
  },
  reference: ([x, indices, values], [out], { axis, mode }) => {
    for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[i]
    eachAlong("putAlongAxis", x.shape, indices, axis, (i, position) =>
      combineAt(out, position, values, i, mode),
    )
  },
  vjp: ({ inputs: [x, indices, values], cotangents: [g], params, wanted }) => {
    const { axis, mode } = params
    const at = (): Array => gatherAlong([g, indices], { axis })
    if (mode === "add") return [g, null, wanted[2] ? at() : null]
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
            at(),
            0,
          )
        : null,
    ]
  },
  jvp: ({ inputs: [x, indices, values], tangents: [tx, , tv], params }) => [
    scatterAlong([tx ?? zeros(x.shape, x.dtype), indices, tv ?? zeros(values.shape, values.dtype)], params),
  ],
  undo: ([x, indices], { axis }) => ({
    part: gatherAlong([x, indices], { axis }),
    restore: (changed, part) => scatterAlong([changed, indices, part], { axis, mode: "set" }),
  }),
  vmap: ({ inputs, axes, params: { axis, mode }, size }) => ({
    outputs: [scatterAlong(inFront(inputs, axes, size), { axis: axis + 1, mode })],
    axes: [0],
  }),
})
