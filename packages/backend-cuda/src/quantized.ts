/**
 * Products of a few rows with packed weights by a kernel of CUDA's own, kernels/quantized.cu: the weights are read once, 16 bytes at a
 * time. Other formats and more rows are served by the kernels of gpu-kernels.
 */
import { isContiguous, type Node, type Storage } from "@lazuli/core/engine"
import { type DispatchQueue, type Families, isCountable, viewOf } from "@lazuli/gpu-kernels"
import { nativeSource } from "./native-source"

/** As the kernel has them. */
const [WARPS, ROWS] = [8, 4]
/** Rows of x, whose sums are kept in registers. */
const MOST_ROWS = 8

const DEFINITIONS: Readonly<Record<string, string>> = {
  float16: "",
  bfloat16: "#define LZ_BRAIN",
  float32: "#define LZ_WIDE",
}

function takes(node: Node): boolean {
  const { mode, bits, groupSize, transpose } = node.params
  const [x, w] = node.inputs
  const k = x.shape[x.shape.length - 1]
  return (
    mode === "affine" &&
    transpose === true &&
    (bits === 4 || bits === 8) &&
    Object.hasOwn(DEFINITIONS, node.dtype.name) &&
    w.shape.length === 2 &&
    node.size > 0 &&
    x.size / k <= MOST_ROWS &&
    k % Math.max(groupSize as number, 32) === 0 &&
    node.inputs.every(
      (input) =>
        (input === w || input.dtype === node.dtype) &&
        (input.strides === null || isContiguous(input.shape, input.strides)) &&
        (input.offset * input.dtype.size) % 16 === 0,
    ) &&
    isCountable(node)
  )
}

function encode(node: Node, queue: DispatchQueue): void {
  const { bits, groupSize } = node.params as { bits: number; groupSize: number }
  const [x, w, scales, biases] = node.inputs
  const k = x.shape[x.shape.length - 1]
  const columns = w.shape[0]
  const words = [
    `#define LZ_BITS ${bits}`,
    `#define LZ_GROUP ${groupSize}`,
    `#define LZ_COUNT ${x.size / k}`,
    DEFINITIONS[node.dtype.name],
  ].join("\n")
  const storage = node.storage as Storage
  queue.dispatch({
    op: "quantizedMatmul",
    kernel: {
      key: `cuda few rows ${words}`,
      name: "few_rows",
      source: () => nativeSource("quantized.cu", words),
      isNative: true,
    },
    arguments: [
      ...[w, scales, biases, x, node].map((each) => {
        const view = viewOf(each)
        return { storage: view.storage, offset: view.offset * view.itemsize }
      }),
      Int32Array.of(columns, k),
    ],
    writes: [storage],
    grid: [Math.ceil(columns / (WARPS * ROWS)) * WARPS * 32, 1, 1],
    threadgroup: [WARPS * 32, 1, 1],
  })
}

/** Packed weights times a few rows. */
export const fewRows: Families = { quantizedMatmul: { supports: takes, encode } }
