/** The addon called without the engine: its functions and their checks, buffers, threads and workers. */
import { execFileSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Worker } from "node:worker_threads"
import { afterEach, describe, expect, it } from "vitest"
import { code, map, type Operand, opNames } from "../test/command-assembler"
import { commandBench } from "../test/command-bench"
import { native } from "./native"

const { newId, put, get, release } = commandBench({ words: 1 << 20, firstId: 0 })
afterEach(() => {
  release()
})

describe("the addon", () => {
  it("tells what it has", () => {
    expect(native.version()).toMatch(/^\d+\.\d+\.\d+/)
    expect(native.kernels()).toContain("copy")
    expect(native.scalarOps()).toContain("add")
    expect(native.scalarSupport("exp", code("float32"))).toBe(true)
    expect(native.scalarSupport("exp", code("float16"))).toBe(true)
    expect(native.scalarSupport("exp", code("int32"))).toBe(false)
    expect(native.scalarSupport("nonsense", 0)).toBe(false)
  })

  it.each([
    [
      "run",
      () => native.run(-1),
      "[run] nWords must be an integer from 0 to 9007199254740992, received -1.000000",
    ],
    [
      "run",
      () => native.run(2 ** 40),
      "[run] 1099511627776 words do not fit the attached command buffer of 8388608 bytes",
    ],
    ["read", () => native.read(12345678, 0, new Uint8Array(1)), "[read] there is no buffer 12345678"],
    [
      "attachCommands",
      () => native.attachCommands({} as ArrayBuffer),
      "[attachCommands] commands must be an ArrayBuffer",
    ],
    ["free", () => native.free("x" as unknown as number), "[free] buffer must be a number"],
    ["releasePlan", () => native.releasePlan(99), "[releasePlan] there is no plan 99"],
    [
      "track",
      () => native.track([1 as unknown as object], 1, new Int32Array(1)),
      "[track] element 0 is not an object",
    ],
    ["allocate", () => native.allocate(2 ** 30, 8), "[allocate] buffer id 1073741824 is out of range"],
    [
      "loadKernels",
      () => (native as unknown as { loadKernels(): void }).loadKernels(),
      "[loadKernels] path is missing",
    ],
  ])("%s checks its arguments", (_, f, message) => {
    expect(f).toThrow(message)
  })

  it("loads in worker threads, each with buffers of its own", async () => {
    const s = put(new Uint8Array([7]))
    const addon =
      process.env.LAZULI_CPU_ADDON ?? fileURLToPath(new URL("../build/lazuli_cpu.node", import.meta.url))
    const worker = new Worker(
      `const { parentPort, workerData } = require('node:worker_threads')
       const native = require(workerData.addon)
       let message = ''
       try { native.read(workerData.s, 0, new Uint8Array(1)) } catch (error) { message = error.message }
       native.allocate(workerData.s, 4)
       native.hostView(workerData.s)
       parentPort.postMessage(message)`,
      { eval: true, workerData: { addon, s } },
    )
    const message = await new Promise((resolve, reject) =>
      worker.once("message", resolve).once("error", reject),
    )
    expect(message).toBe(`[read] there is no buffer ${s}`)
    await worker.terminate()
    expect(get(s, new Uint8Array(1))).toEqual(new Uint8Array([7]))
  })

  it("ends a process that used threads", () => {
    const addon =
      process.env.LAZULI_CPU_ADDON ?? fileURLToPath(new URL("../build/lazuli_cpu.node", import.meta.url))
    const script = `const n = require(${JSON.stringify(addon)}); n.setThreads(4); console.log(n.threads())`
    expect(execFileSync(process.execPath, ["-e", script], { timeout: 60_000 }).toString()).toBe("4\n")
  })
})

describe("memory", () => {
  it("counts, caches and gives back", () => {
    native.clearCache()
    const before = native.memory()
    const s = newId()
    native.allocate(s, 1 << 22)
    expect(native.memory().active - before.active).toBe(1 << 22)
    expect(native.memory().buffers - before.buffers).toBe(1)
    const { limit, active, scratch } = native.memory()
    expect(native.freeMemory()).toBe(limit - (active - scratch))
    expect(native.address(s) % 4096n).toBe(0n)
    const at = native.address(s)
    native.free(s)
    expect(native.memory().active).toBe(before.active)
    expect(native.memory().cache).toBe(1 << 22)
    native.allocate(s, 1 << 22)
    expect(native.address(s)).toBe(at)
    native.free(s)
    native.clearCache()
    expect(native.memory().cache).toBe(0)
    native.resetPeakMemory()
    expect(native.memory().peak).toBe(native.memory().active)
  })

  it("keeps the cache within its limit, dropping the oldest", () => {
    const { cacheLimit } = native.memory()
    native.clearCache()
    native.setCacheLimit(1 << 20)
    const ids = Array.from({ length: 32 }, () => newId())
    for (const s of ids) native.allocate(s, 1 << 16)
    for (const s of ids) native.free(s)
    expect(native.memory().cache).toBe(1 << 20)
    native.setCacheLimit(0)
    expect(native.memory().cache).toBe(0)
    native.setCacheLimit(cacheLimit)
  })

  it("shares, views and adopts without a copy", () => {
    const s = put(new Float32Array([1, 2, 3]))
    const t = newId()
    native.share(s, t)
    native.free(s)
    const view = native.hostView(t)
    expect(native.hostView(t)).toBe(view)
    expect([...new Float32Array(view)]).toEqual([1, 2, 3])
    new Float32Array(view)[1] = 20
    expect([...get(t, new Float32Array(3))]).toEqual([1, 20, 3])
    const u = newId()
    native.adopt(u, native.address(t), 12, view)
    native.free(t)
    expect([...get(u, new Float32Array(3))]).toEqual([1, 20, 3])
    expect(() => native.read(u, 8, new Float32Array(2))).toThrow(
      "8 bytes at offset 8 do not fit the buffer's 12",
    )
  })

  it("lets go of a viewed buffer when both the id and the view are gone", async () => {
    setFlagsFromString("--expose-gc")
    const gc = runInNewContext("gc") as () => void
    const s = newId()
    native.allocate(s, 1 << 20)
    const { active } = native.memory()
    ;(() => new Uint8Array(native.hostView(s)).fill(1))()
    native.free(s)
    expect(native.memory().active).toBe(active)
    for (let i = 0; i < 20 && native.memory().active > active - (1 << 20); i++) {
      gc()
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(native.memory().active).toBeLessThanOrEqual(active - (1 << 20))
  })

  it("serves several isolates at once", async () => {
    const addon =
      process.env.LAZULI_CPU_ADDON ?? fileURLToPath(new URL("../build/lazuli_cpu.node", import.meta.url))
    const before = native.threads()
    native.setThreads(4)
    const script = `
      const { parentPort, workerData } = require('node:worker_threads')
      const native = require(workerData.addon)
      native.attachCommands(workerData.commands.buffer)
      native.registerProgram(workerData.program)
      let wrong = 0
      for (let round = 0; round < 60; round++) {
        for (let s = 0; s < 2; s++) native.allocate(s, 4 << 18)
        native.write(0, 0, new Float32Array(1 << 18).fill(round))
        wrong += native.run(workerData.commands.length)
        const out = new Float32Array(1 << 18)
        native.read(1, 0, out)
        wrong += out.findIndex((v) => v !== 2 * round) === -1 ? 0 : 1
      }
      parentPort.postMessage(wrong)`
    const operand = (s: number): Operand => ({ id: s, dtype: "float32", shape: [1 << 18] })
    const words = new BigInt64Array(map(0, [operand(0), operand(0)], [operand(1)]))
    const code32 = BigInt(code("float32"))
    const double = new BigInt64Array([
      2n,
      1n,
      1n,
      code32,
      code32,
      BigInt(opNames.indexOf("add")),
      code32,
      0n,
      1n,
      -1n,
      0n,
      2n,
    ])
    const results = Array.from({ length: 4 }, () => {
      const worker = new Worker(script, {
        eval: true,
        workerData: { addon, commands: words, program: double },
      })
      return new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject))
    })
    expect(await Promise.all(results)).toEqual([0, 0, 0, 0])
    native.setThreads(before)
  })

  it("finds handles that are gone after a minor collection, and not those in use", () => {
    setFlagsFromString("--expose-gc")
    const gc = runInNewContext("gc") as (options?: { type: "minor" }) => void
    const out = new Int32Array(2000)
    const kept: object[] = []
    const make = () => {
      const objects = Array.from({ length: 1000 }, (_, i) => ({ i }))
      native.track(
        objects,
        1000,
        Int32Array.from(objects, (_, i) => 5000 + i),
      )
      kept.push(...objects.slice(0, 100))
      objects.length = 0
    }
    make()
    gc({ type: "minor" })
    const found = native.poll(0, out)
    expect(found).toBeGreaterThan(800)
    expect(found).toBeLessThanOrEqual(900)
    expect(Math.min(...out.subarray(0, found))).toBeGreaterThanOrEqual(5100)
    // The last one made is given back last, and so taken first.
    expect(out.subarray(0, found)).toEqual(out.slice(0, found).sort())
    // Survivors of two walks are old, and only a walk of all finds them.
    native.poll(0, out)
    native.poll(0, out)
    kept.splice(0, 50)
    gc()
    expect(native.poll(0, out)).toBe(0)
    const small = new Int32Array(10)
    let old = 0
    for (let n = native.poll(1, small); n > 0; n = native.poll(1, small)) old += n
    expect(old).toBeGreaterThanOrEqual(40)
    for (const each of kept as { i: number }[]) native.untrack(5000 + each.i)
    kept.length = 0
    gc()
    expect(native.poll(1, out)).toBe(0)
  })
})
