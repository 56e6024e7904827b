/**
 * Stable sorting along an axis, NaN last: short rows by a threadgroup each, longer ones digit by digit.
 */
import { type Dtype, type Node, type Storage, sizeOf, uint32 } from "@lazuli/core/engine"
import type { DispatchQueue, Location } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import { sumFold } from "../fold"
import { permuted, viewOf } from "../layout"
import { metalType } from "../metal-types"
import {
  blockSource,
  countsSource,
  digitsOf,
  digitTile,
  type Moves,
  placesSource,
  SORT_THREADS,
} from "../sort-source"
import { encodeCopy, withRowMajor } from "./copy"
import { targetOf } from "./reduce"
import { encodeRows } from "./scan"

/** The most elements that a threadgroup sorts by itself. */
const BLOCK = 2048

/** Results are positions or elements. */
type Result = "positions" | "elements"

/** Sorts the rows of a row-major input. */
function dispatchSort(
  queue: DispatchQueue,
  op: string,
  dtype: Dtype,
  location: Location,
  target: Location,
  rows: number,
  n: number,
  result: Result,
): void {
  if (n > BLOCK) {
    dispatchDigits(queue, op, dtype, location, target, rows, n, result)
    return
  }
  const size = Math.max(2, 2 ** Math.ceil(Math.log2(n)))
  const group = Math.min(SORT_THREADS, Math.max(32, size / 2))
  queue.dispatch({
    op,
    kernel: {
      key: `sort block ${dtype.name} ${size} ${result}`,
      name: "sort_block",
      source: () => blockSource(dtype, size, result),
    },
    arguments: [location, target, Uint32Array.of(n)],
    writes: [target.storage],
    grid: [rows * group, 1, 1],
    threadgroup: [group, 1, 1],
  })
}

/** Elements, and positions where they are the result, move from one location to another with each digit; the last is the target. */
function dispatchDigits(
  queue: DispatchQueue,
  op: string,
  dtype: Dtype,
  location: Location,
  target: Location,
  rows: number,
  n: number,
  result: Result,
): void {
  const digits = digitsOf(dtype)
  const tiles = Math.ceil(n / digitTile(dtype))
  const made: Storage[] = []
  const scratch = (size: number): Location => {
    const storage = queue.allocate(rows * n * size)
    made.push(storage)
    return { storage, offset: 0 }
  }
  const cells = rows * SORT_THREADS * tiles
  const [counts, offsets] = [queue.allocate(cells * 4), queue.allocate(cells * 4)]
  /** Two locations by turns, so that the last digit's is `last`. */
  const pair = (size: number, last: Location | null): ((digit: number) => Location) => {
    const used: (Location | undefined)[] = [last ?? undefined]
    return (digit) => {
      const which = (digits - 1 - digit) % 2
      used[which] ??= scratch(size)
      return used[which]
    }
  }
  const elements = pair(dtype.size, result === "elements" ? target : null)
  const positions = pair(4, result === "positions" ? target : null)
  const grid = [rows * tiles * SORT_THREADS, 1, 1] as const
  const threadgroup = [SORT_THREADS, 1, 1] as const
  for (let digit = 0; digit < digits; digit++) {
    const from = digit === 0 ? location : elements(digit - 1)
    const sizes = Uint32Array.of(n, tiles, 8 * digit)
    queue.dispatch({
      op,
      kernel: {
        key: `digit counts ${dtype.name}`,
        name: "digit_counts",
        source: () => countsSource(dtype),
      },
      arguments: [from, { storage: counts, offset: 0 }, sizes],
      writes: [counts],
      grid,
      threadgroup,
    })
    encodeRows(
      queue,
      op,
      sumFold(uint32, uint32),
      { reverse: false, inclusive: false },
      { storage: counts, offset: 0 },
      { storage: offsets, offset: 0 },
      [rows, SORT_THREADS * tiles],
      [4, 4],
    )
    const moves: Moves = {
      elements: result === "elements" || digit < digits - 1,
      positions: result === "elements" ? "none" : digit === 0 ? "own" : "moved",
    }
    const written = [
      ...(moves.elements ? [elements(digit)] : []),
      ...(moves.positions === "none" ? [] : [positions(digit)]),
    ]
    queue.dispatch({
      op,
      kernel: {
        key: `digit locations ${dtype.name} ${moves.elements} ${moves.positions}`,
        name: "digit_places",
        source: () => placesSource(dtype, moves),
      },
      arguments: [
        from,
        ...(moves.positions === "moved" ? [positions(digit - 1)] : []),
        { storage: offsets, offset: 0 },
        ...written,
        sizes,
      ],
      writes: written.map((p) => p.storage),
      grid,
      threadgroup,
    })
  }
  for (const storage of [counts, offsets, ...made]) storage.drop()
}

const family = (result: Result): Family => ({
  supports: (node) => metalType(node.inputs[0].dtype) !== undefined && isCountable(node),
  encode: (node: Node, queue) => {
    const [x] = node.inputs
    const op = node.primitive?.name as string
    const axis = node.params.axis as number
    if (sizeOf(node.shape) === 0) return
    const last = node.shape.length - 1
    const n = node.shape[axis]
    const order = [...node.shape.keys()].filter((i) => i !== axis).concat(axis)
    const rows = sizeOf(node.shape) / n
    const { dtype } = x
    withRowMajor(queue, permuted(viewOf(x), order), (location) => {
      if (axis === last) {
        dispatchSort(queue, op, dtype, location, targetOf(node), rows, n, result)
        return
      }
      const sorted = queue.allocate(sizeOf(node.shape) * node.dtype.size)
      dispatchSort(queue, op, dtype, location, { storage: sorted, offset: 0 }, rows, n, result)
      const shape = order.map((i) => node.shape[i])
      const strides = shape.map((_, i) => sizeOf(shape.slice(i + 1)))
      const back = order.map((_, i) => order.indexOf(i))
      const view = { storage: sorted, itemsize: node.dtype.size, shape, strides, offset: 0 }
      encodeCopy(queue, permuted(view, back), targetOf(node), op)
      sorted.drop()
    })
  },
})

/** Sorting, by primitive. */
export const sorts: Families = { sort: family("elements"), argsort: family("positions") }
