/**
 * Storages: blocks of a backend's memory, shared by arrays that are views of them.
 */

import type { Stream } from "./device"

/** Weak references, through which memory.ts detects dead handles. Only native code can poll them in synchronous programs. */
export interface Tracker {
  /** Creates weak references to objects[0 … count − 1] and stores their ids. */
  track(objects: readonly object[], count: number, ids: Int32Array): void
  /** Removes a weak reference. */
  untrack(id: number): void
  /** False if the garbage collector has found the object dead. */
  isAlive?(id: number): boolean
  /** The ids of dead objects, among the recent references or among all. */
  poll(all: boolean): ArrayLike<number>
  /** Runs the garbage collector, if possible. */
  collect(full: boolean): void
}

/** Bytes in use, their peak, cached bytes, and the number of blocks in use. */
export interface MemoryStats {
  readonly active: number
  /** The part of {@link active} that is scratch memory of running kernels, which the limit does not count. */
  readonly scratch?: number
  readonly peak: number
  readonly cache: number
  readonly buffers: number
  readonly limit: number
  /** The limit of {@link cache}, if known. */
  readonly cacheLimit?: number
}

/**
 * A backend's memory: the host's, or a device's, which the host accesses only through {@link read} and {@link write} (then {@link host} is
 * absent).
 */
export interface Memory {
  /** The backend's name, for errors. */
  readonly name: string
  /**
   * Allocates uninitialized memory for subsequently encoded work of a stream. @throws DeviceError if a limit is reached
   */
  allocate(nbytes: number, stream?: Stream): Storage
  /**
   * Allocates memory that JavaScript may write immediately, even while work is running. By default, `allocate` followed by the queue's
   * `flush`.
   */
  stage?(nbytes: number): Storage
  /** The same with a copy of a few bytes, by encoded work; null where {@link stage} and {@link write} are better. */
  allocateFilled?(bytes: ArrayBufferView): Storage | null
  /** Releases the memory, once encoded work that uses it has run. */
  release(storage: Storage): void
  /** Waits for the work that computes a storage, after which a failure is known. If absent, evaluation is synchronous. */
  wait?(storage: Storage): void
  /** Waits for encoded work, then copies bytes out. */
  read(storage: Storage, byteOffset: number, into: ArrayBufferView): void
  /** Copies bytes in; only for memory that no encoded work uses. */
  write(storage: Storage, byteOffset: number, from: ArrayBufferView): void
  /** Waits for encoded work, then returns the memory itself, without a copy. */
  host?(storage: Storage): ArrayBuffer
  /** Waits for encoded work, then returns the address, for other backends of this process. Blocks of at least 16 KB are page-aligned. */
  address?(storage: Storage): bigint
  /**
   * Wraps another backend's memory without a copy; null if that is impossible, for instance because of alignment. Calls `done` once the
   * storage is released and no longer used by any work. Adopted memory is read-only, except as a kernel's output.
   */
  adopt?(address: bigint, nbytes: number, done: () => void): Storage | null
  /**
   * Shares a storage with another JavaScript thread, which takes it once, by the returned id. It is never written again.
   */
  give?(storage: Storage): number
  /** Takes a storage that another thread shared. @throws DeviceError for an unknown id */
  take?(number: number, nbytes: number): Storage
  /** Weak references, if supported. */
  readonly tracker?: Tracker
  stats?(): MemoryStats
  /** The bytes that are free under the limit, scratch counted as free, for backends that tell them faster than all of {@link stats}. */
  free?(): number
  /** The blocks in use, for `mx.memoryReport()`. */
  storages?(): Iterable<Storage>
  /** The bytes that an allocation of `nbytes` counts towards the limit, if more. */
  blockBytes?(nbytes: number): number
  /** Limits the bytes in use. */
  setLimit?(bytes: number): void
  /** Limits the cached bytes. */
  setCacheLimit?(bytes: number): void
  /** Limits the bytes wired in physical memory. */
  setWiredLimit?(bytes: number): void
  /** Frees cached memory. */
  clearCache?(): void
  /** Resets the peak to the bytes in use. */
  resetPeak?(): void
}

/** A reference-counted block of memory. */
export class Storage {
  /** The number of references: nodes, storages that adopted it, copies on other devices, and running evaluations. */
  refs = 1
  /** The origin of its contents: the name of a primitive, or "array" for data from JavaScript or a file. */
  op = "array"
  /** The error of the work that should have computed the contents. */
  failure: Error | null = null
  /** The stream whose work computes it, if any. */
  stream: Stream | null = null
  /** For backends with several queues: the queue whose work computes it. */
  queue = 0
  /** For such backends: the ticket of the last work of that queue that writes it. */
  ticket = 0
  /** For such backends: the last work of each other queue that reads it. */
  uses: readonly (number | undefined)[] | null = null
  /** For adopted memory: the other backend's storage, kept alive by this one. */
  lender: Storage | null = null
  /** Copies on other devices, cached for reads there; valid while this one is not written. */
  copies: readonly Storage[] | null = null
  /** The storage of which this is a copy. */
  original: Storage | null = null
  /** True if JavaScript has a view of the memory, which must then not change. */
  isExposed = false
  constructor(
    readonly memory: Memory,
    /** Its id in the backend. */
    readonly id: number,
    public nbytes: number,
    /** The memory, for backends in JavaScript. */
    readonly bytes: ArrayBuffer | null = null,
  ) {}

  /**
   * Reuses a released storage object for a new block. Objects that live long or die young are cheap for the garbage collector; a new
   * storage for each small result would be neither.
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

  /** Drops a reference; the last one releases the memory. */
  drop(): void {
    if (--this.refs > 0) return
    if (this.copies !== null) this.dropCopies()
    this.memory.release(this)
  }

  /** Releases the copies on other devices. */
  dropCopies(): void {
    for (const copy of this.copies ?? []) copy.drop()
    this.copies = null
  }
}

/**
 * A storage of `memory` that shares another backend's storage without a copy; null if the two cannot share memory. The caller holds one
 * reference to it.
 */
export function lend(memory: Memory, storage: Storage): Storage | null {
  const { lender } = storage
  // Returned to its original backend.
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
