/** Threads of JavaScript with a runtime each, processes that end in the middle of work, and arrays that travel between threads. */
import * as mx from "@lazuli/core"
import { lifetimes } from "@lazuli/core/engine"
import { describe, expect, test } from "vitest"
import { answer, bundleEngine } from "../test/engine-bundle"
import "./index"

const MB = 2 ** 20
const { run: runProcess, start } = bundleEngine()

// An emulator multiplies a hundred times as slowly.
const SIDE = process.env.LAZULI_EMULATOR ? 100 : 700
const HEAVY = `
  let x = mx.ones([${SIDE}, ${SIDE}])
  for (let i = 0; i < 400; i++) x = x.matmul(x).multiply(1e-4)`

describe("a process ends", () => {
  for (const [name, code, stdout] of [
    [
      "when what it handed over is done",
      `${HEAVY.replace("400", "3")}; mx.asyncEval(x).then(() => console.log('done'))`,
      "done\n",
    ],
    [
      "when it awaits nothing any more",
      "await mx.asyncEval(mx.ones([8]).add(1)); console.log('done')",
      "done\n",
    ],
    [
      "at once, in the middle of work",
      `${HEAVY}; mx.asyncEval(x); console.log('go'); process.exit(0)`,
      "go\n",
    ],
    [
      "in the middle of work of several streams",
      `const s = mx.newStream(mx.cpu); ${HEAVY}
       const y = mx.stream(s, () => x.add(1)); mx.asyncEval(x, y); console.log('go'); process.exit(0)`,
      "go\n",
    ],
  ] as const) {
    test(name, () => {
      const { status, signal, stderr, ...result } = runProcess(code)
      expect({ status, signal, stderr }).toEqual({ status: 0, signal: null, stderr: "" })
      expect(result.stdout).toBe(stdout)
    })
  }

  test("by an error that nobody caught, in the middle of work", () => {
    const { status, signal, stderr } = runProcess(`${HEAVY}; mx.asyncEval(x); throw new Error('no luck')`)
    expect([status, signal]).toEqual([1, null])
    expect(stderr).toContain("no luck")
  })
})

describe("workers", () => {
  test("compute at once, each for itself", async () => {
    const code = `
      let total = 0
      for (let i = 0; i < 30; i++) {
        const x = mx.full([300, 300], data)
        const y = x.matmul(x).add(i)
        if (i % 2) await mx.asyncEval(y)
        total += y.index(7, 7).item()
      }
      post(total)`
    const workers = [1, 2, 3, 4].map((k) => start(code, k))
    const sums = await Promise.all(workers.map(answer))
    expect(sums).toEqual([1, 2, 3, 4].map((k) => 30 * 300 * k * k + (29 * 30) / 2))
    await Promise.all(workers.map((worker) => worker.terminate()))
  })

  test("are terminated in the middle of work, and leave no memory behind", async () => {
    lifetimes.collectGarbage()
    const before = mx.getActiveMemory()
    const workers = [
      start(`${HEAVY}; mx.asyncEval(x); post('go'); for (;;) {}`),
      start(`${HEAVY}; mx.asyncEval(x); post('go'); await new Promise(() => setInterval(() => {}, 1000))`),
      start(`post('go'); for (;;) { const y = mx.ones([512, 512]).add(1); mx.eval(y) }`),
    ]
    await Promise.all(workers.map(answer))
    await Promise.all(workers.map((worker) => worker.terminate()))
    expect(
      mx
        .ones([64, 64])
        .matmul(mx.ones([64, 64]))
        .index(0, 0)
        .item(),
    ).toBe(64)
    lifetimes.collectGarbage()
    expect(mx.getActiveMemory() - before).toBeLessThan(MB)
  })
})

test("a limit that one thread sets binds the others, who can go on afterwards", async () => {
  const worker = start(`
    const next = () => new Promise((resolve) => parentPort.once('message', resolve))
    let x = mx.zeros([512, 512])
    mx.eval(x)
    post('ready')
    await next()
    for (let i = 0; i < 200; i++) { x = x.add(1); mx.eval(x) }
    const y = mx.zeros([64, 1024, 1024]).add(1)
    let refused = ''
    try { mx.eval(y) } catch (error) { refused = error.message }
    post(refused)
    await next()
    post([x.index(5, 5).item(), y.index(63, 0, 7).item()])`)
  await answer(worker)
  const before = mx.setMemoryLimit(mx.getActiveMemory() + 40 * MB)
  try {
    worker.postMessage("go")
    expect(await answer(worker)).toMatch(/^\[eval\] out of memory: needs \d+ bytes more/)
  } finally {
    mx.setMemoryLimit(before)
  }
  worker.postMessage("go")
  expect(await answer(worker)).toEqual([200, 1])
  await worker.terminate()
})

describe("arrays travel", () => {
  test("to a worker and back, without a copy", async () => {
    const x = mx.arange(MB, { dtype: mx.float32 })
    const view = x.index("1024:2048")
    mx.eval(x, view)
    mx.resetPeakMemory()
    const before = mx.getActiveMemory()
    const worker = start(
      `const { x, view, kept } = mx.receive(data)
       const y = mx.array([x.size, view.index(3).item(), kept])
       post(mx.share({ x, y }))`,
      mx.share({ x, view, kept: 7 }),
    )
    const back = mx.receive((await answer(worker)) as mx.SharedTree<{ x: mx.Array; y: mx.Array }>)
    await worker.terminate()
    expect(back.y.tolist()).toEqual([MB, 1027, 7])
    expect(back.x.dtype).toBe(mx.float32)
    // A megabyte of floats was never copied: only the worker's few numbers are new.
    expect(mx.getPeakMemory() - before).toBeLessThan(MB)
    const z = back.x.add(1)
    mx.eval(z)
    expect([x.index(-1).item(), z.index(-1).item()]).toEqual([MB - 1, MB])
  })

  test("rows of a transposed array in their order, and once", () => {
    const t = mx.array([
      [1, 2],
      [3, 4],
    ]).T
    const note = mx.share(t)
    expect(mx.receive(note).tolist()).toEqual([
      [1, 3],
      [2, 4],
    ])
    expect(() => mx.receive(note)).toThrow(/no buffer waits under number/)
  })

  test("and what is no note is refused", () => {
    const note = mx.share(mx.array([1, 2, 3]))
    expect(() => mx.receive({ ...note, shape: [1000] })).toThrow(mx.FormatError)
    expect(() => mx.receive({ ...note, offset: -1 })).toThrow(mx.FormatError)
    expect(() => mx.receive({ ...note, dtype: "float31" })).toThrow(mx.DTypeError)
    expect(() => mx.receive({ ...note, backend: "none" })).toThrow(mx.DeviceError)
    expect(() => mx.receive({ ...note, lazuliShared: 1e9 })).toThrow(mx.DeviceError)
    expect(() => mx.share(mx.take(mx.zeros([2]), mx.array([5], mx.int32)))).toThrow(mx.IndexError)
    expect(mx.receive(note).tolist()).toEqual([1, 2, 3])
    expect(mx.receive({ a: [1, null, "x"] })).toEqual({ a: [1, null, "x"] })
  })
})

// AddressSanitizer keeps freed memory for a while, to notice its use.
const keepsFreed = process.env.ASAN_OPTIONS !== undefined

test.skipIf(keepsFreed)("a thread that ends leaves no reference behind to what it could still reach", () => {
  const { stdout, stderr, status } = runProcess(`
    const { Worker } = await import('node:worker_threads')
    const source = \`
      const native = require(process.env.LAZULI_CPU_ADDON)
      const objects = Array.from({ length: 100000 }, () => ({}))
      native.track(objects, objects.length, Int32Array.from(objects, (_, i) => i))
      globalThis.kept = objects\`
    const live = async (count) => {
      for (let i = 0; i < count; i++)
        await new Promise((done) => new Worker(source, { eval: true, execArgv: [] }).once('exit', done))
      return process.memoryUsage().rss
    }
    const before = await live(3)
    console.log((await live(12)) - before)`)
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" })
  // Each would leave 5 MB.
  expect(Number(stdout)).toBeLessThan(20 * MB)
})
