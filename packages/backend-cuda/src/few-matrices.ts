/**
 * Matrices that the same few rows are multiplied by: what launches of kernels/few-rows.cu and kernels/packed-row.cu have in common.
 */
import { type Node, sizeOf } from "@lazuli/core/engine"
import { type DispatchQueue, type Location, locationOf, viewOf } from "@lazuli/gpu-kernels"

/** As the kernels have them. */
export const [WARPS, ROWS] = [8, 16]
/** Matrices that one launch takes at most. */
export const MOST_MATRICES = 3
/** Plans copy arrays of at most so many bytes by work of their own: `kStaged` in native/cuda/plan.cc. */
const STAGED = 1024

/** The GPU, as far as the choice of a kernel goes. */
export interface Facts {
  readonly processors: number
  /** Bytes of shared memory that a block may ask for. */
  readonly maxShared: number
}

/** A matrix that x is multiplied by, and the product; of the parts that its kind of weights does not have anything serves. */
export interface Matrix {
  readonly node: Node
  readonly weights: Location
  /** The row that is added, of weights of 16 bits. */
  readonly scales: Location
  readonly biases: Location
}

export const rowsOf = ({ shape }: Node): number => sizeOf(shape) / shape[shape.length - 1]
export const columnsOf = ({ shape }: Node): number => shape[shape.length - 1]

/** Blocks of so many rows of a matrix each, which cover all of the products. */
export const blocksOf = (nodes: readonly Node[], rows: number): number =>
  nodes.reduce((sum, node) => sum + Math.ceil(columnsOf(node) / rows), 0)

/** True of arrays that no earlier work of a run writes. */
export const areGiven = (queue: DispatchQueue, arrays: readonly Node[]): boolean =>
  arrays.every((each) => each.nbytes > STAGED && queue.isInput(viewOf(each).storage))

/** The matrix of a product with packed weights. */
export function packedMatrixOf(node: Node): Matrix {
  const [weights, scales, biases] = node.inputs.slice(1).map(viewOf).map(locationOf)
  return { node, weights, scales, biases }
}

/** The arguments of matrices and the sizes behind them; results may lie elsewhere than their products. */
export const matrixArguments = (
  matrices: readonly Matrix[],
  k: number,
  isEarly: boolean,
  resultOf: (product: Node) => Node = (product) => product,
): (Location | Int32Array)[] => [
  ...matrices.flatMap((each) => [
    each.weights,
    each.scales,
    each.biases,
    locationOf(viewOf(resultOf(each.node))),
  ]),
  Int32Array.of(k, Number(isEarly), ...matrices.map((each) => columnsOf(each.node))),
]
