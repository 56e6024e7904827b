/**
 * The native addon: where it is found, and the type of its functions. The CPU backend loads the same file for its kernels.
 */
import { DeviceError } from "@lazuli/core"
import { binaryCure, PLATFORM } from "@lazuli/core/engine"

const { existsSync } = process.getBuiltinModule("node:fs")
const { createRequire } = process.getBuiltinModule("node:module")
const { fileURLToPath } = process.getBuiltinModule("node:url")

/** The rank of a process in its job, and how it joins. */
export interface JoinOptions {
  readonly rank: number
  readonly size: number
  /** Where rank 0 listens for the others. */
  readonly address: string
  readonly port: number
  /** A socket that listens there already, which rank 0 inherited; −1 for none. */
  readonly listener: number
  readonly secret: string
  /** Seconds without progress after which an operation fails. */
  readonly limit: number
  /** Seconds until everybody is there. */
  readonly joinLimit: number
  /** The number of connections for data between two ranks. */
  readonly connections: number
  /** A relay, as `host:port`, through which ranks reach each other; empty for none. */
  readonly proxy: string
  /** The process that started this one, and whose end is its own; 0 for none. */
  readonly parent: number
}

/** The addon's functions. Groups are numbers of this process. */
export interface Native {
  join(options: JoinOptions, backend: string): number
  /** The same members connected by another backend. */
  again(group: number, backend: string): number
  leave(): void
  rank(group: number): number
  size(group: number): number
  /** The name of the way its members exchange data. */
  transport(group: number): string
  split(group: number, color: number, key: number): number
  /** Frees a group; those made from it stay. */
  close(group: number): void
  run(
    group: number,
    kind: number,
    reduction: number,
    dtype: number,
    input: Uint8Array,
    output: Uint8Array,
    count: number,
    peer: number,
    shape: number,
    name: string,
    structure: number,
    derivative: number,
  ): void
  /** Notes an operation of the device, of a group or from one of its members to another; gives its place among all. */
  addDeviceWork(group: number, operation: number, from: number, to: number): number
  /** Asks the others whether they have added the same operations up to a place, of which `done` is the last that is done. */
  askOfDevice(group: number, place: number, done: number): void
  /** True once they are known to have, within so many milliseconds; throws where one has added another, or has failed. */
  agreesOnDevice(group: number, place: number, milliseconds: number): boolean
  /** Tells the others that this rank waits for its device, since the first such call; throws where one has failed. */
  awaitDevice(group: number, place: number, name: string): void
  /** Ends such a wait, where others may go on. */
  endDevice(group: number, isWaiting: boolean): void
  /** Around what the calling thread may not return from before its device is done, in such a wait. */
  beginDeviceCall(group: number, isBegin: boolean): void
  /** A file that can be read from once the job has failed; to be closed. */
  alarm(group: number): number
  /** True if MPI's library can be loaded. */
  hasMpi(): boolean
  /**
   * Keeps the calling thread, and the processes that it starts, on one of so many equal shares of its processors; the only share is all of
   * them. False where there are fewer processors, or the system does not do this.
   */
  keepOnShare(share: number, shares: number): boolean
}

/** The file of the addon: `LAZULI_DISTRIBUTED_ADDON`, or what a build from source left in build/, or the platform's package. */
function find(): string | null {
  const chosen = process.env.LAZULI_DISTRIBUTED_ADDON
  if (chosen) return chosen
  // src/ and dist/ are both one below the package.
  const built = fileURLToPath(new URL("../build/lazuli_distributed.node", import.meta.url))
  if (existsSync(built)) return built
  try {
    return createRequire(import.meta.url).resolve(`@lazuli/distributed-${PLATFORM}`)
  } catch {
    return null
  }
}

/** The addon's file; null where there is none for this platform. */
export const library: string | null = find()

let loaded: Native | null = null

/** The addon. @throws DeviceError that names the platform and the cure */
export function native(): Native {
  if (loaded) return loaded
  if (library === null)
    throw new DeviceError("init", `@lazuli/distributed has no native addon for ${PLATFORM}`, {
      hint: binaryCure(),
    })
  loaded = createRequire(import.meta.url)(library) as Native
  return loaded
}
