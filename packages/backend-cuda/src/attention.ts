/**
 * Attention on tensor cores by a kernel of CUDA's own: kernels/attention.cu. Other dtypes, more features, sinks and older GPUs are served
 * by the kernels of gpu-kernels, and so is the derivative.
 */
import { broadcastStrides, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import {
  type Argument,
  type DispatchQueue,
  type Families,
  type Family,
  isCountable,
  type Location,
  type View,
  viewOf,
  withRowMajor,
} from "@lazuli/gpu-kernels"
import { nativeSource } from "./native-source"

/** As the kernel has them. */
const QUERIES = 128
const KEYS = 64
const THREADS = 128
const MOST_FEATURES = 128
/** Elements of 16 bytes, in which rows are read. */
const CHUNK = 8
const MOST_HEADS = 65535

const isAligned = ({ offset, strides, shape }: View): boolean =>
  strides[3] === 1 &&
  offset % CHUNK === 0 &&
  strides.slice(0, 3).every((stride, i) => shape[i] === 1 || stride % CHUNK === 0)

function takes(node: Node): boolean {
  const [q, k, v, mask] = node.inputs
  const features = q.shape[3]
  return (
    (q.dtype.name === "bfloat16" || q.dtype.name === "float16") &&
    [k, v].every((x) => x.dtype === q.dtype) &&
    [q, k, v].every((x) => sizeOf(x.shape) > 0) &&
    features === v.shape[3] &&
    features % 16 === 0 &&
    features <= MOST_FEATURES &&
    q.shape[0] * q.shape[1] <= MOST_HEADS &&
    // Maxima are of the scores before the factor.
    (node.params.scale as number) > 0 &&
    (!node.params.hasMask ||
      (sizeOf(mask.shape) > 0 && (mask.dtype.kind === "bool" || mask.dtype === q.dtype))) &&
    // A copy is aligned; what is row-major already is taken as it lies.
    [q, k, v].every((x) => x.offset % CHUNK === 0) &&
    !node.params.hasSinks &&
    isCountable(node)
  )
}

/** Runs `body` with rows that begin at multiples of 16 bytes: as they lie, or in a copy. */
function aligned(queue: DispatchQueue, view: View, body: (view: View, location: Location) => void): void {
  if (isAligned(view)) {
    body(view, { storage: view.storage, offset: view.offset * view.itemsize })
    return
  }
  withRowMajor(queue, view, (location) => {
    const [, heads, rows, features] = view.shape
    body({ ...view, strides: [heads * rows * features, rows * features, features, 1] }, location)
  })
}

function encode(node: Node, queue: DispatchQueue): void {
  const [q, k, v, mask] = node.inputs
  const { scale, causal, hasMask } = node.params as { scale: number; causal: boolean; hasMask: boolean }
  const [batch, heads, queries, features] = q.shape
  const keys = k.shape[2]
  const kind = hasMask ? (mask.dtype.kind === "bool" ? 1 : 2) : 0
  const words = [
    `#define LZ_FEATURES ${features}`,
    `#define LZ_CAUSAL ${Number(causal)}`,
    `#define LZ_MASK ${kind}`,
    ...(q.dtype.name === "bfloat16" ? ["#define LZ_BRAIN"] : []),
  ].join("\n")
  const outputs = (node.outputs as readonly Node[]).map(({ storage, offset, dtype }) => ({
    storage: storage as Storage,
    offset: offset * dtype.size,
  }))
  const pitch = features <= 64 ? 64 : 128
  aligned(queue, viewOf(q), (qs, a) =>
    aligned(queue, viewOf(k), (ks, b) =>
      aligned(queue, viewOf(v), (vs, c) => {
        const extra: Argument[] = []
        let steps = [0, 0, 0, 0]
        if (hasMask) {
          const view = viewOf(mask)
          steps = [...broadcastStrides(view.shape, view.strides, [batch, heads, queries, keys])]
          extra.push({ storage: view.storage, offset: view.offset * view.itemsize })
        }
        const layout = [
          ...[qs, ks, vs].flatMap(({ strides }) => strides.slice(0, 3)),
          ...steps,
          ...[heads, heads / k.shape[1], queries, keys],
        ]
        queue.dispatch({
          op: "scaledDotProductAttention",
          kernel: {
            key: `cuda attention ${words}`,
            name: "attend",
            source: () => nativeSource("attention.cu", words),
            isNative: true,
          },
          arguments: [
            ...[a, b, c, ...outputs, ...extra],
            BigInt64Array.from(layout, BigInt),
            Float32Array.of(scale),
          ],
          writes: outputs.map(({ storage }) => storage),
          grid: [Math.ceil(queries / QUERIES) * THREADS, batch * heads, 1],
          threadgroup: [THREADS, 1, 1],
          threadgroupMemory: [(QUERIES + 2 * KEYS) * pitch * 2],
        })
      }),
    ),
  )
}

/** The family; `isModern` tells whether the GPU has the instructions: of Ampere or later. */
export function attentionFamilies(isModern: () => boolean): Families {
  const attention: Family = { supports: (node) => takes(node) && isModern(), encode }
  return { scaledDotProductAttention: attention }
}
