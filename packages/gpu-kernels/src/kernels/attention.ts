/**
 * Scaled dot-product attention and its derivative: which kernel takes which shapes.
 */
import { float32, type Node, sizeOf } from "@lazuli/core/engine"
import {
  type AttentionForm,
  MOST_SIMDGROUPS,
  querySource,
  sharesSource,
  TILE_ROWS,
  TILE_THREADS,
  type TileMode,
  tilesSource,
} from "../attention-source"
import type { Argument, DispatchQueue, Place } from "../dispatch"
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

const VECTOR = 16

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
    isCountable(node)
  )
}

const isTiled = ({ inputs: [q, , v] }: Node): boolean => Math.max(q.shape[3], v.shape[3]) <= TILED_FEATURES

function formOf(node: Node, places: readonly Argument[]): AttentionForm {
  const [q, , v, mask] = node.inputs
  const { causal, hasMask } = node.params as { causal: boolean; hasMask: boolean }
  const { size } = q.dtype
  const [features, wide] = [q.shape[3], v.shape[3]]
  const vectors =
    [features, wide].every((n) => (n * size) % VECTOR === 0) &&
    places.every((place) => !("storage" in place) || place.offset % VECTOR === 0)
  return {
    type: metalType(q.dtype) as string,
    size,
    features,
    wide,
    mask: hasMask ? (metalType(mask.dtype) as string) : null,
    causal,
    width: vectors ? VECTOR / size : 1,
  }
}

const maskArguments = (node: Node, mask: Argument | undefined): Argument[] =>
  mask ? [mask, Uint32Array.from([1, 1, 1, 1, ...node.inputs[3].shape].slice(-4))] : []

/** Adds `attend_tiles`. */
function dispatchTiles(
  queue: DispatchQueue,
  node: Node,
  mode: TileMode,
  args: readonly Argument[],
  mask: Argument | undefined,
  outputs: readonly Place[],
): void {
  const [q, k] = node.inputs
  const kept = mode === "keys" ? k : q
  const blocks = Math.ceil(kept.shape[2] / TILE_ROWS)
  const groups = kept.shape[0] * kept.shape[1] * blocks
  const form = formOf(node, args)
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
      ...maskArguments(node, mask),
      Uint32Array.of(q.shape[1], k.shape[1], q.shape[2], k.shape[2], blocks),
      Float32Array.of(node.params.scale as number),
    ],
    writes: outputs.map(({ storage }) => storage),
    grid: [groups * TILE_THREADS, 1, 1],
    threadgroup: [TILE_THREADS, 1, 1],
  })
}

/** Adds `attend`. */
function dispatchQueries(
  queue: DispatchQueue,
  node: Node,
  args: readonly Argument[],
  mask: Argument | undefined,
  outputs: readonly Place[],
): void {
  const [q, k] = node.inputs
  const form = { ...formOf(node, args), width: 1 }
  const simdgroups = Math.min(MOST_SIMDGROUPS, Math.ceil(k.shape[2] / KEYS_EACH))
  queue.dispatch({
    op: node.primitive?.name as string,
    kernel: { key: `attend ${JSON.stringify(form)}`, name: "attend", source: () => querySource(form) },
    arguments: [
      ...args,
      ...outputs,
      ...maskArguments(node, mask),
      Uint32Array.of(q.shape[1], k.shape[1], q.shape[2], k.shape[2]),
      Float32Array.of(node.params.scale as number),
    ],
    writes: outputs.map(({ storage }) => storage),
    grid: [sizeOf(q.shape.slice(0, 3)) * simdgroups * 32, 1, 1],
    threadgroup: [simdgroups * 32, 1, 1],
  })
}

/** Attention, by primitive. */
export const attention: Families = {
  scaledDotProductAttention: {
    supports,
    encode: (node, queue) =>
      withExtras(queue, node.inputs, ([q, k, v, mask]) => {
        const outputs = (node.outputs as readonly Node[]).map(targetOf)
        if (isTiled(node) && node.inputs[0].shape[2] >= FEW_QUERIES)
          dispatchTiles(queue, node, "forward", [q, k, v], mask, outputs)
        else dispatchQueries(queue, node, [q, k, v], mask, outputs)
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
      const { hasMask } = node.params as { hasMask: boolean }
      const [dq, dk, dv] = (node.outputs as readonly Node[]).map(targetOf)
      withExtras(queue, node.inputs, (all) => {
        const [q, k, v] = all
        const [o, lse, g] = all.slice(-3)
        const mask = hasMask ? all[3] : undefined
        const queries = sizeOf(node.inputs[0].shape.slice(0, 3))
        const type = metalType(node.inputs[0].dtype) as string
        const shares = { storage: queue.allocate(queries * 4), offset: 0 }
        queue.dispatch({
          op: node.primitive?.name as string,
          kernel: { key: `attend shares ${type}`, name: "attend_shares", source: () => sharesSource(type) },
          arguments: [o, g, shares, Uint32Array.of(queries, node.inputs[2].shape[3])],
          writes: [shares.storage],
          grid: [Math.ceil(queries / 8) * 256, 1, 1],
          threadgroup: [256, 1, 1],
        })
        dispatchTiles(queue, node, "queries", [q, k, v, g, lse, shares], mask, [dq])
        dispatchTiles(queue, node, "keys", [q, k, v, g, lse, shares], mask, [dk, dv])
        shares.storage.drop()
      })
    },
  },
}
