/**
 * A backend whose memory the host does not see, as a graphics card has it: bytes go there and back by counted uploads and downloads
 * alone. Its kernels are the reference's, on its own bytes; it records plans.
 */
import {
  type Backend,
  DeviceError,
  type Encoder,
  listBackends,
  type Memory,
  Node,
  type Plan,
  Storage,
} from "@lazuli/core/engine"

/** Transfers between the host and the device since the backend was made. */
export interface Transfers {
  uploads: number
  downloads: number
}

/** The backend, its transfers, and the bytes in use. */
export interface DiscreteBackend extends Backend {
  readonly transfers: Transfers
}

/** Where a plan finds an operand: a binding, and a node that lies there. */
interface Operand {
  readonly node: Node
  readonly binding: number
  readonly offset: number
}
interface Step {
  readonly inputs: readonly Operand[]
  readonly outputs: readonly Operand[]
  run(): void
}
interface Recorded {
  readonly steps: readonly Step[]
  readonly arenaBytes: number
}

export function discreteBackend(
  name: string,
  limit = Number.POSITIVE_INFINITY,
  device: Backend["device"] = "gpu",
): DiscreteBackend {
  const reference = listBackends().find((backend) => backend.name === "reference") as Backend
  const buffers = new Map<number, ArrayBuffer>()
  const transfers: Transfers = { uploads: 0, downloads: 0 }
  const plans = new Map<number, Recorded>()
  let recording: Step[] | null = null
  let [ids, planIds, active, peak] = [0, 0, 0, 0]
  let bound = limit

  const bytesOf = (storage: Storage): ArrayBuffer => {
    const bytes = buffers.get(storage.id)
    if (bytes === undefined) throw new Error(`buffer ${storage.id} was released`)
    return bytes
  }
  /** Bytes of the device, as the reference sees bytes. */
  const shown = (bytes: ArrayBuffer): Storage => new Storage(reference.memory, 0, bytes.byteLength, bytes)

  const take = (nbytes: number): void => {
    if (active + nbytes > bound)
      throw new DeviceError(name, `no room for ${nbytes} bytes: ${active} of ${bound} are in use`)
    active += nbytes
    peak = Math.max(peak, active)
  }

  const memory: Memory = {
    name,
    allocate(nbytes) {
      take(nbytes)
      const storage = new Storage(memory, ++ids, nbytes)
      buffers.set(storage.id, new ArrayBuffer(nbytes))
      return storage
    },
    release(storage) {
      if (buffers.delete(storage.id)) active -= storage.nbytes
    },
    read(storage, byteOffset, into) {
      if (storage.failure) throw storage.failure
      transfers.downloads++
      const target = new Uint8Array(into.buffer, into.byteOffset, into.byteLength)
      target.set(new Uint8Array(bytesOf(storage), byteOffset, into.byteLength))
    },
    write(storage, byteOffset, from) {
      transfers.uploads++
      const source = new Uint8Array(from.buffer, from.byteOffset, from.byteLength)
      new Uint8Array(bytesOf(storage)).set(source, byteOffset)
    },
    stats: () => ({ active, peak, cache: 0, buffers: buffers.size, limit: bound }),
    setLimit(bytes) {
      bound = bytes
    },
    resetPeak() {
      peak = active
    },
  }

  /** Runs `body` while the nodes show the device's bytes to the reference. */
  const onDevice = (nodes: readonly Node[], body: () => void): void => {
    const own = new Map<Node, Storage>()
    for (const node of nodes) if (node.storage !== null) own.set(node, node.storage)
    for (const [node, storage] of own) node.storage = shown(bytesOf(storage))
    try {
      body()
    } finally {
      for (const [node, storage] of own) node.storage = storage
    }
  }

  /** Remembers work with stand-ins for its nodes, which are bound when it runs. */
  const record = (
    application: Node,
    inputs: readonly Node[],
    outputs: readonly Node[],
    run: (application: Node) => void,
  ): void => {
    const standIns = (nodes: readonly Node[], operands: Operand[]): Node[] =>
      nodes.map((node) => standIn(node, operands))
    const standIn = (node: Node, operands: Operand[]): Node => {
      if (node.storage === null) return node
      const { shape, dtype, stream } = node
      const copy = new Node(shape, dtype, null, [], {}, stream, 0)
      copy.strides = node.strides
      operands.push({ node: copy, binding: node.storage.id, offset: node.offset })
      return copy
    }
    const step = { inputs: [] as Operand[], outputs: [] as Operand[] }
    const read = standIns(inputs, step.inputs)
    const made = standIns(outputs, step.outputs)
    const [first] = made
    first.primitive = application.primitive
    first.params = application.params
    first.inputs = read
    first.outputs = application.outputs === null ? null : made
    recording?.push({ ...step, run: () => run(first) })
  }

  const runReference = (node: Node): void => {
    reference.queue.lower(node)?.encode(node)
    for (const { storage } of node.outputs ?? [node]) if (storage?.failure) throw storage.failure
  }

  const encoder: Encoder = {
    encode(node) {
      const outputs = node.outputs ?? [node]
      if (recording !== null) record(node, node.inputs, outputs, runReference)
      else onDevice([...node.inputs, ...outputs], () => runReference(node))
    },
  }

  return {
    name,
    device,
    priority: 1,
    transfers,
    memory,
    queue: {
      lower: (node) => (reference.queue.lower(node) === null ? null : encoder),
      encodeCopy(source, target) {
        const copy = (to: Node, from: Node): void => reference.queue.encodeCopy(from, to)
        if (recording !== null) record(target, [source], [target], (made) => copy(made, made.inputs[0]))
        else onDevice([source, target], () => copy(target, source))
      },
      flush() {},
    },
    plans: {
      record(_inputs, _outputs, arenaBytes, body): Plan {
        const steps: Step[] = []
        recording = steps
        try {
          body()
        } finally {
          recording = null
        }
        plans.set(++planIds, { steps, arenaBytes })
        return { id: planIds }
      },
      encode(plan, node) {
        const { steps, arenaBytes } = plans.get(plan.id) as Recorded
        const bound = [...node.inputs, ...(node.outputs ?? [node])].map((each) => ({
          bytes: bytesOf(each.storage as Storage),
          byteOffset: each.offset * each.dtype.size,
        }))
        take(arenaBytes)
        const arena = { bytes: new ArrayBuffer(arenaBytes), byteOffset: 0 }
        for (const { inputs, outputs, run } of steps) {
          for (const { node, binding, offset } of inputs) {
            const { bytes, byteOffset } = bound[binding] ?? arena
            node.storage = shown(bytes)
            node.offset = offset + byteOffset / node.dtype.size
          }
          // The reference writes from the start of a storage.
          for (const { node } of outputs) node.storage = shown(new ArrayBuffer(node.nbytes))
          run()
          for (const { node, binding, offset } of outputs) {
            const { bytes, byteOffset } = bound[binding] ?? arena
            const made = new Uint8Array(node.storage?.bytes as ArrayBuffer)
            new Uint8Array(bytes).set(made, byteOffset + offset * node.dtype.size)
          }
        }
        active -= arenaBytes
      },
      release: (plan) => {
        plans.delete(plan.id)
      },
    },
  }
}
