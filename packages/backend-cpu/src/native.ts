/**
 * The native addon: where it is found, and the type of its functions. What the words of a command buffer mean is in
 * native/PROTOCOL.md; nothing else of this package loads the addon.
 */
import { binaryCure, choiceFrom, integerFrom, PLATFORM } from "@lazuli/core/engine"

const { existsSync } = process.getBuiltinModule("node:fs")
const { createRequire } = process.getBuiltinModule("node:module")
const { fileURLToPath } = process.getBuiltinModule("node:url")

/** Memory that command buffers and kernels can name. */
export type Bytes = ArrayBuffer | ArrayBufferView

/** A record that failed; see "Failures" in native/PROTOCOL.md. */
export interface NativeFailure {
  /** Where the record starts in the command buffer. */
  readonly word: number
  readonly message: string
}

/** A buffer that has no value, the command buffer that should have given it one, and the failure: its number, and what it said. */
export interface NativePoison {
  readonly id: number
  readonly queue: number
  readonly ticket: number
  readonly cause: number
  readonly message: string
}

/** Of the whole process, in bytes; `buffers` counts those alive. */
export interface NativeMemory {
  readonly active: number
  readonly peak: number
  readonly cache: number
  readonly buffers: number
  readonly limit: number
  readonly cacheLimit: number
  readonly scratch: number
}

/**
 * The addon's functions. Buffers, programs, plans and tracked objects are numbers of this isolate; memory and threads are the
 * process's. Each throws an Error that names it: a TypeError with code `ERR_LAZULI_ARGUMENT` for a bad argument, an Error with
 * code `ERR_LAZULI_NATIVE` otherwise.
 */
export interface Native {
  /** The version of the package it was built for. */
  version(): string
  /** The version of native/PROTOCOL.md that it was built for. */
  protocol(): number
  /** The instruction set its loops use: `avx512`, `avx2`, `sse4` or `neon`. */
  simdTarget(): string
  /** The state of machine code for scalar programs (`avx512`, `avx2`, or `off` with the reason), and how many have it so far. */
  machineCode(): { state: string; programs: number }
  /** Kernel names; a kernel's id is its position. */
  kernels(): string[]
  /** For each kernel the dtypes that its first input may have: a bit for each dtype's code. */
  kernelDtypes(): number[]
  /** Adds the kernels that a shared library exports as `lazuli_kernels`; returns their names. */
  loadKernels(path: string): string[]
  /** Scalar instructions; an instruction's code is its position. */
  scalarOps(): string[]
  /** True if a scalar instruction takes arguments of a dtype (for `select`: branches). */
  scalarSupport(op: string, dtype: number): boolean

  /** Makes this buffer the command buffer of a queue (0 without one), which `run` and `submit` read. */
  attachCommands(commands: ArrayBuffer, queue?: number): void
  /** Runs the first `nWords` words of the queue's command buffer here, after what was submitted before; returns how many records failed. */
  run(nWords: number, queue?: number): number
  /** Gives a copy of them to the queue's thread, and returns their ticket; `tell` 1: what {@link onDone} named is called afterwards. */
  submit(nWords: number, queue?: number, tell?: 0 | 1): number
  /** Waits until a queue has done a ticket; returns whether there is something for {@link poisoned} to tell. */
  wait(queue: number, ticket: number): boolean
  /** The last ticket that a queue has done. Runs have tickets too. */
  done(queue: number): number
  /** Names what is called on this thread after command buffers were done; many may be told as one. */
  onDone(callback: () => void): void
  /** Keep the process alive for a call that is to come, or no longer. */
  hold(held: 0 | 1): void
  /** The failures of the last run of queue 0. */
  failures(): NativeFailure[]
  /** The buffers poisoned since the last call. */
  poisoned(): NativePoison[]
  registerProgram(words: Bytes): number
  releaseProgram(id: number): void
  registerPlan(words: Bytes, nIn: number, nOut: number, arenaBytes: number): number
  releasePlan(id: number): void

  /** Allocates the buffer, uninitialised. */
  allocate(id: number, nbytes: number): void
  /** Drops the id's reference to its buffer. */
  free(id: number): void
  /** Makes the id `other` a second reference to the same buffer. */
  share(id: number, other: number): void
  /** Puts a reference to the buffer where another isolate of the process can take it, once; returns the number to take it by. */
  give(id: number): number
  /** Takes it, under an id. */
  take(id: number, number: number, nbytes: number): void
  write(id: number, byteOffset: number, data: Bytes): void
  read(id: number, byteOffset: number, target: Bytes): void
  /** The buffer itself, without a copy; it lives as long as the ArrayBuffer does. */
  hostView(id: number): ArrayBuffer
  /** Where the buffer starts, for other backends. */
  address(id: number): bigint
  /** Makes the id stand for foreign memory; `owner` is kept alive as long as the buffer. */
  adopt(id: number, address: bigint, nbytes: number, owner?: object): void

  /** Makes weak references to `objects[0 … count-1]` under `ids`. */
  track(objects: readonly object[], count: number, ids: Int32Array): void
  untrack(id: number): void
  /** True if the object is there, as far as the collector has looked. */
  isAlive(id: number): boolean
  /** Writes the ids of objects that are gone, among the young references (0) or all (1), and forgets them. At most as many as
   * `out` holds: call again when it comes back full. */
  poll(generation: 0 | 1, out: Int32Array): number
  /** Makes V8 collect all garbage, where `gc` cannot be had. */
  pressCollector(): void

  memory(): NativeMemory
  /** The limit without what is in use, scratch apart; see {@link memory}. */
  freeMemory(): number
  setMemoryLimit(bytes: number): void
  setCacheLimit(bytes: number): void
  clearCache(): void
  resetPeakMemory(): void
  /** The number of threads that work on one kernel, the caller included. */
  setThreads(count: number): void
  threads(): number
}

/** The version of native/PROTOCOL.md that this package writes. */
const PROTOCOL = 9

/** Refuses an addon that would read other words than this package writes. @throws Error that names both versions and the cure */
export function checkProtocol(addon: Partial<Native>, file: string): void {
  const found = typeof addon.protocol === "function" ? addon.protocol() : 0
  if (found === PROTOCOL) return
  const version = typeof addon.version === "function" ? addon.version() : "an unknown version"
  throw new Error(
    `[@lazuli/backend-cpu] ${file} was built for protocol ${found} (package ${version}), but this package writes protocol ${PROTOCOL}. ` +
      "Build it again (npm run build in a clone of the repository), or install the same version of all @lazuli packages",
  )
}

/** Warns of values that the addon, which reads these variables itself, ignores. */
function checkVariables(): void {
  integerFrom("LAZULI_NUM_THREADS", 1)
  choiceFrom("LAZULI_SIMD", ["avx512", "avx2", "sse4", "neon"])
  choiceFrom("LAZULI_JIT", ["0", "1"])
  choiceFrom("LAZULI_TILES", ["0", "plain"])
}

/**
 * Loads the addon: `LAZULI_CPU_ADDON`, or what a build from source left in build/, or the platform's package.
 * @throws Error that names the platform, what was tried and the cure
 */
function load(): Native {
  const require = createRequire(import.meta.url)
  // src/ and dist/ are both one below the package.
  const built = fileURLToPath(new URL("../build/lazuli_cpu.node", import.meta.url))
  const chosen = process.env.LAZULI_CPU_ADDON
  const candidates = chosen
    ? [chosen]
    : [...(existsSync(built) ? [built] : []), `@lazuli/backend-cpu-${PLATFORM}`]
  const reasons: string[] = []
  for (const candidate of candidates) {
    let addon: Native
    try {
      addon = require(candidate) as Native
    } catch (error) {
      reasons.push(`  ${candidate}: ${(error as Error).message.split("\n")[0]}`)
      continue
    }
    checkProtocol(addon, candidate)
    checkVariables()
    return addon
  }
  throw new Error(
    `[@lazuli/backend-cpu] no native addon for ${PLATFORM} could be loaded:\n${reasons.join("\n")}\n${binaryCure()}`,
  )
}

/** The error of an addon that could not be loaded; null where it is there. */
export let loadFailure: Error | null = null

/** The loaded addon; without one, functions that give nothing: nobody registers the backend then. */
export const native: Native = loadOr(() => new Proxy({}, { get: () => () => [] }) as Native)

function loadOr(none: () => Native): Native {
  try {
    return load()
  } catch (error) {
    loadFailure = error as Error
    return none()
  }
}
