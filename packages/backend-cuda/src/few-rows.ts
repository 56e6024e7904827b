/**
 * Products of up to eight rows, which are as fast as the matrix is read: kernels/few-rows.cu. Several
 * matrices that are multiplied by the same rows, as for queries, keys and values, take one launch.
 */
import { isContiguous, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import { type DispatchQueue, isCountable, type Location, locationOf, viewOf } from "@lazuli/gpu-kernels"
import { nativeSource, TYPE_DEFINITIONS } from "./native-source"

/** As the kernel has them. */
const [WARPS, ROWS] = [8, 16]
/** Rows of x: columns of a tensor core's product. */
export const FEW = 8
/** With so many rows two tiles of packed weights need too many registers. */
const SEVERAL = 3
/** Matrices that one launch takes at most. */
export const MOST_MATRICES = 3
/** Matrices of fewer columns or rows are no matter of bandwidth. */
const LEAST = 128
/** Elements of 16 bytes, in which rows are read. */
const CHUNK = 8

const isHalf = ({ dtype }: Node): boolean => dtype.size === 2 && Object.hasOwn(TYPE_DEFINITIONS, dtype.name)
const isAligned = ({ offset }: Node): boolean => offset % CHUNK === 0
const isWhole = ({ shape, strides }: Node): boolean => strides === null || isContiguous(shape, strides)
const rowsOf = ({ shape }: Node): number => sizeOf(shape) / shape[shape.length - 1]

/** A matrix that x is multiplied by, and the product; of the parts that its kind of weights does not have anything serves. */
interface Matrix {
  readonly node: Node
  readonly weights: Location
  /** The row that is added, of weights of 16 bits. */
  readonly scales: Location
  readonly biases: Location
}

/** The form in which a launch is compiled: tiles of a block, and the blocks of a processor for which registers are to suffice. */
interface Form {
  readonly tiles: number
  readonly resident: number
  readonly words: readonly string[]
}

const columnsOf = ({ shape }: Node): number => shape[shape.length - 1]

function dispatch(queue: DispatchQueue, x: Node, matrices: readonly Matrix[], form: Form): void {
  const { tiles, resident } = form
  const [{ node }] = matrices
  const words = [
    `#define LZ_PARTS ${matrices.length}`,
    `#define LZ_COUNT ${rowsOf(x)}`,
    `#define LZ_TILES ${tiles}`,
    `#define LZ_BLOCKS ${resident}`,
    ...form.words,
    TYPE_DEFINITIONS[node.dtype.name],
  ].join("\n")
  const blocks = matrices.reduce((sum, each) => sum + Math.ceil(columnsOf(each.node) / (tiles * ROWS)), 0)
  queue.dispatch({
    op: node.primitive?.name as string,
    kernel: {
      key: `cuda few rows by tensor cores ${words}`,
      name: "few_rows",
      source: () => nativeSource("few-rows.cu", words),
      isNative: true,
    },
    arguments: [
      locationOf(viewOf(x)),
      ...matrices.flatMap((each) => [each.weights, each.scales, each.biases, locationOf(viewOf(each.node))]),
      Int32Array.of(x.shape[x.shape.length - 1], ...matrices.map((each) => columnsOf(each.node))),
    ],
    writes: matrices.map((each) => each.node.storage as Storage),
    grid: [blocks * WARPS * 32, 1, 1],
    threadgroup: [WARPS * 32, 1, 1],
  })
}

/** True of products in 16 bits of few rows, which may be {@link isOfFewRows} wherever their operands come to lie. */
export function mayBeOfFewRows(node: Node, [x]: readonly Node[]): boolean {
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
export function isOfFewRows(node: Node, [x, y]: readonly Node[]): boolean {
  const k = columnsOf(x)
  if (!mayBeOfFewRows(node, [x]) || k % CHUNK !== 0 || y.strides === null) return false
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
  dispatch(queue, operands[0], matrices, {
    tiles: 1,
    resident: 3,
    words: ["#define LZ_BITS 16", `#define LZ_ADD ${Number(added !== null)}`],
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

/** Adds products of the same few rows with weights that are packed alike, on a GPU of so many processors. */
export function encodeFewPackedRows(nodes: readonly Node[], queue: DispatchQueue, processors: number): void {
  const [{ inputs, params }] = nodes
  const { bits, groupSize } = params as { bits: number; groupSize: number }
  const [x] = inputs
  const k = x.shape[x.shape.length - 1]
  const words = (groupSize * bits) / 128
  const together = Math.max(1, 8 / words)
  const rows = nodes.reduce((sum, node) => sum + columnsOf(node), 0)
  // Measured on an H200. Of few blocks each may have all registers that it wants.
  const isSmall = rows <= 2 * processors * ROWS
  const areSeveral = rowsOf(x) >= SEVERAL
  const tiles = isSmall || areSeveral ? 1 : 2
  const matrices = nodes.map((node) => {
    const [weights, scales, biases] = node.inputs.slice(1).map(viewOf).map(locationOf)
    return { node, weights, scales, biases }
  })
  dispatch(queue, x, matrices, {
    tiles,
    resident: areSeveral ? 3 : isSmall ? 1 : 2,
    words: [
      `#define LZ_BITS ${bits}`,
      `#define LZ_GROUP ${groupSize}`,
      `#define LZ_EVEN ${Number((k / groupSize) % together === 0)}`,
      "#define LZ_ADD 0",
    ],
  })
}
