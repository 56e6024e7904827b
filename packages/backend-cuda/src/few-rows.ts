/**
 * Products of one row, and with packed weights of up to eight, which are as fast as the matrix is read: kernels/few-rows.cu.
 */
import { isContiguous, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import { type DispatchQueue, isCountable, type Location, locationOf, viewOf } from "@lazuli/gpu-kernels"
import { nativeSource, TYPE_DEFINITIONS } from "./native-source"

/** As the kernel has them. */
const [WARPS, ROWS] = [8, 16]
/** Rows of x: columns of a tensor core's product. */
export const FEW = 8
/** Of 16 bits the library is faster for more rows than one: it reads x less often. */
const DENSE = 1
/** With so many rows x would be read as often as packed weights: a block has two tiles. */
const SEVERAL = 3
/** Blocks that run on a processor at once. */
const TOGETHER = 2
/** Matrices of fewer columns or rows are no matter of bandwidth. */
const LEAST = 128
/** Elements of 16 bytes, in which rows are read. */
const CHUNK = 8

const isHalf = ({ dtype }: Node): boolean => dtype.size === 2 && Object.hasOwn(TYPE_DEFINITIONS, dtype.name)
const isAligned = ({ offset }: Node): boolean => offset % CHUNK === 0
const isWhole = ({ shape, strides }: Node): boolean => strides === null || isContiguous(shape, strides)
const rowsOf = ({ shape }: Node): number => sizeOf(shape) / shape[shape.length - 1]

/** Work of the kernel: y = x · weightsᵀ, with what the kind of weights needs. */
interface Work {
  readonly op: string
  readonly count: number
  readonly rows: number
  readonly k: number
  readonly tiles: number
  readonly type: string
  readonly words: readonly string[]
  readonly operands: readonly Location[]
  readonly blocks: number
}

function dispatch(node: Node, queue: DispatchQueue, work: Work): void {
  const { op, count, rows, k, tiles, type, operands, blocks } = work
  const words = [
    `#define LZ_COUNT ${count}`,
    `#define LZ_TILES ${tiles}`,
    ...work.words,
    TYPE_DEFINITIONS[type],
  ].join("\n")
  queue.dispatch({
    op,
    kernel: {
      key: `cuda few rows by tensor cores ${words}`,
      name: "few_rows",
      source: () => nativeSource("few-rows.cu", words),
      isNative: true,
    },
    arguments: [...operands, locationOf(viewOf(node)), Int32Array.of(rows, k)],
    writes: [node.storage as Storage],
    grid: [blocks * WARPS * 32, 1, 1],
    threadgroup: [WARPS * 32, 1, 1],
  })
}

/** True of x · weightsᵀ in 16 bits, of few rows that lie one after another, as do those of the weights. */
export function isOfFewRows(node: Node, [x, y]: readonly Node[]): boolean {
  const k = x.shape[x.shape.length - 1]
  const columns = node.shape[node.shape.length - 1]
  if (!isHalf(node) || k < LEAST || columns < LEAST || k % CHUNK !== 0) return false
  if (sizeOf(node.shape) > DENSE * columns || node.size === 0 || y.strides === null) return false
  const [down, across] = y.strides.slice(-2)
  return (
    down === 1 &&
    across === k &&
    y.strides.slice(0, -2).every((stride, i) => stride === 0 || y.shape[i] === 1) &&
    isWhole(x) &&
    rowsOf(x) === rowsOf(node) &&
    [x, y].every(isAligned) &&
    isCountable(node)
  )
}

/** Adds such a product; `added` is a row that is added to all of the result's. */
export function encodeFewRows(
  node: Node,
  queue: DispatchQueue,
  [x, y]: readonly Node[],
  added: Location | null,
): void {
  const rows = node.shape[node.shape.length - 1]
  const at = locationOf(viewOf(y))
  dispatch(node, queue, {
    op: node.primitive?.name as string,
    count: rowsOf(x),
    rows,
    blocks: Math.ceil(rows / ROWS),
    k: x.shape[x.shape.length - 1],
    tiles: 1,
    type: node.dtype.name,
    words: ["#define LZ_BITS 16", `#define LZ_ADD ${Number(added !== null)}`],
    operands: [at, added ?? at, at, locationOf(viewOf(x))],
  })
}

/** True of packed weights whose groups this kernel reads, on a GPU of so many processors. */
export function isOfFewPackedRows(node: Node, processors: number): boolean {
  const [x, w] = node.inputs
  const { bits, groupSize } = node.params
  return (
    isHalf(node) &&
    rowsOf(x) <= FEW &&
    // One row of large matrices takes as many instructions without tensor cores.
    (rowsOf(x) > 1 || w.shape[0] <= TOGETHER * processors * ROWS) &&
    (bits === 4 || bits === 8) &&
    (groupSize === 32 || groupSize === 64 || groupSize === 128)
  )
}

/** Adds a product with packed weights of a few rows, on a GPU of so many processors. */
export function encodeFewPackedRows(node: Node, queue: DispatchQueue, processors: number): void {
  const [x, w, scales, biases] = node.inputs
  const { bits, groupSize } = node.params as { bits: number; groupSize: number }
  const k = x.shape[x.shape.length - 1]
  const rows = w.shape[0]
  const words = (groupSize * bits) / 128
  const together = Math.max(1, 8 / words)
  const count = rowsOf(x)
  const tiles = count < SEVERAL && rows <= TOGETHER * processors * ROWS ? 1 : 2
  dispatch(node, queue, {
    op: "quantizedMatmul",
    count,
    rows,
    k,
    tiles,
    blocks: Math.ceil(rows / (tiles * ROWS)),
    type: node.dtype.name,
    words: [
      `#define LZ_BITS ${bits}`,
      `#define LZ_GROUP ${groupSize}`,
      `#define LZ_EVEN ${Number((k / groupSize) % together === 0)}`,
      `#define LZ_AHEAD ${Number(tiles === 1)}`,
      "#define LZ_ADD 0",
    ],
    operands: [w, scales, biases, x].map(viewOf).map(locationOf),
  })
}
