/**
 * The queue on a runtime that only notes what it is given.
 */
import { DeviceError, type Memory, type Storage } from "@lazuli/core/engine"
import { expect, it } from "vitest"
import type { Dispatch } from "../dispatch"
import { Command } from "./command-stream"
import { GpuQueue } from "./queue"
import type { Commands, GpuRuntime } from "./runtime"

/** A runtime that compiles kernels together, and refuses those whose source is "broken". */
function noting() {
  const together: string[][] = []
  const ran: number[] = []
  let numbers = 0
  const runtime: GpuRuntime = {
    name: "noting",
    info: {
      name: "nothing",
      simdWidth: 32,
      maxThreadsPerThreadgroup: 1024,
      maxThreadgroupMemory: 32768,
      maxBufferLength: 2 ** 20,
      recommendedWorkingSet: 2 ** 20,
    },
    newBuffer: (length) => ({ id: ++numbers, length }),
    releaseBuffer() {},
    read() {},
    write() {},
    compileTogether: (sources) => void together.push(sources.map(({ source }) => source)),
    newLibrary(source) {
      if (source === "broken") throw new DeviceError("metal", "does not compile")
      return { kernels: [source] }
    },
    newPipeline: ({ kernels: [source] }, name) => ({ id: Number(source), name, maxThreads: 1024 }),
    commit({ words, length }: Commands) {
      let pipeline = 0
      for (let at = 0; at < length; at += words[at] >>> 8) {
        if ((words[at] & 0xff) === Command.Pipeline) pipeline = words[at + 1]
        if ((words[at] & 0xff) === Command.DispatchThreads) ran.push(pipeline)
      }
      return { id: 1 }
    },
    wait: () => [],
  }
  const queue = new GpuQueue(runtime, { name: "noting" } as Memory)
  const add = (source: string, from: Storage | null, to: Storage): void => {
    const work: Dispatch = {
      op: "test",
      kernel: { key: source, name: "k", source: () => source },
      arguments: [from, to].flatMap((storage) => (storage ? { storage, offset: 0 } : [])),
      writes: [to],
      grid: [32, 1, 1],
      threadgroup: [32, 1, 1],
    }
    queue.dispatch(work)
  }
  return { queue, add, together, ran }
}

it("compiles the kernels of a stream together, each once", () => {
  const { queue, add, together, ran } = noting()
  const [a, b] = [queue.allocate(64), queue.allocate(64)]
  for (const source of ["7", "8", "8", "7"]) add(source, a, b)
  queue.run()
  for (const source of ["7", "9"]) add(source, a, b)
  queue.run()
  expect(together).toEqual([["7", "8"], ["9"]])
  expect(ran).toEqual([7, 8, 8, 7, 7, 9])
})

it("runs what does not depend on a kernel that does not compile, and leaves the rest without a value", () => {
  const { queue, add, ran } = noting()
  const [a, b, c, d] = Array.from({ length: 4 }, () => queue.allocate(64))
  add("7", null, a)
  add("broken", a, b)
  add("8", b, c)
  add("8", a, d)
  queue.run()
  expect(ran).toEqual([7, 8, 8])
  expect([a, b, c, d].map(({ failure }) => failure?.message)).toEqual([
    undefined,
    "[metal] does not compile",
    "[metal] does not compile",
    undefined,
  ])
})
