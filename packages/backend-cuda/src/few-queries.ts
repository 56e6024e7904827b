/**
 * Attention of a few queries, as of one more token: kernels/attention-few.cu, for which keys are read as fast as memory gives them.
 */
import { broadcastStrides, type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import { type DispatchQueue, isCountable, locationOf, viewOf } from "@lazuli/gpu-kernels"
import { isAligned } from "./graph-attention"
import { nativeSource, TYPE_DEFINITIONS } from "./native-source"

/** Rows (queries of the heads that share keys). */
const MOST_ROWS = 8
/** Rows times features, which a block has in shared memory for each of its warps; with half as many it has twice the warps. */
const MOST_RESULTS = 1024
const WARPS = 8
const FEATURES = [64, 128, 256]
const MOST_BLOCKS = 65535
/** Blocks that keep a GPU busy; with fewer, those have parts of so many keys, and there are so many parts at most. */
const [MANY_BLOCKS, KEYS_PART, MOST_PARTS] = [128, 512, 32]
/** Parts of so few keys still pay where all of them are no more blocks than this; so few blocks fetch keys ahead. */
const [FEW_KEYS, FEW_BLOCKS] = [128, 32]

export const rowsOf = ({ inputs: [q, k] }: Node): number => (q.shape[1] / k.shape[1]) * q.shape[2]

/** True of an application whose queries are few enough, wherever they lie. */
export function hasFewQueries(node: Node): boolean {
  const [q, k, v, mask] = node.inputs
  const { scale, hasMask, hasSinks } = node.params
  const features = q.shape[3]
  return (
    q.dtype.size === 2 &&
    Object.hasOwn(TYPE_DEFINITIONS, q.dtype.name) &&
    [k, v].every((x) => x.dtype === q.dtype) &&
    [q, k, v].every((x) => sizeOf(x.shape) > 0) &&
    features === v.shape[3] &&
    FEATURES.includes(features) &&
    rowsOf(node) <= MOST_ROWS &&
    rowsOf(node) * features <= MOST_RESULTS &&
    k.shape[0] * k.shape[1] <= MOST_BLOCKS &&
    (scale as number) > 0 &&
    !hasSinks &&
    (!hasMask || (mask.dtype.kind === "bool" && sizeOf(mask.shape) > 0)) &&
    isCountable(node)
  )
}

/** Such an application whose rows begin at multiples of 16 bytes. */
export const isOfFewQueries = (node: Node): boolean =>
  hasFewQueries(node) && node.inputs.slice(0, 3).every((x) => isAligned(viewOf(x)))

function partsOf(keys: number, blocks: number): number {
  const few = Math.min(Math.floor(keys / FEW_KEYS), Math.floor(FEW_BLOCKS / blocks))
  return Math.min(MOST_PARTS, Math.max(1, Math.floor(keys / KEYS_PART), few))
}

export function encodeFewQueries(node: Node, queue: DispatchQueue): void {
  const [q, k, v, mask] = node.inputs
  const op = node.primitive?.name as string
  const { scale, causal, hasMask } = node.params as { scale: number; causal: boolean; hasMask: boolean }
  const [batch, heads, queries, features] = q.shape
  const [, groups, keys] = k.shape
  const blocks = batch * groups
  const parts = blocks < MANY_BLOCKS ? partsOf(keys, blocks) : 1
  // Few blocks have more threads each, and of many all run at once.
  const isWide = blocks < MANY_BLOCKS && 2 * rowsOf(node) * features <= MOST_RESULTS
  const warps = isWide ? 2 * WARPS : blocks < 2 * MANY_BLOCKS ? WARPS : WARPS / 2
  const words = [
    `#define LZ_FEATURES ${features}`,
    `#define LZ_WARPS ${warps}`,
    `#define LZ_ROWS ${rowsOf(node)}`,
    `#define LZ_MASK ${Number(hasMask)}`,
    // One query sees all keys.
    `#define LZ_CAUSAL ${Number(causal && queries > 1)}`,
    `#define LZ_PARTS ${Number(parts > 1)}`,
    `#define LZ_FETCH ${Number(blocks <= FEW_BLOCKS)}`,
    TYPE_DEFINITIONS[q.dtype.name],
  ].join("\n")
  const kernel = (name: string): Parameters<DispatchQueue["dispatch"]>[0]["kernel"] => ({
    key: `cuda ${name} ${words}`,
    name,
    source: () => nativeSource("attention-few.cu", words),
    isNative: true,
  })
  const outputs = (node.outputs as readonly Node[]).map(({ storage, offset, dtype }) => ({
    storage: storage as Storage,
    offset: offset * dtype.size,
  }))
  const lines = batch * heads * queries
  const scratch =
    parts > 1
      ? [lines * parts * features, lines * parts * 2].map((n) => ({
          storage: queue.allocate(4 * n),
          offset: 0,
        }))
      : null
  const results = scratch ?? outputs
  const views = [q, k, v].map(viewOf)
  const seen = hasMask ? viewOf(mask) : null
  const steps = seen
    ? broadcastStrides(seen.shape, seen.strides, [batch, heads, queries, keys])
    : [0, 0, 0, 0]
  const layout = [...views.flatMap(({ strides }) => strides.slice(0, 3)), ...steps]
  layout.push(heads, heads / groups, queries, keys, parts)
  queue.dispatch({
    op,
    kernel: kernel("attend_few"),
    arguments: [
      ...views.map(locationOf),
      ...results,
      ...(seen ? [locationOf(seen)] : []),
      BigInt64Array.from(layout, BigInt),
      Float32Array.of(scale),
    ],
    writes: results.map(({ storage }) => storage),
    grid: [parts * warps * 32, blocks, 1],
    threadgroup: [warps * 32, 1, 1],
  })
  if (scratch === null) return
  queue.dispatch({
    op,
    kernel: kernel("attend_few_join"),
    arguments: [...scratch, ...outputs, Int32Array.of(parts)],
    writes: outputs.map(({ storage }) => storage),
    grid: [lines * features, 1, 1],
    threadgroup: [features, 1, 1],
  })
  for (const { storage } of scratch) storage.drop()
}
