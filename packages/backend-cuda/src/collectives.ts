/**
 * Operations among processes that each have a GPU, by NCCL: which applications of `mx.distributed`'s primitives it takes. The others run on
 * the host.
 */
import type { DeviceCollectives, Node, Primitive, Storage } from "@lazuli/core/engine"
import {
  type DispatchQueue,
  encodeCopy,
  type Families,
  type Family,
  type Location,
  MAX_BUFFER_INDEX,
  viewOf,
  withAllRowMajor,
  withRowMajor,
} from "@lazuli/gpu-kernels"
import type { CudaRuntime } from "./runtime"

/** The command's code; native/cuda/device.cc has the same. */
const COLLECTIVE = 34

/** The operations; native/cuda/collectives.h has the same. */
enum Kind {
  AllReduce = 0,
  AllGather = 1,
  SumScatter = 2,
  Broadcast = 3,
  AllToAll = 4,
  Send = 5,
  Receive = 6,
}

/** `ncclDataType_t` by dtype. */
const TYPES: Readonly<Record<string, number>> = {
  int8: 0,
  uint8: 1,
  int32: 2,
  uint32: 3,
  int64: 4,
  uint64: 5,
  float16: 6,
  float32: 7,
  float64: 8,
  bfloat16: 9,
}
const BYTES = 0
/** `ncclRedOp_t`. */
const REDUCTIONS = { sum: 0, max: 2, min: 3 }

interface Params {
  readonly group: number
  readonly reduction?: keyof typeof REDUCTIONS
  readonly structure?: number
  readonly derivative?: number
  readonly root?: number
  readonly to?: number
  readonly from?: number
}
const paramsOf = (node: Node): Params => node.params as unknown as Params

const COMBINATIONS = { sum: "allSum", max: "allMax", min: "allMin" }
/** Those of several arrays, as the same operation on each. */
const OF_SEVERAL: Readonly<Record<string, string>> = {
  gatherParameters: "allGather",
  scatterGradients: "sumScatter",
}
const PACKAGE = "@lazuli/distributed/"
/** The operation as users know it. */
function publicName(node: Node): string {
  const { reduction } = paramsOf(node)
  if (reduction) return COMBINATIONS[reduction]
  const name = (node.primitive as Primitive).name.slice(PACKAGE.length)
  return OF_SEVERAL[name] ?? name
}

/** The root, the destination or the source. */
function peerOf(node: Node, kind: Kind): number {
  const { root = 0, to = 0, from = 0 } = paramsOf(node)
  return kind === Kind.Broadcast ? root : kind === Kind.Send ? to : kind === Kind.Receive ? from : 0
}

/** A number that is equal for equal facts. */
const numberOf = (facts: readonly number[]): number =>
  facts.reduce((hash, fact) => Math.imul(hash ^ fact, 16777619) >>> 0, 2166136261)

/** Elements as NCCL has them. */
type Elements = readonly [type: number, count: number]

/** An array of an operation, which may have several. */
interface Part {
  readonly elements: Elements
  /** The array as users know it. */
  readonly about: Node
  readonly from: Location
  readonly to: Location
}
/** Words of a call before those of its parts; native/cuda/collectives.h has the same. */
const HEAD = 4
/** Those of one call at most: each takes two buffers. */
const MOST_PARTS = Math.floor((MAX_BUFFER_INDEX + 1) / 2)

/** Elements as NCCL adds them up; null where it does not, or not as other backends do: it loses NaN among the larger elements. */
function addedAs({ dtype, size }: Node, reduction: keyof typeof REDUCTIONS): Elements | null {
  if (reduction === "sum" && dtype.name === "complex64") return [TYPES.float32, 2 * size]
  const type = TYPES[dtype.name]
  if (type === undefined || (reduction !== "sum" && type > TYPES.uint64)) return null
  return [type, size]
}

/** The families of the primitives, and the way in which `@lazuli/distributed` connects processes. */
export function collectivesOf(runtime: CudaRuntime): { families: Families; collectives: DeviceCollectives } {
  /** The addon's communicators by the numbers of groups. */
  const communicators = new Map<number, { readonly number: number; readonly rank: number }>()

  function call(queue: DispatchQueue, node: Node, kind: Kind, parts: readonly Part[], op = 0): void {
    const full = parts.filter(({ elements }) => elements[1] > 0)
    const name = publicName(node)
    const { number, rank } = communicators.get(paramsOf(node).group) as { number: number; rank: number }
    const peer = peerOf(node, kind)
    const between =
      kind === Kind.Send ? { from: rank, to: peer } : kind === Kind.Receive ? { from: peer, to: rank } : {}
    // A broadcast has a root, gradients a structure.
    const { structure = 0, derivative = 0 } = paramsOf(node)
    const detail = kind === Kind.Broadcast ? peer : structure
    const facts = [Math.min(kind, Kind.Send), op, detail, derivative]
    for (let i = 0; i < full.length; i += MOST_PARTS) {
      const some = full.slice(i, i + MOST_PARTS)
      const words = new Int32Array(HEAD + 3 * some.length)
      words[0] = number
      words[1] = kind
      words[2] = op
      words[3] = peer
      let at = HEAD
      for (const { elements } of some) {
        const [type, count] = elements
        words[at++] = type
        words[at++] = count
        words[at++] = Math.floor(count / 2 ** 32)
      }
      queue.call({
        op: node.primitive?.name as string,
        code: COLLECTIVE,
        words,
        arguments: some.flatMap(({ from, to }) => [from, to]),
        writes: kind === Kind.Send ? [] : some.map(({ to }) => to.storage),
        isBeside: true,
        exchange: {
          group: number,
          name,
          // Both sides of a message are the same operation.
          operations: some.map(({ elements, about }) =>
            numberOf([...facts, ...elements, about.dtype.code, ...about.shape]),
          ),
          ...between,
        },
      })
    }
  }
  const targetOf = (node: Node): Location => ({
    storage: node.storage as Storage,
    offset: node.offset * node.dtype.size,
  })
  const isOurs = (node: Node): boolean => communicators.has(paramsOf(node).group)

  const outputsOf = (node: Node): readonly Node[] => node.outputs ?? [node]

  /** Operations on the elements of each input. */
  const each = (
    kind: Kind,
    elementsOf: (input: Node, node: Node) => Elements | null,
    reductionOf: (node: Node) => keyof typeof REDUCTIONS = () => "sum",
  ): Family => ({
    supports: (node) => isOurs(node) && node.inputs.every((input) => elementsOf(input, node) !== null),
    encode: (node, queue) =>
      withAllRowMajor(queue, node.inputs, (from) => {
        const parts = outputsOf(node).map((output, i) => ({
          elements: elementsOf(node.inputs[i], node) as Elements,
          about: node.inputs[i],
          from: from[i],
          to: targetOf(output),
        }))
        call(queue, node, kind, parts, REDUCTIONS[reductionOf(node)])
      }),
  })
  const bytesOf = ({ nbytes }: Node): Elements => [BYTES, nbytes]
  const moving = (kind: Kind): Family => each(kind, bytesOf)
  const adding = (kind: Kind, reductionOf: (node: Node) => keyof typeof REDUCTIONS): Family =>
    each(kind, (input, node) => addedAs(input, reductionOf(node)), reductionOf)
  const receiving: Family = {
    supports: isOurs,
    encode: (node, queue) => {
      const to = targetOf(node)
      call(queue, node, Kind.Receive, [{ elements: bytesOf(node), about: node, from: to, to }])
    },
  }
  const sending: Family = {
    supports: isOurs,
    encode: (node, queue) =>
      withRowMajor(queue, viewOf(node.inputs[0]), (from) => {
        call(queue, node, Kind.Send, [{ elements: bytesOf(node), about: node, from, to: from }])
        if (node.size > 0) encodeCopy(queue, viewOf(node.inputs[0]), targetOf(node))
      }),
  }
  const named = (families: Families): Families =>
    Object.fromEntries(
      // Each is counted, so that members find out that they call different ones.
      Object.entries(families).map(([name, family]) => [
        `${PACKAGE}${name}`,
        { ...family, isOnce: () => true, isExchange: true },
      ]),
    )
  return {
    families: named({
      allReduce: {
        ...adding(Kind.AllReduce, (node) => paramsOf(node).reduction as keyof typeof REDUCTIONS),
        overwrites: () => [0],
      },
      sumScatter: adding(Kind.SumScatter, () => "sum"),
      scatterGradients: adding(Kind.SumScatter, () => "sum"),
      allGather: moving(Kind.AllGather),
      gatherParameters: moving(Kind.AllGather),
      broadcast: moving(Kind.Broadcast),
      allToAll: moving(Kind.AllToAll),
      send: sending,
      recv: receiving,
      recvLike: receiving,
    }),
    collectives: {
      name: "nccl",
      isAvailable: () => runtime.hasCollectives,
      newId: () => runtime.newCollectiveId(),
      join(group, id, rank, size, watch) {
        communicators.set(group, { number: runtime.joinCollectives(id, rank, size, watch), rank })
      },
      leave() {
        communicators.clear()
        runtime.leaveCollectives()
      },
    },
  }
}
