/** For tests: a command buffer of one's own, and ids with data that are freed when they are done with. */
import { native } from "../src/native"

/** A command buffer for records that a test writes, on a queue of its own or on the one without a number; ids count from `firstId`. */
export function commandBench({
  words,
  firstId,
  queue,
}: {
  readonly words: number
  readonly firstId: number
  readonly queue?: number
}) {
  const commands = new BigInt64Array(words)
  native.attachCommands(commands.buffer, queue)
  let nextId = firstId
  const used: number[] = []
  /** A buffer id without memory. */
  function newId(): number {
    used.push(nextId)
    return nextId++
  }
  return {
    commands,
    newId,
    /** Runs records, and gives the number of those that failed. */
    execute(...records: bigint[][]): number {
      const written = records.flat()
      commands.set(written)
      return native.run(written.length, queue)
    },
    /** A buffer with this data. */
    put(data: ArrayBufferView): number {
      const it = newId()
      native.allocate(it, data.byteLength)
      native.write(it, 0, data)
      return it
    },
    get<T extends ArrayBufferView>(from: number, into: T): T {
      native.read(from, 0, into)
      return into
    },
    /** Frees all buffers. */
    release(): void {
      for (const each of used.splice(0)) native.free(each)
    },
  }
}
