/**
 * The runtime that executes Metal kernels on the CPU: the same source text, compiled as C++ and run thread by thread. Commands run
 * when they are committed, on the calling thread and a few helpers.
 */
import { totalmem } from "node:os"
import { DeviceError, flagFrom } from "@lazuli/core/engine"
import type { FunctionConstants } from "@lazuli/gpu-kernels"
import { checkAddressSpaces } from "./address-spaces"
import { compileAhead, compileTogether } from "./host-compiler"
import { TranslatedSource, translationOf } from "./host-library"
import { hostNative } from "./host-native"
import type {
  CommandFailure,
  Commands,
  DeviceInfo,
  LibraryOptions,
  LibrarySource,
  MetalBuffer,
  MetalEvent,
  MetalLibrary,
  MetalPipeline,
  MetalRuntime,
  Submission,
} from "./runtime"

const NONE: readonly CommandFailure[] = []

/** A library of this runtime: compiled at once, or, with function constants, once for each set of them. */
class HostLibrary implements MetalLibrary {
  readonly kernels: readonly string[]
  /** By the library that was compiled. */
  private readonly loaded = new Map<string, ReadonlyMap<string, MetalPipeline>>()

  constructor(private readonly translated: TranslatedSource) {
    this.kernels = translated.translation.kernels.map((k) => k.name)
    if (translated.translation.constants.length === 0) this.pipelines({})
  }

  /** The kernels with these constants. */
  pipelines(constants: FunctionConstants): ReadonlyMap<string, MetalPipeline> {
    const { path, symbol } = this.translated.compiled(constants)
    const known = this.loaded.get(symbol)
    if (known) return known
    const made = new Map(
      hostNative()
        .loadLibrary(path, symbol)
        .map((kernel) => [kernel.name, kernel]),
    )
    this.loaded.set(symbol, made)
    return made
  }
}

/** Runs kernels on the CPU. */
export class HostRuntime implements MetalRuntime {
  readonly name = "host"
  readonly emulated = true
  readonly info: DeviceInfo = {
    name: "Metal on the CPU",
    simdWidth: 32,
    maxThreadsPerThreadgroup: 1024,
    maxThreadgroupMemory: 32768,
    maxBufferLength: totalmem(),
    recommendedWorkingSet: Math.floor(totalmem() * 0.75),
  }
  /** True if every access of kernels is checked, and buffers end at an inaccessible page. */
  readonly exactBuffers: boolean
  private readonly libraries = new Map<string, HostLibrary>()
  private readonly failures = new Map<number, readonly CommandFailure[]>()
  private submissions = 0
  private events = 0

  /**
   * `checked` (or `LAZULI_METAL_CHECK=1`) makes an error of every access outside a buffer, of what two threads do to one byte with nothing
   * between them, and of threadgroup memory that is read before it is written. Kernels take some hundred times as long.
   */
  constructor({ checked = flagFrom("LAZULI_METAL_CHECK") === true }: { checked?: boolean } = {}) {
    this.exactBuffers = checked
  }

  /** Bytes of buffers that checked kernels have moved since the last call, and how many different ones: the least they could. */
  traffic(): { loads: number; stores: number; distinctLoads: number; distinctStores: number } {
    const [loads, stores, distinctLoads, distinctStores] = hostNative().traffic()
    return { loads, stores, distinctLoads, distinctStores }
  }

  newBuffer(length: number): MetalBuffer {
    try {
      return { id: hostNative().newBuffer(length, this.exactBuffers), length }
    } catch (cause) {
      if (cause instanceof DeviceError) throw cause
      throw new DeviceError("metal", (cause as Error).message, { cause })
    }
  }
  wrapBuffer(bytes: ArrayBuffer): MetalBuffer {
    return { id: hostNative().borrowBuffer(bytes), length: bytes.byteLength }
  }
  wrapAddress(address: bigint, length: number): MetalBuffer | null {
    // Kernels may read vectors of 16 bytes; an access behind memory of others would not show.
    if (this.exactBuffers || address % 16n !== 0n) return null
    return { id: hostNative().borrowAddress(address, length), length }
  }
  releaseBuffer(buffer: MetalBuffer): void {
    hostNative().freeBuffer(buffer.id)
  }
  contents(buffer: MetalBuffer): ArrayBuffer {
    return hostNative().contents(buffer.id)
  }
  address(buffer: MetalBuffer): bigint {
    return hostNative().address(buffer.id)
  }
  read(buffer: MetalBuffer, offset: number, into: ArrayBufferView): void {
    hostNative().read(buffer.id, offset, into)
  }
  write(buffer: MetalBuffer, offset: number, from: ArrayBufferView): void {
    hostNative().write(buffer.id, offset, from)
  }

  newLibrary(text: string, { file = "kernel.metal", wording }: LibraryOptions = {}): MetalLibrary {
    const key = `${file}\0${text}`
    const known = this.libraries.get(key)
    if (known) return known
    const source = { text, file, wording }
    const library = new HostLibrary(new TranslatedSource(source, this.exactBuffers))
    // This package's own sources are read by tests.
    if (wording) checkAddressSpaces(source)
    this.libraries.set(key, library)
    return library
  }

  async prepare(sources: readonly LibrarySource[]): Promise<void> {
    await compileAhead(this.translated(sources), this.exactBuffers)
  }

  compileTogether(sources: readonly LibrarySource[]): void {
    compileTogether(this.translated(sources), this.exactBuffers)
  }

  /** Sources as C++, without those that are compiled for values of their constants. */
  private translated(sources: readonly LibrarySource[]): string[] {
    return sources.flatMap(({ source, file }) => {
      try {
        const { code, constants } = translationOf({ text: source, file })
        return constants.length === 0 ? [code] : []
      } catch (error) {
        // newLibrary says it again.
        if (error instanceof DeviceError) return []
        throw error
      }
    })
  }

  newPipeline(library: MetalLibrary, name: string, constants: FunctionConstants = {}): MetalPipeline {
    const pipeline = (library as HostLibrary).pipelines(constants).get(name)
    if (pipeline) return pipeline
    throw new DeviceError(
      "metal",
      `the library has no kernel "${name}"; it has ${library.kernels.join(", ") || "none"}`,
    )
  }

  newEvent(): MetalEvent {
    return { id: ++this.events }
  }
  eventValue(event: MetalEvent): number {
    return hostNative().eventValue(event.id)
  }
  commit(stream: Commands): Submission {
    const id = ++this.submissions
    const failed = hostNative().run(stream.words, stream.length)
    if (failed) this.failures.set(id, failed)
    return { id }
  }
  wait({ id }: Submission): readonly CommandFailure[] {
    const failed = this.failures.get(id) ?? NONE
    this.failures.delete(id)
    return failed
  }
}
