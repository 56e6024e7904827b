/**
 * The addon that executes compiled kernels: where it is found, and the type of its functions. It is loaded when the first buffer or
 * kernel asks for it, so that importing the package works everywhere.
 */
import { createRequire } from "node:module"
import { fileURLToPath } from "node:url"
import { DeviceError } from "@lazuli/core/engine"

/** Memory that native calls can name. */
export type Bytes = ArrayBuffer | ArrayBufferView

/** The addon's functions. Buffers, kernels and events are numbers of this isolate. */
export interface HostNative {
  /** The version of these functions and of the commands. */
  protocol(): number
  /** The version of the interface between kernels and the executor. */
  abi(): number
  /** Zeroed memory; checked memory ends at an inaccessible page, to 16 bytes. */
  newBuffer(nbytes: number, checked: boolean): number
  /** Memory of JavaScript, which is kept alive. */
  borrowBuffer(bytes: Bytes): number
  /** Memory at an address, which its owner keeps. */
  borrowAddress(address: bigint, nbytes: number): number
  freeBuffer(buffer: number): void
  contents(buffer: number): ArrayBuffer
  address(buffer: number): bigint
  read(buffer: number, offset: number, into: ArrayBufferView): void
  write(buffer: number, offset: number, from: ArrayBufferView): void
  /** The kernels of one source, by the symbol that a shared library exports for it. */
  loadLibrary(path: string, symbol: string): { name: string; id: number; maxThreads: number }[]
  /** Runs the first `count` words; null when nothing failed. */
  run(words: Int32Array, count: number): { word: number; message: string }[] | null
  eventValue(event: number): number
  /** The number of threads that work on one dispatch; 0 asks for the default. */
  setThreads(count: number): void
  threads(): number
  /** Seconds after which a part of a dispatch is ended; 0 never ends one. */
  setTimeLimit(seconds: number): void
  /** Bytes that checked kernels have loaded from buffers and stored, and how many different ones, since the last call. */
  traffic(): [loads: number, stores: number, distinctLoads: number, distinctStores: number]
}

/** The version of {@link HostNative} and of the commands that this package writes. */
const PROTOCOL = 3

let loaded: HostNative | undefined

/** Refuses an addon of another version. @throws DeviceError that names both */
export function checkProtocol(addon: Partial<HostNative>, path: string): void {
  const found = typeof addon.protocol === "function" ? addon.protocol() : 0
  if (found === PROTOCOL) return
  throw new DeviceError(
    "metal",
    `${path} was built for protocol ${found} of the host runtime, and this package writes protocol ${PROTOCOL}`,
    { hint: "Build it again: npm run build in a clone of the repository" },
  )
}

/** The addon: `LAZULI_METAL_HOST_ADDON`, or what a build from source left in build/. @throws DeviceError that says how to get it */
export function hostNative(): HostNative {
  if (loaded) return loaded
  // src/ and dist/ are both one below the package.
  const path =
    process.env.LAZULI_METAL_HOST_ADDON ??
    fileURLToPath(new URL("../build/lazuli_metal_host.node", import.meta.url))
  let addon: HostNative
  try {
    addon = createRequire(import.meta.url)(path) as HostNative
  } catch (cause) {
    throw new DeviceError(
      "metal",
      `the host runtime's addon for ${process.platform}-${process.arch} could not be loaded: ${(cause as Error).message.split("\n")[0]}`,
      {
        cause,
        hint:
          "It is not part of the published package: npm run build in a clone of the repository makes it, and LAZULI_METAL_HOST_ADDON names " +
          "the file to other programs. Use mx.cpu where there is no GPU",
      },
    )
  }
  checkProtocol(addon, path)
  loaded = addon
  const { LAZULI_METAL_TIME_LIMIT: limit } = process.env
  if (limit) loaded.setTimeLimit(Number(limit))
  if (process.env.LAZULI_METAL_THREADS) loaded.setThreads(Number(process.env.LAZULI_METAL_THREADS))
  return loaded
}
