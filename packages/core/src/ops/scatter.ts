/** The public function `scatter`. The primitive is in gather.ts. */
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
    // Updates have the shape of the result of take; the axes of the indices move to the front.
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
 * A copy of `a` with `updates` written at `indices` along an axis (the first by default): the counterpart of {@link take}. `reduction`
 * combines updates with existing elements and each other: `'set'` (the last one wins), `'sum'`, `'prod'`, `'max'` or `'min'`. Updates
 * broadcast to the shape of `mx.take(a, indices, axis)`. Negative indices count from the end. In addition to MLX's
 * `a.at(indices).add(updates)`, this is PyTorch's `index_reduce`.
 * @named reduction
 * @throws IndexError, at evaluation, for an index out of bounds. (GPU backends drop such updates.)
 * @throws ShapeError if the updates do not broadcast
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
