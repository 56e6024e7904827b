/**
 * The registry of backends: ways in which the processes of a job exchange data. `ring`, `shm` and `mpi` are the addon's, `nccl` that of a
 * GPU's; other packages add theirs.
 */
import { ArgumentError, RegistryError } from "@lazuli/core"
import type { DeviceCollectives } from "@lazuli/core/engine"
import { describe } from "@lazuli/core/plugin"
import { awaitExchanges, type Communicator, type NativeCommunicator, ofAddon, under } from "./communicators"
import { DeviceCommunicator, deviceCollectives } from "./device-communicators"
import type { JoinOptions } from "./native"
import { library, native } from "./native"

/** The job as backends see it. */
export type Job = Pick<JoinOptions, "rank" | "size" | "address" | "port" | "secret" | "limit" | "joinLimit">

/** A way to connect the processes of a job. */
export interface CommunicatorBackend {
  /** The name by which `init` and `--backend` know it. */
  readonly name: string
  /** True if it can be used on this machine. */
  isAvailable(): boolean
  /** Connects this process with the others of its job, which call it as well, and waits for them. */
  connect(job: Job): Communicator
}

const registry = new Map<string, CommunicatorBackend>()

/**
 * Adds a backend: `mx.distributed.init({ backend: name })` then connects by it. It is not among those that are chosen by themselves.
 * @throws RegistryError where the name is taken or the backend lacks a part
 * @example
 * const alone = { backend: 'alone', rank: 0, size: 1, run() {}, split: () => alone }
 * registerCommunicators({ name: 'alone', isAvailable: () => true, connect: () => alone })
 * communicatorBackends().includes('alone') // => true
 */
export function registerCommunicators(backend: CommunicatorBackend): void {
  const { name, isAvailable, connect } = (backend ?? {}) as Partial<CommunicatorBackend>
  if (typeof name !== "string" || typeof isAvailable !== "function" || typeof connect !== "function")
    throw new RegistryError(
      "registerCommunicators",
      `expected { name, isAvailable, connect }, received ${describe(backend)}`,
    )
  if (communicatorBackends().includes(name))
    throw new RegistryError("registerCommunicators", `there is already a backend "${name}"`)
  registry.set(name, backend)
}

const OWN = ["any", "ring", "shm", "mpi", "nccl"]

/**
 * The names of all backends, and `any`, which chooses.
 * @example
 * communicatorBackends().includes('ring') // => true
 */
export const communicatorBackends = (): readonly string[] => [...OWN, ...registry.keys()]

/** True if a backend can be used on this machine. */
export function isAvailable(backend: string): boolean {
  const added = registry.get(backend)
  if (added) return added.isAvailable()
  if (library === null || !OWN.includes(backend)) return false
  if (backend === "nccl") return deviceCollectives()?.isAvailable() ?? false
  if (backend === "shm") return process.platform === "linux"
  return backend !== "mpi" || native().hasMpi()
}

/** Requirements of ours, to be said where one cannot be used. */
const NEEDS: Readonly<Record<string, string>> = {
  nccl: 'It needs an NVIDIA GPU, NCCL, and an import of "@lazuli/backend-cuda"',
  mpi: "It needs Open MPI's library",
  shm: "It needs Linux",
}

/** The addon's group of all, once there is one. */
let joined: number | null = null
/** Forgets it. */
export const forgetJoined = (): void => {
  joined = null
}

/** Connects this process with the others of its job. */
export function connectBy(backend: string, job: JoinOptions): Communicator {
  const known = communicatorBackends()
  if (!known.includes(backend))
    throw new ArgumentError("init", `there is no backend "${backend}"`, {
      hint: `There are ${known.join(", ")}, and those that packages bring`,
    })
  const added = registry.get(backend)
  // Says what is missing where that is the addon, without which there is none of ours.
  if (library === null && !added) native()
  if (!isAvailable(backend))
    throw new ArgumentError("init", `the backend "${backend}" cannot be used on this machine`, {
      hint: NEEDS[backend],
    })
  if (added) return checkCommunicator(backend, added.connect(job))
  if (backend === "nccl") {
    const host = connectAddon("any", job)
    return host.size > 1 ? new DeviceCommunicator(host, deviceCollectives() as DeviceCollectives) : host
  }
  return connectAddon(backend, job)
}

function checkCommunicator(backend: string, given: Communicator): Communicator {
  const { rank, size, run, split } = (given ?? {}) as Partial<Communicator>
  if (Number.isInteger(rank) && Number.isInteger(size) && run && split) return given
  throw new RegistryError(
    "init",
    `expected { backend, rank, size, run, split } of the backend "${backend}", received ${describe(given)}`,
  )
}

const connectAddon = (backend: string, job: JoinOptions): NativeCommunicator =>
  under("init", () => {
    if (joined !== null) {
      awaitExchanges()
      return ofAddon(native().again(joined, backend))
    }
    joined = native().join(job, backend)
    return ofAddon(joined)
  })
