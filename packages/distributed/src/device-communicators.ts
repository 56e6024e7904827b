/**
 * Processes that each have a GPU, by the collectives of its own: NCCL on NVIDIA's. They find each other by a group of the addon, which also
 * serves arrays on the CPU and what the GPU's library does not do, and tells who has failed.
 */
import { uint8 } from "@lazuli/core"
import { backendFor, type DeviceCollectives, gpu, listBackends } from "@lazuli/core/engine"
import { type Communicator, type NativeCommunicator, numberOf, under, type Work } from "./communicators"

/** The collectives of the GPU; null where it has none, or there is no backend for it. */
export const deviceCollectives = (): DeviceCollectives | null =>
  listBackends().some(({ device }) => device === "gpu") ? (backendFor(gpu).collectives ?? null) : null

let hasJoined = false

/** Tells the GPU that this process leaves the job. */
export function leaveDevices(): void {
  if (hasJoined) deviceCollectives()?.leave()
  hasJoined = false
}

/** Members on GPUs; `host` connects the same processes. */
export class DeviceCommunicator implements Communicator {
  readonly backend: string
  readonly rank: number
  readonly size: number
  constructor(
    private readonly host: NativeCommunicator,
    private readonly collectives: DeviceCollectives,
  ) {
    this.backend = collectives.name
    this.rank = host.rank
    this.size = host.size
    const id = this.rank === 0 ? collectives.newId() : new Uint8Array(128)
    const known = new Uint8Array(id.length)
    under("init", () => {
      host.run({
        kind: "broadcast",
        reduction: "sum",
        dtype: uint8,
        input: id,
        output: known,
        count: id.length,
        peer: 0,
        name: "init",
        shape: 0,
        structure: 0,
        derivative: 0,
      })
      collectives.join(numberOf(this), known, this.rank, this.size, host.watch)
      hasJoined = true
    })
  }
  run(work: Work): void {
    this.host.run(work)
  }
  split(color: number, key: number): Communicator {
    const host = this.host.split(color, key)
    return host.size > 1 ? new DeviceCommunicator(host, this.collectives) : host
  }
  /** The GPU's communicator stays until the process leaves the job: work on the device may still use it. */
  close(): void {
    this.host.close()
  }
}
