/**
 * The limits on memory in use, looked at before anything is allocated. Small work mostly needs no look: so many bytes are known to be
 * free. Dead arrays are found by memory.ts, which is asked for them.
 */
import { type Backend, backendOf } from "../graph/backend"
import { streamsAreOnCpu } from "../graph/device"
import { DeviceError } from "../graph/errors"
import type { Memory, MemoryStats } from "../graph/storage"
import { type Bytes, bytesIn } from "./memory-budget"

/** The limit is looked at after so many allocated bytes at the latest: another thread may have changed it. */
const LOOK_AFTER = 4 * 2 ** 20

/** A collection before dead arrays are looked for: none, of what is young, or of all. */
export type Collection = "none" | "young" | "all"

/** A memory, and the bytes for which it has no room. */
type Lacking = readonly [memory: Memory, bytes: number]

/** A backend's account of its memory. Released memory is only counted once the work before it is done. */
export const statsOf = ({ memory }: Backend): MemoryStats => (memory.stats as () => MemoryStats)()

const freeOf = ({ active, scratch = 0, limit }: MemoryStats): number => limit - (active - scratch)

/** Waits for all work of a backend. */
export function drain({ queue }: Backend): void {
  if (queue.drain) queue.drain()
  else queue.flush()
}

export class MemoryLimit {
  /** The memory that small work takes, where free bytes are known without asking. */
  home: Memory | null = null
  /** So many bytes may be allocated before the limit is looked at, and so many were. */
  private free = 0
  private taken = 0
  /** Bytes allocated since the last look that waited for all work: some may not be counted as active yet. */
  private uncounted = 0
  /** True if memory was allocated beside that of {@link home}. */
  private isMixed = false

  /** Told of every allocation. */
  note(memory: Memory, nbytes: number): void {
    if (memory === this.home) {
      const bytes = bytesIn(memory, nbytes)
      this.taken += bytes
      this.uncounted += bytes
    } else this.isMixed = true
  }

  /** Forgets what is known of the limit. */
  forget(): void {
    this.free = 0
  }

  /** True if so many bytes are certainly free under the limit, where all is allocated in one memory. */
  admits(most: number): boolean {
    return this.home !== null && !this.isMixed && streamsAreOnCpu() && this.isSurelyFree(this.home, most)
  }

  /**
   * Sees to it that `most` bytes are free under the limits, or at least those that `least` gives. `findDead` is called for as long as they
   * are not; null where nothing can be found. What is dead may lower the least bytes, too: what nobody can read goes on the way.
   * @throws DeviceError where there are not
   */
  reserve(
    op: string,
    most: Bytes,
    least: () => Bytes,
    findDead: ((collection: Collection) => void) | null,
  ): void {
    if (this.lacking(most, this.admitsSurely) === null) return
    let lacking: Lacking | null = null
    for (const collection of findDead ? (["none", "young", "all", "all"] as const) : (["none"] as const)) {
      if (collection !== "none") findDead?.(collection)
      lacking = this.lacking(least(), this.hasFree)
      if (lacking === null) return
    }
    const [memory, needed] = lacking as Lacking
    const { active, scratch = 0, limit } = statsOf(backendOf(memory))
    throw new DeviceError(
      op,
      `out of memory${memory === this.home ? "" : ` of ${memory.name}`}: needs ${needed} bytes more with ${active - scratch} active, limit ${limit}`,
      {
        hint: "Nothing was computed and no array has changed: dispose of others or raise the limit (mx.setMemoryLimit), and try again",
      },
    )
  }

  /** The first memory that does not fit; null where all do. */
  private lacking(bytes: Bytes, fits: (memory: Memory, bytes: number) => boolean): Lacking | null {
    for (const each of bytes) if (!fits(...each)) return each
    return null
  }

  /**
   * True if a memory has room for so many bytes once all work is waited for: for none also below a limit that was lowered under what is in
   * use.
   */
  private readonly hasFree = (memory: Memory, bytes: number): boolean =>
    bytes <= 0 || this.freeBytes(memory, true) >= bytes

  /** The same, without waiting where that can be. */
  private readonly admitsSurely = (memory: Memory, bytes: number): boolean =>
    this.isSurelyFree(memory, bytes) || this.hasFree(memory, bytes)

  /** True if so many bytes are free, whatever the work under way still takes. */
  private isSurelyFree(memory: Memory, bytes: number): boolean {
    if (memory === this.home && this.taken + bytes <= this.free) return true
    return this.freeBytes(memory, false) >= bytes
  }

  /** Free bytes under a memory's limit: certainly so many, or, once all work is waited for, exactly. */
  private freeBytes(memory: Memory, wait: boolean): number {
    if (memory.stats === undefined) return Infinity
    if (wait) drain(backendOf(memory))
    const free = memory.free?.() ?? freeOf(memory.stats())
    if (memory !== this.home) return free
    if (wait) this.uncounted = 0
    this.free = Math.min(LOOK_AFTER, free - this.uncounted)
    this.taken = 0
    return free - this.uncounted
  }
}
