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

/** Of kernels/packed-row.cu, measured on an H200: stages, steps of a warp in a stage, blocks of a processor. */
const STAYING = [3, 1, 2] as const
/** With fewer tiles of a processor the other kernel is as fast; where weights are read early, with fewer stages. */
const [MANY_TILES, MANY_STAGES] = [4, 5]
/** Plans copy arrays of at most so many bytes by work of their own: `kStaged` in native/cuda/plan.cc. */
const STAGED = 1024
/** Bytes of shared memory that a block may ask for where the kernel was measured, and those that it has besides what it asks for. */
const [HOPPER_SHARED, OWN_SHARED] = [227 * 1024, 1024]

const FEW_ROWS = { name: "few_rows", file: "few-rows.cu" } as const

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

/** A kernel, the words before it, and how it is launched. */
interface Launch {
  readonly name: string
  readonly file: string
  readonly words: readonly string[]
  readonly blocks: number
  /** Bytes that a block has in shared memory. */
  readonly shared?: number
  /** True if matrices are read before earlier work has ended. */
  readonly isEarly?: boolean
}

const columnsOf = ({ shape }: Node): number => shape[shape.length - 1]

/** The words of kernels/few-rows.cu: tiles of a block, and the blocks of a processor for which registers are to suffice. */
const formOf = (x: Node, tiles: number, resident: number): string[] => [
  `#define LZ_COUNT ${rowsOf(x)}`,
  `#define LZ_TILES ${tiles}`,
  `#define LZ_BLOCKS ${resident}`,
]

/** Blocks of so many tiles, which cover all of the products. */
const blocksOf = (nodes: readonly Node[], tiles: number): number =>
  nodes.reduce((sum, node) => sum + Math.ceil(columnsOf(node) / (tiles * ROWS)), 0)

/** True of arrays that no earlier work of a run writes. */
const areGiven = (queue: DispatchQueue, arrays: readonly Node[]): boolean =>
  arrays.every((each) => each.nbytes > STAGED && queue.isInput(viewOf(each).storage))

function dispatch(queue: DispatchQueue, x: Node, matrices: readonly Matrix[], launch: Launch): void {
  const { name, file, blocks, shared, isEarly = false } = launch
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
    arguments: [
      locationOf(viewOf(x)),
      ...matrices.flatMap((each) => [each.weights, each.scales, each.biases, locationOf(viewOf(each.node))]),
      Int32Array.of(
        x.shape[x.shape.length - 1],
        Number(isEarly),
        ...matrices.map((each) => columnsOf(each.node)),
      ),
    ],
    writes: matrices.map((each) => each.node.storage as Storage),
    grid: [blocks * WARPS * 32, 1, 1],
    threadgroup: [WARPS * 32, 1, 1],
    threadgroupMemory: shared === undefined ? undefined : [shared],
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
      1,
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

/** The GPU, as far as the choice of a kernel goes. */
export interface Facts {
  readonly processors: number
  /** Bytes of shared memory that a block may ask for. */
  readonly maxShared: number
}

/** Adds products of the same few rows with weights that are packed alike. */
export function encodeFewPackedRows(nodes: readonly Node[], queue: DispatchQueue, facts: Facts): void {
  const [{ inputs, params }] = nodes
  const { bits, groupSize } = params as { bits: number; groupSize: number }
  const [x] = inputs
  const k = columnsOf(x)
  const matrices = nodes.map((node) => {
    const [weights, scales, biases] = node.inputs.slice(1).map(viewOf).map(locationOf)
    return { node, weights, scales, biases }
  })
  const packing = [`#define LZ_BITS ${bits}`, `#define LZ_GROUP ${groupSize}`]
  const isEarly = nodes.every((node) => areGiven(queue, node.inputs.slice(1)))
  const staying = packedRow(nodes, k, bits, groupSize, facts, isEarly)
  if (staying) {
    dispatch(queue, x, matrices, { ...staying, words: [...staying.words, ...packing] })
    return
  }
  const together = Math.max(1, 1024 / (groupSize * bits))
  const rows = nodes.reduce((sum, node) => sum + columnsOf(node), 0)
  // Measured on an H200. Of few blocks each may have all registers that it wants; several rows want more than three blocks leave.
  const isSmall = rows <= 2 * facts.processors * ROWS
  const areSeveral = rowsOf(x) >= SEVERAL
  const tiles = isSmall || areSeveral ? 1 : 2
  dispatch(queue, x, matrices, {
    ...FEW_ROWS,
    blocks: blocksOf(nodes, tiles),
    isEarly,
    words: [
      ...formOf(x, tiles, isSmall && !areSeveral ? 1 : 2),
      ...packing,
      `#define LZ_EVEN ${Number((k / groupSize) % together === 0)}`,
      "#define LZ_ADD 0",
    ],
  })
}

/** The launch of kernels/packed-row.cu, or null where it does not take the product of one row, or takes longer. */
function packedRow(
  nodes: readonly Node[],
  k: number,
  bits: number,
  groupSize: number,
  { processors, maxShared }: Facts,
  isEarly: boolean,
): Launch | null {
  const [x] = nodes[0].inputs
  const blocks = blocksOf(nodes, 1)
  // Numbers of groups are read 16 bytes at a time.
  if (rowsOf(x) > 1 || (k / groupSize) % CHUNK !== 0 || maxShared < HOPPER_SHARED) return null
  const [stages, steps, resident] = STAYING
  // As the kernel has them.
  const words = (groupSize * bits) / 128
  const together = Math.max(1, 8 / words)
  const [rowBytes, groups] = [steps * WARPS * 128, steps * WARPS * together]
  const stage = ROWS * (rowBytes + 16 * Math.min(words, 4) + 2 * (2 * groups + 16))
  const perTile = Math.ceil(k / groupSize / groups)
  const isMuch = isEarly ? blocks * perTile >= MANY_STAGES * processors : blocks >= MANY_TILES * processors
  if (!isMuch) return null
  const all = perTile * groups
  const shared = stages * stage + 2 * all * groupSize + 4 * all
  if (shared > maxShared - OWN_SHARED) return null
  return {
    name: "packed_row",
    file: "packed-row.cu",
    blocks: Math.min(blocks, resident * processors),
    shared,
    isEarly,
    words: [`#define LZ_STAGES ${stages}`, `#define LZ_STEPS ${steps}`, `#define LZ_BLOCKS ${resident}`],
  }
}
