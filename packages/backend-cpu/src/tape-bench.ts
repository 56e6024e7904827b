/** For tests: a tape of one's own, and slots with data that are freed when they are done with. */
import { native } from "./native"

/** A tape for records that a test writes, on a lane of its own or on the one without a number; slots count from `firstSlot`. */
export function tapeBench({
  words,
  firstSlot,
  lane,
}: {
  readonly words: number
  readonly firstSlot: number
  readonly lane?: number
}) {
  const tape = new BigInt64Array(words)
  native.attachTape(tape.buffer, lane)
  let nextSlot = firstSlot
  const used: number[] = []
  /** A slot without memory. */
  function slot(): number {
    used.push(nextSlot)
    return nextSlot++
  }
  return {
    tape,
    slot,
    /** Runs records, and gives the number of those that failed. */
    execute(...records: bigint[][]): number {
      const written = records.flat()
      tape.set(written)
      return native.run(written.length, lane)
    },
    /** A slot with this data. */
    put(data: ArrayBufferView): number {
      const it = slot()
      native.allocate(it, data.byteLength)
      native.write(it, 0, data)
      return it
    },
    get<T extends ArrayBufferView>(from: number, into: T): T {
      native.read(from, 0, into)
      return into
    },
    /** Frees all slots. */
    release(): void {
      for (const each of used.splice(0)) native.free(each)
    },
  }
}
