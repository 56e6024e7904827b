/**
 * Attention of one more token by kernels/attention-token.cu: one launch with the rotation of its queries and its key, and the updates of
 * caches by the key and the value.
 */
import {
  type Application,
  broadcastStrides,
  float32,
  type Node,
  type Storage,
  sizeOf,
} from "@lazuli/core/engine"
import {
  type DispatchQueue,
  encodeCopy,
  type Family,
  familyOf,
  isRowMajor,
  locationOf,
  viewOf,
} from "@lazuli/gpu-kernels"
import { hasFewQueries, rowsOf } from "./few-queries"
import { nativeSource, TYPE_DEFINITIONS } from "./native-source"

/** Blocks of a cluster, which divide the keys of a head, and keys that a warp takes at a time. */
const [SPLITS, KEYS] = [8, 16]
/** Warps of a block: as few as have all keys at once. */
const WARPS = [4, 8, 16]
/** Of more keys, or more heads of keys, other kernels have more blocks. */
const [MOST_KEYS, MOST_CLUSTERS] = [4096, 16]
/** Rows times features, of which a lane has so many in registers, and a block those of each warp in shared memory. */
const MOST_RESULTS = 512
/** Bytes at multiples of which rows begin. */
const ALIGNED = 16

/** Types of positions. */
const POSITIONS: Readonly<Record<string, string>> = { int32: "int", uint32: "unsigned", int64: "long long" }

/** The work of one more token. */
interface NewToken {
  readonly attention: Application
  /** Turned queries, and the turned key. */
  readonly ropes: readonly [Application, Application]
  /** Updates of caches, by the key and by the value. */
  readonly updates: readonly [Application, Application]
}

/** The parts of joined applications, or null where they are something else; `inner` are the results that nothing else reads. */
function partsOf(members: readonly Application[], inner: ReadonlySet<Node>): NewToken | null {
  const all = new Set<Node>(members)
  const own = members.filter(({ primitive }) => !primitive.rules.view)
  const attention = own.find(({ primitive }) => primitive.name === "scaledDotProductAttention")
  if (!attention || own.length !== 5) return null
  const behind = (node: Node): Node =>
    all.has(node) && node.primitive?.rules.view ? behind(node.inputs[0]) : node
  const memberOf = (node: Node, name: string): Application | undefined =>
    own.find((each) => each === node && each.primitive.name === name)
  const [q, k, v] = attention.inputs
  const queries = memberOf(behind(q), "rope")
  const keys = memberOf(k, "scatter")
  const values = memberOf(v, "scatter")
  const key = keys && memberOf(behind(keys.inputs[1]), "rope")
  if (!queries || !keys || !values || !key || queries === key || keys === values) return null
  // Ropes and updates alone are joined work too; there queries leave it.
  const others = members.filter((each) => each !== attention)
  const kept = new Set([...inner].filter((node) => behind(node) !== queries))
  if (!familyOf(key.primitive)?.around?.(others, kept)) return null
  // Caches are written, and the logarithms of sums are not.
  const areInner = [queries, key, attention.outputs?.[1]].every((node) => node && inner.has(node))
  return areInner && !inner.has(keys) && !inner.has(values)
    ? { attention, ropes: [queries, key], updates: [keys, values] }
    : null
}

/** True of work that the kernel does, wherever it lies. */
function takes({ attention, ropes, updates: [update] }: NewToken): boolean {
  const [q, k, v, mask] = attention.inputs
  const [batch, groups, keys, features] = k.shape
  const [queries] = ropes
  const [, offset, freqs] = queries.inputs
  const { dims, base } = queries.params
  return (
    q.shape[2] === 1 &&
    // A rotation of several positions may have been reshaped to one.
    ropes.every(({ inputs: [x] }) => x.shape.length === 4 && x.shape[2] === 1) &&
    dims === features &&
    rowsOf(attention) * features <= MOST_RESULTS &&
    (rowsOf(attention) * features) % SPLITS === 0 &&
    offset.shape.length === 0 &&
    [offset, update.inputs[2]].every(({ dtype }) => Object.hasOwn(POSITIONS, dtype.name)) &&
    (base !== null || freqs.dtype === float32) &&
    update.inputs.length === 3 &&
    sizeOf(update.inputs[2].shape) === 1 &&
    String(update.params.axes) === "2" &&
    sizeOf(v.shape) === sizeOf(k.shape) &&
    keys <= MOST_KEYS &&
    batch * groups <= MOST_CLUSTERS &&
    (!attention.params.hasMask || mask.dtype.kind === "bool")
  )
}

/** Bytes of shared memory for what a block has by itself, as the kernel lays them out. */
const memoryOf = (features: number, rows: number, warps: number): number =>
  warps * (2 * KEYS * features + 32 * (KEYS + 1)) +
  2 * (rows + 1) * features +
  4 * warps * (rows * features + SPLITS * (8 + 2 * rows)) +
  16

/** Adds the work, or gives false where operands do not lie as the kernel reads them. */
function encode({ attention, ropes, updates }: NewToken, queue: DispatchQueue): boolean {
  const [, k, , mask] = attention.inputs
  const [batch, groups, keys, features] = k.shape
  const { scale, hasMask } = attention.params as { scale: number; hasMask: boolean }
  const [, offset, freqs] = ropes[0].inputs
  const {
    dims,
    traditional,
    base,
    scale: step,
    inverse,
  } = ropes[0].params as unknown as {
    dims: number
    traditional: boolean
    base: number | null
    scale: number
    inverse: boolean
  }
  const caches = updates.map(({ inputs: [cache] }) => viewOf(cache))
  const targets = updates.map(({ storage, offset: at, dtype }) => ({
    storage: storage as Storage,
    offset: at * dtype.size,
  }))
  const [q, key] = ropes.map(({ inputs: [x] }) => viewOf(x))
  const value = viewOf(updates[1].inputs[1])
  const read = [...caches, q, key, value]
  const places = [...read.map(locationOf), ...targets]
  if (!read.every(isRowMajor) || !places.every((each) => each.offset % ALIGNED === 0)) return false
  const place = updates[0].inputs[2]
  const warps = WARPS.find((count) => count * SPLITS * KEYS >= keys) ?? WARPS[WARPS.length - 1]
  const words = [
    `#define LZ_FEATURES ${features}`,
    `#define LZ_ROWS ${rowsOf(attention)}`,
    `#define LZ_WARPS ${warps}`,
    `#define LZ_SPLITS ${SPLITS}`,
    `#define LZ_MASK ${Number(hasMask)}`,
    `#define LZ_TRADITIONAL ${Number(traditional)}`,
    `#define LZ_RATES ${Number(base === null)}`,
    `#define LZ_OFFSET ${POSITIONS[offset.dtype.name]}`,
    `#define LZ_PLACE ${POSITIONS[place.dtype.name]}`,
    `#define LZ_ONCE ${Number(SPLITS * warps * KEYS >= keys)}`,
    TYPE_DEFINITIONS[attention.dtype.name],
  ].join("\n")
  for (const [i, update] of updates.entries()) {
    const [cache] = update.inputs
    queue.copyOver(cache.storage as Storage, targets[i].storage, () =>
      encodeCopy(queue, caches[i], targets[i], "scatter"),
    )
  }
  const seen = hasMask ? viewOf(mask) : null
  const steps = seen
    ? broadcastStrides(seen.shape, seen.strides, [batch, attention.inputs[0].shape[1], 1, keys])
    : [0, 0, 0, 0]
  const given = locationOf(viewOf(offset))
  const early = caches.every(({ storage }) => queue.isInput(storage))
  const layout = new BigInt64Array(5)
  layout.set([steps[0], steps[1], steps[3]].map(BigInt))
  new Int32Array(layout.buffer, 24).set([groups, keys, Number(early)])
  const target = { storage: attention.storage as Storage, offset: attention.offset * attention.dtype.size }
  queue.dispatch({
    op: "scaledDotProductAttention",
    kernel: {
      key: `cuda attend_token ${words}`,
      name: "attend_token",
      source: () => nativeSource("attention-token.cu", words),
      isNative: true,
    },
    arguments: [
      ...[q, key, value, ...caches].map(locationOf),
      ...targets,
      target,
      given,
      locationOf(viewOf(place)),
      base === null ? locationOf(viewOf(freqs)) : given,
      seen ? locationOf(seen) : given,
      layout,
      Float32Array.of(scale, step, base === null ? 0 : -Math.log(base) / (dims / 2), inverse ? -1 : 1),
    ],
    writes: [...targets, target].map(({ storage }) => storage),
    grid: [SPLITS * warps * 32, batch * groups, 1],
    threadgroup: [warps * 32, 1, 1],
    threadgroupMemory: [memoryOf(features, rowsOf(attention), warps)],
  })
  return true
}

/** Work of one more token as one kernel, or null where it is something else. */
export const aroundNewToken: NonNullable<Family["around"]> = (members, inner) => {
  const parts = partsOf(members, inner)
  if (parts === null || !hasFewQueries(parts.attention) || !takes(parts)) return null
  return (queue) => encode(parts, queue)
}
