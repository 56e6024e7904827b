/**
 * Products of one row with packed weights by kernels/packed-row.cu, and the work around them that it does as well: the RMS norm of the row,
 * a row that is added to the result, and silu(gate) · up.
 */
import { type Application, type Node, programOf, type Storage, sizeOf } from "@lazuli/core/engine"
import { type DispatchQueue, locationOf, viewOf } from "@lazuli/gpu-kernels"
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

/** Stages at least, threads. */
const [LEAST_STAGES, THREADS] = [2, 288]
/**
 * With so few tiles of a processor it has one block, which takes x once and copies far ahead, and else two, whose warps work while others
 * wait; stages at most of each. Measured on an H200.
 */
const [FEW_TILES, FEW, MANY] = [3, { resident: 1, most: 8 }, { resident: 2, most: 4 }]
/** With fewer tiles of a processor the other kernel is as fast; where weights are read early, with fewer stages. */
const [MANY_TILES, MANY_STAGES] = [4, 3]
/** Bytes of shared memory of a processor, those that a block may ask for, and those that it has besides what it asks for. */
const [HOPPER_SHARED, BLOCK_SHARED, OWN_SHARED] = [228 * 1024, 227 * 1024, 2560]
/** Numbers of groups are read 16 bytes at a time. */
const CHUNK = 8
/** Rows whose norm the kernel for rows makes with a simdgroup have another order, and longer ones do not fit. */
const [SHORT_NORM, LONG_NORM] = [512, 8192]

/** A launch of the kernel. */
const ENDS = { none: 0, add: 1, gate: 2 } as const

/** Products of one row, and the work around them. */
export interface PackedRow {
  /** Of the same row; of {@link ENDS}' `gate` the gate and then what it is multiplied by. */
  readonly products: readonly Node[]
  /** The norm that the products read. */
  readonly norm?: { readonly node: Node; readonly isKept: boolean }
  /** Elementwise work in place of the product's result. */
  readonly ending?: {
    readonly kind: "add" | "gate"
    readonly node: Node
    /** The row that is added, or the product that is the gate. */
    readonly added?: Node
    readonly gate?: Node
  }
}

/** The launch for products with so many columns of x, or null where the kernel does not take them. */
interface Form {
  readonly stages: number
  readonly tables: number
  readonly blocks: number
  readonly shared: number
  /** Those of a processor. */
  readonly resident: number
  /** Tiles, and the stages of one. */
  readonly tiles: number
  readonly perTile: number
}

/** The form for products with so many columns of x, or null where the kernel does not take them. */
function formOf({ products, ending }: PackedRow, facts: Facts): Form | null {
  const [{ inputs, params }] = products
  const { bits, groupSize } = params as { bits: number; groupSize: number }
  const k = columnsOf(inputs[0])
  const groups = k / groupSize
  if (rowsOf(inputs[0]) > 1 || groups % CHUNK !== 0 || facts.maxShared < BLOCK_SHARED) return null
  const isGated = ending?.kind === "gate"
  const tiles = isGated ? blocksOf(products.slice(0, 1), ROWS / 2) : blocksOf(products, ROWS)
  // As the kernel has them.
  const words = (groupSize * bits) / 128
  const together = Math.max(1, 8 / words)
  const perTile = Math.ceil(groups / (WARPS * together))
  const stage = ROWS * (WARPS * 128 + 16 * Math.min(words, 4))
  const all = perTile * WARPS * together
  const sizesFor = (stages: number, resident: number): Form => {
    const blocks = Math.min(tiles, resident * facts.processors)
    // The numbers of tiles whose stages may be there together.
    const tables = Math.min(
      Math.ceil(tiles / blocks),
      Math.ceil((Math.min(stages, perTile * tiles) + perTile - 1) / perTile),
    )
    const shared = stages * stage + tables * 4 * ROWS * groups + 2 * all * groupSize + 4 * all
    return { stages, tables, blocks, shared, resident, tiles, perTile }
  }
  const { most, resident: best } = tiles <= FEW_TILES * facts.processors ? FEW : MANY
  for (let resident = best; resident > 0; resident--)
    for (let stages = most; stages >= LEAST_STAGES; stages--) {
      const form = sizesFor(stages, resident)
      if (form.shared <= Math.min(BLOCK_SHARED, HOPPER_SHARED / resident) - OWN_SHARED) return form
    }
  return null
}

/** True if the kernel takes products with this work around them. */
export const takesPackedRow = (row: PackedRow, facts: Facts): boolean => formOf(row, facts) !== null

/** Adds the work of products, and what is around them; false where the kernel does not take them, or others are as fast. */
export function encodePackedRow(row: PackedRow, queue: DispatchQueue, facts: Facts): boolean {
  const form = formOf(row, facts)
  if (form === null) return false
  const { products, norm, ending } = row
  const [first] = products
  const { bits, groupSize } = first.params as { bits: number; groupSize: number }
  const x = norm ? norm.node.inputs[0] : first.inputs[0]
  const isEarly = products.every((node) => areGiven(queue, node.inputs.slice(1)))
  if (!norm && !ending) {
    const { tiles, perTile } = form
    const { processors } = facts
    const isMuch = isEarly ? tiles * perTile >= MANY_STAGES * processors : tiles >= MANY_TILES * processors
    if (!isMuch) return false
  }
  const words = [
    `#define LZ_COLUMNS ${columnsOf(x)}`,
    `#define LZ_PARTS ${products.length}`,
    `#define LZ_STAGES ${form.stages}`,
    `#define LZ_TABLES ${form.tables}`,
    `#define LZ_BLOCKS ${form.resident}`,
    `#define LZ_NORM ${norm ? 1 + Number(norm.isKept) : 0}`,
    `#define LZ_END ${ENDS[ending?.kind ?? "none"]}`,
    `#define LZ_BITS ${bits}`,
    `#define LZ_GROUP ${groupSize}`,
    TYPE_DEFINITIONS[first.dtype.name],
  ].join("\n")
  const matrices: readonly Matrix[] = products.map(packedMatrixOf)
  const results = ending ? [ending.node] : products
  const kept = norm?.isKept ? [norm.node] : []
  const there = locationOf(viewOf(x))
  const or = (node: Node | undefined): typeof there => (node ? locationOf(viewOf(node)) : there)
  queue.dispatch({
    op: first.primitive?.name as string,
    kernel: {
      key: `cuda packed_row ${words}`,
      name: "packed_row",
      source: () => nativeSource("packed-row.cu", words),
      isNative: true,
    },
    arguments: [
      there,
      ...matrixArguments(matrices, columnsOf(x), isEarly, ending && (() => ending.node)),
      or(ending?.added),
      or(norm?.node.inputs[1]),
      or(kept[0]),
      Float32Array.of((norm?.node.params.eps as number | undefined) ?? 0),
    ],
    writes: [...results, ...kept].map(({ storage }) => storage as Storage),
    grid: [form.blocks * THREADS, 1, 1],
    threadgroup: [THREADS, 1, 1],
    threadgroupMemory: [form.shared],
  })
  return true
}

/** True of an RMS norm of one row, of the products' dtype, that the kernel makes with the bits of its own kernel. */
function isNormOfRow(node: Node): boolean {
  const [x, scales] = node.inputs
  const k = columnsOf(node)
  return (
    node.primitive?.name === "rmsNorm" &&
    node.params.hasWeight === true &&
    node.inputs.every(({ dtype }) => dtype === node.dtype) &&
    sizeOf(x.shape) === k &&
    sizeOf(scales.shape) === k &&
    k > SHORT_NORM &&
    k <= LONG_NORM
  )
}

/** The result that a node shows of the applications' results, through views of them. */
const behind = (node: Node, members: ReadonlySet<Node>): Node =>
  members.has(node) && node.primitive?.rules.view ? behind(node.inputs[0], members) : node

/** Elementwise work on `inputs` as an ending of products that nothing else reads, or null where it is none. */
function endingOf(
  work: Application,
  inputs: readonly Node[],
  products: readonly Node[],
): PackedRow["ending"] | null {
  const [product] = products
  const areAlike = [work, ...inputs].every(
    ({ dtype, shape }) => dtype === product.dtype && sizeOf(shape) === columnsOf(product),
  )
  if (work.outputs !== null || inputs.length !== 2 || !areAlike) return null
  const { code, outputs } = programOf(work)
  const ops = code.map(({ op }) => op).join()
  if (ops === "add" && products.length === 1) {
    const added = inputs.find((input) => input !== product)
    return added && inputs.includes(product) ? { kind: "add", node: work, added } : null
  }
  if (ops !== "sigmoid,multiply,multiply" || products.length !== 2 || String(outputs) !== "4") return null
  // Registers 0 and 1 are the operands: σ(gate), gate · σ(gate), and that by the other one.
  const [[gate], second, third] = code.map(({ args }) => args)
  const isSilu =
    String(second.toSorted()) === String([gate, 2]) && String(third.toSorted()) === String([1 - gate, 3])
  return isSilu && products.every((each) => inputs.includes(each))
    ? { kind: "gate", node: work, gate: inputs[gate] }
    : null
}

/**
 * Joined applications as products of one row with work around them, or null: a norm, or none, products that read it, and elementwise work
 * on their results, or none, and views of a norm and of products. `inner` are the results that nothing else reads.
 */
export function packedRowOf(
  members: readonly Application[],
  inner: ReadonlySet<Node>,
  areProducts: (nodes: readonly Node[]) => boolean,
): PackedRow | null {
  const all = new Set<Node>(members)
  const own = members.filter(({ primitive }) => !primitive.rules.view)
  const norm = own[0].primitive.name === "rmsNorm" ? own[0] : null
  const last = own[own.length - 1]
  const work = last.primitive.elementwise ? last : null
  const products = own.slice(norm ? 1 : 0, work ? -1 : undefined)
  if (products.length === 0 || (!norm && !work) || !areProducts(products)) return null
  if (norm && !(isNormOfRow(norm) && products.every(({ inputs: [x] }) => behind(x, all) === norm)))
    return null
  const ending =
    work &&
    endingOf(
      work,
      work.inputs.map((input) => behind(input, all)),
      products,
    )
  if (work && !(ending && products.every((each) => inner.has(each)))) return null
  // Of the applications' results only the norm is read here, by products.
  const read = [
    ...products.flatMap(({ inputs }) => inputs.slice(1)),
    ...(ending?.added ? [ending.added] : []),
  ]
  if (read.some((node) => all.has(node))) return null
  return {
    products: ending?.gate && ending.gate !== products[0] ? products.toReversed() : products,
    ...(norm && { norm: { node: norm, isKept: !inner.has(norm) } }),
    ...(ending && { ending }),
  }
}
