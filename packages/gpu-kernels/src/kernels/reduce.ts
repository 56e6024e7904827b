/**
 * Reductions over axes, as folds of what lies along them; fold-passes.ts dispatches these.
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
import type { DispatchQueue, Location } from "../dispatch"
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
import { collapse, type View, viewOf } from "../layout"
import { dispatchMap, type MapInput } from "../map"
import { metalType } from "../metal-types"
import { bytesOf } from "../scalar-source"
import { programText } from "./elementwise"
import { dispatchFold, type Elements, type Folded } from "./fold-passes"

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
