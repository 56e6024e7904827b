/**
 * split, tile, repeat, roll, flip, meshgrid and similar, in terms of views and joins.
 */
import {
  type Axes,
  asArrayArgument,
  isList,
  isPlainObject,
  operation,
  type StreamOptions,
  withOwnHandles,
} from "../graph/args"
import { under } from "../graph/boundary"
import { asCall } from "../graph/calls"
import { onStream, type StreamLike } from "../graph/device"
import { ArgumentError, describe, ShapeError } from "../graph/errors"
import type { Array } from "../graph/graph"
import {
  asShape,
  broadcastShapes as broadcastTwo,
  format,
  normalizeAxes,
  normalizeAxis,
  type Shape,
} from "../graph/shape"
import { array } from "./creation"
import { concatenate } from "./join"
import { broadcastTo } from "./reduce"
import { asLine, offsetsOfLengths, valuesOf } from "./segment-arguments"
import { segmentIds } from "./segments"
import { sliceRange } from "./slice"
import { take } from "./take"

/** Slices one axis from `start` up to but excluding `stop`. */
function between(x: Array, axis: number, start: number, stop: number): Array {
  return sliceRange(
    x,
    x.shape.map((_, i) => (i === axis ? start : 0)),
    x.shape.map((n, i) => (i === axis ? stop : n)),
  )
}

const splitArgs = operation(
  "split",
  { a: "array", indicesOrSections: "integers", axis: "axis?" },
  (x: Array, where: number | readonly number[], axis: number = 0): Array[] => {
    const along = normalizeAxis("split", axis, x.ndim)
    const n = x.shape[along]
    if (typeof where === "number") {
      if (!Number.isInteger(where) || where <= 0 || n % where !== 0)
        throw new ShapeError("split", `axis ${along} of size ${n} cannot be split into ${where} equal parts`)
      const size = n / where
      const parts: Array[] = []
      for (let i = 0; i < where; i++) parts.push(between(x, along, i * size, (i + 1) * size))
      return parts
    }
    if (!isList(where) || !where.every(Number.isInteger))
      throw new ArgumentError(
        "split",
        `expected a number of parts or a list of positions, received ${describe(where)}`,
      )
    const bounds = [0, ...where.map((i) => Math.min(Math.max(i < 0 ? i + n : i, 0), n)), n]
    return bounds.slice(1).map((stop, i) => between(x, along, bounds[i], Math.max(stop, bounds[i])))
  },
)
/**
 * Splits an array along an axis: into equal parts, or at the given indices.
 * @throws ShapeError if the axis cannot be split into equal parts
 * @example
 * mx.split(mx.array([1, 2, 3, 4]), [1]).map((part) => part.tolist()) // => [[1], [2, 3, 4]]
 */
export function split(
  a: Array,
  indicesOrSections: number | readonly number[],
  axis?: number,
  options?: StreamOptions,
): Array[]
export function split(
  a: Array,
  indicesOrSections: number | readonly number[],
  options: { axis?: number } & StreamOptions,
): Array[]
export function split(...args: unknown[]): Array[] {
  return splitArgs(args)
}

const unstackArgs = operation(
  "unstack",
  { x: "array", axis: "axis?" },
  (x: Array, axis: number = 0): Array[] => {
    const along = normalizeAxis("unstack", axis, x.ndim)
    return globalThis.Array.from({ length: x.shape[along] }, (_, i) =>
      between(x, along, i, i + 1).squeeze(along),
    )
  },
)
/**
 * Splits an array into the list of its slices along an axis: the inverse of stack.
 * @named axis
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.unstack(mx.array([[1, 2], [3, 4]])).map((row) => row.tolist()) // => [[1, 2], [3, 4]]
 */
export function unstack(x: Array, options?: { axis?: number } & StreamOptions): Array[]
export function unstack(...args: unknown[]): Array[] {
  return unstackArgs(args)
}

const tileArgs = operation(
  "tile",
  { a: "array", reps: "integers" },
  (x: Array, reps: number | readonly number[]): Array => {
    const list = typeof reps === "number" ? [reps] : reps
    const wrong = list.find((n) => n < 0)
    if (wrong !== undefined)
      throw new ArgumentError("tile", `reps must be non-negative integers, received ${describe(wrong)}`)
    const rank = Math.max(x.ndim, list.length)
    const sizes = [...new globalThis.Array<number>(rank - x.ndim).fill(1), ...x.shape]
    const times = [...new globalThis.Array<number>(rank - list.length).fill(1), ...list]
    const apart = x.reshape(sizes.flatMap((n) => [1, n]))
    return broadcastTo(
      apart,
      sizes.flatMap((n, i) => [times[i], n]),
    ).reshape(sizes.map((n, i) => n * times[i]))
  },
)
/**
 * Repeats the whole array along each axis.
 * @throws ArgumentError unless reps are non-negative integers
 * @example
 * mx.tile(mx.array([1, 2]), 2).tolist() // => [1, 2, 1, 2]
 */
export function tile(a: Array, reps: number | readonly number[], options?: StreamOptions): Array
export function tile(...args: unknown[]): Array {
  return tileArgs(args)
}

/** The source index of each element of the result, where element i is repeated counts[i] times. */
function repeatedPositions(counts: readonly number[]): Int32Array {
  const total = counts.reduce((sum, count, i) => {
    if (!Number.isInteger(count) || count < 0)
      throw new ArgumentError(
        "repeat",
        `repeats must be non-negative integers, received ${describe(count)} at position ${i}`,
      )
    return sum + count
  }, 0)
  if (total >= 2 ** 31)
    throw new ShapeError("repeat", `repeats must add up to less than 2^31, received a sum of ${total}`)
  const positions = new Int32Array(total)
  let at = 0
  counts.forEach((count, i) => {
    positions.fill(i, at, (at += count))
  })
  return positions
}

/** Repeats the elements along an axis by their counts. */
function repeatEach(x: Array, repeats: unknown, axis: number, total: number | null | undefined): Array {
  const counts = isList(repeats) ? null : asLine("repeat", "repeats", repeats)
  const n = counts === null ? (repeats as unknown[]).length : counts.shape[0]
  if (n !== x.shape[axis])
    throw new ShapeError(
      "repeat",
      `expected a count for each of the ${x.shape[axis]} elements of axis ${axis}, received ${n}`,
    )
  if (counts !== null && total !== null && total !== undefined) {
    const offsets = offsetsOfLengths("repeat", counts, null, "repeats")
    return take(x, segmentIds([offsets.expandDims(0)], { size: total }).squeeze(0), axis)
  }
  const known =
    counts === null ? (repeats as number[]) : valuesOf("repeat", counts, "the result's size", "totalLength")
  const positions = repeatedPositions(known)
  if (total !== null && total !== undefined && total !== positions.length)
    throw new ShapeError(
      "repeat",
      `repeats must add up to totalLength ${total}, received a sum of ${positions.length}`,
    )
  return take(x, array(positions), axis)
}

const repeatArgs = operation(
  "repeat",
  { array: "array", repeats: "indices", axis: "axis?", totalLength: "size?" },
  (
    given: Array,
    repeats: number | Array | readonly number[],
    axis?: number | null,
    totalLength?: number | null,
  ): Array => {
    const flat = axis === undefined || axis === null
    const x = flat ? given.flatten() : given
    const along = flat ? 0 : normalizeAxis("repeat", axis, x.ndim)
    if (typeof repeats !== "number") return repeatEach(x, repeats, along, totalLength)
    if (!Number.isInteger(repeats) || repeats < 0)
      throw new ArgumentError(
        "repeat",
        `repeats must be a non-negative integer, received ${describe(repeats)}`,
      )
    const wide = [...x.shape.slice(0, along + 1), repeats, ...x.shape.slice(along + 1)]
    return broadcastTo(x.expandDims(along + 1), wide).flatten(along, along + 1)
  },
)
/**
 * Repeats elements along an axis, or of the flattened array: all equally often, or each according to a list or array of counts. An array of
 * counts is evaluated, unless `totalLength` gives its sum, as is required inside vmap and compile.
 * @named totalLength
 * @throws ArgumentError unless repeats are non-negative integers
 * @throws ShapeError unless there is a count for each element
 * @throws IndexError, at evaluation, if the sum of an array of counts is not `totalLength`. (GPU backends clip it.)
 * @example
 * mx.repeat(mx.array([1, 2]), 2).tolist() // => [1, 1, 2, 2]
 * mx.repeat(mx.array([1, 2, 3]), [2, 0, 1]).tolist() // => [1, 1, 3]
 */
export function repeat(
  array: Array,
  repeats: number | Array | readonly number[],
  axis?: number | null,
  options?: { totalLength?: number | null } & StreamOptions,
): Array
export function repeat(
  array: Array,
  repeats: number | Array | readonly number[],
  options: { axis?: number | null; totalLength?: number | null } & StreamOptions,
): Array
export function repeat(...args: unknown[]): Array {
  return repeatArgs(args)
}

const rollArgs = operation(
  "roll",
  { a: "array", shift: "integers", axis: "axes?" },
  (given: Array, shift: number | readonly number[], axis?: Axes): Array => {
    const shifts = typeof shift === "number" ? [shift] : shift
    if (!isList(shifts) || !shifts.every(Number.isInteger))
      throw new ArgumentError(
        "roll",
        `shift must be an integer or a list of them, received ${describe(shift)}`,
      )
    if (axis === undefined || axis === null) {
      const total = shifts.reduce((sum, n) => sum + n, 0)
      return rollAlong(given.flatten(), total, 0).reshape(given.shape)
    }
    const axes = typeof axis === "number" ? [axis] : axis
    if (shifts.length !== 1 && axes.length !== 1 && shifts.length !== axes.length)
      throw new ShapeError("roll", `${shifts.length} shifts for ${axes.length} axes`)
    const count = Math.max(shifts.length, axes.length)
    let x = given
    for (let i = 0; i < count; i++) {
      const along = normalizeAxis("roll", axes[axes.length === 1 ? 0 : i], given.ndim)
      x = rollAlong(x, shifts[shifts.length === 1 ? 0 : i], along)
    }
    return x
  },
)
function rollAlong(x: Array, shift: number, axis: number): Array {
  const n = x.shape[axis]
  if (n === 0) return x
  const by = ((shift % n) + n) % n
  return by === 0 ? x : concatenate([between(x, axis, n - by, n), between(x, axis, 0, n - by)], axis)
}
/**
 * Rolls elements along axes, with wraparound; without an axis, rolls the flattened array.
 * @throws ShapeError if there are not as many shifts as axes
 * @example
 * mx.roll(mx.array([1, 2, 3]), 1).tolist() // => [3, 1, 2]
 */
export function roll(a: Array, shift: number | readonly number[], axis?: Axes, options?: StreamOptions): Array
export function roll(
  a: Array,
  shift: number | readonly number[],
  options: { axis?: Axes } & StreamOptions,
): Array
export function roll(...args: unknown[]): Array {
  return rollArgs(args)
}

const flipArgs = operation("flip", { a: "array", axis: "axes?" }, (x: Array, axis?: Axes): Array => {
  const axes = normalizeAxes("flip", axis, x.ndim).filter((i) => x.shape[i] > 1)
  return sliceRange(
    x,
    x.shape.map((n, i) => (axes.includes(i) ? n - 1 : 0)),
    x.shape.map((n, i) => (axes.includes(i) ? -1 : n)),
    x.shape.map((_, i) => (axes.includes(i) ? -1 : 1)),
  )
})
/**
 * Reverses the elements along the axes (all by default), as a view.
 * @throws ShapeError if an axis is out of bounds
 * @example
 * mx.flip(mx.array([1, 2, 3])).tolist() // => [3, 2, 1]
 */
export function flip(a: Array, axis?: Axes, options?: StreamOptions): Array
export function flip(a: Array, options: { axis?: Axes } & StreamOptions): Array
export function flip(...args: unknown[]): Array {
  return flipArgs(args)
}

/** Separates trailing options from the arguments of a variadic function. */
function withOptions(
  op: string,
  args: readonly unknown[],
  known: readonly string[],
): { arrays: Array[]; options: Record<string, unknown> } {
  const last = args[args.length - 1]
  const options = isPlainObject(last) ? last : {}
  for (const key of Object.keys(options))
    if (!known.includes(key) && key !== "stream")
      throw new ArgumentError(op, `has no parameter "${key}"; it takes ${[...known, "stream"].join(", ")}`)
  const given = isPlainObject(last) ? args.slice(0, -1) : args
  return { arrays: given.map((x, i) => asArrayArgument(op, `array ${i}`, x)), options }
}
/** Runs `body` on the stream of the options and reports errors under the function's name. */
const streamed = (
  op: string,
  arrays: readonly Array[],
  options: Record<string, unknown>,
  body: (arrays: readonly Array[]) => Array[],
): Array[] =>
  under(op, () =>
    withOwnHandles(
      options.stream === undefined
        ? body(arrays)
        : onStream(options.stream as StreamLike, () => body(arrays), op),
      arrays,
    ),
  )

/**
 * Coordinate arrays of a grid, from the coordinates along each of its axes. `'xy'` (the default) swaps the first two axes, as in images;
 * `'ij'` keeps their order. `sparse` returns arrays that broadcast to the grid, with axes of size 1.
 * @throws ArgumentError for another indexing; ShapeError for an array of more than one dimension
 * @example
 * mx.meshgrid(mx.array([1, 2]), mx.array([3]))[0].tolist() // => [[1, 2]]
 */
export function meshgrid(
  ...args: (Array | ({ sparse?: boolean; indexing?: "xy" | "ij" | null } & StreamOptions))[]
): Array[] {
  const { arrays, options } = withOptions("meshgrid", args, ["sparse", "indexing"])
  const indexing = (options.indexing ?? "xy") as string
  if (indexing !== "xy" && indexing !== "ij")
    throw new ArgumentError("meshgrid", `indexing must be "xy" or "ij", received ${describe(indexing)}`)
  for (const [i, x] of arrays.entries())
    if (x.ndim > 1)
      throw new ShapeError(
        "meshgrid",
        `array ${i} must have at most one dimension, received shape ${format(x.node.shape)}`,
      )
  return streamed("meshgrid", arrays, options, () => {
    const rank = arrays.length
    const position = (i: number): number => (indexing === "xy" && rank > 1 && i < 2 ? 1 - i : i)
    const lines = arrays.map((x, i) =>
      x
        .flatten()
        .reshape(globalThis.Array.from({ length: rank }, (_, axis) => (axis === position(i) ? -1 : 1))),
    )
    return options.sparse ? lines : broadcastArrays(...lines)
  })
}

/**
 * * The broadcast shape of several shapes.
 * @throws ShapeError if they do not broadcast
 * @example
 * mx.broadcastShapes([2, 1], [3]) // => [2, 3]
 */
export function broadcastShapes(...shapes: (readonly number[])[]): number[] {
  const checked = shapes.map((shape) => asShape("broadcastShapes", shape))
  return checked.reduce<Shape>((all, shape) => broadcastTwo("broadcastShapes", all, shape), []).slice()
}

/**
 * Broadcasts arrays to their common shape.
 * @throws ShapeError if they do not broadcast
 * @example
 * mx.broadcastArrays(mx.array([1, 2]), mx.array([[3]]))[1].tolist() // => [[3, 3]]
 */
export function broadcastArrays(...args: (Array | StreamOptions)[]): Array[] {
  const { arrays, options } = withOptions("broadcastArrays", args, [])
  return streamed("broadcastArrays", arrays, options, broadcastAll)
}
const broadcastAll = asCall("broadcastArrays", (arrays: readonly Array[]): Array[] => {
  const shape = arrays.reduce<Shape>((all, x) => broadcastTwo("broadcastArrays", all, x.shape), [])
  return arrays.map((x) => broadcastTo(x, shape))
})

function atLeast(op: string, args: readonly unknown[], lift: (x: Array) => Array): Array | Array[] {
  const { arrays, options } = withOptions(op, args, [])
  const lifted = streamed(op, arrays, options, (list) => list.map(lift))
  return lifted.length === 1 ? lifted[0] : lifted
}
const first = (x: Array): Array => (x.ndim === 0 ? x.reshape([1]) : x)
const second = (x: Array): Array => (x.ndim < 2 ? x.flatten().expandDims(0) : x)
const third = (x: Array): Array =>
  x.ndim < 2 ? x.flatten().expandDims([0, 2]) : x.ndim === 2 ? x.expandDims(-1) : x

/**
 * Expands arrays to at least one dimension. Several arrays give a list.
 * @example
 * mx.atleast1d(mx.array(1)).shape // => [1]
 */
export function atleast1d(a: Array, options?: StreamOptions): Array
export function atleast1d(...arrays: Array[]): Array[]
export function atleast1d(...args: unknown[]): Array | Array[] {
  return atLeast("atleast1d", args, first)
}

/**
 * Expands arrays to at least two dimensions: a vector becomes a row. Several arrays give a list.
 * @example
 * mx.atleast2d(mx.array([1, 2])).shape // => [1, 2]
 */
export function atleast2d(a: Array, options?: StreamOptions): Array
export function atleast2d(...arrays: Array[]): Array[]
export function atleast2d(...args: unknown[]): Array | Array[] {
  return atLeast("atleast2d", args, second)
}

/**
 * Expands arrays to at least three dimensions: [n] becomes [1, n, 1], [m, n] becomes [m, n, 1]. Several arrays give a list.
 * @example
 * mx.atleast3d(mx.array([1, 2])).shape // => [1, 2, 1]
 */
export function atleast3d(a: Array, options?: StreamOptions): Array
export function atleast3d(...arrays: Array[]): Array[]
export function atleast3d(...args: unknown[]): Array | Array[] {
  return atLeast("atleast3d", args, third)
}

const diffArgs = operation(
  "diff",
  { a: "array", n: "size?", axis: "axis?" },
  (a: Array, n: number = 1, axis: number = -1): Array => {
    let x = a
    const along = normalizeAxis("diff", axis, x.ndim)
    if (!Number.isInteger(n) || n < 0)
      throw new ArgumentError("diff", `n must be a non-negative integer, received ${describe(n)}`)
    // An empty axis stays empty, however often it is repeated.
    const most = x.shape[along] + 1
    for (let i = 0; i < Math.min(n, most); i++) {
      const size = x.shape[along]
      const [later, earlier] = [
        between(x, along, Math.min(1, size), size),
        between(x, along, 0, Math.max(0, size - 1)),
      ]
      x = x.dtype.kind === "bool" ? later.notEqual(earlier) : later.subtract(earlier)
    }
    return x
  },
)
/**
 * The n-th differences of adjacent elements along an axis (the last by default).
 * @throws ShapeError if the axis is out of bounds
 * @example
 * mx.diff(mx.array([1, 4, 9])).tolist() // => [3, 5]
 */
export function diff(a: Array, n?: number, axis?: number, options?: StreamOptions): Array
export function diff(a: Array, n: number, options: { axis?: number } & StreamOptions): Array
export function diff(a: Array, options: { n?: number; axis?: number } & StreamOptions): Array
export function diff(...args: unknown[]): Array {
  return diffArgs(args)
}
