/**
 * A block of a backend's memory, shared by the arrays that are views of it.
 */

import type { Stream } from "./device"

/** The part of a backend that owns memory. */
export interface Memory {
  /** Names the backend in errors. */
  readonly name: string
  /** Gives the memory back; encoded work that uses it still runs first. */
  release(storage: Storage): void
  /** Waits for the work that makes a storage; then a failure is known. Without it all work is done when evaluation returns. */
  settle?(storage: Storage): void
  /** Waits for encoded work, then copies bytes out. */
  read(storage: Storage, byteOffset: number, into: ArrayBufferView): void
  /** Copies bytes in; only for memory that no encoded work uses. */
  write(storage: Storage, byteOffset: number, from: ArrayBufferView): void
  /** Waits for encoded work, then gives the bytes themselves, without a copy. */
  host(storage: Storage): ArrayBuffer
  /** Waits for encoded work, then says where the bytes start, for other backends of this process. Memory from 16 KB on starts on a page. */
  address?(storage: Storage): bigint
  /**
   * Makes memory of another backend memory of this one too, without a copy; null where it cannot, for instance for want of alignment. Calls
   * `done` once the storage was released and no work that uses it is left. What is adopted is read only, but for a kernel's outputs.
   */
  adopt?(address: bigint, nbytes: number, done: () => void): Storage | null
  /** Lends a storage to another thread of JavaScript, which takes it once by the number that is returned. Nobody writes to it afterwards. */
  give?(storage: Storage): number
  /** Takes what another thread gave. @throws DeviceError where there is nothing of that number */
  take?(number: number, nbytes: number): Storage
}

/** A block of memory; `refs` counts the nodes that show it. */
export class Storage {
  /** Nodes that show this memory, and guards that keep it. */
  refs = 1
  /** What made its contents: the name of a primitive, or "array" for what came from JavaScript or a file. */
  op = "array"
  /** Why the contents are not there: the error of the work that should have made them. */
  failure: Error | null = null
  /** The stream whose work makes it; null where that is no work of a stream. */
  stream: Stream | null = null
  /** Of a backend with several queues: the one whose work makes it. */
  lane = 0
  /** Of such a backend: the number of the last work of that queue that makes it. */
  ticket = 0
  /** Of such a backend: by queue the last work of other queues that reads it. */
  uses: readonly (number | undefined)[] | null = null
  /** The storage of another backend whose memory this is, for adopted memory. It lives as long as this one. */
  lender: Storage | null = null
  constructor(
    readonly memory: Memory,
    /** The backend's number for it. */
    readonly slot: number,
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
    this.stream = null
    this.uses = null
    this.nbytes = nbytes
    return this
  }

  /** Drops one reference; the last one gives the memory back. */
  drop(): void {
    if (--this.refs === 0) this.memory.release(this)
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
