/**
 * A block of a backend's memory, shared by the arrays that are views of it.
 */

import type { Stream } from "./device"

/** Weak references, by which memory.ts learns that handles died. Only native code can offer them in synchronous programs. */
export interface Tracker {
  /** Makes weak references to objects[0 … count-1] under the numbers ids[i]. */
  track(objects: readonly object[], count: number, ids: Int32Array): void
  /** Forgets one. */
  untrack(id: number): void
  /** True if the object of a number is there, as far as the garbage collector has looked. */
  isAlive?(id: number): boolean
  /** The numbers whose objects are gone, among the young references or among all. */
  poll(all: boolean): ArrayLike<number>
  /** Runs the garbage collector, if this program may. */
  collect(full: boolean): void
}

/** Bytes in use, their peak, bytes kept for reuse, and the number of blocks in use. */
export interface MemoryStats {
  readonly active: number
  /** The part of {@link active} that kernels have borrowed while they run: the limit does not count it. 0 where it is not told. */
  readonly scratch?: number
  readonly peak: number
  readonly cache: number
  readonly buffers: number
  readonly limit: number
  /** The bound of {@link cache}, where it is told. */
  readonly cacheLimit?: number
}

/**
 * A backend's memory. It may be the host's, or a device's own, which the host only reaches by {@link read} and {@link write}: then
 * there is no {@link host}.
 */
export interface Memory {
  /** Names the backend in errors. */
  readonly name: string
  /**
   * Memory for later encoded work, of the stream that makes its contents. Never initialised. @throws DeviceError when a limit is reached
   */
  allocate(nbytes: number, stream?: Stream): Storage
  /**
   * Memory that is written to at once, from JavaScript, whatever work is under way. Without it `allocate` and the queue's `flush` serve.
   */
  stage?(nbytes: number): Storage
  /** Gives the memory back; encoded work that uses it still runs first. */
  release(storage: Storage): void
  /** Waits for the work that makes a storage; then a failure is known. Without it all work is done when evaluation returns. */
  wait?(storage: Storage): void
  /** Waits for encoded work, then copies bytes out. */
  read(storage: Storage, byteOffset: number, into: ArrayBufferView): void
  /** Copies bytes in; only for memory that no encoded work uses. */
  write(storage: Storage, byteOffset: number, from: ArrayBufferView): void
  /** Waits for encoded work, then gives the bytes themselves, without a copy. */
  host?(storage: Storage): ArrayBuffer
  /** Waits for encoded work, then says where the bytes start, for other backends of this process. Memory from 16 KB on starts on a page. */
  address?(storage: Storage): bigint
  /**
   * Makes memory of another backend memory of this one too, without a copy; null where it cannot, for instance for want of alignment. Calls
   * `done` once the storage was released and no work that uses it is left. What is adopted is read only, but for a kernel's outputs.
   */
  adopt?(address: bigint, nbytes: number, done: () => void): Storage | null
  /**
   * Lends a storage to another thread of JavaScript, which takes it once by the number that is returned. Nobody writes to it afterwards.
   */
  give?(storage: Storage): number
  /** Takes what another thread gave. @throws DeviceError where there is nothing of that number */
  take?(number: number, nbytes: number): Storage
  /** Weak references, where it can offer them. */
  readonly tracker?: Tracker
  stats?(): MemoryStats
  /** The blocks in use, for `mx.memoryReport()`. */
  storages?(): Iterable<Storage>
  /** The bytes that a block of so many counts for under the limit, where that is more. */
  blockBytes?(nbytes: number): number
  /** Bounds the bytes in use. */
  setLimit?(bytes: number): void
  /** Bounds the bytes kept for reuse. */
  setCacheLimit?(bytes: number): void
  /** Bounds the bytes that are kept in physical memory. */
  setWiredLimit?(bytes: number): void
  /** Frees the bytes kept for reuse. */
  clearCache?(): void
  /** Starts the peak anew from what is in use. */
  resetPeak?(): void
}

/** A block of memory; `refs` counts those that need it. */
export class Storage {
  /** Nodes that show this memory, storages that lend from it, copies on other devices, and evaluations under way. */
  refs = 1
  /** The origin of its contents: the name of a primitive, or "array" for what came from JavaScript or a file. */
  op = "array"
  /** Why the contents are not there: the error of the work that should have made them. */
  failure: Error | null = null
  /** The stream whose work makes it; null where that is no work of a stream. */
  stream: Stream | null = null
  /** Of a backend with several queues: the one whose work makes it. */
  queue = 0
  /** Of such a backend: the number of the last work of that queue that makes it. */
  ticket = 0
  /** Of such a backend: by queue the last work of other queues that reads it. */
  uses: readonly (number | undefined)[] | null = null
  /** The storage of another backend whose memory this is, for adopted memory. It lives as long as this one. */
  lender: Storage | null = null
  /** Copies on other devices, made when work there read it: they hold as long as this one is not written to. */
  copies: readonly Storage[] | null = null
  /** The storage whose copy this is. */
  original: Storage | null = null
  /** True if JavaScript sees the memory itself: it stays as it is as long as a handle may show it. */
  isExposed = false
  constructor(
    readonly memory: Memory,
    /** The buffer id: the backend's number for it. */
    readonly id: number,
    public nbytes: number,
    /** The memory itself, for a backend that keeps it in JavaScript. */
    readonly bytes: ArrayBuffer | null = null,
  ) {}

  /**
   * Makes a storage that was given back stand for a new block. Objects that live long are cheap for the collector, and those that die
   * young: a storage for each small result would be neither.
   */
  renew(nbytes: number): this {
    this.refs = 1
    this.op = "array"
    this.failure = null
    this.lender = null
    this.copies = null
    this.original = null
    this.isExposed = false
    this.stream = null
    this.uses = null
    this.nbytes = nbytes
    return this
  }

  /** Drops one reference; the last one gives the memory back. */
  drop(): void {
    if (--this.refs > 0) return
    if (this.copies !== null) this.dropCopies()
    this.memory.release(this)
  }

  /** Gives the copies on other devices back. */
  dropCopies(): void {
    for (const copy of this.copies ?? []) copy.drop()
    this.copies = null
  }
}

/**
 * A storage of `memory` over the bytes of another backend's storage, without a copy; null where the two do not share memory. The caller
 * holds one reference to it.
 */
export function lend(memory: Memory, storage: Storage): Storage | null {
  const { lender } = storage
  // Back to where it came from.
  if (lender !== null && lender.memory === memory) {
    lender.refs++
    return lender
  }
  if (!storage.memory.address || !memory.adopt || storage.nbytes === 0) return null
  const adopted = memory.adopt(storage.memory.address(storage), storage.nbytes, () => storage.drop())
  if (adopted === null) return null
  storage.refs++
  adopted.lender = storage
  return adopted
}
