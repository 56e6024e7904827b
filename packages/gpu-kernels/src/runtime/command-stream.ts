/**
 * Commands for a {@link GpuRuntime} as 32-bit words: what Metal's encoders take call by call, packed so that the native side reads a
 * whole stream at once. Checks what Metal would refuse.
 *
 * A record is a header (opcode in the low byte, length in words above, the header included) and its words.
 */
import { DeviceError } from "@lazuli/core/engine"
import { MAX_INLINE_BYTES, type Size } from "../dispatch"
import { MAX_BUFFER_INDEX } from "../msl/lint"
import type { GpuBuffer, GpuEvent, GpuPipeline, PlanId } from "./runtime"

/** Opcodes, as the runtimes' native sides have them. */
export enum Command {
  Pipeline = 1,
  Buffer = 2,
  Bytes = 3,
  ThreadgroupMemory = 4,
  DispatchThreads = 5,
  DispatchThreadgroups = 6,
  Barrier = 7,
  Signal = 8,
  Wait = 9,
  /** Runs a plan: its number, then for each of its bindings a buffer and a 64-bit offset. */
  Plan = 10,
  /** Makes the commands that follow those of a stream of the device. */
  UseStream = 11,
  /** Lets them wait for what another stream was given before. */
  Join = 12,
  /** Of a plan: leaves out so many dispatches that follow where two of its bindings are at one place. */
  Unless = 13,
  /** Of a plan: lets the library's work that comes next, which has a number, run beside what follows it. */
  Beside = 14,
  /** Of a plan: lets what follows wait for what runs beside, up to a number. */
  Rejoin = 15,
}

/** A growing list of commands. State set for one dispatch holds for the next. */
export class CommandStream {
  /** The words; those from `length` on are rubbish. */
  words: Int32Array = new Int32Array(1024)
  /** The number of words in use. */
  length = 0
  /** The number of dispatches in it. */
  dispatches = 0
  private pipeline: GpuPipeline | null = null

  /** Empties the stream. */
  clear(): void {
    this.length = 0
    this.dispatches = 0
    this.pipeline = null
  }

  /** Chooses the kernel of the dispatches that follow. Returns where its number is; −1 where it is chosen already. */
  setPipeline(pipeline: GpuPipeline): number {
    if (pipeline === this.pipeline) return -1
    this.pipeline = pipeline
    const at = this.begin(Command.Pipeline, 2)
    this.words[at] = pipeline.id
    return at
  }

  /** Makes a record, which starts there, do nothing. */
  skip(start: number): void {
    this.words[start] = Command.Barrier | (this.words[start] & ~0xff)
  }

  /** Binds a buffer from a byte offset on. */
  setBuffer(index: number, buffer: GpuBuffer, offset = 0): void {
    checkIndex(index)
    if (!(offset >= 0 && offset <= buffer.length))
      throw new DeviceError("setBuffer", `the offset ${offset} is outside a buffer of ${buffer.length} bytes`)
    const at = this.begin(Command.Buffer, 5)
    const from = buffer.offset === undefined ? offset : buffer.offset + offset
    const { words } = this
    words[at] = index
    words[at + 1] = buffer.id
    words[at + 2] = from
    words[at + 3] = from < 2 ** 32 ? 0 : Math.floor(from / 2 ** 32)
  }

  /** Binds a copy of a few bytes. @throws DeviceError for more than 4,096 */
  setBytes(index: number, bytes: ArrayBufferView): void {
    checkIndex(index)
    const { byteLength } = bytes
    if (byteLength > MAX_INLINE_BYTES)
      throw new DeviceError(
        "setBytes",
        `takes at most ${MAX_INLINE_BYTES} bytes, received ${byteLength}: use a buffer`,
      )
    const at = this.begin(Command.Bytes, 3 + ((byteLength + 3) >> 2))
    this.words[at] = index
    this.words[at + 1] = byteLength
    new Uint8Array(this.words.buffer, (at + 2) * 4, byteLength).set(
      new Uint8Array(bytes.buffer, bytes.byteOffset, byteLength),
    )
  }

  /** Binds a 32-bit integer. */
  setInteger(index: number, value: number): void {
    const at = this.begin(Command.Bytes, 4)
    this.words[at] = index
    this.words[at + 1] = 4
    this.words[at + 2] = value
  }

  /** Sets the size of the memory behind a `[[threadgroup(index)]]` parameter. */
  setThreadgroupMemory(index: number, bytes: number): void {
    checkIndex(index)
    const at = this.begin(Command.ThreadgroupMemory, 3)
    this.words[at] = index
    this.words[at + 1] = bytes
  }

  /** Runs one thread for each cell of the grid; groups at its edges may be smaller. Returns where the record starts. */
  dispatchThreads(grid: Size, threadgroup: Size): number {
    return this.dispatch(Command.DispatchThreads, grid, threadgroup)
  }

  /** Runs whole threadgroups. Returns where the record starts. */
  dispatchThreadgroups(groups: Size, threadgroup: Size): number {
    return this.dispatch(Command.DispatchThreadgroups, groups, threadgroup)
  }

  /** Runs threads along one axis, in whole groups that the pipeline allows. Returns where the record starts. */
  dispatchLine(threads: number, group: number): number {
    const start = this.length
    const at = this.begin(Command.DispatchThreads, 7)
    const { words } = this
    words[at] = threads
    words[at + 1] = words[at + 2] = 1
    words[at + 3] = group
    words[at + 4] = words[at + 5] = 1
    this.dispatches++
    return start
  }

  /** Gives the commands that follow to a stream of the device. */
  useStream(stream: number): void {
    this.words[this.begin(Command.UseStream, 2)] = stream
  }
  /** Lets them wait for what a stream has been given. */
  join(stream: number): void {
    this.words[this.begin(Command.Join, 2)] = stream
  }

  /** Makes the writes of earlier dispatches visible to later ones. */
  barrier(): void {
    this.begin(Command.Barrier, 1)
  }
  /** Sets a counter once the commands before it have ended. */
  signal(event: GpuEvent, value: number): void {
    const at = this.begin(Command.Signal, 3)
    this.words[at] = event.id
    this.words[at + 1] = value
  }
  /** Holds the commands after it back until a counter has the value. */
  wait(event: GpuEvent, value: number): void {
    const at = this.begin(Command.Wait, 3)
    this.words[at] = event.id
    this.words[at + 1] = value
  }

  /** Lets the library's work that comes next run beside what follows it, up to {@link rejoin}. Returns where the record starts. */
  beside(number: number): number {
    const at = this.begin(Command.Beside, 2)
    this.words[at] = number
    return at - 1
  }
  /** Lets what follows wait for the work beside that has the number, and that before it. */
  rejoin(number: number): void {
    this.words[this.begin(Command.Rejoin, 2)] = number
  }

  /**
   * Leaves out the dispatches that follow where two bindings of a plan are at one place; returns a function that says how many these are.
   */
  unless(a: number, b: number): (dispatches: number) => void {
    const at = this.begin(Command.Unless, 4)
    this.words[at] = a
    this.words[at + 1] = b
    return (dispatches) => {
      this.words[at + 2] = dispatches
    }
  }

  /** Runs a plan with its bindings: triples of a buffer and the two words of an offset. Returns where the record starts. */
  runPlan(plan: PlanId, bindings: Int32Array): number {
    const start = this.length
    const at = this.begin(Command.Plan, 2 + bindings.length)
    this.words[at] = plan.id
    this.words.set(bindings, at + 1)
    this.dispatches++
    // It ends with a pipeline of its own.
    this.pipeline = null
    return start
  }

  /** Adds recorded commands, of so many dispatches, with `bindings` in place of their numbers at `buffers`. Returns where they start. */
  append(words: Int32Array, dispatches: number, buffers: readonly number[], bindings: Int32Array): number {
    const start = this.length
    this.reserve(words.length)
    this.words.set(words, start)
    for (const record of buffers) {
      const at = start + record + 2
      const from = 3 * this.words[at]
      const offset =
        (this.words[at + 1] >>> 0) +
        (bindings[from + 1] >>> 0) +
        2 ** 32 * (this.words[at + 2] + bindings[from + 2])
      this.words[at] = bindings[from]
      this.words[at + 1] = offset >>> 0
      this.words[at + 2] = Math.floor(offset / 2 ** 32)
    }
    this.length = start + words.length
    this.dispatches += dispatches
    this.pipeline = null
    return start
  }

  /** Adds a record that only a platform of its own knows, and counts it as a dispatch. Returns where it starts. */
  call(code: number, words: Int32Array): number {
    const start = this.length
    const at = this.begin(code, 1 + words.length)
    this.words.set(words, at)
    this.dispatches++
    return start
  }

  private dispatch(command: Command, grid: Size, threadgroup: Size): number {
    if (!this.pipeline) throw new DeviceError("dispatch", "needs a pipeline: call setPipeline first")
    const { name, maxThreads } = this.pipeline
    const threads = threadgroup[0] * threadgroup[1] * threadgroup[2]
    if (!(threads >= 1 && threads <= maxThreads))
      throw new DeviceError(
        name,
        `a threadgroup must have 1 to ${maxThreads} threads, received ${threadgroup.join(" × ")}`,
      )
    for (const n of grid)
      if (!(Number.isInteger(n) && n >= 0 && n <= 0xffffffff))
        throw new DeviceError(name, `a grid needs 32-bit sizes, received ${grid.join(" × ")}`)
    const start = this.length
    const at = this.begin(command, 7)
    for (let i = 0; i < 3; i++) {
      this.words[at + i] = grid[i]
      this.words[at + 3 + i] = threadgroup[i]
    }
    this.dispatches++
    return start
  }

  /** Room for a record; returns the index of its first word after the header. */
  private begin(command: number, words: number): number {
    const at = this.length
    this.reserve(words)
    this.words[at] = command | (words << 8)
    this.length = at + words
    return at + 1
  }

  private reserve(words: number): void {
    const at = this.length
    if (at + words <= this.words.length) return
    const grown = new Int32Array(Math.max(2 * this.words.length, at + words))
    grown.set(this.words.subarray(0, at))
    this.words = grown
  }
}

function checkIndex(index: number): void {
  if (!(Number.isInteger(index) && index >= 0 && index <= MAX_BUFFER_INDEX))
    throw new DeviceError("setBuffer", `buffer indices go from 0 to ${MAX_BUFFER_INDEX}, received ${index}`)
}
