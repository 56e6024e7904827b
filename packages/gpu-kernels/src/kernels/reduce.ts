/**
 * Reductions over axes: which kernel folds which layout, and in how many passes.
 */
import { bool_, contiguousStrides, float32, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue, Kernel, Place } from "../dispatch"
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
import { columnsSource, type FoldForm, rowsSource, type Worker } from "../fold-source"
import { collapse, type View, viewOf } from "../layout"
import { dispatchMap, type MapInput } from "../map"
import { metalType } from "../metal-types"

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

/** Elements to fold: axes of the cells in row-major order of the outputs, and axes of each cell. */
interface Folded {
  readonly place: Place
  /** In elements, beyond the place. */
  readonly offset: number
  readonly itemsize: number
  readonly cells: { readonly shape: readonly number[]; readonly strides: readonly number[] }
  readonly row: { readonly shape: readonly number[]; readonly strides: readonly number[] }
}

const oneAxis = (
  shape: readonly number[],
  strides: readonly number[],
): { shape: number[]; strides: number[] } => {
  const merged = collapse(shape, [strides])
  return { shape: merged.shape, strides: merged.strides[0] }
}

/** Folds the elements of `from` into `target`, in as many passes as it needs. */
function dispatchFold(
  queue: DispatchQueue,
  op: string,
  fold: Fold,
  from: Folded,
  target: Place,
  scale: number,
  partial = false,
): void {
  const { cells, row, itemsize } = from
  const [count, n] = [sizeOf(cells.shape), sizeOf(row.shape)]
  const inner = row.strides[row.strides.length - 1]
  const columns = cells.shape[cells.shape.length - 1]
  const byColumns = n > 1 && columns > 1 && inner !== 1 && cells.strides[cells.strides.length - 1] === 1
  const start = from.place.offset / itemsize + from.offset
  const aligns = (width: number, strides: readonly number[]): boolean =>
    start % width === 0 && strides.every((s) => s % width === 0)
  const layout = (parts: number, part: number): Int32Array =>
    Int32Array.from([
      ...[count, n, parts, part, from.offset],
      ...[...cells.shape, ...cells.strides, ...row.shape, ...row.strides],
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
      arguments: [from.place, to, layout(parts, part), Float32Array.of(scale)],
      writes: [to.storage],
      grid,
      threadgroup: group,
    })
    if (!scratch) return
    const next = {
      place: to,
      offset: 0,
      itemsize: fold.accSize,
      // Columns write part after part, rows the parts of a cell side by side.
      cells: { shape: [count], strides: [byColumns ? 1 : parts] },
      row: { shape: [parts], strides: [byColumns ? count : 1] },
    }
    dispatchFold(queue, op, fold, next, target, scale, true)
    scratch.drop()
  }
  const axes = { cellAxes: cells.shape.length, rowAxes: row.shape.length, partial }
  const key = (form: FoldForm, what: string): string =>
    `fold ${what} ${form.cellAxes} ${form.rowAxes} ${form.width} ${partial} ${form.whole} ${fold.key}`
  // Accumulators are read one by one.
  let width = partial ? 1 : Math.max(1, VECTOR / itemsize)

  if (byColumns) {
    const lanes = n >= LONG_COLUMN ? LANES : 1
    while (width > 1 && LANES * 32 * width * fold.accSize > SHARED) width /= 2
    if (columns % width !== 0 || !aligns(width, [...cells.strides.slice(0, -1), ...row.strides])) width = 1
    const x = lanes > 1 ? 32 : Math.min(128, Math.ceil(columns / width / 32) * 32)
    const across = Math.ceil(columns / width / x)
    const outer = count / columns
    const parts =
      lanes > 1 && across * outer < GROUPS
        ? Math.max(1, Math.min(Math.floor(n / (4 * LONG_COLUMN)), Math.ceil(GROUPS / (across * outer))))
        : 1
    const part = Math.ceil(n / parts)
    const form = { ...axes, width, whole: parts === 1 }
    pass(
      form,
      {
        key: key(form, `columns ${lanes}`),
        name: "fold_columns",
        source: () => columnsSource(fold, form, lanes),
      },
      parts,
      part,
      [across * outer * x, parts * lanes, 1],
      [x, lanes, 1],
    )
    return
  }
  if (row.shape.length > 1 || inner !== 1 || !aligns(width, cells.strides) || n < width) width = 1
  const worker: Worker = n <= THREAD_ROW ? "thread" : n <= SIMDGROUP_ROW ? "simdgroup" : "threadgroup"
  const parts =
    worker === "threadgroup" && count < GROUPS
      ? Math.max(1, Math.min(Math.floor(n / PART), Math.ceil(GROUPS / count)))
      : 1
  // Whole vectors, so that each part begins with one.
  const part = Math.ceil(Math.ceil(n / parts) / width) * width
  const form = { ...axes, width, whole: parts === 1 }
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
  target: Place,
  scale = 1,
): void {
  const pick = (wanted: boolean): { shape: number[]; strides: number[] } => {
    const some = view.shape.map((_, i) => i).filter((i) => axes.includes(i) === wanted)
    return oneAxis(
      some.map((i) => view.shape[i]),
      some.map((i) => view.strides[i]),
    )
  }
  const [cells, row] = [pick(false), pick(true)]
  if (sizeOf(cells.shape) === 0) return
  dispatchFold(
    queue,
    op,
    fold,
    {
      place: { storage: view.storage, offset: 0 },
      offset: view.offset,
      itemsize: view.itemsize,
      cells,
      row,
    },
    target,
    scale,
  )
}

export const targetOf = (node: Node): Place => ({
  storage: node.storage as Storage,
  offset: node.offset * node.dtype.size,
})

const family = (foldOf: (node: Node) => Fold, scaleOf = (_: Node): number => 1): Family => ({
  supports: (node) => isFoldable(node.inputs[0].dtype) && isFoldable(node.dtype) && isCountable(node),
  encode(node, queue) {
    const axes =
      node.params.axis === undefined ? (node.params.axes as number[]) : [node.params.axis as number]
    const op = node.primitive?.name as string
    encodeFold(queue, op, foldOf(node), viewOf(node.inputs[0]), axes, targetOf(node), scaleOf(node))
  },
})

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
export const reductions: Families = {
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
