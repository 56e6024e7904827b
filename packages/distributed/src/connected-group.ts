/**
 * A group of several processes: the operations of `mx.distributed` on it are primitives.
 */
import * as mx from "@lazuli/core"
import { checkSplit, type Exchange } from "@lazuli/core/engine"
import * as collectives from "./collectives"
import { awaitExchanges, type Communicator, closeGroup, numberOf } from "./communicators"

const REDUCTIONS: Record<string, "sum" | "max" | "min"> = { allSum: "sum", allMax: "max", allMin: "min" }

/** The group behind a communicator. */
export class ConnectedGroup extends mx.distributed.Group {
  /** The number by which primitives know it. */
  readonly number: number
  constructor(
    readonly communicator: Communicator,
    private readonly isPart = false,
  ) {
    super()
    this.number = numberOf(communicator)
  }
  override rank(): number {
    return this.communicator.rank
  }
  override size(): number {
    return this.communicator.size
  }
  override split(color: number, key = -1): mx.distributed.Group {
    checkSplit(color, key)
    awaitExchanges()
    return new ConnectedGroup(this.communicator.split(color, key), true)
  }
  override close(): void {
    if (this.isPart) closeGroup(this.number)
  }
  override exchange(
    x: mx.Array | null,
    { op, rank = 0, shape = [], dtype = mx.float32, structure = 0 }: Exchange,
  ): mx.Array {
    const group = this.number
    const { size } = this.communicator
    const derivative = 0
    const inputs = x === null ? [] : [x]
    const reduction = REDUCTIONS[op]
    if (reduction) return collectives.allReduce(inputs, { group, reduction, structure, derivative })
    const serial = collectives.nextSerial()
    switch (op) {
      case "sumGradients":
        return collectives.sumGradients(inputs, { group })
      case "allGather":
        return collectives.allGather(inputs, { group, size, derivative })
      case "sumScatter":
        return collectives.sumScatter(inputs, { group, size, derivative })
      case "allToAll":
        return collectives.allToAll(inputs, { group, size, derivative })
      case "broadcast":
        return collectives.broadcast(inputs, { group, root: rank, derivative })
      case "send":
        return collectives.send(inputs, { group, to: rank, serial })
      case "recv":
        return collectives.recv([], { group, from: rank, serial, shape, dtype })
      case "recvLike":
        return collectives.recvLike(inputs, { group, from: rank, serial })
      default:
        return collectives.barrier(inputs, { group, serial })
    }
  }
  override gatherParameters(parts: readonly mx.Array[]): mx.Array[] {
    return collectives.gatherParameters.all(parts, {
      group: this.number,
      size: this.communicator.size,
      derivative: 0,
    })
  }
}
