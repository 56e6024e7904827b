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
  viewOf,
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
  readonly root?: number
  readonly to?: number
  readonly from?: number
}
const paramsOf = (node: Node): Params => node.params as unknown as Params

/** The operation as users know it. */
function publicName(node: Node): string {
  const { name } = node.primitive as Primitive
  const { reduction } = paramsOf(node)
  return reduction
    ? { sum: "allSum", max: "allMax", min: "allMin" }[reduction]
    : name.replace("@lazuli/distributed/", "")
}

/** Elements as NCCL adds them up; null where it does not, or not as other backends do: it loses NaN among the larger elements. */
function addedAs(
  { dtype, size }: Node,
  reduction: keyof typeof REDUCTIONS,
): [type: number, count: number] | null {
  if (reduction === "sum" && dtype.name === "complex64") return [TYPES.float32, 2 * size]
  const type = TYPES[dtype.name]
  if (type === undefined || (reduction !== "sum" && type > TYPES.uint64)) return null
  return [type, size]
}

/** The families of the primitives, and the way in which `@lazuli/distributed` connects processes. */
export function collectivesOf(runtime: CudaRuntime): { families: Families; collectives: DeviceCollectives } {
  /** The addon's communicators by the numbers of groups. */
  const communicators = new Map<number, number>()

  function call(
    queue: DispatchQueue,
    node: Node,
    kind: Kind,
    [type, count]: readonly [number, number],
    from: Location,
    to: Location,
    op = 0,
  ): void {
    if (node.size === 0 && kind !== Kind.SumScatter) return
    const { group, root = 0, to: target = 0, from: source = 0 } = paramsOf(node)
    const peer = { [Kind.Broadcast]: root, [Kind.Send]: target, [Kind.Receive]: source }[kind as number] ?? 0
    const communicator = communicators.get(group) as number
    runtime.noteCollective(publicName(node), [kind, type, op, count])
    queue.call({
      op: node.primitive?.name as string,
      code: COLLECTIVE,
      words: Int32Array.of(communicator, kind, type, op, peer, count >>> 0, Math.floor(count / 2 ** 32)),
      arguments: [from, to],
      writes: kind === Kind.Send ? [] : [to.storage],
      isBeside: true,
    })
  }
  const targetOf = (node: Node): Location => ({
    storage: node.storage as Storage,
    offset: node.offset * node.dtype.size,
  })
  const isOurs = (node: Node): boolean => communicators.has(paramsOf(node).group)

  /** Operations that move elements, whatever these are. */
  const moving = (kind: Kind): Family => ({
    supports: isOurs,
    encode: (node, queue) =>
      withRowMajor(queue, viewOf(node.inputs[0]), (from) =>
        call(queue, node, kind, [BYTES, node.inputs[0].nbytes], from, targetOf(node)),
      ),
  })
  const adding = (kind: Kind, reductionOf: (node: Node) => keyof typeof REDUCTIONS): Family => ({
    supports: (node) => isOurs(node) && addedAs(node.inputs[0], reductionOf(node)) !== null,
    encode(node, queue) {
      const reduction = reductionOf(node)
      const elements = addedAs(node.inputs[0], reduction) as [number, number]
      withRowMajor(queue, viewOf(node.inputs[0]), (from) =>
        call(queue, node, kind, elements, from, targetOf(node), REDUCTIONS[reduction]),
      )
    },
  })
  const receiving: Family = {
    supports: isOurs,
    encode: (node, queue) =>
      call(queue, node, Kind.Receive, [BYTES, node.nbytes], targetOf(node), targetOf(node)),
  }
  const sending: Family = {
    supports: isOurs,
    encode: (node, queue) =>
      withRowMajor(queue, viewOf(node.inputs[0]), (from) => {
        call(queue, node, Kind.Send, [BYTES, node.nbytes], from, from)
        if (node.size > 0) encodeCopy(queue, viewOf(node.inputs[0]), targetOf(node))
      }),
  }
  const named = (families: Families): Families =>
    Object.fromEntries(
      // Each is counted, so that members find out that they call different ones.
      Object.entries(families).map(([name, each]) => [
        `@lazuli/distributed/${name}`,
        { ...each, isOnce: () => true, isExchange: true },
      ]),
    )
  return {
    families: named({
      allReduce: {
        ...adding(Kind.AllReduce, (node) => paramsOf(node).reduction as keyof typeof REDUCTIONS),
        overwrites: () => [0],
      },
      sumScatter: adding(Kind.SumScatter, () => "sum"),
      allGather: moving(Kind.AllGather),
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
      join(group, id, rank, size, check) {
        communicators.set(group, runtime.joinCollectives(id, rank, size, check))
      },
      leave() {
        communicators.clear()
        runtime.leaveCollectives()
      },
    },
  }
}
