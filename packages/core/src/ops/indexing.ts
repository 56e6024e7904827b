/**
 * Indexing: `x.index(…)`, `x.set([…], v)` and `x.at(…).add(v)`. Parses index expressions by NumPy's rules and lowers them to slices
 * (slice.ts) and gathers (gather.ts).
 */

import { lifetimes } from "../engine/memory"
import { copyOut } from "../engine/readback"
import { asArrayArgument, isList, type Operand } from "../graph/args"
import { under } from "../graph/boundary"
import { asCall, calls } from "../graph/calls"
import { bool_, int32, isInteger } from "../graph/dtype"
import { ArgumentError, DTypeError, describe, hintFor, IndexError, ShapeError } from "../graph/errors"
import { Array, composed, inTrace, withoutHandles } from "../graph/graph"
import { type ArrayAt, type IndexSpec, Slice } from "../graph/option-types"
import { broadcastShapes, format, type Shape, sizeOf } from "../graph/shape"
import { where } from "./binary"
import { isScalar, scalarArray, scalarOf, toDtype } from "./constant"
import { array } from "./creation"
import { gather, scatter } from "./gather"
import { countIfKnown, positionsOf } from "./masks"
import { asIndices, staticIndex } from "./positions"
import { broadcastTo } from "./reduce"
import { combine, sliceRange, type UpdateMode, updateRange } from "./slice"

type Spec = IndexSpec<Array>
type Item = number | Slice | null | "..." | Array

const parsed = new Map<string, Slice | "...">()

function parse(op: string, text: string): Slice | "..." {
  const known = parsed.get(text)
  if (known) return known
  const trimmed = text.trim()
  let result: Slice | "..."
  if (trimmed === "...") result = "..."
  else {
    const parts = trimmed.split(":").map((part) => part.trim())
    if (parts.length < 2 || parts.length > 3 || parts.some((part) => !/^(-?\d+)?$/.test(part)))
      throw new ArgumentError(op, `cannot read the index ${JSON.stringify(text)}`, {
        hint: 'A string is a slice such as "1:3", ":" or "::-2", or "..."',
      })
    const [start, stop, step] = parts.map((part) => (part === "" ? null : Number(part)))
    result = new Slice(start, stop, step ?? null)
  }
  if (parsed.size >= 1024) parsed.clear()
  parsed.set(text, result)
  return result
}

/**
 * A slice for {@link Array.index}: from `start` up to but excluding `stop` with the given `step`, like Python's start:stop:step; null means
 * the default, and negative bounds count from the end. A single argument is the start. Bounds may be 0-d integer arrays, which are
 * evaluated and thus cannot be traced by vmap or compile; `mx.slice` accepts traced starts.
 * @throws TransformError for a bound inside vmap and compile
 * @example
 * mx.arange(6).index(mx.s(1, null, 2)).tolist() // => [1, 3, 5]
 */
export function s(start?: Bound, stop?: Bound, step?: Bound): Slice {
  return new Slice(boundOf(start), boundOf(stop), boundOf(step))
}
type Bound = number | Array | null

function boundOf(v: Bound | undefined): number | null {
  if (v === undefined || v === null) return null
  const value = v instanceof Array && v.ndim === 0 && isInteger(v.dtype) ? Number(copyOut(v)[0]) : v
  if (!Number.isInteger(value))
    throw new ArgumentError(
      "s",
      `bounds must be integers, 0-d integer arrays or null, received ${describe(v)}`,
    )
  return value as number
}

function read(op: string, spec: unknown): Item {
  if (typeof spec === "number" || spec === null || spec instanceof Slice) return spec
  if (typeof spec === "string") return parse(op, spec)
  if (spec instanceof Array) {
    if (spec.dtype !== bool_ && !isInteger(spec.dtype))
      throw new DTypeError(
        op,
        `an index array must have an integer dtype or bool_, received ${spec.dtype.name}`,
      )
    return spec
  }
  if (isList(spec)) return containsBoolean(spec) ? array(spec as boolean[]) : asIndices(op, spec)
  throw new ArgumentError(op, `cannot index with ${describe(spec)}`, {
    hint: 'Use integers, slices such as "1:3", null, "...", integer arrays or a mask',
  })
}

function containsBoolean(list: readonly unknown[]): boolean {
  let first: unknown = list
  while (isList(first)) first = first[0]
  return typeof first === "boolean"
}

/** A parsed index expression: a slice of every axis of x, then index arrays into it, then the order of the result's axes. */
interface Plan {
  /** The slice of every axis of x. */
  readonly start: number[]
  readonly stop: number[]
  readonly strides: number[]
  /** Axes indexed by an integer, which are removed. */
  readonly picked: number[]
  /** Index arrays, and the axes that they index after this removal. */
  readonly positions: Array[]
  readonly axes: number[]
  /** The position of the index arrays' axes among the remaining ones. */
  readonly before: number
  /** The axes of size 1 in the result that null inserts. */
  readonly inserted: number[]
  /** True if the slices select all of x. */
  readonly whole: boolean
}

function understand(op: string, x: Array, specs: readonly Spec[]): Plan {
  // Lists of known lengths, for speed: one that is empty at first has room made for many.
  const given = new globalThis.Array<Item>(specs.length)
  for (let i = 0; i < specs.length; i++) given[i] = read(op, specs[i])
  const items = expand(op, x, given)
  const start = new globalThis.Array<number>(x.ndim)
  const stop = new globalThis.Array<number>(x.ndim)
  const strides = new globalThis.Array<number>(x.ndim)
  const picked: number[] = []
  const indices: Array[] = []
  const axes: number[] = []
  const hasArrays = items.some((item) => item instanceof Array)
  /** Groups of adjacent index arrays; with arrays present, integers count as such. */
  let groups = 0
  let inGroup = false
  let axis = 0
  let before = 0
  let whole = true
  /** The number of result axes so far, without those of index arrays, and the positions of nulls. */
  let plain = 0
  const nulls: { at: number; afterPositions: boolean }[] = []
  for (const item of items) {
    const isPosition = item instanceof Array || (hasArrays && typeof item === "number")
    if (isPosition && !inGroup) {
      groups++
      if (groups === 1) before = plain
    }
    inGroup = isPosition
    if (item === null) {
      nulls.push({ at: plain + nulls.length, afterPositions: groups > 0 })
      continue
    }
    const n = x.shape[axis]
    if (typeof item === "number") {
      start[axis] = staticIndex(op, item, axis, n)
      stop[axis] = start[axis] + 1
      strides[axis] = 1
      picked.push(axis)
      whole = false
    } else if (item instanceof Slice) {
      const [from, to, step] = bounds(op, item, n)
      start[axis] = from
      stop[axis] = to
      strides[axis] = step
      if (from !== 0 || to !== n || step !== 1) whole = false
      plain++
    } else {
      start[axis] = 0
      stop[axis] = n
      strides[axis] = 1
      indices.push(item as Array)
      axes.push(axis - picked.length)
    }
    axis++
  }
  // The axes of separated index arrays come first.
  const first = groups > 1
  const shape = indices.reduce<Shape>((all, p) => broadcastShapes(op, all, p.shape), [])
  const positions = indices.map((p) => broadcastTo(p, shape))
  const inserted = nulls.map(({ at, afterPositions }) => at + (first || afterPositions ? shape.length : 0))
  return { start, stop, strides, picked, positions, axes, before: first ? 0 : before, inserted, whole }
}

/** Replaces the ellipsis, masks and missing items, so that every axis of x has one item. */
function expand(op: string, x: Array, items: readonly Item[]): readonly Item[] {
  const isMask = (item: Item): boolean => item instanceof Array && item.dtype === bool_
  const width = (item: Item): number =>
    item === null || item === "..." ? 0 : isMask(item) ? (item as Array).ndim : 1
  const used = items.reduce((sum: number, item) => sum + width(item), 0)
  if (used > x.ndim)
    throw new IndexError(op, `${used} indices for an array of ${x.ndim} dimension${x.ndim === 1 ? "" : "s"}`)
  if (used === x.ndim && !items.some((item) => item === "..." || isMask(item))) return items
  const out: Item[] = []
  if (items.filter((item) => item === "...").length > 1)
    throw new IndexError(op, 'an index can contain only one "..."')
  const rest = (): void => {
    for (let i = used; i < x.ndim; i++) out.push(ALL)
  }
  for (const item of items) {
    if (item === "...") rest()
    else if (item instanceof Array && item.dtype === bool_) {
      const axis = out.filter((o) => o !== null).length
      const expected = x.shape.slice(axis, axis + item.ndim)
      if (item.shape.some((n, i) => n !== expected[i]))
        throw new IndexError(
          op,
          `a mask of shape ${format(item.shape)} does not fit axes of sizes ${format(expected)}`,
        )
      out.push(...positionsOf(item))
    } else out.push(item)
  }
  if (!items.includes("...")) rest()
  return out
}

const ALL = new Slice(null, null, null)

/** Start, stop and step of a slice on an axis of size n, clipped as Python does; `stop` is -1 before the first element. */
function bounds(op: string, { start, stop, step }: Slice, n: number): [number, number, number] {
  const by = step ?? 1
  if (by === 0) throw new ArgumentError(op, "the step of a slice must not be 0")
  const [low, high] = by > 0 ? [0, n] : [-1, n - 1]
  const clip = (v: number): number => Math.min(Math.max(v < 0 ? v + n : v, low), high)
  const from = start === null ? (by > 0 ? 0 : n - 1) : clip(start)
  const to = stop === null ? (by > 0 ? n : -1) : clip(stop)
  const count = Math.max(0, Math.ceil((to - from) / by))
  return count === 0 ? [0, 0, 1] : [from, to, by]
}

const rectangle = (x: Array, plan: Plan): Array =>
  plan.whole ? x : sliceRange(x, plan.start, plan.stop, plan.strides)

/** The permutation of a gather's axes [indices…, others…] in the result. */
function orderOf(plan: Plan, others: number): number[] {
  const b = plan.positions[0].ndim
  const range = (from: number, to: number): number[] =>
    globalThis.Array.from({ length: to - from }, (_, i) => from + i)
  return [...range(b, b + plan.before), ...range(0, b), ...range(b + plan.before, b + others)]
}

/** @internal See {@link Array.index}. */
export const getIndex: (x: Array, specs: readonly Spec[]) => Array = asCall("index", indexed, (x, specs) =>
  indexed(asArrayArgument("index", "x", x), asSpecs("index", specs)),
)
function indexed(x: Array, specs: readonly Spec[]): Array {
  return under("index", () => composed(() => elementsAt(x, specs)))
}

/** Validates an index expression from a file. */
function asSpecs(op: string, specs: unknown): readonly Spec[] {
  if (isList(specs)) return specs as readonly Spec[]
  throw new ArgumentError(op, `an index expression must be a list, received ${describe(specs)}`)
}

function elementsAt(x: Array, specs: readonly Spec[]): Array {
  const plan = understand("index", x, specs)
  let out = rectangle(x, plan)
  if (plan.picked.length > 0) out = out.squeeze(plan.picked)
  if (plan.positions.length > 0) {
    const { positions, axes } = plan
    const others = out.ndim - axes.length
    const sliceSizes = out.shape.map((n, i) => (axes.includes(i) ? 1 : n))
    const b = positions[0].ndim
    checkFilled("index", out.shape, plan)
    if (axes.some((axis) => out.shape[axis] === 0)) {
      const rest = out.shape.filter((_, i) => !axes.includes(i))
      out = broadcastTo(scalarArray(0, x.dtype), [...positions[0].shape, ...rest])
    } else out = gather([out, ...positions], { axes, sliceSizes }).squeeze(axes.map((axis) => b + axis))
    if (plan.before > 0 && b > 0) out = out.transpose(orderOf(plan, others))
  }
  if (plan.inserted.length > 0) out = out.expandDims(plan.inserted)
  return out
}

/** Rejects indices into axes of size 0. @throws IndexError */
function checkFilled(op: string, shape: Shape, { axes, positions }: Plan): void {
  if (axes.some((axis) => shape[axis] === 0) && sizeOf(positions[0].shape) > 0)
    throw new IndexError(op, `cannot index an empty axis of shape ${format(shape)}`)
}

/** The shape of the result of an index expression. */
function resultShape(plan: Plan): number[] {
  const sizes = plan.start
    .map((from, i) => Math.max(0, Math.ceil((plan.stop[i] - from) / plan.strides[i])))
    .filter((_, i) => !plan.picked.includes(i))
  const others = sizes.filter((_, i) => !plan.axes.includes(i))
  if (plan.positions.length > 0) others.splice(plan.before, 0, ...plan.positions[0].shape)
  for (const axis of plan.inserted) others.splice(axis, 0, 1)
  return others
}

/**
 * Converts an assigned value to x's dtype. Fractions are truncated for integers, as in `mx.array`.
 * @throws DTypeError for numbers that do not fit
 */
function converted(op: string, x: Array, value: unknown): Array {
  if (value instanceof Array) return toDtype(value, x.dtype)
  if (isList(value)) return array(value as number[], x.dtype)
  if (!isScalar(value))
    throw new ArgumentError(op, `the value must be an array or a scalar, received ${describe(value)}`, {
      hint: hintFor(value),
    })
  const whole = isInteger(x.dtype) && typeof value === "number" ? Math.trunc(value) : value
  return scalarOf(op, whole, x.dtype, "Convert the array first")
}

/** The same, broadcast to the indexed shape. */
function valueFor(op: string, x: Array, value: unknown, shape: Shape): Array {
  let v = converted(op, x, value)
  // Extra leading axes of size 1 are dropped, as in NumPy.
  while (v.ndim > shape.length && v.shape[0] === 1) v = v.squeeze(0)
  if (v.ndim > shape.length)
    throw new ShapeError(
      op,
      `a value of shape ${format(v.shape)} cannot be broadcast to the indexed shape ${format(shape)}`,
    )
  return broadcastTo(v, shape)
}

/** @internal A copy of x with the indexed elements combined with a value. */
export const updateIndex: (
  op: string,
  x: Array,
  specs: readonly Spec[],
  value: unknown,
  mode: UpdateMode,
  division?: boolean,
) => Array = asCall("updateIndex", updatedAt, (op, x, specs, value, mode, division) => {
  if (typeof op !== "string" || !Object.hasOwn(combine, mode))
    throw new ArgumentError("set", `there is no update ${describe(mode)}`)
  return updatedAt(op, asArrayArgument(op, "x", x), asSpecs(op, specs), value, mode, division === true)
})

function updatedAt(
  op: string,
  x: Array,
  specs: readonly Spec[],
  value: unknown,
  mode: UpdateMode,
  division = false,
): Array {
  return under(op, () => composed(() => combined(op, x, specs, value, mode, division)))
}

function combined(
  op: string,
  x: Array,
  specs: readonly Spec[],
  value: unknown,
  mode: UpdateMode,
  division: boolean,
): Array {
  const plan = understand(op, x, specs)
  const shape = resultShape(plan)
  let update = valueFor(op, x, value, shape)
  if (sizeOf(shape) === 0) return new Array(x.node)
  if (plan.inserted.length > 0) update = update.squeeze(plan.inserted)
  const range = { start: plan.start, stop: plan.stop, strides: plan.strides }
  if (plan.positions.length === 0) {
    if (plan.picked.length > 0) update = update.expandDims(plan.picked)
    if (division) return updateRange(x, toDtype(rectangle(x, plan).divide(update), x.dtype), range, "set")
    return mode === "set" && plan.whole ? update : updateRange(x, update, range, mode)
  }
  // Only created here: an unused view would count as a reader and prevent an in-place update of x.
  const { positions, axes } = plan
  const region = rectangle(x, plan)
  const inner = plan.picked.length > 0 ? region.squeeze(plan.picked) : region
  checkFilled(op, inner.shape, plan)
  const b = positions[0].ndim
  if (plan.before > 0 && b > 0) {
    const order = orderOf(plan, inner.ndim - axes.length)
    update = update.transpose(order.map((_, i) => order.indexOf(i)))
  }
  if (division) update = toDtype(update.reciprocal(), x.dtype)
  const written = scatter([inner, update.expandDims(axes.map((axis) => b + axis)), ...positions], {
    axes,
    mode,
  })
  if (plan.whole) return written
  return updateRange(x, plan.picked.length > 0 ? written.expandDims(plan.picked) : written, range, "set")
}

/** Masked assignment: one value for each true element in order (further ones are ignored), or one for all. */
const setMask = asCall("setMask", updatedUnder, (x, mask, value) => {
  if (asArrayArgument("set", "the mask", mask).dtype !== bool_)
    throw new ArgumentError("set", `a mask must be bool_, received ${mask.dtype.name}`)
  return updatedUnder(asArrayArgument("set", "x", x), mask, value)
})

function updatedUnder(x: Array, mask: Array, value: unknown): Array {
  if (mask.ndim > x.ndim || mask.shape.some((n, i) => n !== x.shape[i]))
    throw new IndexError(
      "set",
      `a mask of shape ${format(mask.shape)} does not fit an array of shape ${format(x.shape)}`,
    )
  const rest = x.shape.slice(mask.ndim)
  const wide = mask.reshape([...mask.shape, ...rest.map(() => 1)])
  const v = converted("set", x, value)
  if (v.ndim <= rest.length) return where(wide, broadcastTo(v, rest), x)
  // The k-th true element takes the k-th value.
  const [count] = v.shape
  const rows = broadcastTo(v, [count, ...rest])
  const trues = count < mask.size ? countIfKnown(mask) : 0
  if (trues > count)
    throw new ShapeError("set", `a mask of ${trues} true elements needs as many values, received ${count}`)
  if (count === 0 || mask.size === 0) return new Array(x.node)
  const order = mask.flatten().astype(int32).cumsum(0).subtract(1).maximum(0)
  const picked = gather([rows, order], { axes: [0], sliceSizes: [1, ...rest] }).squeeze(1)
  return where(wide, picked.reshape(x.shape), x)
}

/** @internal `x[specs] = value`: rebinds the handle to a copy with the indexed elements replaced; see {@link Array.set}. */
export function setIndex(x: Array, specs: readonly Spec[], value: Operand | readonly unknown[]): void {
  const list = isList(specs) ? specs : [specs as Spec]
  const next = withoutHandles(() => {
    const [only] = list.map((spec) => (isList(spec) ? read("set", spec) : spec))
    return list.length === 1 && only instanceof Array && only.dtype === bool_
      ? setMask(x, only, value)
      : updateIndex("set", x, list, value, "set")
  })
  lifetimes.rebind(x, next.node)
}

/** @internal The result of `x.at(…)`. */
export class IndexedArray implements ArrayAt<Array> {
  private x: Array | null
  constructor(
    x: Array,
    private readonly specs: readonly Spec[],
  ) {
    this.x = x
  }

  add(value: Operand): Array {
    return this.update("at.add", value, "add")
  }
  subtract(value: Operand): Array {
    const op = "at.subtract"
    const negated = under(op, () => converted(op, this.array(op), value).negative())
    return this.update(op, negated, "add")
  }
  multiply(value: Operand): Array {
    return this.update("at.multiply", value, "multiply")
  }
  divide(value: Operand): Array {
    return this.update("at.divide", value, "multiply", true)
  }
  maximum(value: Operand): Array {
    return this.update("at.maximum", value, "maximum")
  }
  minimum(value: Operand): Array {
    return this.update("at.minimum", value, "minimum")
  }

  private array(op: string): Array {
    if (this.x !== null) return this.x
    throw new ArgumentError(op, "this selection has made its update", {
      hint: "Call x.at(…) for each update",
    })
  }

  /**
   * Makes the update, and lets go of the array: a caller's stack may still show this object when it could be written over. In a trace,
   * which may be repeated, nothing is.
   */
  private update(op: string, value: Operand, mode: UpdateMode, division = false): Array {
    const updated = updateIndex(op, this.array(op), this.specs, value, mode, division)
    if (!inTrace() && calls.recorder === null) this.x = null
    return updated
  }
}
