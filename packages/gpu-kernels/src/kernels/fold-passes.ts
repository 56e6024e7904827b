/**
 * The dispatches of a fold: whether a layout is folded by columns or by rows, how many threads share a cell, and in how many passes.
 */
import { type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Kernel, Location } from "../dispatch"
import type { Fold } from "../fold"
import {
  columnsSource,
  type FoldForm,
  type FoldOperand,
  type Prologue,
  rowsSource,
  type Worker,
} from "../fold-source"

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
export interface Folded {
  readonly type: string
  readonly itemsize: number
  /** Bytes of the dispatch, or a location and an offset in elements beyond it. */
  readonly from: ArrayBufferView | { readonly location: Location; readonly offset: number }
  readonly cells: readonly number[]
  readonly row: readonly number[]
}
type Stored = Folded & { readonly from: { readonly location: Location; readonly offset: number } }

/** The elements to fold: sizes of the cells' axes and of those of a cell, operands, and the work that makes elements of them. */
export interface Elements {
  readonly cells: readonly number[]
  readonly row: readonly number[]
  readonly operands: readonly Folded[]
  readonly work?: { readonly key: string; text(): string }
}

/** One dispatch: its kernel, and the parts of so many elements into which it cuts each cell. */
interface Pass {
  readonly form: FoldForm
  readonly kernel: Kernel
  readonly parts: number
  readonly part: number
  readonly grid: readonly [number, number, number]
  readonly threadgroup: readonly [number, number, number]
}

/** Strides of an operand. */
type Along = (each: Folded) => readonly number[]

const isStored = (each: Folded): each is Stored => "location" in each.from
const storedOf = ({ operands }: Elements): Stored[] => operands.filter(isStored)
const last = (strides: readonly number[]): number => strides[strides.length - 1]

/** Folds the elements of `from` into `target`, in as many passes as it needs; `partial`: they are accumulators. */
export function dispatchFold(
  queue: DispatchQueue,
  op: string,
  fold: Fold,
  from: Elements,
  target: Location,
  scale: number,
  partial = false,
): void {
  const count = sizeOf(from.cells)
  const byColumns = areColumns(from)
  const pass = byColumns ? columnPass(fold, from, partial) : rowPass(fold, from, partial)
  const { form, kernel, parts, grid, threadgroup } = pass
  const scratch = form.whole ? null : queue.allocate(parts * count * fold.accSize)
  const to = scratch ? { storage: scratch, offset: 0 } : target
  queue.dispatch({
    op,
    kernel,
    arguments: [
      ...from.operands.map((each) => (isStored(each) ? each.from.location : (each.from as ArrayBufferView))),
      to,
      layoutOf(from, pass),
      Float32Array.of(scale),
    ],
    writes: [to.storage],
    grid,
    threadgroup,
  })
  if (!scratch) return
  dispatchFold(queue, op, fold, accumulators(fold, scratch, count, parts, byColumns), target, scale, true)
  scratch.drop()
}

/** True if neighbours in memory belong to neighbouring cells, in more operands than not. */
function areColumns(from: Elements): boolean {
  const stored = storedOf(from)
  const alongColumns = stored.filter((each) => last(each.row) !== 1 && last(each.cells) === 1).length
  const alongRows = stored.filter((each) => last(each.row) === 1).length
  return sizeOf(from.row) > 1 && last(from.cells) > 1 && alongColumns > alongRows
}

/** The parts' accumulators, as elements of the next pass. Columns write part after part, rows the parts of a cell side by side. */
function accumulators(
  fold: Fold,
  storage: Storage,
  count: number,
  parts: number,
  byColumns: boolean,
): Elements {
  const operand: Folded = {
    type: fold.acc,
    itemsize: fold.accSize,
    from: { location: { storage, offset: 0 }, offset: 0 },
    cells: [byColumns ? 1 : parts],
    row: [byColumns ? count : 1],
  }
  return { cells: [count], row: [parts], operands: [operand] }
}

/** The numbers of a dispatch, as its kernel reads them. */
function layoutOf(from: Elements, { parts, part }: Pass): Int32Array {
  const { cells, row } = from
  return Int32Array.from([
    ...[sizeOf(cells), sizeOf(row), parts, part, ...cells, ...row],
    ...storedOf(from).flatMap((each) => [each.from.offset, ...each.cells, ...each.row]),
  ])
}

/** A column by one thread or, where columns are long, by several; consecutive threads read consecutive columns. */
function columnPass(fold: Fold, from: Elements, partial: boolean): Pass {
  const { cells, row } = from
  const [count, n, columns] = [sizeOf(cells), sizeOf(row), last(cells)]
  const lanes = n >= LONG_COLUMN ? LANES : 1
  let width = widestVector(from, partial)
  while (width > 1 && LANES * 32 * width * fold.accSize > SHARED) width /= 2
  const across: Along = (each) => [...each.cells.slice(0, -1), ...each.row]
  if (columns % width !== 0 || !areNeighbours(from, (each) => each.cells) || !aligns(from, width, across))
    width = 1
  const x = lanes > 1 ? 32 : Math.min(128, Math.ceil(columns / width / 32) * 32)
  const blocks = Math.ceil(columns / width / x)
  const outer = count / columns
  const parts =
    lanes > 1 && blocks * outer < GROUPS
      ? Math.max(1, Math.min(Math.floor(n / (2 * LONG_COLUMN)), Math.ceil(GROUPS / (blocks * outer))))
      : 1
  const form = formOf(from, partial, width, parts === 1, (each) => each.cells)
  return {
    form,
    kernel: {
      key: keyOf(fold, form, `columns ${lanes}`),
      name: "fold_columns",
      source: () => columnsSource(fold, form, lanes),
    },
    parts,
    part: Math.ceil(n / parts),
    grid: [blocks * outer * x, parts * lanes, 1],
    threadgroup: [x, lanes, 1],
  }
}

/** A row by a thread, a simdgroup or a threadgroup, by its length. */
function rowPass(fold: Fold, from: Elements, partial: boolean): Pass {
  const { cells, row } = from
  const [count, n] = [sizeOf(cells), sizeOf(row)]
  let width = widestVector(from, partial)
  const isVector = row.length <= 1 && n >= width && areNeighbours(from, (each) => each.row)
  if (!isVector || !aligns(from, width, (each) => each.cells)) width = 1
  const worker: Worker = n <= THREAD_ROW ? "thread" : n <= SIMDGROUP_ROW ? "simdgroup" : "threadgroup"
  const parts =
    worker === "threadgroup" && count < GROUPS
      ? Math.max(1, Math.min(Math.floor(n / PART), Math.ceil(GROUPS / count)))
      : 1
  const form = formOf(from, partial, width, parts === 1, (each) => each.row)
  const [group, groups] = groupsOf(worker, count, parts)
  return {
    form,
    kernel: {
      key: keyOf(fold, form, worker),
      name: "fold_rows",
      source: () => rowsSource(fold, form, worker),
    },
    parts,
    // Whole vectors, so that each part begins with one.
    part: Math.ceil(Math.ceil(n / parts) / width) * width,
    grid: [groups * group, 1, 1],
    threadgroup: [group, 1, 1],
  }
}

/** Threads of a threadgroup, and how many threadgroups there are, for so many rows of so many parts. */
function groupsOf(worker: Worker, count: number, parts: number): [group: number, groups: number] {
  if (worker === "threadgroup") return [GROUP, count * parts]
  if (worker === "simdgroup") {
    const group = Math.min(GROUP, count * 32)
    return [group, Math.ceil(count / (group / 32))]
  }
  const group = Math.min(GROUP, Math.ceil(count / 32) * 32)
  return [group, Math.ceil(count / group)]
}

/** The elements that a thread may read at once. Accumulators are read one by one. */
const widestVector = (from: Elements, partial: boolean): number =>
  partial ? 1 : Math.max(1, VECTOR / Math.max(1, ...storedOf(from).map(({ itemsize }) => itemsize)))

/** True if vectors of all operands begin where they may; `across` are the strides of an operand between them. */
const aligns = (from: Elements, width: number, across: Along): boolean =>
  storedOf(from).every(
    (each) =>
      (each.from.location.offset / each.itemsize + each.from.offset) % width === 0 &&
      across(each).every((s) => s % width === 0),
  )

/** True if the elements of vectors are neighbours, or one, in all operands. */
const areNeighbours = (from: Elements, along: Along): boolean =>
  storedOf(from).every(
    (each) => last(along(each)) === 1 || (from.work !== undefined && last(along(each)) === 0),
  )

function formOf(from: Elements, partial: boolean, width: number, whole: boolean, along: Along): FoldForm {
  const axes = { cellAxes: from.cells.length, rowAxes: from.row.length }
  return { ...axes, partial, width, whole, prologue: prologueOf(from, width, along) }
}

const keyOf = (fold: Fold, form: FoldForm, threads: string): string =>
  `fold ${threads} ${form.cellAxes} ${form.rowAxes} ${form.width} ${form.partial} ${form.whole} ${fold.key} ${form.prologue?.key ?? ""}`

/** The work, which reads vectors along these strides. */
function prologueOf({ operands, work }: Elements, width: number, along: Along): Prologue | undefined {
  if (!work) return undefined
  const kinds = operands.map((each): FoldOperand => {
    if (!isStored(each)) return { type: each.type, letter: "i" }
    return { type: each.type, letter: width > 1 && last(along(each)) === 0 ? "u" : "x" }
  })
  const letters = kinds.map(({ letter }) => letter).join("")
  return { key: `${work.key} ${letters}`, operands: kinds, text: work.text() }
}
