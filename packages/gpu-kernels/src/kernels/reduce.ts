/**
 * Reductions over axes: which kernel folds which layout, and in how many passes.
 */
import {
  type Application,
  bool_,
  broadcastStrides,
  contiguousStrides,
  float32,
  type Node,
  programOf,
  type ScalarValue,
  type Storage,
  sizeOf,
} from "@lazuli/core/engine"
import type { DispatchQueue, Kernel, Location } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import {
  extremeFold,
  type Fold,
  isFoldable,
  positionFold,
  prodFold,
  sumFold,
  truthFold,
  varianceFold,
} from "../fold"
import {
  columnsSource,
  type FoldForm,
  type FoldOperand,
  type Prologue,
  rowsSource,
  type Worker,
} from "../fold-source"
import { collapse, type View, viewOf } from "../layout"
import { dispatchMap, type MapInput } from "../map"
import { metalType } from "../metal-types"
import { bytesOf } from "../scalar-source"
import { programText } from "./elementwise"

const GROUP = 256
const VECTOR = 16
/** Rows up to this long take one thread, and a simdgroup. */
const THREAD_ROW = 16
const SIMDGROUP_ROW = 1024
/** Threads that share a column, and from how many elements on. */
const LANES = 8
const LONG_COLUMN = 64
/** Groups that keep a large GPU busy, and the least work that is worth a pass of its own. */
const GROUPS = 1024
const PART = 4096
/** Bytes of threadgroup memory that columns may take. */
const SHARED = 16384

/** An operand of what is folded: its strides along the cells, in row-major order of the outputs, and along each cell's elements. */
interface Folded {
  readonly type: string
  readonly itemsize: number
  /** Bytes of the dispatch, or a location and an offset in elements beyond it. */
  readonly from: ArrayBufferView | { readonly location: Location; readonly offset: number }
  readonly cells: readonly number[]
  readonly row: readonly number[]
}
type Stored = Folded & { readonly from: { readonly location: Location; readonly offset: number } }

/** The elements to fold: sizes of the cells' axes and of those of a cell, operands, and the work that makes elements of them. */
interface Elements {
  readonly cells: readonly number[]
  readonly row: readonly number[]
  readonly operands: readonly Folded[]
  readonly work?: { readonly key: string; text(): string }
}

const isStored = (each: Folded): each is Stored => "location" in each.from

/** Folds the elements of `from` into `target`, in as many passes as it needs. */
function dispatchFold(
  queue: DispatchQueue,
  op: string,
  fold: Fold,
  from: Elements,
  target: Location,
  scale: number,
  partial = false,
): void {
  const { cells, row, operands, work } = from
  const [count, n] = [sizeOf(cells), sizeOf(row)]
  const stored = operands.filter(isStored)
  const last = (strides: readonly number[]): number => strides[strides.length - 1]
  const columns = last(cells)
  const alongColumns = stored.filter((each) => last(each.row) !== 1 && last(each.cells) === 1).length
  const alongRows = stored.filter((each) => last(each.row) === 1).length
  const byColumns = n > 1 && columns > 1 && alongColumns > alongRows
  /** True if vectors of all operands begin where they may; `across` are the strides of an operand between them. */
  const aligns = (width: number, across: (each: Folded) => readonly number[]): boolean =>
    stored.every(
      (each) =>
        (each.from.location.offset / each.itemsize + each.from.offset) % width === 0 &&
        across(each).every((s) => s % width === 0),
    )
  /** True if the elements of vectors are neighbours, or one, in all operands. */
  const runs = (along: (each: Folded) => readonly number[]): boolean =>
    stored.every((each) => last(along(each)) === 1 || (work !== undefined && last(along(each)) === 0))
  const layout = (parts: number, part: number): Int32Array =>
    Int32Array.from([
      ...[count, n, parts, part, ...cells, ...row],
      ...stored.flatMap((each) => [each.from.offset, ...each.cells, ...each.row]),
    ])
  const pass = (
    form: FoldForm,
    kernel: Kernel,
    parts: number,
    part: number,
    grid: readonly [number, number, number],
    group: readonly [number, number, number],
  ): void => {
    const scratch = form.whole ? null : queue.allocate(parts * count * fold.accSize)
    const to = scratch ? { storage: scratch, offset: 0 } : target
    queue.dispatch({
      op,
      kernel,
      arguments: [
        ...operands.map((each) => (isStored(each) ? each.from.location : (each.from as ArrayBufferView))),
        to,
        layout(parts, part),
        Float32Array.of(scale),
      ],
      writes: [to.storage],
      grid,
      threadgroup: group,
    })
    if (!scratch) return
    const accumulators: Folded = {
      type: fold.acc,
      itemsize: fold.accSize,
      from: { location: to, offset: 0 },
      // Columns write part after part, rows the parts of a cell side by side.
      cells: [byColumns ? 1 : parts],
      row: [byColumns ? count : 1],
    }
    const next = { cells: [count], row: [parts], operands: [accumulators] }
    dispatchFold(queue, op, fold, next, target, scale, true)
    scratch.drop()
  }
  const axes = { cellAxes: cells.length, rowAxes: row.length, partial }
  /** The work, which reads vectors along these strides. */
  const prologue = (width: number, along: (each: Folded) => readonly number[]): Prologue | undefined => {
    if (!work) return undefined
    const kinds = operands.map((each): FoldOperand => {
      if (!isStored(each)) return { type: each.type, letter: "i" }
      return { type: each.type, letter: width > 1 && last(along(each)) === 0 ? "u" : "x" }
    })
    const letters = kinds.map(({ letter }) => letter).join("")
    return { key: `${work.key} ${letters}`, operands: kinds, text: work.text() }
  }
  const key = (form: FoldForm, what: string): string =>
    `fold ${what} ${form.cellAxes} ${form.rowAxes} ${form.width} ${partial} ${form.whole} ${fold.key} ${form.prologue?.key ?? ""}`
  // Accumulators are read one by one.
  let width = partial ? 1 : Math.max(1, VECTOR / Math.max(1, ...stored.map(({ itemsize }) => itemsize)))

  if (byColumns) {
    const lanes = n >= LONG_COLUMN ? LANES : 1
    while (width > 1 && LANES * 32 * width * fold.accSize > SHARED) width /= 2
    const across = (each: Folded): readonly number[] => [...each.cells.slice(0, -1), ...each.row]
    if (columns % width !== 0 || !runs((each) => each.cells) || !aligns(width, across)) width = 1
    const x = lanes > 1 ? 32 : Math.min(128, Math.ceil(columns / width / 32) * 32)
    const blocks = Math.ceil(columns / width / x)
    const outer = count / columns
    const parts =
      lanes > 1 && blocks * outer < GROUPS
        ? Math.max(1, Math.min(Math.floor(n / (4 * LONG_COLUMN)), Math.ceil(GROUPS / (blocks * outer))))
        : 1
    const part = Math.ceil(n / parts)
    const form = { ...axes, width, whole: parts === 1, prologue: prologue(width, (each) => each.cells) }
    pass(
      form,
      {
        key: key(form, `columns ${lanes}`),
        name: "fold_columns",
        source: () => columnsSource(fold, form, lanes),
      },
      parts,
      part,
      [blocks * outer * x, parts * lanes, 1],
      [x, lanes, 1],
    )
    return
  }
  if (row.length > 1 || n < width || !runs((each) => each.row) || !aligns(width, (each) => each.cells))
    width = 1
  const worker: Worker = n <= THREAD_ROW ? "thread" : n <= SIMDGROUP_ROW ? "simdgroup" : "threadgroup"
  const parts =
    worker === "threadgroup" && count < GROUPS
      ? Math.max(1, Math.min(Math.floor(n / PART), Math.ceil(GROUPS / count)))
      : 1
  // Whole vectors, so that each part begins with one.
  const part = Math.ceil(Math.ceil(n / parts) / width) * width
  const form = { ...axes, width, whole: parts === 1, prologue: prologue(width, (each) => each.row) }
  const group =
    worker === "threadgroup"
      ? GROUP
      : worker === "simdgroup"
        ? Math.min(GROUP, count * 32)
        : Math.min(GROUP, Math.ceil(count / 32) * 32)
  const groups =
    worker === "threadgroup"
      ? count * parts
      : worker === "simdgroup"
        ? Math.ceil(count / (group / 32))
        : Math.ceil(count / group)
  pass(
    form,
    { key: key(form, worker), name: "fold_rows", source: () => rowsSource(fold, form, worker) },
    parts,
    part,
    [groups * group, 1, 1],
    [group, 1, 1],
  )
}

/** Folds over axes of a view into row-major cells. */
export function encodeFold(
  queue: DispatchQueue,
  op: string,
  fold: Fold,
  view: View,
  axes: readonly number[],
  target: Location,
  scale = 1,
): void {
  const { storage, offset, itemsize, shape, strides } = view
  const from = { location: { storage, offset: 0 }, offset }
  foldOver(queue, op, fold, shape, [{ type: fold.from, itemsize, from, strides }], axes, target, scale)
}

/** An operand with its strides along all axes. */
type Spread = Omit<Folded, "cells" | "row"> & { readonly strides: readonly number[] }

/** Folds over axes of what `work` makes of operands; without it, of the one operand. */
function foldOver(
  queue: DispatchQueue,
  op: string,
  fold: Fold,
  shape: readonly number[],
  operands: readonly Spread[],
  axes: readonly number[],
  target: Location,
  scale: number,
  work?: Elements["work"],
): void {
  const pick = (wanted: boolean): { shape: number[]; strides: number[][] } => {
    const some = [...shape.keys()].filter((i) => axes.includes(i) === wanted)
    return collapse(
      some.map((i) => shape[i]),
      operands.map(({ strides }) => some.map((i) => strides[i])),
    )
  }
  const [cells, row] = [pick(false), pick(true)]
  if (sizeOf(cells.shape) === 0) return
  const folded = operands.map(({ type, itemsize, from }, k) => ({
    ...{ type, itemsize, from },
    cells: cells.strides[k],
    row: row.strides[k],
  }))
  dispatchFold(queue, op, fold, { cells: cells.shape, row: row.shape, operands: folded, work }, target, scale)
}

export const targetOf = (node: Node): Location => ({
  storage: node.storage as Storage,
  offset: node.offset * node.dtype.size,
})

/** The fold of an application, and the factor of its result. */
interface Reduction {
  foldOf(node: Node): Fold
  scaleOf(node: Node): number
}
const reductionOf = new Map<Family, Reduction>()

const axesOf = ({ params }: Node): readonly number[] =>
  params.axis === undefined ? (params.axes as number[]) : [params.axis as number]

/** Work that a reduction of such a family folds as it is computed; null for other families. `work` is then not in memory. */
export function foldWithWork(
  family: Family,
  work: Application,
  reduction: Application,
): ((queue: DispatchQueue) => void) | null {
  const found = reductionOf.get(family)
  if (!found) return null
  return (queue) => {
    const program = programOf(work)
    // Once each, also where the work reads one twice.
    const read = [...new Set(work.inputs)]
    const operands = read.map((node): Spread => {
      const { storage, dtype, shape, strides, offset, params } = node
      const kind = { type: metalType(dtype) as string, itemsize: dtype.size }
      if (storage === null)
        return {
          ...kind,
          from: bytesOf(params.value as ScalarValue, dtype),
          strides: work.shape.map(() => 0),
        }
      const spread = broadcastStrides(shape, strides ?? contiguousStrides(shape), work.shape)
      return { ...kind, from: { location: { storage, offset: 0 }, offset }, strides: spread }
    })
    const text = (): string => {
      const { lines, results } = programText(program)
      const named = lines.map((line) =>
        line.replace(/\ba(\d+)\b/g, (_, k: string) => `a${read.indexOf(work.inputs[Number(k)])}`),
      )
      return `${named.join("\n")}\nreturn ${results[0]};`
    }
    foldOver(
      queue,
      reduction.primitive.name,
      found.foldOf(reduction),
      work.shape,
      operands,
      axesOf(reduction),
      targetOf(reduction),
      found.scaleOf(reduction),
      { key: `${program.key} ${work.inputs.map((node) => read.indexOf(node))}`, text },
    )
  }
}

function family(foldOf: (node: Node) => Fold, scaleOf = (_: Node): number => 1): Family {
  const made: Family = {
    supports: (node) => isFoldable(node.inputs[0].dtype) && isFoldable(node.dtype) && isCountable(node),
    encode(node, queue) {
      const op = node.primitive?.name as string
      const view = viewOf(node.inputs[0])
      encodeFold(queue, op, foldOf(node), view, axesOf(node), targetOf(node), scaleOf(node))
    },
  }
  reductionOf.set(made, { foldOf, scaleOf })
  return made
}

const variance = family(
  (node) => varianceFold(node.dtype),
  ({ inputs: [x], params }) => {
    const n = sizeOf((params.axes as number[]).map((axis) => x.shape[axis]))
    return 1 / Math.max(n - (params.ddof as number), 0)
  },
)

const inputOf = ({ itemsize, ...view }: View): MapInput => ({ ...view, size: itemsize })

/** Equal shares of a cell's cotangent for the elements that equal its extreme: which do, how many they are, and their shares. */
const extremeVjp: Family = {
  supports: (node) =>
    node.inputs.every(({ dtype }) => dtype === node.dtype) && isFoldable(node.dtype) && isCountable(node),
  encode(node, queue) {
    const [x, y, g] = node.inputs
    const { axes } = node.params as { axes: readonly number[] }
    const { shape, dtype } = node
    const n = sizeOf(shape)
    if (n === 0) return
    const type = metalType(dtype) as string
    const complex = dtype.kind === "complex"
    const [op, size] = ["extremeVjp", dtype.size]
    const at = { shape, strides: contiguousStrides(shape), offset: 0 }
    const hits = { storage: queue.allocate(n), size: 1, ...at }
    dispatchMap(
      queue,
      op,
      {
        key: `hits ${type}`,
        make: () => ({
          inputs: [type, type],
          outputs: ["bool"],
          text: complex ? "o0 = a0.x == a1.x && a0.y == a1.y;" : "o0 = float(a0) == float(a1);",
        }),
      },
      [inputOf(viewOf(x)), inputOf(viewOf(y))],
      [hits],
      shape,
    )
    const counts = queue.allocate(sizeOf(y.shape) * 4)
    const view = { ...hits, itemsize: 1 }
    encodeFold(queue, op, sumFold(bool_, float32), view, axes, { storage: counts, offset: 0 })
    const count: View = {
      storage: counts,
      itemsize: 4,
      shape: y.shape,
      strides: contiguousStrides(y.shape),
      offset: 0,
    }
    const share = complex ? "float2(a1.x / a2, a1.y / a2)" : `float(${type}(float(a1) / a2))`
    dispatchMap(
      queue,
      op,
      {
        key: `shares ${type}`,
        make: () => ({
          inputs: ["bool", type, "float"],
          outputs: [type],
          // The other elements of a cell that has NaN are NaN as well.
          text: `${complex ? "float2" : "float"} share = ${share};
o0 = ${type}(a0 ? share : share * 0.0f);`,
        }),
      },
      [hits, inputOf(viewOf(g)), inputOf(count)],
      [{ storage: node.storage as Storage, size, offset: node.offset }],
      shape,
    )
    hits.storage.drop()
    counts.drop()
  },
}

/** Reductions, by primitive. */
export const reductions: Record<string, Family> = {
  sum: family(({ inputs: [x], dtype }) => sumFold(x.dtype, dtype)),
  prod: family(({ inputs: [x], dtype }) => prodFold(x.dtype, dtype)),
  max: family(({ dtype }) => extremeFold("max", dtype)),
  min: family(({ dtype }) => extremeFold("min", dtype)),
  all: family(({ inputs: [x], dtype }) => truthFold("all", x.dtype, dtype)),
  any: family(({ inputs: [x], dtype }) => truthFold("any", x.dtype, dtype)),
  argmax: family(({ inputs: [x], dtype }) => positionFold("argmax", x.dtype, dtype)),
  argmin: family(({ inputs: [x], dtype }) => positionFold("argmin", x.dtype, dtype)),
  extremeVjp,
  variance: {
    supports: (node) => node.dtype.kind === "floating" && variance.supports(node),
    encode: variance.encode,
  },
}

const isWide = ({ dtype }: Node): boolean => dtype.name === "float64"

/** Those of float64, for platforms that have it. */
export const wideReductions: Families = Object.fromEntries(
  ["sum", "prod", "max", "min", "all", "any", "argmax", "argmin"].map((name): [string, Family] => [
    name,
    {
      supports: (node) =>
        isWide(node.inputs[0]) && (isWide(node) || isFoldable(node.dtype)) && isCountable(node),
      encode: reductions[name].encode,
    },
  ]),
)
