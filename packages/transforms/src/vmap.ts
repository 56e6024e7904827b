/**
 * `vmap`: vectorization of a function over a batch. Axes are prefix trees; the rewriting is in batch.ts.
 */
import { type Array, TransformError } from "@lazuli/core"
import {
  Array as ArrayClass,
  abstractly,
  arraysOf,
  asCall,
  broadcastTo,
  checkFunction,
  checkOptions,
  childrenOf,
  describe,
  format,
  isList,
  ofTrees,
  withArrays,
} from "@lazuli/core/engine"
import { checkSynchronous } from "./argument"
import { type Axis, batch, placeholder } from "./batch"
import { isArray, isAxis, isIndex, stored } from "./stored-calls"
import { newEpoch } from "./trace"

/** Batch axes of a tree of arrays: an axis, null for none, or a prefix tree of these. */
export type Axes = number | null | readonly Axes[] | { readonly [key: string]: Axes }

/** Options of {@link vmap}. */
export interface VmapOptions {
  /** The batch axes of the arguments; a list has one entry for each. */
  readonly inAxes?: Axes
  /** The batch axes of the results. */
  readonly outAxes?: Axes
}

/** The axis of every array of a tree, in order, from a prefix tree. */
function axesFor(name: string, prefix: unknown, tree: unknown): Axis[] {
  if (prefix === null || typeof prefix === "number") return arraysOf(tree).map(() => prefix)
  const children = childrenOf(tree)
  const axes = childrenOf(prefix)
  if (axes === null)
    throw new TransformError("vmap", `${name} must hold integers and null, received ${describe(prefix)}`)
  if (children === null)
    throw new TransformError("vmap", `${name} holds a list where the tree has ${describe(tree)}`)
  const keys = Object.keys(children)
  const given = Object.keys(axes)
  if (isList(children) !== isList(axes) || (isList(axes) && given.length !== keys.length))
    throw new TransformError(
      "vmap",
      `${name} does not match the tree: it has ${describe(axes)} where the tree has ${describe(children)}`,
    )
  const unknown = given.find((key) => !keys.includes(key))
  if (unknown !== undefined)
    throw new TransformError("vmap", `${name} names "${unknown}", which the tree does not have`)
  const part = (of: object, key: string): unknown => (of as Record<string, unknown>)[key]
  return keys.flatMap((key) => {
    const axis = part(axes, key)
    if (axis === undefined)
      throw new TransformError("vmap", `${name} has no axis for "${key}"`, {
        hint: "Use null for no axis",
      })
    return axesFor(name, axis, part(children, key))
  })
}

/** Normalizes a negative axis. */
function normal(axis: Axis, ndim: number, what: () => string): Axis {
  if (axis === null) return null
  const front = axis < 0 ? axis + ndim : axis
  if (Number.isInteger(axis) && front >= 0 && front < ndim) return front
  throw new TransformError("vmap", `${what()} has no axis ${axis}`)
}

/**
 * Vectorizes a function of one example over a batch: `f` runs once, on placeholders of an example, and every operation in it is rewritten
 * for the whole batch.
 *
 * `inAxes` is the batch axis of the arguments: a number for all, or a list with one entry (a number or a tree of axes) for each argument;
 * null for arguments without a batch. `outAxes` is the batch axis of the results; null for results that do not depend on the batch.
 *
 * @throws TransformError if the sizes of the batch axes differ or an axis does not exist
 * @example
 * vmap((x) => x.sum())(mx.array([[1, 2], [3, 4]])).tolist() // => [3, 7]
 * vmap((x, y) => x.multiply(y), { inAxes: [0, null] })(mx.array([1, 2]), mx.array(10)).tolist() // => [10, 20]
 */
export function vmap<A extends readonly unknown[], R>(
  f: (...args: A) => R,
  options: VmapOptions,
): (...args: A) => R
export function vmap<A extends readonly unknown[], R>(
  f: (...args: A) => R,
  inAxes?: number | null | readonly Axes[],
  outAxes?: Axes,
): (...args: A) => R
export function vmap<A extends readonly unknown[], R>(
  f: (...args: A) => R,
  first: VmapOptions | Axes = 0,
  second: Axes = 0,
): (...args: A) => R {
  checkFunction("vmap", f)
  const named = first !== null && typeof first === "object" && !isList(first)
  if (named) checkOptions("vmap", first, ["inAxes", "outAxes"])
  const { inAxes = 0, outAxes = 0 } = (named ? first : { inAxes: first, outAxes: second }) as VmapOptions
  const call = (args: A): R => {
    if (isList(inAxes) && inAxes.length !== args.length)
      throw new TransformError(
        "vmap",
        `inAxes has ${inAxes.length} entries, but the function was called with ${args.length} arguments`,
      )
    const arrays = arraysOf(args)
    const axes = axesFor("inAxes", inAxes, args).map((axis, i) =>
      normal(axis, arrays[i].ndim, () => `array ${i} of the arguments, of shape ${format(arrays[i].shape)},`),
    )
    checkBatch(arrays, axes)
    const epoch = newEpoch()
    const examples = arrays.map((x, i) =>
      axes[i] === null ? new ArrayClass(x.node) : new ArrayClass(placeholder(x, axes[i], `vmap input ${i}`)),
    )
    const batched = arrays.flatMap((_, i) => (axes[i] === null ? [] : [i]))
    const nodes = batched.map((i) => examples[i].node)
    const result = f(...(withArrays(args, examples) as unknown as A))
    checkSynchronous("vmap", result)
    const targets = arraysOf(result)
    const { outputs, axes: found } = batch(
      targets.map((y) => y.node),
      nodes,
      batched.map((i) => new ArrayClass(arrays[i].node)),
      batched.map((i) => axes[i] as number),
      epoch,
    )
    const wanted = axesFor("outAxes", outAxes, result)
    return withArrays(
      result,
      outputs.map((y, i) =>
        placeAxis(y, found[i], wanted[i], arrays[batched[0]], axes[batched[0]] as number, i),
      ),
    ) as R
  }
  return (...args) => ofTrees("vmap", () => abstractly(() => call(args)))
}

function checkBatch(arrays: readonly Array[], axes: readonly Axis[]): void {
  let size = -1
  let from = 0
  axes.forEach((axis, i) => {
    if (axis === null) return
    const n = arrays[i].node.shape[axis]
    if (size >= 0 && n !== size)
      throw new TransformError(
        "vmap",
        `the batched axes differ in size: ${size} in array ${from} of the arguments and ${n} in array ${i}`,
      )
    size = n
    from = i
  })
  if (size < 0)
    throw new TransformError("vmap", "nothing is batched: inAxes is null for every array", {
      hint: "Call the function itself, or pass an axis",
    })
}

/** Moves the batch axis of a result to its requested position. */
const placeAxis = asCall(
  "@lazuli/transforms/placeAxis",
  withAxisAt,
  stored(
    "vmap",
    (y, axis, wanted, example, along) =>
      isArray(y) &&
      isAxis(axis, y.ndim) &&
      (wanted === null || Number.isSafeInteger(wanted)) &&
      isArray(example) &&
      isIndex(along) &&
      along < example.ndim,
    withAxisAt,
  ),
)

function withAxisAt(y: Array, axis: Axis, wanted: Axis, example: Array, along: number, i: number): Array {
  if (wanted === null) {
    if (axis === null) return y
    throw new TransformError("vmap", `output ${i} depends on the batch, but outAxes is null for it`)
  }
  const ndim = y.ndim + (axis === null ? 1 : 0)
  const to = normal(wanted, ndim, () => `output ${i} of ${ndim - 1} dimensions, with the batch,`) as number
  if (axis !== null) return y.moveaxis(axis, to)
  const repeated = broadcastTo(y, [example.shape[along], ...y.shape])
  return repeated.moveaxis(0, to)
}
