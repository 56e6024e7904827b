/**
 * Products of up to eight rows, which are as fast as the matrix is read: kernels/few-rows.cu. Several
 * matrices that are multiplied by the same rows, as for queries, keys and values, take one launch.
 */
import { isContiguous, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import { type DispatchQueue, isCountable, type Location, locationOf, viewOf } from "@lazuli/gpu-kernels"
import {
  areGiven,
  blocksOf,
  columnsOf,
  type Facts,
  type Matrix,
  matrixArguments,
  packedMatrixOf,
  ROWS,
  rowsOf,
  WARPS,
} from "./few-matrices"
import { nativeSource, TYPE_DEFINITIONS } from "./native-source"
import { encodePackedRow } from "./packed-row"

/** Rows of x: columns of a tensor core's product. */
export const FEW = 8
/** With so many rows two tiles of packed weights need too many registers. */
const SEVERAL = 3
/** Matrices of fewer columns or rows are no matter of bandwidth. */
const LEAST = 128
/** Elements of 16 bytes, in which rows are read. */
const CHUNK = 8

const FEW_ROWS = { name: "few_rows", file: "few-rows.cu" } as const

const isHalf = ({ dtype }: Node): boolean => dtype.size === 2 && Object.hasOwn(TYPE_DEFINITIONS, dtype.name)
const isAligned = ({ offset }: Node): boolean => offset % CHUNK === 0
const isWhole = ({ shape, strides }: Node): boolean => strides === null || isContiguous(shape, strides)

/** A kernel, the words before it, and how it is launched. */
interface Launch {
  readonly name: string
  readonly file: string
  readonly words: readonly string[]
  readonly blocks: number
  /** True if matrices are read before earlier work has ended. */
  readonly isEarly?: boolean
}

/** The words of kernels/few-rows.cu: tiles of a block, and the blocks of a processor for which registers are to suffice. */
const formOf = (x: Node, tiles: number, resident: number): string[] => [
  `#define LZ_COUNT ${rowsOf(x)}`,
  `#define LZ_TILES ${tiles}`,
  `#define LZ_BLOCKS ${resident}`,
]

function dispatch(queue: DispatchQueue, x: Node, matrices: readonly Matrix[], launch: Launch): void {
  const { name, file, blocks, isEarly = false } = launch
  const [{ node }] = matrices
  const words = [
    `#define LZ_PARTS ${matrices.length}`,
    ...launch.words,
    TYPE_DEFINITIONS[node.dtype.name],
  ].join("\n")
  queue.dispatch({
    op: node.primitive?.name as string,
    kernel: {
      key: `cuda ${name} by tensor cores ${words}`,
      name,
      source: () => nativeSource(file, words),
      isNative: true,
    },
    arguments: [locationOf(viewOf(x)), ...matrixArguments(matrices, columnsOf(x), isEarly)],
    writes: matrices.map((each) => each.node.storage as Storage),
    grid: [blocks * WARPS * 32, 1, 1],
    threadgroup: [WARPS * 32, 1, 1],
  })
}

/** True of products in 16 bits of few rows; {@link takesFewRows} also asks how their operands lie. */
export function hasFewRows(node: Node, [x]: readonly Node[]): boolean {
  const columns = columnsOf(node)
  return (
    isHalf(node) &&
    columnsOf(x) >= LEAST &&
    columns >= LEAST &&
    node.size > 0 &&
    sizeOf(node.shape) <= FEW * columns
  )
}

/** True of x · weightsᵀ in 16 bits, of few rows that lie one after another, as do those of the weights. */
export function takesFewRows(node: Node, [x, y]: readonly Node[]): boolean {
  const k = columnsOf(x)
  if (!hasFewRows(node, [x]) || k % CHUNK !== 0 || y.strides === null) return false
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

/** Such a product, and the row that is added to all of its rows. */
export interface FewRows {
  readonly node: Node
  readonly operands: readonly Node[]
  readonly added: Location | null
}

/** Adds such products of the same rows, all with a row that is added or none. */
export function encodeFewRows(queue: DispatchQueue, products: readonly FewRows[]): void {
  const [{ operands, added }] = products
  const matrices = products.map(({ node, operands: [, y], added: row }) => {
    const weights = locationOf(viewOf(y))
    return { node, weights, scales: row ?? weights, biases: weights }
  })
  const [x] = operands
  dispatch(queue, x, matrices, {
    ...FEW_ROWS,
    blocks: blocksOf(
      products.map((each) => each.node),
      ROWS,
    ),
    isEarly: areGiven(
      queue,
      products.map(({ operands: [, y] }) => y),
    ),
    words: [...formOf(x, 1, 3), "#define LZ_BITS 16", `#define LZ_ADD ${Number(added !== null)}`],
  })
}

/** True of packed weights whose groups this kernel reads. */
export function isOfFewPackedRows(node: Node): boolean {
  const [x] = node.inputs
  const { bits, groupSize } = node.params
  return (
    isHalf(node) &&
    rowsOf(x) <= FEW &&
    (bits === 4 || bits === 8) &&
    (groupSize === 32 || groupSize === 64 || groupSize === 128)
  )
}

/** Adds products of the same few rows with weights that are packed alike. */
export function encodeFewPackedRows(nodes: readonly Node[], queue: DispatchQueue, facts: Facts): void {
  const [{ inputs, params }] = nodes
  const { bits, groupSize } = params as { bits: number; groupSize: number }
  const [x] = inputs
  const k = columnsOf(x)
  if (encodePackedRow({ products: nodes }, queue, facts)) return
  const matrices = nodes.map(packedMatrixOf)
  const together = Math.max(1, 1024 / (groupSize * bits))
  const rows = nodes.reduce((sum, node) => sum + columnsOf(node), 0)
  // Measured on an H200. Of few blocks each may have all registers that it wants; several rows want more than three blocks leave.
  const isSmall = rows <= 2 * facts.processors * ROWS
  const areSeveral = rowsOf(x) >= SEVERAL
  const tiles = isSmall || areSeveral ? 1 : 2
  dispatch(queue, x, matrices, {
    ...FEW_ROWS,
    blocks: blocksOf(nodes, tiles * ROWS),
    isEarly: nodes.every((node) => areGiven(queue, node.inputs.slice(1))),
    words: [
      ...formOf(x, tiles, isSmall && !areSeveral ? 1 : 2),
      `#define LZ_BITS ${bits}`,
      `#define LZ_GROUP ${groupSize}`,
      `#define LZ_EVEN ${Number((k / groupSize) % together === 0)}`,
      "#define LZ_ADD 0",
    ],
  })
}
