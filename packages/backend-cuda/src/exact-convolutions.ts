/**
 * Convolutions of float32 by a kernel of CUDA's own, kernels/convolution.cu: of images with enough channels and locations to fill the GPU,
 * where cuDNN has nothing that is both as precise and as fast.
 */
import { float32, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import { type DispatchQueue, isCountable, viewOf, withRowMajor } from "@lazuli/gpu-kernels"
import { nativeSource } from "./native-source"

/** As the kernel has them. */
const [LOCATIONS, OUTPUTS, DEPTH, THREADS, STAGES, TAPS] = [128, 64, 32, 128, 3, 32]
/** Elements of 16 bytes, in which rows are read. */
const CHUNK = 4
const MOST_BLOCKS = 65535

/** The parameters of the primitive. */
export interface ConvolutionParams {
  readonly stride: readonly number[]
  readonly low: readonly number[]
  readonly high: readonly number[]
  readonly kernelDilation: readonly number[]
  readonly inputDilation: readonly number[]
  readonly groups: number
  readonly flip: boolean
}

const blocksOf = ({ shape, size }: Node): [number, number] => {
  const outputs = shape[shape.length - 1]
  return [Math.ceil(size / outputs / LOCATIONS), Math.ceil(outputs / OUTPUTS)]
}

/** True of convolutions over two axes that the kernel takes, and that fill a GPU of so many processors. */
export function isExact(node: Node, processors: number): boolean {
  const [x, w] = node.inputs
  const { inputDilation, groups } = node.params as unknown as ConvolutionParams
  const [across, down] = blocksOf(node)
  return (
    node.dtype === float32 &&
    [x, w].every((each) => each.dtype === float32 && each.offset % CHUNK === 0) &&
    node.shape.length === 4 &&
    groups === 1 &&
    inputDilation.every((n) => n === 1) &&
    w.shape[3] % DEPTH === 0 &&
    w.shape[3] > 0 &&
    w.shape[1] * w.shape[2] <= TAPS &&
    // Results are written two at a time.
    w.shape[0] % 2 === 0 &&
    node.offset % 2 === 0 &&
    across * down >= processors &&
    down <= MOST_BLOCKS &&
    sizeOf(x.shape) > 0 &&
    isCountable(node)
  )
}

export function encodeExact(node: Node, queue: DispatchQueue): void {
  const [x, w] = node.inputs
  const { stride, low, kernelDilation, flip } = node.params as unknown as ConvolutionParams
  const [, height, width, channels] = x.shape
  const [outputs, ...kernel] = w.shape
  const shape = [
    ...[height, width, channels],
    ...kernel.slice(0, 2),
    ...node.shape.slice(1, 3),
    ...[...low, ...stride, ...kernelDilation, outputs, Number(flip)],
  ]
  const [across, down] = blocksOf(node)
  const storage = node.storage as Storage
  const target = { storage, offset: node.offset * node.dtype.size }
  withRowMajor(queue, viewOf(x), (images) =>
    withRowMajor(queue, viewOf(w), (by) =>
      queue.dispatch({
        op: "conv",
        kernel: {
          key: "cuda convolution",
          name: "convolve",
          source: () => nativeSource("convolution.cu", ""),
          isNative: true,
        },
        arguments: [images, by, target, Int32Array.from(shape), Int32Array.of(node.size / outputs)],
        writes: [storage],
        grid: [across * THREADS, down, 1],
        threadgroup: [THREADS, 1, 1],
        threadgroupMemory: [4 * STAGES * (LOCATIONS + OUTPUTS) * DEPTH],
      }),
    ),
  )
}
