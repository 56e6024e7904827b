/**
 * Static slices of arrays: reading (a view) and updating. The basis of indexing.
 */
import { complex64, type Dtype, isInexact } from "../graph/dtype"
import { ShapeError } from "../graph/errors"
import type { Array, HostArray } from "../graph/graph"
import type { ParamsOf } from "../graph/params"
import { type Apply, definePrimitive } from "../graph/primitive"
import { contiguousStrides, format, type Shape, sizeOf } from "../graph/shape"
import { complexBinary, type Pair } from "../reference/complex"
import { forEachPosition } from "../reference/reference"
import { where as select } from "./binary"
import { scalarArray } from "./constant"
import { broadcastTo } from "./reduce"
import { moveToFront } from "./view"

const sliceParams = { start: "i64[]", stop: "i64[]", strides: "i64[]" } as const
export type Range = ParamsOf<typeof sliceParams>

/** The number of elements start, start + stride, … before stop. */
const lengthOf = (start: number, stop: number, stride: number): number =>
  Math.max(0, Math.ceil((stop - start) / stride))
const shapeOf = ({ start, stop, strides }: Range): number[] =>
  start.map((s, i) => lengthOf(s, stop[i], strides[i]))

/** The same range with a whole batch axis of `size` in front. */
const underBatch = ({ start, stop, strides }: Range, size: number): Range => ({
  start: [0, ...start],
  stop: [size, ...stop],
  strides: [1, ...strides],
})

const take: Apply<Range> = definePrimitive({
  name: "slice",
  params: sliceParams,
  infer: ([x], range) => ({ shape: shapeOf(range), dtype: x.dtype }),
  view: ({ strides, offset }, range) => ({
    offset: offset + range.start.reduce((sum, s, i) => sum + s * strides[i], 0),
    strides: strides.map((s, i) => s * range.strides[i]),
  }),
  vjp: ({ inputs: [x], cotangents: [g], params }) => [
    put([zeros(x.shape, x.dtype), g], { start: params.start, strides: params.strides, mode: "set" }),
  ],
  jvp: ({ tangents: [t], params }) => [t && take([t], params)],
  vmap: ({ inputs: [x], axes: [axis], params, size }) => ({
    outputs: [take([moveToFront(x, axis as number)], underBatch(params, size))],
    axes: [0],
  }),
})
const zeros = (shape: Shape, dtype: Dtype): Array => broadcastTo(scalarArray(0, dtype), shape)

/**
 * The elements start, start + stride, … before stop along each axis, as a view. All three are normalized: in bounds, with `stop` -1 if a
 * negative stride includes the first element.
 */
export function sliceRange(
  x: Array,
  start: readonly number[],
  stop: readonly number[],
  strides?: readonly number[],
): Array {
  return take([x], { start, stop, strides: strides ?? start.map(() => 1) })
}

const modes = ["set", "add", "multiply", "maximum", "minimum"] as const
/** The way in which an update combines with the existing elements. */
export type UpdateMode = (typeof modes)[number]

/** The effect of an update mode on one stored value. */
export const combine: Record<UpdateMode, (old: never, update: never) => number | bigint> = {
  set: (_old, update) => update,
  add: (old: number, update: number) => old + update,
  multiply: (old: number, update: number) => old * update,
  maximum: (old: number, update: number) => (Number.isNaN(old) || old > update ? old : update),
  minimum: (old: number, update: number) => (Number.isNaN(old) || old < update ? old : update),
} as Record<UpdateMode, (old: never, update: never) => number | bigint>

/** Combines element `i` of `updates` with element `position` of `out`, including complex numbers. */
export function combineAt(
  out: HostArray,
  position: number,
  updates: HostArray,
  i: number,
  mode: UpdateMode,
): void {
  // Integer products wrap to 32 bits, so that they are exact modulo 2³².
  const wraps = mode === "multiply" && out.dtype.size < 8 && !isInexact(out.dtype)
  const f = wraps ? Math.imul : (combine[mode] as (old: number, update: number) => number)
  if (out.dtype !== complex64) {
    out.data[position] = f(out.data[position], updates.data[i])
    return
  }
  const [a, b, c, d] = [
    out.data[2 * position],
    out.data[2 * position + 1],
    updates.data[2 * i],
    updates.data[2 * i + 1],
  ]
  // maximum and minimum order complex numbers like the elementwise functions; the others operate on parts.
  const [re, im] =
    mode === "multiply" || mode === "maximum" || mode === "minimum"
      ? (complexBinary[mode] as (x: Pair, y: Pair) => Pair)([a, b], [c, d])
      : [f(a, c), f(b, d)]
  out.data[2 * position] = re
  out.data[2 * position + 1] = im
}

/** The range of an update; its end follows from the shape of the update. */
type Target = Pick<Range, "start" | "strides"> & { readonly mode: UpdateMode }

/** The slice of `a` for an update of the given shape. */
function targetOf(a: Array, { start, strides }: Target, shape: Shape): Array {
  // One past the last element; -1 if a negative stride ends at the first.
  const stop = start.map((s, i) =>
    shape[i] === 0 ? s : s + (shape[i] - 1) * strides[i] + Math.sign(strides[i]),
  )
  return take([a], { start, stop, strides })
}

/** maximum and minimum: where x kept its value. The update is the result at ties, as the second argument of `minimum` is. */
const keptIn = (x: Array, y: Array, won: Array): Array => x.equal(y).logicalAnd(won.logicalNot())

/** A copy of x with the range combined with the update. */
const put: Apply<Target> = definePrimitive({
  name: "sliceUpdate",
  facts: { places: true },
  params: { start: "i64[]", strides: "i64[]", mode: modes },
  infer: ([x, update], { start, strides }) => {
    const inside = (n: number, axis: number): boolean => {
      const last = start[axis] + (n - 1) * strides[axis]
      return n === 0 || Math.min(start[axis], last, x.shape[axis] - 1 - Math.max(start[axis], last)) >= 0
    }
    if (update.shape.length !== x.shape.length || !update.shape.every(inside))
      throw new ShapeError(
        "sliceUpdate",
        `the update of shape ${format(update.shape)} does not fit an array of shape ${format(x.shape)}`,
      )
    return x
  },
  reference: ([x, update], [out], { start, strides, mode }) => {
    for (let i = 0; i < x.data.length; i++) out.data[i] = x.data[i]
    const steps = contiguousStrides(x.shape)
    const offset = start.reduce((sum, s, i) => sum + s * steps[i], 0)
    const stepped = steps.map((s, i) => s * strides[i])
    if (sizeOf(update.shape) > 0)
      forEachPosition(update.shape, stepped, offset, (i, position) =>
        combineAt(out, position, update, i, mode),
      )
  },
  vjp: ({ inputs: [x, update], outputs: [y], cotangents: [g], params, wanted }) => {
    const { mode } = params
    const part = (a: Array): Array => targetOf(a, params, update.shape)
    if (mode === "add") return [g, wanted[1] ? part(g) : null]
    if (mode === "set")
      return [wanted[0] ? put([g, zeros(update.shape, g.dtype)], params) : null, wanted[1] ? part(g) : null]
    if (mode === "multiply")
      return [
        wanted[0] ? put([g, update.conjugate()], params) : null,
        wanted[1] ? part(g).multiply(part(x).conjugate()) : null,
      ]
    const inside = part(g)
    const won = update.equal(part(y))
    return [
      wanted[0]
        ? put([g, select(keptIn(part(x), part(y), won), inside, 0)], { ...params, mode: "set" })
        : null,
      wanted[1] ? select(won, inside, 0) : null,
    ]
  },
  jvp: ({ inputs: [x, update], outputs: [y], tangents: [tx, tu], params }) => {
    const { mode } = params
    const part = (a: Array): Array => targetOf(a, params, update.shape)
    const dx = tx ?? zeros(x.shape, x.dtype)
    const du = tu ?? zeros(update.shape, update.dtype)
    if (mode === "set" || mode === "add") return [put([dx, du], params)]
    if (mode === "multiply")
      return [
        put(
          [
            dx,
            part(dx)
              .multiply(update)
              .add(du.multiply(part(x))),
          ],
          { ...params, mode: "set" },
        ),
      ]
    const won = update.equal(part(y))
    const kept = keptIn(part(x), part(y), won)
    return [put([dx, select(kept, part(dx), select(won, du, 0))], { ...params, mode: "set" })]
  },
  undo: ([x, update], params) => ({
    part: targetOf(x, params, update.shape),
    restore: (changed, part) => put([changed, part], { ...params, mode: "set" }),
  }),
  vmap: ({ inputs, axes, params, size }) => {
    const [x, update] = inputs.map((a, i) =>
      axes[i] === null ? broadcastTo(a, [size, ...a.shape]) : moveToFront(a, axes[i]),
    )
    return {
      outputs: [
        put([x, update], {
          start: [0, ...params.start],
          strides: [1, ...params.strides],
          mode: params.mode,
        }),
      ],
      axes: [0],
    }
  },
})

/** A copy of `x` with a slice combined with `update`, of the shape of the slice. The range is normalized, as in {@link sliceRange}. */
export function updateRange(x: Array, update: Array, range: Range, mode: UpdateMode): Array {
  return put([x, update], { start: range.start, strides: range.strides, mode })
}
