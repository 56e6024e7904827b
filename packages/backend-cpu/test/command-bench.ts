/** For tests: a command buffer of one's own, and ids with data that are freed when they are done with. */
import { generator } from "@lazuli/conformance/generator"
import { native } from "../src/native"
import { type DtypeName, itemsize, map, program } from "./command-assembler"

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
  /** Runs records, and gives the number of those that failed. */
  function execute(...records: bigint[][]): number {
    const written = records.flat()
    commands.set(written)
    return native.run(written.length, queue)
  }
  /** A buffer with this data. */
  function put(data: ArrayBufferView): number {
    const it = newId()
    native.allocate(it, data.byteLength)
    native.write(it, 0, data)
    return it
  }
  function get<T extends ArrayBufferView>(from: number, into: T): T {
    native.read(from, 0, into)
    return into
  }
  /** Runs records. @throws where one fails, with its message */
  function ok(...records: bigint[][]): void {
    if (execute(...records) === 0) return
    const messages = native.failures().map((f) => f.message)
    throw new Error(messages.join("; "))
  }
  /** One instruction over whole arrays. */
  function apply(
    op: string,
    dtype: DtypeName,
    result: DtypeName,
    out: ArrayBufferView,
    ...inputs: ArrayBufferView[]
  ): void {
    const id = program(
      inputs.map(() => dtype),
      [[op, result, inputs.map((_, i) => i)]],
    )
    const n = out.byteLength / itemsize(result)
    const target = newId()
    native.allocate(target, out.byteLength)
    ok(
      map(
        id,
        inputs.map((x) => ({ id: put(x), dtype, shape: [n] })),
        [{ id: target, dtype: result, shape: [n] }],
      ),
    )
    get(target, out)
    native.releaseProgram(id)
  }
  /** Frees all buffers. */
  function release(): void {
    for (const each of used.splice(0)) native.free(each)
  }
  return { commands, newId, execute, ok, apply, put, get, release }
}

/** A float32's bits, as an immediate operand has them. */
export const bitsOf = (value: number): bigint => BigInt(new Uint32Array(new Float32Array([value]).buffer)[0])

/** Numbers between two bounds. */
export function random(n: number, low: number, high: number, seed = 1): Float32Array<ArrayBuffer> {
  const next = generator(seed)
  return Float32Array.from({ length: n }, () => low + next() * (high - low))
}
