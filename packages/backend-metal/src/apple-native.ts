/**
 * The addon that calls Metal.framework: where it is found, and the type of its functions. It is loaded when the first buffer or kernel asks
 * for it, so that importing the package works everywhere.
 */
import { fileURLToPath } from "node:url"
import { type Addon, checkAddon, loadAddon } from "@lazuli/gpu-kernels"

/** A device as Metal describes it. */
export interface AppleFacts {
  readonly name: string
  /** Empty before macOS 14. */
  readonly architecture: string
  readonly maxBufferLength: number
  readonly recommendedWorkingSet: number
  readonly maxThreadgroupMemory: number
  /** Bytes that the process has of it. */
  readonly allocated: number
  /** The host and the GPU share their memory. */
  readonly unified: boolean
  /** Of the family of M1 or newer. */
  readonly apple7: boolean
  readonly metal3: boolean
}

/** The addon's functions. Buffers, libraries, pipelines, queues and events are numbers of this isolate. */
export interface AppleNative {
  /** The version of these functions and of the commands. */
  protocol(): number
  /** Finds Objective-C's runtime and Metal in libraries, and opens the device. */
  open(libraries: readonly string[]): void
  /** Gives everything back, once the GPU has ended its work. */
  close(): void
  facts(): AppleFacts
  /** Zeroed memory that the host shares. */
  newBuffer(nbytes: number): number
  /** Memory at the start of a page, of whole pages, which its owner keeps; 0 where the device does not take it. */
  wrapAddress(address: bigint, nbytes: number): number
  /** The memory goes once the work that uses it has ended. */
  freeBuffer(buffer: number): void
  contents(buffer: number): ArrayBuffer
  address(buffer: number): bigint
  /** Once the work that uses the buffer has ended. */
  read(buffer: number, offset: number, into: ArrayBufferView): void
  write(buffer: number, offset: number, from: ArrayBufferView): void
  /** Keeps so many bytes of buffers in physical memory; false where the system cannot. */
  wire(bytes: number): boolean
  /** Arithmetic is 0 safe, 1 relaxed, 2 fast. */
  newLibrary(source: string, mathMode: number): number
  loadLibrary(path: string): number
  kernels(library: number): string[]
  /** `constants` are an index and a value each. */
  newPipeline(
    library: number,
    name: string,
    constants: readonly number[],
  ): { id: number; maxThreads: number; simdWidth: number }
  newQueue(): number
  newEvent(): number
  eventValue(event: number): number
  /** Hands over the first `count` words; gives the submission's number. */
  commit(queue: number, words: Int32Array, count: number): number
  /** Waits for a submission; null, or what went wrong. */
  wait(submission: number): string | null
  /** Seconds after which waiting ends; 0 never ends it. */
  setTimeLimit(seconds: number): void
  startCapture(path: string): void
  stopCapture(): void
}

/** Its protocol is the version of {@link AppleNative} and of the commands that this package writes. */
const ADDON: Addon = {
  backend: "metal",
  name: "the addon for Metal",
  package: "@lazuli/backend-metal",
  platforms: ["darwin-arm64"],
  owner: "the Metal runtime",
  protocol: 1,
  hint: "Use mx.cpu where there is no GPU",
}

let loaded: AppleNative | undefined

/** Refuses an addon of another version. @throws DeviceError that names both */
export const checkAppleProtocol = (addon: Partial<AppleNative>, path: string): void =>
  checkAddon(ADDON, addon, path)

/** The addon: `LAZULI_METAL_APPLE_ADDON`, or what a build from source left in build/, or the platform's package.
 * @throws DeviceError that says how to get it */
export function appleNative(): AppleNative {
  // src/ and dist/ are both one below the package.
  const built = fileURLToPath(new URL("../build/lazuli_metal_apple.node", import.meta.url))
  loaded ??= loadAddon<AppleNative>(ADDON, process.env.LAZULI_METAL_APPLE_ADDON, built)
  return loaded
}
