/**
 * The runtime on Metal.framework, for the GPUs of Macs: memory that the host shares, kernels compiled by Apple's compiler, command buffers
 * of which several are under way. It has never run on Apple hardware; its tests run it on a fake Metal.
 */
import { DeviceError, type DeviceFacts, secondsFrom } from "@lazuli/core/engine"
import { type FunctionConstants, type MathMode, type MetalSource, refusal } from "@lazuli/gpu-kernels"
import { type AppleFacts, type AppleNative, appleNative } from "./apple-native"
import type {
  CommandFailure,
  Commands,
  DeviceInfo,
  LibraryOptions,
  MetalBuffer,
  MetalEvent,
  MetalLibrary,
  MetalPipeline,
  MetalRuntime,
  Submission,
} from "./runtime"

const NONE: readonly CommandFailure[] = []
/** The GPU begins once so many dispatches are encoded, so that it works while the host encodes more. */
const DISPATCHES_AHEAD = 40
const MATH_MODES: readonly MathMode[] = ["safe", "relaxed", "fast"]
/** Pages of Apple silicon: memory of others is taken in whole ones. */
const PAGE = 16384n

/** Where macOS has what is called. */
const LIBRARIES = [
  "/usr/lib/libobjc.A.dylib",
  "/System/Library/Frameworks/Foundation.framework/Foundation",
  "/System/Library/Frameworks/Metal.framework/Metal",
]

/** No operation is contracted with another one, as everywhere: a line before the source, whose own lines keep their numbers. */
const UNCONTRACTED = "#pragma clang fp contract(off)\n#line 1\n"

class AppleLibrary implements MetalLibrary {
  /** By name and values of constants. */
  readonly pipelines = new Map<string, MetalPipeline>()
  constructor(
    readonly id: number,
    readonly kernels: readonly string[],
    readonly source: MetalSource,
  ) {}
}

/** Runs kernels on the GPU of a Mac. */
export class AppleRuntime implements MetalRuntime {
  readonly name = "apple"
  readonly dispatchesAhead: number = DISPATCHES_AHEAD
  /** Each has a queue of its own; events order them. */
  readonly streams = true
  private opened: { native: AppleNative; facts: AppleFacts } | null = null
  private readonly libraries = new Map<string, AppleLibrary>()
  /** Why submissions were not handed over, by their negative numbers. */
  private readonly refused = new Map<number, string>()

  /** `libraries` are where Objective-C's runtime and Metal are looked for: Apple's own by default. */
  constructor(
    private readonly libraryPaths: readonly string[] = process.env.LAZULI_METAL_FRAMEWORK
      ? [process.env.LAZULI_METAL_FRAMEWORK]
      : LIBRARIES,
  ) {}

  /** The addon and the device, opened once. @throws DeviceError that says what is missing */
  private get open(): { native: AppleNative; facts: AppleFacts } {
    if (this.opened) return this.opened
    const native = appleNative()
    try {
      native.open(this.libraryPaths)
      const limit = secondsFrom("LAZULI_METAL_TIME_LIMIT")
      if (limit !== null) native.setTimeLimit(limit)
      this.opened = { native, facts: native.facts() }
    } catch (cause) {
      throw new DeviceError("metal", `no GPU can be used: ${(cause as Error).message}`, {
        cause,
        hint: "Metal needs a Mac with Apple silicon and macOS 14 or newer. Use mx.cpu where there is none",
      })
    }
    return this.opened
  }
  private get native(): AppleNative {
    return this.open.native
  }

  /** True if there is a device. Never throws. */
  get isAvailable(): boolean {
    try {
      return this.open.facts.unified
    } catch {
      return false
    }
  }

  get info(): DeviceInfo {
    const { name, maxBufferLength, recommendedWorkingSet, maxThreadgroupMemory } = this.open.facts
    return {
      name,
      simdWidth: 32,
      maxThreadsPerThreadgroup: 1024,
      maxThreadgroupMemory,
      maxBufferLength,
      recommendedWorkingSet,
    }
  }

  deviceFacts(): DeviceFacts {
    const { name, architecture } = this.open.facts
    return { deviceName: name, architecture: architecture || "apple" }
  }

  /** Gives everything back. What was made of it must not be used any more. */
  close(): void {
    this.opened?.native.close()
    this.opened = null
    this.libraries.clear()
  }

  newBuffer(length: number): MetalBuffer {
    return this.attempt(({ native }) => ({ id: native.newBuffer(length), length }))
  }
  wrapBuffer(bytes: ArrayBuffer): MetalBuffer {
    throw new DeviceError(
      "metal",
      `JavaScript's memory does not begin at a page boundary: ${bytes.byteLength} bytes cannot become a buffer without a copy`,
    )
  }
  wrapAddress(address: bigint, length: number): MetalBuffer | null {
    // A page of which a part is mapped is mapped as a whole, so the last one may be taken with what follows.
    if (length === 0 || address % PAGE !== 0n) return null
    const whole = Number((BigInt(length) + PAGE - 1n) / PAGE) * Number(PAGE)
    const id = this.attempt(({ native }) => native.wrapAddress(address, whole))
    return id === 0 ? null : { id, length }
  }
  releaseBuffer(buffer: MetalBuffer): void {
    this.attempt(({ native }) => native.freeBuffer(buffer.id))
  }
  contents(buffer: MetalBuffer): ArrayBuffer {
    return this.attempt(({ native }) => native.contents(buffer.id))
  }
  address(buffer: MetalBuffer): bigint {
    return this.attempt(({ native }) => native.address(buffer.id))
  }
  read(buffer: MetalBuffer, offset: number, into: ArrayBufferView): void {
    this.attempt(({ native }) => native.read(buffer.id, offset, into))
  }
  write(buffer: MetalBuffer, offset: number, from: ArrayBufferView): void {
    this.attempt(({ native }) => native.write(buffer.id, offset, from))
  }
  /** Keeps at most so many bytes of buffers in physical memory; does nothing before macOS 15. */
  setWiredLimit(bytes: number): void {
    this.attempt(({ native }) => native.wire(bytes))
  }

  newLibrary(
    text: string,
    { file = "kernel.metal", wording, compiled, mathMode = "safe" }: LibraryOptions = {},
  ): MetalLibrary {
    const key = `${file}\0${mathMode}\0${compiled ?? ""}\0${text}`
    const known = this.libraries.get(key)
    if (known) return known
    const source = { text, file, wording }
    const id = this.attempt(
      ({ native }) =>
        compiled
          ? native.loadLibrary(compiled)
          : native.newLibrary(UNCONTRACTED + text, MATH_MODES.indexOf(mathMode)),
      source,
    )
    const library = new AppleLibrary(id, this.native.kernels(id), source)
    this.libraries.set(key, library)
    return library
  }

  newPipeline(library: MetalLibrary, name: string, constants: FunctionConstants = {}): MetalPipeline {
    const { id, pipelines, kernels, source } = library as AppleLibrary
    const key = JSON.stringify([name, constants])
    const known = pipelines.get(key)
    if (known) return known
    if (!kernels.includes(name))
      throw new DeviceError(
        "metal",
        `the library has no kernel "${name}"; it has ${kernels.join(", ") || "none"}`,
      )
    const values = Object.entries(constants).flatMap(([index, value]) => [Number(index), Number(value)])
    const made = this.attempt(({ native }) => native.newPipeline(id, name, values), source)
    const pipeline = { id: made.id, name, maxThreads: made.maxThreads }
    pipelines.set(key, pipeline)
    return pipeline
  }

  /** A further queue, whose work is ordered with that of others by events alone. */
  newQueue(): number {
    return this.attempt(({ native }) => native.newQueue())
  }
  newEvent(): MetalEvent {
    return { id: this.attempt(({ native }) => native.newEvent()) }
  }
  eventValue(event: MetalEvent): number {
    return this.attempt(({ native }) => native.eventValue(event.id))
  }
  commit(stream: Commands, queue = 0): Submission {
    try {
      return { id: this.native.commit(queue, stream.words, stream.length) }
    } catch (error) {
      // Work that cannot be handed over has no result, like work that fails.
      const id = -1 - this.refused.size
      this.refused.set(id, (error as Error).message)
      return { id }
    }
  }
  wait({ id }: Submission): readonly CommandFailure[] {
    const message = id < 0 ? this.refused.get(id) : this.attempt(({ native }) => native.wait(id))
    // Metal does not tell which of its commands failed: none of them has a result.
    return message == null ? NONE : [{ word: -1, message }]
  }

  startCapture(path: string): void {
    this.attempt(({ native }) => native.startCapture(path))
  }
  stopCapture(): void {
    this.attempt(({ native }) => native.stopCapture())
  }

  /** Calls the addon; its errors become this library's. */
  private attempt<T>(body: (open: { native: AppleNative }) => T, source?: MetalSource): T {
    const { open } = this
    try {
      return body(open)
    } catch (cause) {
      if (cause instanceof DeviceError) throw cause
      const { message, code } = cause as { message: string; code?: string }
      if (code === "ERR_LAZULI_COMPILE" && source) throw compileError(source, message)
      throw new DeviceError("metal", message, { cause })
    }
  }
}

/** The refusal of Apple's compiler, in terms of the source: it names lines as `program_source:LINE:COLUMN: error: …`. */
function compileError(source: MetalSource, output: string): DeviceError {
  const problems = [...output.matchAll(/^\S*?:(\d+):(?:\d+:)? (?:fatal )?error: (.*)$/gm)].map(
    ([, line, message]) => ({ line: Number(line), message }),
  )
  if (problems.length > 0) return refusal(source, problems)
  return new DeviceError(
    source.wording?.name ?? "metal",
    `the source of a kernel does not compile:\n${output.slice(0, 4000)}`,
  )
}
