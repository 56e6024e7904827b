/**
 * A contestant's side of the conversation with main.ts: a process measures one workload. It says whether it has the workload and, on each
 * line that it hears, what one call takes.
 */
import { createInterface } from "node:readline"
import { inAddon } from "./in-addon"

/** Sets up and gives the call to measure; a call that gives a number has measured something itself. */
export type Prepare = () => Measured | Promise<Measured>
/** One call. */
export type Measured = () => unknown

/** A measurement takes at least this long. */
const LEAST_MS = 15
/** Before the first one, a contestant runs this long. */
const WARM_UP_MS = Number(process.env.BENCH_WARM_UP_MS ?? 500)
/** So many calls, too, as far as they fit in so long: V8 compiles most functions of a call after some thousands of them. */
const WARM_UP_CALLS = 3000
const LONGEST_WARM_UP_MS = 6 * WARM_UP_MS

const say = (message: object): void => {
  process.stdout.write(`${JSON.stringify(message)}\n`)
}

/** Serves the workload named by the first argument. */
export async function serve(workloads: Readonly<Record<string, Prepare | undefined>>): Promise<void> {
  const prepare = workloads[process.argv[2]]
  if (!prepare) {
    say({ missing: "not there" })
    return
  }
  const counted = process.argv.indexOf("--calls")
  if (counted > 0) {
    await repeat(await prepare(), Number(process.argv[counted + 1]))
    return
  }
  let body: Measured
  let calls = 1
  let gives = false
  try {
    body = await prepare()
    gives = typeof (await body()) === "number"
    if (!gives) await warmUp(body)
    // A measurement of few calls would measure the clock.
    for (let ms = 0; !gives && ms < LEAST_MS; ) {
      const start = performance.now()
      for (let i = 0; i < calls; i++) await body()
      ms = performance.now() - start
      if (ms < LEAST_MS) calls = Math.ceil(calls * Math.min(16, Math.max(1.5, LEAST_MS / Math.max(ms, 0.01))))
    }
  } catch (error) {
    say({ missing: String(error instanceof Error ? error.message : error).split("\n")[0] })
    process.exit(0)
  }
  say({ ready: true })
  for await (const _line of createInterface({ input: process.stdin })) {
    if (gives) {
      say({ value: await body() })
      continue
    }
    await body() // its threads and its data are awake again when the clock starts
    const before = inAddon.ms
    const start = performance.now()
    for (let i = 0; i < calls; i++) {
      const result = body()
      if (result instanceof Promise) await result
    }
    say({ value: (performance.now() - start - (inAddon.ms - before)) / calls })
  }
  process.exit(0)
}

async function warmUp(body: Measured): Promise<void> {
  const begin = performance.now()
  for (let i = 0; ; i++) {
    const passed = performance.now() - begin
    if (passed >= LONGEST_WARM_UP_MS || (passed >= WARM_UP_MS && i >= WARM_UP_CALLS)) return
    await body()
  }
}

/**
 * For counting instructions: that many calls and no clock. Lazuli looks for dead handles where that takes little of the time that passes,
 * so that on a busy machine it looked more often: the eager MLP step read 1.5 and 1.7 million instructions in place of 1.1.
 */
async function repeat(body: Measured, calls: number): Promise<void> {
  const now = performance.now()
  performance.now = () => now
  for (let i = 0; i < calls; i++) {
    const result = body()
    if (result instanceof Promise) await result
  }
  process.exit(0)
}

/** Numbers between −1 and 1 that every contestant makes alike. */
export function numbers(count: number): Float32Array {
  const out = new Float32Array(count)
  for (let i = 0; i < count; i++) out[i] = ((i * 0.6180339887498949) % 1) * 2 - 1
  return out
}
