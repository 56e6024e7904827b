/**
 * The addon that executes compiled kernels: where it is found, and the type of its functions. It is loaded when the first buffer or
 * kernel asks for it, so that importing the package works everywhere.
 */
import { fileURLToPath } from "node:url"
import { integerFrom, secondsFrom } from "@lazuli/core/engine"
import { type Addon, checkAddon, loadAddon } from "@lazuli/gpu-kernels"

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

/** Its protocol is the version of {@link HostNative} and of the commands that this package writes. */
const ADDON: Addon = {
  backend: "metal",
  name: "the host runtime's addon",
  package: "@lazuli/backend-metal",
  platforms: ["linux-x64", "linux-arm64"],
  owner: "the host runtime",
  protocol: 3,
  hint: "Use mx.cpu where there is no GPU",
}

let loaded: HostNative | undefined

/** Refuses an addon of another version. @throws DeviceError that names both */
export const checkProtocol = (addon: Partial<HostNative>, path: string): void =>
  checkAddon(ADDON, addon, path)

/** The addon: `LAZULI_METAL_HOST_ADDON`, or what a build from source left in build/, or the platform's package.
 * @throws DeviceError that says how to get it */
export function hostNative(): HostNative {
  if (loaded) return loaded
  // src/ and dist/ are both one below the package.
  const built = fileURLToPath(new URL("../build/lazuli_metal_host.node", import.meta.url))
  loaded = loadAddon<HostNative>(ADDON, process.env.LAZULI_METAL_HOST_ADDON, built)
  const limit = secondsFrom("LAZULI_METAL_TIME_LIMIT")
  if (limit !== null) loaded.setTimeLimit(limit)
  const threads = integerFrom("LAZULI_METAL_THREADS", 1)
  if (threads !== null) loaded.setThreads(threads)
  return loaded
}
