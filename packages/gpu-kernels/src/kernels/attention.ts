/**
 * Scaled dot-product attention and its derivative: which kernel takes which shapes.
 */
import { float32, type Node, sizeOf } from "@lazuli/core/engine"
import {
  type AttentionForm,
  joinSource,
  MOST_SIMDGROUPS,
  querySource,
  sharesSource,
  sinksSource,
} from "../attention-source"
import { TILE_ROWS, TILE_THREADS, type TileMode, tilesSource } from "../attention-tiles-source"
import { type Argument, type DispatchQueue, isLocation, type Location } from "../dispatch"
import { type Families, isCountable } from "../family"
import { metalType } from "../metal-types"
import { withExtras } from "./matmul"
import { targetOf } from "./reduce"

/** The most features of a kernel without tiles, and of one with them. */
const MOST_FEATURES = 512
const TILED_FEATURES = 128
/** Fewer queries than a simdgroup matrix has rows take a threadgroup each. */
const FEW_QUERIES = 8
/** Keys that are worth a simdgroup of their own. */
const KEYS_EACH = 16
/** Keys beyond which a query's are divided among threadgroups, and how many threadgroups at most. */
const KEYS_PART = 128
const MOST_PARTS = 64

const VECTOR = 16

type Params = { causal: boolean; hasMask: boolean; hasSinks: boolean; scale: number }

const sinksOf = (node: Node): Node => node.inputs[(node.params as Params).hasMask ? 4 : 3]

const supports = (node: Node): boolean => {
  const [q, k, v, mask] = node.inputs
  return (
    [q, k, v].every((x) => x.dtype === q.dtype && sizeOf(x.shape) > 0) &&
    q.dtype.kind === "floating" &&
    metalType(q.dtype) !== undefined &&
    Math.max(q.shape[3], v.shape[3]) <= MOST_FEATURES &&
    (!node.params.hasMask ||
      (sizeOf(mask.shape) > 0 &&
        (mask.dtype.kind === "bool" || mask.dtype.kind === "floating") &&
        metalType(mask.dtype) !== undefined)) &&
    (!node.params.hasSinks ||
      (sinksOf(node).dtype.kind === "floating" && metalType(sinksOf(node).dtype) !== undefined)) &&
    isCountable(node)
  )
}

const isTiled = ({ inputs: [q, , v] }: Node): boolean => Math.max(q.shape[3], v.shape[3]) <= TILED_FEATURES

function formOf(node: Node, locations: readonly Argument[]): AttentionForm {
  const [q, , v, mask] = node.inputs
  const { causal, hasMask, hasSinks } = node.params as Params
  const { size } = q.dtype
  const [features, wide] = [q.shape[3], v.shape[3]]
  const vectors =
    [features, wide].every((n) => (n * size) % VECTOR === 0) &&
    locations.every((each) => !isLocation(each) || each.offset % VECTOR === 0)
  return {
    type: metalType(q.dtype) as string,
    size,
    features,
    wide,
    mask: hasMask ? (metalType(mask.dtype) as string) : null,
    causal,
    sinks: hasSinks ? (metalType(sinksOf(node).dtype) as string) : null,
    width: vectors ? VECTOR / size : 1,
  }
}

/** The mask and the sinks of an application, among the arguments that its inputs became. */
interface Extras {
  readonly mask?: Argument
  readonly sinks?: Argument
}

function extrasOf(node: Node, inputs: readonly Argument[]): Extras {
  const { hasMask, hasSinks } = node.params as Params
  return {
    mask: hasMask ? inputs[3] : undefined,
    sinks: hasSinks ? inputs[hasMask ? 4 : 3] : undefined,
  }
}

const maskArguments = (node: Node, { mask }: Extras): Argument[] =>
  mask ? [mask, Uint32Array.from([1, 1, 1, 1, ...node.inputs[3].shape].slice(-4))] : []

const sinkArguments = (node: Node, { sinks }: Extras): Argument[] =>
  sinks ? [sinks, Uint32Array.of(sinksOf(node).shape[0] > 1 ? sinksOf(node).shape[1] : 0)] : []

/** Adds `attend_tiles`. */
function dispatchTiles(
  queue: DispatchQueue,
  node: Node,
  mode: TileMode,
  args: readonly Argument[],
  extras: Extras,
  outputs: readonly Location[],
): void {
  const [q, k] = node.inputs
  const kept = mode === "keys" ? k : q
  const blocks = Math.ceil(kept.shape[2] / TILE_ROWS)
  const groups = kept.shape[0] * kept.shape[1] * blocks
  const own = formOf(node, args)
  const form = { ...own, sinks: mode === "forward" ? own.sinks : null }
  queue.dispatch({
    op: node.primitive?.name as string,
    kernel: {
      key: `attend tiles ${mode} ${JSON.stringify(form)}`,
      name: "attend_tiles",
      source: () => tilesSource(form, mode),
    },
    arguments: [
      ...args,
      ...outputs,
      ...maskArguments(node, extras),
      ...(form.sinks === null ? [] : sinkArguments(node, extras)),
      Uint32Array.of(q.shape[1], k.shape[1], q.shape[2], k.shape[2], blocks),
      Float32Array.of(node.params.scale as number),
    ],
    writes: outputs.map(({ storage }) => storage),
    grid: [groups * TILE_THREADS, 1, 1],
    threadgroup: [TILE_THREADS, 1, 1],
  })
}

/** Adds `attend`, and of many keys `attend_join`. */
function dispatchQueries(
  queue: DispatchQueue,
  node: Node,
  args: readonly Argument[],
  extras: Extras,
  outputs: readonly Location[],
): void {
  const op = node.primitive?.name as string
  const [q, k, v] = node.inputs
  const form = { ...formOf(node, args), width: 1 }
  const parts = Math.min(MOST_PARTS, Math.ceil(k.shape[2] / KEYS_PART))
  const inParts = parts > 1
  const simdgroups = Math.min(MOST_SIMDGROUPS, Math.ceil(k.shape[2] / parts / KEYS_EACH))
  const lines = sizeOf(q.shape.slice(0, 3))
  const own = { ...form, sinks: inParts ? null : form.sinks }
  const scratch = inParts
    ? [lines * parts * v.shape[3], lines * parts * 2].map((n) => ({
        storage: queue.allocate(4 * n),
        offset: 0,
      }))
    : []
  const results = inParts ? scratch : outputs
  queue.dispatch({
    op,
    kernel: {
      key: `attend ${inParts ? "parts " : ""}${JSON.stringify(own)}`,
      name: "attend",
      source: () => querySource(own, inParts),
    },
    arguments: [
      ...args,
      ...results,
      ...maskArguments(node, extras),
      ...(own.sinks === null ? [] : sinkArguments(node, extras)),
      Uint32Array.of(q.shape[1], k.shape[1], q.shape[2], k.shape[2], parts),
      Float32Array.of(node.params.scale as number),
    ],
    writes: results.map(({ storage }) => storage),
    grid: [lines * parts * simdgroups * 32, 1, 1],
    threadgroup: [simdgroups * 32, 1, 1],
  })
  if (!inParts) return
  const threads = Math.ceil(v.shape[3] / 32) * 32
  queue.dispatch({
    op,
    kernel: {
      key: `attend join ${form.type} ${form.wide} ${form.sinks}`,
      name: "attend_join",
      source: () => joinSource(form),
    },
    arguments: [
      ...scratch,
      ...outputs,
      Uint32Array.of(q.shape[1], q.shape[2], parts),
      ...sinkArguments(node, extras),
    ],
    writes: outputs.map(({ storage }) => storage),
    grid: [lines * threads, 1, 1],
    threadgroup: [threads, 1, 1],
  })
  for (const { storage } of scratch) storage.drop()
}

/** Adds `attend_sinks`. */
function dispatchSinks(
  queue: DispatchQueue,
  node: Node,
  sinks: Argument,
  lse: Argument,
  shares: Argument,
  output: Location,
): void {
  const [batch, heads, length] = node.inputs[0].shape
  const { shape, dtype } = sinksOf(node)
  const type = metalType(dtype) as string
  queue.dispatch({
    op: node.primitive?.name as string,
    kernel: { key: `attend sinks ${type}`, name: "attend_sinks", source: () => sinksSource(type) },
    arguments: [sinks, lse, shares, output, Uint32Array.of(heads, length, shape[0] === 1 ? batch : 1)],
    writes: [output.storage],
    grid: [sizeOf(shape) * 256, 1, 1],
    threadgroup: [256, 1, 1],
  })
}

/** Σ g·o of each query: the share of its probabilities in their own derivatives. Both are row-major, of a type in Metal. */
export function encodeShares(
  queue: DispatchQueue,
  op: string,
  type: string,
  o: Argument,
  g: Argument,
  queries: number,
  features: number,
): Location {
  const shares = { storage: queue.allocate(queries * 4), offset: 0 }
  queue.dispatch({
    op,
    kernel: { key: `attend shares ${type}`, name: "attend_shares", source: () => sharesSource(type) },
    arguments: [o, g, shares, Uint32Array.of(queries, features)],
    writes: [shares.storage],
    grid: [Math.ceil(queries / 8) * 256, 1, 1],
    threadgroup: [256, 1, 1],
  })
  return shares
}

/** Attention, by primitive. */
export const attention: Families = {
  scaledDotProductAttention: {
    supports,
    encode: (node, queue) =>
      withExtras(queue, node.inputs, (all) => {
        const outputs = (node.outputs as readonly Node[]).map(targetOf)
        if (isTiled(node) && node.inputs[0].shape[2] >= FEW_QUERIES)
          dispatchTiles(queue, node, "forward", all.slice(0, 3), extrasOf(node, all), outputs)
        else dispatchQueries(queue, node, all.slice(0, 3), extrasOf(node, all), outputs)
      }),
  },
  scaledDotProductAttentionVjp: {
    supports: (node) => {
      const [o, lse, g] = node.inputs.slice(-3)
      const [q] = node.inputs
      return (
        supports(node) &&
        isTiled(node) &&
        node.inputs.every((x) => sizeOf(x.shape) > 0) &&
        o.dtype === q.dtype &&
        g.dtype === q.dtype &&
        lse.dtype === float32
      )
    },
    encode: (node, queue) => {
      const [dq, dk, dv, dsinks] = (node.outputs as readonly Node[]).map(targetOf)
      withExtras(queue, node.inputs, (all) => {
        const [q, k, v] = all
        const [o, lse, g] = all.slice(-3)
        const extras = extrasOf(node, all)
        const queries = sizeOf(node.inputs[0].shape.slice(0, 3))
        const type = metalType(node.inputs[0].dtype) as string
        const op = node.primitive?.name as string
        const shares = encodeShares(queue, op, type, o, g, queries, node.inputs[2].shape[3])
        dispatchTiles(queue, node, "queries", [q, k, v, g, lse, shares], extras, [dq])
        dispatchTiles(queue, node, "keys", [q, k, v, g, lse, shares], extras, [dk, dv])
        if (extras.sinks) dispatchSinks(queue, node, extras.sinks, lse, shares, dsinks)
        shares.storage.drop()
      })
    },
  },
}
