/** For tests: a command buffer of one's own, and slots with data that are freed when they are done with. */
import { native } from "../src/native"

/** A command buffer for records that a test writes, on a queue of its own or on the one without a number; slots count from `firstSlot`. */
export function commandBench({
  words,
  firstSlot,
  queue,
}: {
  readonly words: number
  readonly firstSlot: number
  readonly queue?: number
}) {
  const commands = new BigInt64Array(words)
  native.attachCommands(commands.buffer, queue)
  let nextSlot = firstSlot
  const used: number[] = []
  /** A slot without memory. */
  function slot(): number {
    used.push(nextSlot)
    return nextSlot++
  }
  return {
    commands,
    slot,
    /** Runs records, and gives the number of those that failed. */
    execute(...records: bigint[][]): number {
      const written = records.flat()
      commands.set(written)
      return native.run(written.length, queue)
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
