/** Writing slices at positions that are values, with the ways in which several meet. The primitive is in gather.ts. */
import { type Operand, operation, type StreamOptions } from "../graph/args"
import { int32 } from "../graph/dtype"
import { IndexError } from "../graph/errors"
import { Array } from "../graph/graph"
import type { ScatterReduction } from "../graph/option-types"
import { format, normalizeAxis } from "../graph/shape"
import { scalarArray, toDtype } from "./constant"
import { scatter as scatterSlices } from "./gather"
import { asIndices } from "./positions"
import { broadcastTo } from "./reduce"

const modes = { set: "set", sum: "add", prod: "multiply", max: "maximum", min: "minimum" } as const

const scatterArgs = operation(
  "scatter",
  {
    a: "array",
    indices: "indices",
    updates: "operand",
    axis: "axis?",
    reduction: Object.keys(modes),
  },
  (
    a: Array,
    indices: Array | readonly number[] | number,
    updates: Operand,
    axis: number | null = 0,
    reduction: ScatterReduction = "set",
  ): Array => {
    const index = typeof indices === "number" ? scalarArray(indices, int32) : asIndices("scatter", indices)
    const along = normalizeAxis("scatter", axis ?? 0, a.ndim)
    const n = a.shape[along]
    if (n === 0 && index.size > 0)
      throw new IndexError("scatter", `cannot write to axis ${along} with size 0 of shape ${format(a.shape)}`)
    const given = updates instanceof Array ? toDtype(updates, a.dtype) : scalarArray(updates, a.dtype)
    // Like what take gives, with the axes of the indices in place of the axis; they go to the front.
    const taken = broadcastTo(given, [
      ...a.shape.slice(0, along),
      ...index.shape,
      ...a.shape.slice(along + 1),
    ])
    const axes = [...taken.shape.keys()]
    const indexAxes = axes.slice(along, along + index.ndim)
    const order = [...indexAxes, ...axes.slice(0, along), ...axes.slice(along + index.ndim)]
    const slices = taken.transpose(order).expandDims(index.ndim + along)
    return scatterSlices([a, slices, index], { axes: [along], mode: modes[reduction] })
  },
)
/**
 * A copy of `a` with `updates` put at `indices` along an axis (the first by default): what {@link take} reads there. `reduction` says how
 * updates meet what is there and each other: `'set'` (of several the last stays), `'sum'`, `'prod'`, `'max'` or `'min'`. Updates broadcast
 * to the shape that
 * `mx.take(a, indices, axis)` has. Negative indices count from the end. Beside MLX's `a.at(indices).add(updates)`, this is PyTorch's
 * `index_reduce`.
 * @named reduction
 * @throws IndexError, when computed, for an index out of bounds. (GPU backends leave such updates out.)
 * @throws ShapeError when the updates do not broadcast
 * @example
 * mx.scatter(mx.zeros([3]), [0, 2, 0], mx.array([1, 2, 3]), { reduction: 'sum' }).tolist() // => [4, 0, 2]
 * mx.scatter(mx.ones([2, 2]), [1], 5, 1, { reduction: 'max' }).tolist() // => [[1, 5], [1, 5]]
 */
export function scatter(
  a: Array,
  indices: Array | readonly number[] | number,
  updates: Operand,
  axis?: number | null,
  options?: { reduction?: ScatterReduction } & StreamOptions,
): Array
export function scatter(
  a: Array,
  indices: Array | readonly number[] | number,
  updates: Operand,
  options: { axis?: number | null; reduction?: ScatterReduction } & StreamOptions,
): Array
export function scatter(...args: unknown[]): Array {
  return scatterArgs(args)
}
