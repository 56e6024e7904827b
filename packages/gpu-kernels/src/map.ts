/**
 * The choice of a form of kernel `map` for operands, and its dispatch.
 */
import { broadcastStrides, isContiguous, type Storage, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue, Kernel, Location } from "./dispatch"
import { collapse } from "./layout"
import { type ElementBody, type Letter, mapSource } from "./map-source"

const GROUP = 256
/** Threads of a group where all operands lie in one row: an H200 copies 3 % faster by these than by twice as many. */
export const FLAT_GROUP = 128
/** The most rows of a thread, and the threads below which there are fewer rows each. */
const MAX_ROWS = 16
const MIN_THREADS = 8192
/** Bytes of the vectors that memory is read in. */
export const VECTOR = 16

/** An input: bytes, or elements that broadcast to the outputs' shape. */
export type MapInput =
  | { readonly bytes: ArrayBufferView; readonly size: number }
  | {
      readonly storage: Storage
      readonly size: number
      readonly shape: readonly number[]
      readonly strides: readonly number[]
      readonly offset: number
    }

/** A row-major output. */
export interface MapOutput {
  readonly storage: Storage
  /** Bytes of an element. */
  readonly size: number
  /** In elements. */
  readonly offset: number
}

/** A kernel's body by its key. */
export interface Body {
  readonly key: string
  make(): ElementBody
}

interface Operand {
  readonly letter: Letter
  readonly argument: Argument
  readonly strides: readonly number[]
  /** In elements, beyond the argument. */
  readonly offset: number
  readonly size: number
}

const placeOf = (storage: Storage, size: number, offset: number): Location => ({
  storage,
  offset: offset * size,
})

function operandOf(input: MapInput, shape: readonly number[]): Operand {
  const { size } = input
  if ("bytes" in input) return { letter: "i", argument: input.bytes, strides: [], offset: 0, size }
  const { storage, offset } = input
  const near = placeOf(storage, size, offset)
  // One element for one is no broadcast: it may be written over where it lies.
  if (sizeOf(input.shape) === 1 && sizeOf(shape) > 1)
    return { letter: "s", argument: near, strides: [], offset: 0, size }
  const strides = broadcastStrides(input.shape, input.strides, shape)
  return isContiguous(shape, strides)
    ? { letter: "c", argument: near, strides, offset: 0, size }
    : { letter: "g", argument: placeOf(storage, size, 0), strides, offset, size }
}

/** Of at most so many elements each has a thread of its own: the time is that of one thread's work. */
export const FEW = 1 << 14

/** Kernel `map` on `n` operands that lie in one row, of elements of these sizes, and how many elements a thread of it has. */
export function flatKernel(
  body: Body,
  letters: string,
  sizes: readonly number[],
  onVectors: boolean,
  n: number,
): { kernel: Kernel; count: number } {
  const width = n <= FEW ? 1 : Math.max(1, VECTOR / Math.max(...sizes))
  const vectors = n <= FEW || letters.length > 6 ? 1 : 2
  const aligned = onVectors && width > 1
  const kernel = {
    key: `map ${letters} ${aligned} ${width} ${vectors} ${body.key}`,
    name: "map",
    source: () => mapSource(body.make(), { letters, ndim: 0, width, vectors, aligned, rows: 1 }),
  }
  return { kernel, count: width * vectors }
}

/** Rows of a thread that reads what is the same for all of them once, where as many threads remain as keep a GPU busy. */
function rowsOf(down: number, threads: number): number {
  let rows = MAX_ROWS
  while (rows > 1 && (down < rows || threads < rows * MIN_THREADS)) rows /= 2
  return rows
}

/** Adds kernel `map` with a body over operands; `shape` is the outputs'. */
export function dispatchMap(
  queue: DispatchQueue,
  op: string,
  body: Body,
  inputs: readonly MapInput[],
  outputs: readonly MapOutput[],
  shape: readonly number[],
): void {
  const n = sizeOf(shape)
  if (n === 0) return
  const operands = inputs.map((input) => operandOf(input, shape))
  const general = operands.filter((o) => o.letter === "g")
  const locations = outputs.map((o) => placeOf(o.storage, o.size, o.offset))
  const flat = [...operands.filter((o) => o.letter === "c").map((o) => o.argument as Location), ...locations]
  const sizes = [...operands.filter((o) => "cg".includes(o.letter)), ...outputs].map((o) => o.size)
  const width = Math.max(1, VECTOR / Math.max(...sizes))
  const onVectors = flat.every((location) => location.offset % VECTOR === 0)
  const writes = outputs.map((o) => o.storage)
  const args: Argument[] = [...operands.map((o) => o.argument), ...locations]
  if (general.length === 0) {
    const letters = operands.map((o) => o.letter).join("")
    const { kernel, count } = flatKernel(body, letters, sizes, onVectors, n)
    const group = Math.min(FLAT_GROUP, Math.ceil(n / count / 32) * 32)
    args.push(Uint32Array.of(n))
    queue.dispatch({
      op,
      kernel,
      arguments: args,
      writes,
      grid: [Math.ceil(n / (count * group)) * group, 1, 1],
      threadgroup: [group, 1, 1],
    })
    return
  }
  const { shape: axes, strides } = collapse(
    shape,
    general.map((o) => o.strides),
  )
  const ndim = axes.length
  const inner = axes[ndim - 1]
  const aligned = onVectors && width > 1 && inner % width === 0
  const walks = new Map(general.map((o, k) => [o, strides[k]]))
  const each = aligned ? inner / width : Math.ceil(inner / width)
  const down = ndim > 1 ? axes[ndim - 2] : 1
  const repeats = strides.some((walk) => walk[ndim - 2] === 0 && walk[ndim - 1] !== 0)
  const rows = repeats ? rowsOf(down, (n / inner) * each) : 1
  const letterOf = (o: Operand): Letter => {
    const walk = walks.get(o)
    if (!walk) return o.letter
    const isRow =
      walk[ndim - 1] === 1 &&
      (!aligned || (o.offset % width === 0 && walk.slice(0, -1).every((s) => s % width === 0)))
    const letter = walk[ndim - 1] === 0 ? "b" : isRow ? "r" : "g"
    return rows > 1 && walk[ndim - 2] === 0 ? (letter.toUpperCase() as Letter) : letter
  }
  const letters = operands.map(letterOf).join("")
  const threads = (n / inner / down) * Math.ceil(down / rows) * each
  const group = Math.min(GROUP, Math.ceil(threads / 32) * 32)
  args.push(Int32Array.from([threads, ...axes, ...general.flatMap((o, k) => [o.offset, ...strides[k]])]))
  queue.dispatch({
    op,
    kernel: {
      key: `map ${letters} ${ndim} ${aligned} ${width} ${rows} ${body.key}`,
      name: "map",
      source: () => mapSource(body.make(), { letters, ndim, width, vectors: 1, aligned, rows }),
    },
    arguments: args,
    writes,
    grid: [Math.ceil(threads / group) * group, 1, 1],
    threadgroup: [group, 1, 1],
  })
}
