/** Loops stay flat also where `gc` cannot be exposed: V8 is then made to collect by itself. */
import { expect, test } from "vitest"
import { answer, bundleEngine } from "../test/engine-bundle"

const MB = 2 ** 20
const { preamble, run, start } = bundleEngine()

/** 1.6 GB pass by in arrays of 4 MB, and 20,000 small arrays, without a pause for anything else. */
const LOOP = `
  let x = mx.zeros([1024, 1024])
  for (let i = 0; i < 400; i++) {
    x = x.add(1)
    mx.eval(x)
  }
  const small = []
  for (let i = 0; i < 20000; i++) {
    small[i % 8] = mx.ones([4]).add(i)
    mx.eval(small[i % 8])
  }
  const told = { value: x.index(3, 3).item(), peak: mx.getPeakMemory(), buffers: mx.memoryReport().buffers }`

const FORBIDDEN = "() => { throw new Error('flags are forbidden') }"
/** Replaces the function that sets flags before the program begins. */
const replaceFlags = (by: string): string =>
  `--import=data:text/javascript,${encodeURIComponent(
    `import v8 from 'node:v8'; import { syncBuiltinESMExports } from 'node:module';
     v8.setFlagsFromString = ${by}; syncBuiltinESMExports()`,
  )}`

for (const [where, flags] of [
  ["flags may be set", []],
  ["flags must not be set", [replaceFlags(FORBIDDEN)]],
  ["flags are set in vain", [replaceFlags("() => {}")]],
  ["flags are frozen", ["--freeze-flags-after-init"]],
  ["no code may be made of strings", ["--disallow-code-generation-from-strings"]],
] as const)
  test(`a loop stays flat where ${where}`, () => {
    const { status, signal, stdout, stderr } = run(`${LOOP}; console.log(JSON.stringify(told))`, flags)
    expect({ status, signal, stderr }).toEqual({ status: 0, signal: null, stderr: "" })
    const { value, peak, buffers } = JSON.parse(stdout)
    expect(value).toBe(400)
    expect(peak).toBeLessThan(600 * MB)
    expect(buffers).toBeLessThan(200)
  })

test("a thread that is not started with the process's flags stays flat", async () => {
  const worker = start(`${LOOP}; post(told)`, null, {
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: 64 },
  })
  const told = (await answer(worker)) as { value: number; peak: number }
  await worker.terminate()
  expect(told.value).toBe(400)
  expect(told.peak).toBeLessThan(600 * MB)
})

test("a thread with flags of its own stays flat in a process whose flags are frozen", () => {
  const inside = `(async () => { ${preamble} ${LOOP}; require("node:worker_threads").parentPort.postMessage(told) })()`
  const code = `
    const { Worker } = await import("node:worker_threads")
    const env = { LAZULI_CPU_ADDON: process.env.LAZULI_CPU_ADDON }
    const worker = new Worker(${JSON.stringify(inside)}, { eval: true, execArgv: [], env })
    worker.on("message", (told) => console.log(JSON.stringify(told)))`
  const { status, signal, stdout, stderr } = run(code, ["--freeze-flags-after-init"])
  expect({ status, signal, stderr }).toEqual({ status: 0, signal: null, stderr: "" })
  const { value, peak } = JSON.parse(stdout)
  expect(value).toBe(400)
  expect(peak).toBeLessThan(600 * MB)
})

test("collections that find nothing become rare, until one finds something", () => {
  // The clock stands still but for collections, which take 1 ms, and steps of 240 ms.
  const code = `
    let now = 1e6, collections = 0
    performance.now = () => now
    const { gc } = globalThis
    globalThis.gc = (options) => { collections++; now += 1; gc(options) }
    const x = mx.zeros([2 ** 22])
    mx.eval(x)
    const during = (steps, f) => {
      const before = collections
      for (let i = 0; i < steps; i++) {
        now += 240
        f()
      }
      return collections - before
    }
    const disposed = () => { const y = x.add(1); mx.eval(y); y.dispose() }
    const dropped = () => mx.eval(x.add(1))
    const told = { disposed: during(64, disposed), dropped: during(64, dropped) }
    console.log(JSON.stringify(told))`
  const { status, signal, stdout, stderr } = run(code, ["--expose-gc"])
  expect({ status, signal, stderr }).toEqual({ status: 0, signal: null, stderr: "" })
  const { disposed, dropped } = JSON.parse(stdout)
  expect(disposed).toBeLessThan(12)
  expect(dropped).toBeGreaterThan(40)
})

test("dropped results are found dead while a cache may hold them", () => {
  // No time passes but in collections.
  const code = `
    const os = process.getBuiltinModule("node:os")
    let now = 1e6
    performance.now = () => now
    const { gc } = globalThis
    globalThis.gc = (options) => { now += 0.2 / os.availableParallelism(); gc(options) }
    const x = mx.zeros([256, 256])
    mx.eval(x)
    for (let i = 0; i < 4000; i++) mx.eval(x.add(1))
    console.log(JSON.stringify({ peak: mx.getPeakMemory() }))`
  const { status, signal, stdout, stderr } = run(code, ["--expose-gc"])
  expect({ status, signal, stderr }).toEqual({ status: 0, signal: null, stderr: "" })
  expect(JSON.parse(stdout).peak).toBeLessThan(48 * MB)
})
