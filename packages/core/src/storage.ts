/**
 * A block of a backend's memory, shared by the arrays that are views of it.
 */

/** The part of a backend that owns memory. */
export interface Memory {
  /** Names the backend in errors. */
  readonly name: string
  /** Gives the memory back; encoded work that uses it still runs first. */
  release(storage: Storage): void
  /** Waits for encoded work, then copies bytes out. */
  read(storage: Storage, byteOffset: number, into: ArrayBufferView): void
  /** Copies bytes in; only for memory that no encoded work uses. */
  write(storage: Storage, byteOffset: number, from: ArrayBufferView): void
  /** Waits for encoded work, then gives the bytes themselves, without a copy. */
  host(storage: Storage): ArrayBuffer
}

/** A block of memory; `refs` counts the nodes that show it. */
export class Storage {
  /** Nodes that show this memory, and guards that keep it. */
  refs = 1
  /** Why the contents are not there: the error of the work that should have made them. */
  failure: Error | null = null
  constructor(
    readonly memory: Memory,
    /** The backend's number for it. */
    readonly slot: number,
    readonly nbytes: number,
    /** The memory itself, for a backend that keeps it in JavaScript. */
    readonly bytes: ArrayBuffer | null = null,
  ) {}

  /** Drops one reference; the last one gives the memory back. */
  drop(): void {
    if (--this.refs === 0) this.memory.release(this)
  }
}
