/**
 * A device's memory: the buffers of storages, and those kept for reuse. Work runs in order, so that a released buffer may serve later
 * work at once.
 */
import { DeviceError, type Memory, type MemoryStats, Storage } from "@lazuli/core/engine"
import type { GpuBuffer, GpuRuntime } from "./runtime"

/** Bytes kept for reuse, where the runtime has no bound of its own. */
const MAX_CACHE = 256 * 2 ** 20

/** Parts of buffers have at most so many bytes, the buffers so many. */
const MAX_PART = 4096
const DIVIDED = 2 ** 20

/** Sizes of parts: powers of two, where vectors and the driver's own alignment begin. */
const partClass = (nbytes: number): number => (nbytes <= 256 ? 256 : 2 ** Math.ceil(Math.log2(nbytes)))

/** Sizes of buffers: whole pages, then eight steps to each power of two, so that freed buffers fit again. */
function sizeClass(nbytes: number): number {
  if (nbytes <= 4096) return 4096
  const step = Math.max(4096, 2 ** (Math.floor(Math.log2(nbytes)) - 3))
  return Math.ceil(nbytes / step) * step
}

/** The pool's view of the work that uses its buffers. */
interface Work {
  isIdle(): boolean
  /** Runs what is encoded and waits. */
  run(): void
  /** A buffer's memory is new to the device. */
  allocated(buffer: GpuBuffer): void
}

export class BufferPool {
  /** By the id of a storage. */
  private readonly buffers: (GpuBuffer | undefined)[] = []
  private readonly freeIds: number[] = []
  /** Free buffers, by size. */
  private readonly free = new Map<number, GpuBuffer[]>()
  /** Free parts of buffers, by size. They stay: others of their buffers may be in use. */
  private readonly freeParts = new Map<number, GpuBuffer[]>()
  /** By id: whom to tell that memory of another backend is not used any more. */
  private readonly adopted = new Map<number, () => void>()
  /** Those whose storages are released, while work that uses them may wait. */
  private readonly leaving: { buffer: GpuBuffer; done: () => void }[] = []
  private readonly views = new Map<number, ArrayBuffer>()
  private active = 0
  private peak = 0
  private cached = 0
  private live = 0
  private limit = Number.POSITIVE_INFINITY
  private cacheLimit: number
  /** Frees the memory of storages that were dropped without being released, where the engine watches none of them. */
  private readonly lost: FinalizationRegistry<number> | null

  constructor(
    private readonly runtime: GpuRuntime,
    private readonly memory: Memory,
    private readonly work: Work,
  ) {
    this.lost = runtime.tracker ? null : new FinalizationRegistry((id) => this.releaseId(id))
    this.cacheLimit = runtime.cacheLimit ?? MAX_CACHE
  }

  of(storage: Storage): GpuBuffer {
    return this.buffers[storage.id] as GpuBuffer
  }

  allocate(nbytes: number): Storage {
    const { maxBufferLength } = this.runtime.info
    if (nbytes > maxBufferLength)
      throw new DeviceError(
        this.memory.name,
        `no memory for a buffer of ${nbytes} bytes: the device has ${maxBufferLength} for one`,
      )
    const { exactBuffers, dividesBuffers } = this.runtime
    const isPart = dividesBuffers === true && !exactBuffers && nbytes <= MAX_PART
    const size = exactBuffers ? nbytes : isPart ? partClass(nbytes) : sizeClass(nbytes)
    const reused = (isPart ? this.freeParts : this.free).get(size)?.pop()
    if (reused) {
      if (!isPart) this.cached -= size
    } else if (this.active + size > this.limit) {
      this.clearCache()
      throw new DeviceError(
        this.memory.name,
        `${size} bytes more would exceed the memory limit of ${this.limit} bytes: ${this.active} are in use`,
      )
    }
    const buffer = reused ?? (isPart ? this.newPart(size) : this.newBuffer(size))
    this.active += size
    this.live++
    if (this.active > this.peak) this.peak = this.active
    return this.storageOn(buffer, nbytes)
  }

  /** A storage over memory of another backend; null where the runtime cannot use it. */
  adopt(address: bigint, nbytes: number, done: () => void): Storage | null {
    const buffer = this.runtime.wrapAddress?.(address, nbytes)
    if (!buffer) return null
    const storage = this.storageOn(buffer, nbytes)
    this.adopted.set(storage.id, done)
    return storage
  }

  private storageOn(buffer: GpuBuffer, nbytes: number): Storage {
    const id = this.freeIds.pop() ?? this.buffers.length
    this.buffers[id] = buffer
    const storage = new Storage(this.memory, id, nbytes)
    this.lost?.register(storage, id, storage)
    return storage
  }

  private newBuffer(size: number, part?: number): GpuBuffer {
    let buffer: GpuBuffer
    try {
      buffer = this.runtime.newBuffer(size, part)
    } catch (error) {
      if (this.cached === 0) throw error
      this.clearCache()
      buffer = this.runtime.newBuffer(size, part)
    }
    this.work.allocated(buffer)
    return buffer
  }

  /** A part of a buffer, whose other parts are for those who ask next. */
  private newPart(size: number): GpuBuffer {
    const { id } = this.newBuffer(DIVIDED, size)
    const parts = Array.from({ length: DIVIDED / size }, (_, i) => ({ id, length: size, offset: i * size }))
    for (const part of parts) this.work.allocated(part)
    const first = parts.shift() as GpuBuffer
    this.freeParts.set(size, [...(this.freeParts.get(size) ?? []), ...parts.reverse()])
    return first
  }

  /** Later work may have the buffer at once: it runs after what is encoded now. */
  release(storage: Storage): void {
    this.lost?.unregister(storage)
    this.releaseId(storage.id)
  }
  private releaseId(id: number): void {
    const buffer = this.buffers[id]
    if (!buffer) return
    this.buffers[id] = undefined
    this.freeIds.push(id)
    this.views.delete(id)
    const done = this.adopted.get(id)
    if (done) {
      this.adopted.delete(id)
      this.leaving.push({ buffer, done })
      if (this.work.isIdle()) this.giveBack()
      return
    }
    this.active -= buffer.length
    this.live--
    if (buffer.offset !== undefined) {
      this.freeParts.get(buffer.length)?.push(buffer)
      return
    }
    const list = this.free.get(buffer.length)
    if (list) list.push(buffer)
    else this.free.set(buffer.length, [buffer])
    this.cached += buffer.length
    if (this.cached > this.cacheLimit) this.shrinkCache(this.cacheLimit / 2)
  }

  /** Tells the owners of adopted memory that no work uses it any more. */
  giveBack(): void {
    if (this.leaving.length === 0) return
    for (const { buffer, done } of this.leaving.splice(0)) {
      this.runtime.releaseBuffer(buffer)
      done()
    }
  }

  /** The memory that the host sees, as one view for the life of a storage. */
  contents(storage: Storage): ArrayBuffer {
    let view = this.views.get(storage.id)
    if (!view) {
      view = this.runtime.contents?.(this.of(storage)) as ArrayBuffer
      this.views.set(storage.id, view)
    }
    return view
  }

  clearCache(): void {
    this.shrinkCache(0)
  }
  /** Frees buffers kept for reuse, the largest first, until at most `bytes` are kept. */
  private shrinkCache(bytes: number): void {
    this.work.run()
    for (const size of [...this.free.keys()].sort((a, b) => b - a)) {
      const list = this.free.get(size) as GpuBuffer[]
      while (list.length > 0 && this.cached > bytes) {
        this.runtime.releaseBuffer(list.pop() as GpuBuffer)
        this.cached -= size
      }
    }
  }

  stats(): MemoryStats {
    return {
      active: this.active,
      peak: this.peak,
      cache: this.cached,
      buffers: this.live,
      limit: this.limit,
      cacheLimit: this.cacheLimit,
    }
  }
  setLimit(bytes: number): void {
    this.limit = bytes
  }
  setCacheLimit(bytes: number): void {
    this.cacheLimit = bytes
    if (this.cached > bytes) this.shrinkCache(bytes)
  }
  resetPeak(): void {
    this.peak = this.active
  }
}
