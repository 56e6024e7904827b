/**
 * Attention: of a few queries as few-queries.ts says, otherwise of 16-bit floats by cuDNN where that takes an application, with its
 * derivative, or else on tensor cores by kernels of CUDA's own: kernels/attention-groups.cu for results without a mask and for derivatives
 * on Hopper, kernels/attention.cu for other results, and kernels/attention-tiles.cu for derivatives elsewhere, and for float32. More
 * features, sinks and older GPUs are served by the kernels of gpu-kernels, and so are derivatives with masks.
 */
import {
  broadcastStrides,
  contiguousStrides,
  determinism,
  float32,
  type Node,
  type Primitive,
  type Storage,
  sizeOf,
} from "@lazuli/core/engine"
import {
  type Argument,
  type DispatchQueue,
  encodeShares,
  type Families,
  type Family,
  familyOf,
  isCountable,
  type Location,
  locationOf,
  metalType,
  type View,
  viewOf,
  withRowMajor,
} from "@lazuli/gpu-kernels"
import { encodeFewQueries, isOfFewQueries } from "./few-queries"
import { encodeGraph, graphFinder, isAligned, operandsOf, type Prepare } from "./graph-attention"
import { nativeSource, TYPE_DEFINITIONS } from "./native-source"
import { aroundNewToken } from "./new-token"

/** As the kernel has them. */
const QUERIES = 128
const KEYS = 64
const THREADS = 128
const MOST_FEATURES = 128
/** Elements of 16 bytes, in which rows are read. */
const CHUNK = 8
const MOST_HEADS = 65535

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
    body(view, locationOf(view))
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
    TYPE_DEFINITIONS[q.dtype.name],
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
          extra.push(locationOf(view))
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

/** Rows that a block of kernels/attention-tiles.cu keeps, elements from one to the next, and its most features. */
const TILE_ROWS = 64
const pitchOf = (features: number): number => (features <= 64 ? 68 : 132)
const TILE_FEATURES = 128
/** Bytes of a block of kernels/attention-tiles.cu: of the derivatives of keys also two numbers of each query. */
const tileBytes = (mode: number, features: number): number =>
  4 * TILE_ROWS * ((mode === 0 ? 3 : 4) * pitchOf(features) + (mode === 2 ? 2 : 0))

/** Rows and threads of a block of kernels/attention-groups.cu. */
const GROUP_ROWS = 128
const GROUP_THREADS = 256
const STAGES = 3
/** Its own matrices, those that come with numbers of their rows, and bytes up to a multiple of 1,024. */
const groupBytes = (mode: number, features: number): number =>
  2 * ((mode === 0 ? 1 : 2) * GROUP_ROWS + STAGES * 2 * TILE_ROWS) * (features <= 64 ? 64 : 128) +
  (mode === 2 ? 4 * STAGES * 2 * TILE_ROWS : 0) +
  1024

/** Fewer queries have kernels of their own. */
const MANY_QUERIES = 16

/** True of attention without a mask of its own, of float32, or the derivative of any type, where a block has so many bytes. */
function takesTiles(node: Node, backward: boolean, bytes: () => number): boolean {
  const [q, k, v] = node.inputs
  const { scale, hasMask, hasSinks } = node.params
  const operands = operandsOf(node, backward)
  const features = q.shape[3]
  return (
    Object.hasOwn(TYPE_DEFINITIONS, q.dtype.name) &&
    // Maxima are of the scores before the factor.
    (backward || (q.dtype === float32 && q.shape[2] >= MANY_QUERIES && (scale as number) > 0)) &&
    operands.every((each) => each.dtype === q.dtype && sizeOf(each.shape) > 0 && each.offset % CHUNK === 0) &&
    (!backward || node.inputs[node.inputs.length - 2].dtype === float32) &&
    features === v.shape[3] &&
    features % CHUNK === 0 &&
    features <= TILE_FEATURES &&
    q.shape[0] * Math.max(q.shape[1], k.shape[1]) <= MOST_HEADS &&
    !hasMask &&
    !hasSinks &&
    isCountable(node) &&
    tileBytes(backward ? 2 : 0, features) <= bytes()
  )
}

/** `inGroups` tells to use the kernel for products of groups of warps. */
function encodeTiles(node: Node, queue: DispatchQueue, backward: boolean, inGroups: boolean): void {
  const [q, k, v] = node.inputs
  const op = node.primitive?.name as string
  const { scale, causal } = node.params as { scale: number; causal: boolean }
  const [batch, heads, queries, features] = q.shape
  const [, keyHeads, keys] = k.shape
  const outputs = (node.outputs as readonly Node[]).map(({ storage, offset, dtype }) => ({
    storage: storage as Storage,
    offset: offset * dtype.size,
  }))
  const dispatch = (
    mode: number,
    inputs: readonly Location[],
    views: readonly View[],
    written: readonly Location[],
  ): void => {
    const words = [
      `#define LZ_FEATURES ${features}`,
      `#define LZ_CAUSAL ${Number(causal)}`,
      `#define LZ_MODE ${mode}`,
      TYPE_DEFINITIONS[q.dtype.name],
    ].join("\n")
    const [qs, ks, vs, gs = qs] = views.map(({ strides }) => strides.slice(0, 3))
    const layout = [...qs, ...ks, ...vs, ...gs, heads, heads / keyHeads, queries, keys]
    const blocks = Math.ceil((mode === 2 ? keys : queries) / (inGroups ? GROUP_ROWS : TILE_ROWS))
    const threads = inGroups ? GROUP_THREADS : THREADS
    const file = inGroups ? "attention-groups.cu" : "attention-tiles.cu"
    queue.dispatch({
      op,
      kernel: {
        key: `cuda ${file} ${words}`,
        name: "attend",
        source: () => nativeSource(file, words),
        isNative: true,
      },
      arguments: [...inputs, ...written, BigInt64Array.from(layout, BigInt), Float32Array.of(scale)],
      writes: written.map(({ storage }) => storage),
      grid: [blocks * threads, batch * (mode === 2 ? keyHeads : heads), 1],
      threadgroup: [threads, 1, 1],
      threadgroupMemory: [inGroups ? groupBytes(mode, features) : tileBytes(mode, features)],
    })
  }
  aligned(queue, viewOf(q), (qs, a) =>
    aligned(queue, viewOf(k), (ks, b) =>
      aligned(queue, viewOf(v), (vs, c) => {
        if (!backward) {
          dispatch(0, [a, b, c], [qs, ks, vs], outputs)
          return
        }
        const [o, sums, g] = node.inputs.slice(-3).map(viewOf)
        withRowMajor(queue, o, (from) =>
          withRowMajor(queue, g, (slopes) =>
            withRowMajor(queue, sums, (lse) => {
              const type = metalType(q.dtype) as string
              const shares = encodeShares(queue, op, type, from, slopes, batch * heads * queries, features)
              const gs = { ...g, strides: contiguousStrides(g.shape) }
              const inputs = [a, b, c, slopes, lse, shares]
              dispatch(1, inputs, [qs, ks, vs, gs], outputs.slice(0, 1))
              dispatch(2, inputs, [qs, ks, vs, gs], outputs.slice(1, 3))
              shares.storage.drop()
            }),
          ),
        )
      }),
    ),
  )
}

/** A GPU as attention asks about it. */
export interface AttentionFacts {
  /** Tensor cores of Ampere or later. */
  isModern(): boolean
  /** Those of Hopper, and the compiler without which its instructions are not to be had. */
  hasGroups(): boolean
  /** Shared memory of a block. */
  bytes(): number
}

/** The families; `library` prepares a graph, or is null where cuDNN is not there. */
export function attentionFamilies(
  { isModern, hasGroups, bytes }: AttentionFacts,
  library: () => Prepare | null,
): Families {
  const graphOf = graphFinder(library)
  /** The library adds up the derivatives of queries in any order. */
  const derivativeOf = (node: Node): ReturnType<typeof graphOf> =>
    determinism.isAsked ? null : graphOf(node, true)
  const fewOf = (node: Node): boolean => isOfFewQueries(node) && isModern()
  const ownOf = (node: Node): boolean => takes(node) && isModern()
  const groupsOf = (node: Node): boolean => !node.params.hasMask && hasGroups() && takes(node)
  const tilesOf = (node: Node, backward: boolean): boolean => takesTiles(node, backward, bytes) && isModern()
  const rest = (node: Node): Family => familyOf(node.primitive as Primitive) as Family
  return {
    scaledDotProductAttention: {
      supports: (node) => fewOf(node) || graphOf(node, false) !== null || ownOf(node) || tilesOf(node, false),
      encode(node, queue) {
        const isFew = fewOf(node)
        const graph = isFew ? null : graphOf(node, false)
        if (isFew) encodeFewQueries(node, queue)
        else if (graph !== null) encodeGraph(node, queue, graph, false)
        else if (groupsOf(node)) encodeTiles(node, queue, false, true)
        else if (ownOf(node)) encode(node, queue)
        else if (tilesOf(node, false)) encodeTiles(node, queue, false, false)
        else rest(node).encode(node, queue)
      },
      around: (members, inner) => (hasGroups() ? aroundNewToken(members, inner) : null),
    },
    scaledDotProductAttentionVjp: {
      supports: (node) => derivativeOf(node) !== null || tilesOf(node, true),
      encode(node, queue) {
        const graph = derivativeOf(node)
        if (graph !== null) encodeGraph(node, queue, graph, true)
        else if (tilesOf(node, true))
          encodeTiles(node, queue, true, node.inputs[0].dtype !== float32 && hasGroups())
        else rest(node).encode(node, queue)
      },
    },
  }
}
