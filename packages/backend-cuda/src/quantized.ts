/**
 * Products with packed weights by kernels of CUDA's own. Of a few rows kernels/few-rows.cu, and of float32, of other groups and on older
 * GPUs kernels/quantized.cu: the weights are read once. Of many, where cuBLASLt is there, kernels/unpack.cu and a product of the library's.
 * Other formats are served by the kernels of gpu-kernels.
 */
import { contiguousStrides, isContiguous, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import {
  type DispatchQueue,
  type Families,
  type Family,
  isCountable,
  locationOf,
  type View,
  viewOf,
} from "@lazuli/gpu-kernels"
import { type Facts, MOST_MATRICES } from "./few-matrices"
import { encodeFewPackedRows, FEW, isOfFewPackedRows } from "./few-rows"
import { nativeSource, TYPE_DEFINITIONS } from "./native-source"
import { encodePackedRow, packedRowOf, takesPackedRow } from "./packed-row"
import { encodeProduct, MANY } from "./products"

/** As the kernel has them. */
const WARPS = 8
/** Rows of weights that a warp has: fewer where the matrix has few, so that all processors have work. */
const rowsOf = (columns: number): number => (columns >= 8192 ? 4 : columns >= 2048 ? 2 : 1)
/** Of kernels/unpack.cu: codes side by side, those of a thread, threads of a group. */
const [CODES, EACH, THREADS] = [8, 4, 256]

/** True of arrays that lie as these kernels read them. */
const areEven = (nodes: readonly Node[]): boolean =>
  nodes.every(
    ({ shape, strides, offset, dtype }) =>
      (strides === null || isContiguous(shape, strides)) && (offset * dtype.size) % 16 === 0,
  )

/** True of weights that are {@link isReadable}, where `inputs` lie as these kernels read them. */
const isRead = (node: Node, inputs: readonly Node[]): boolean =>
  isReadable(node) && areEven(inputs) && isCountable(node)

/** True of weights of one matrix in a format that these kernels read. */
function isReadable(node: Node): boolean {
  const { mode, bits, groupSize, activations } = node.params
  const [x, w] = node.inputs
  return (
    mode === "affine" &&
    activations !== "int8" &&
    (bits === 4 || bits === 8) &&
    Object.hasOwn(TYPE_DEFINITIONS, node.dtype.name) &&
    w.shape.length === 2 &&
    node.size > 0 &&
    x.size > 0 &&
    (groupSize as number) >= 32 &&
    columnsOf(node) % (groupSize as number) === 0 &&
    node.inputs.every((input) => input === w || input.dtype === node.dtype)
  )
}

/** Weights of a row of the packed matrix. */
const columnsOf = ({ inputs: [, w], params: { bits } }: Node): number => (w.shape[1] * 32) / (bits as number)

const hasFewRows = ({ inputs: [x], params: { transpose } }: Node): boolean =>
  transpose === true && x.size / x.shape[x.shape.length - 1] <= FEW
const isOfFew = (node: Node): boolean => hasFewRows(node) && isRead(node, node.inputs)

/** True of products of the same rows with weights in one format. */
const arePackedAlike = (nodes: readonly Node[]): boolean =>
  nodes.length <= MOST_MATRICES &&
  nodes.every(
    ({ inputs, dtype, params: { bits, groupSize } }) =>
      inputs[0] === nodes[0].inputs[0] &&
      dtype === nodes[0].dtype &&
      bits === nodes[0].params.bits &&
      groupSize === nodes[0].params.groupSize,
  )

/** True where the library goes through the matrices of x in a few calls. */
function isOfMany(node: Node): boolean {
  const [x, ...packed] = node.inputs
  const isEven = x.strides === null || isContiguous(x.shape, x.strides)
  return isRead(node, packed) && (isEven || sizeOf(x.shape.slice(0, -2)) <= MANY)
}

const definitionsOf = ({ params: { bits, groupSize }, dtype }: Node): string[] => [
  `#define LZ_BITS ${bits}`,
  `#define LZ_GROUP ${groupSize}`,
  TYPE_DEFINITIONS[dtype.name],
]

function encodeMany(node: Node, queue: DispatchQueue): void {
  const [x, w, scales, biases] = node.inputs
  const shape = [w.shape[0], columnsOf(node)]
  const size = shape[0] * shape[1]
  const storage = queue.allocate(size * node.dtype.size)
  const words = definitionsOf(node).join("\n")
  const chunks = size / CODES
  queue.dispatch({
    op: "quantizedMatmul",
    kernel: {
      key: `cuda unpack ${words}`,
      name: "unpack",
      source: () => nativeSource("unpack.cu", words),
      isNative: true,
    },
    arguments: [
      ...[w, scales, biases].map(viewOf).map(locationOf),
      { storage, offset: 0 },
      Int32Array.of(chunks),
    ],
    writes: [storage],
    grid: [Math.ceil(chunks / (EACH * THREADS)) * THREADS, 1, 1],
    threadgroup: [THREADS, 1, 1],
  })
  const [down, across] = contiguousStrides(shape)
  // The weights of a row of the result, or its factors.
  const [last, strides] = node.params.transpose
    ? [
        [shape[1], shape[0]],
        [across, down],
      ]
    : [shape, [down, across]]
  const outer = node.shape.slice(0, -2)
  const weights: View = {
    storage,
    itemsize: node.dtype.size,
    shape: [...outer, ...last],
    strides: [...outer.map(() => 0), ...strides],
    offset: 0,
  }
  encodeProduct(queue, node, viewOf(x), weights, null, 1, 0)
  storage.drop()
}

function encodeFew(node: Node, queue: DispatchQueue): void {
  const [x, w, scales, biases] = node.inputs
  const k = x.shape[x.shape.length - 1]
  const columns = w.shape[0]
  const rows = rowsOf(columns)
  const words = [`#define LZ_COUNT ${x.size / k}`, `#define LZ_ROWS ${rows}`, ...definitionsOf(node)].join(
    "\n",
  )
  const storage = node.storage as Storage
  queue.dispatch({
    op: "quantizedMatmul",
    kernel: {
      key: `cuda few rows ${words}`,
      name: "few_rows",
      source: () => nativeSource("quantized.cu", words),
      isNative: true,
    },
    arguments: [...[w, scales, biases, x, node].map(viewOf).map(locationOf), Int32Array.of(columns, k)],
    writes: [storage],
    grid: [Math.ceil(columns / (WARPS * rows)) * WARPS * 32, 1, 1],
    threadgroup: [WARPS * 32, 1, 1],
  })
}

/**
 * Any number of rows; `present` tells whether cuBLASLt is there, `isModern` whether the GPU has tensor cores for a few.
 */
export function quantizedFamilies(
  present: () => boolean,
  isModern: () => boolean,
  facts: () => Facts,
): Families {
  const mayBeFew = (node: Node): boolean => hasFewRows(node) && isReadable(node) && isOfFewPackedRows(node)
  const quantizedMatmul: Family = {
    supports: (node) => isOfFew(node) || (isOfMany(node) && present()),
    encode(node, queue) {
      if (!isOfFew(node)) encodeMany(node, queue)
      else if (isModern() && isOfFewPackedRows(node)) encodeFewPackedRows([node], queue, facts())
      else encodeFew(node, queue)
    },
    together(nodes) {
      if (!arePackedAlike(nodes) || !nodes.every(mayBeFew) || !isModern()) return null
      return (queue) => {
        if (nodes.every(isOfFew)) encodeFewPackedRows(nodes, queue, facts())
        else for (const node of nodes) quantizedMatmul.encode(node, queue)
      }
    },
  }
  /** True of products of one row that one launch takes. */
  const areOfRow = (nodes: readonly Node[]): boolean =>
    isModern() &&
    nodes.every(({ primitive }) => primitive?.name === "quantizedMatmul") &&
    nodes.every((node) => mayBeFew(node) && node.size === node.shape[node.shape.length - 1]) &&
    arePackedAlike(nodes)
  const around: Family["around"] = (members, inner) => {
    const row = packedRowOf(members, inner, areOfRow)
    if (row === null || !takesPackedRow(row, facts())) return null
    return (queue) => {
      const given = row.norm ? row.norm.node.inputs : [row.products[0].inputs[0]]
      const others = row.ending?.added ? [row.ending.added] : []
      return (
        areEven([...given, ...others]) && row.products.every(isOfFew) && encodePackedRow(row, queue, facts())
      )
    }
  }
  return { quantizedMatmul: { ...quantizedMatmul, around } }
}
