/**
 * Worker threads that start, compute, exchange arrays and are terminated at random moments: the process lives, what arrives is right, and
 * memory goes back to where it was.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Worker } from "node:worker_threads"
import fc from "fast-check"
import { addon, buildEngine, engineUrl } from "../../packages/backend-cpu/test/engine-build"
import { Finding, type Fuzzer } from "./fuzzer"

const folder = mkdtempSync(join(tmpdir(), "lazuli-fuzz-workers-"))
process.on("exit", () => rmSync(folder, { recursive: true, force: true }))
process.env.LAZULI_CPU_ADDON = addon
// One file for all threads: each loads it anew, as a program's own workers do.
await buildEngine(folder)
const url = engineUrl(folder)
const { mx } = (await import(/* @vite-ignore */ url)) as { mx: typeof import("@lazuli/core") }

/** A worker's work on the array that it is sent, before it answers with its double; most are terminated on the way. */
const jobs: Readonly<Record<string, string>> = {
  answer: "",
  "large products": "const m = mx.random.normal([300, 300]); mx.eval(m.matmul(m).matmul(m))",
  "beside the thread": "void mx.asyncEval(mx.sort(mx.random.normal([200000])))",
  "small arrays": "for (let i = 0; i < 3000; i++) mx.eval(mx.ones([8]).add(i))",
  "own streams":
    "const s = mx.newStream(mx.cpu); void mx.asyncEval(mx.stream(s, () => mx.ones([50000]).exp()))",
  failure: "void mx.asyncEval(mx.linalg.inv(mx.zeros([3, 3]))).catch(() => {})",
  "pending graph": "let x = mx.ones([1000]); for (let i = 0; i < 500; i++) x = x.add(1); globalThis.kept = x",
  "shared and kept": "globalThis.note = mx.share({ y: mx.ones([1000]) })",
  throw: "throw new Error('in the worker')",
  exit: "process.exit(3)",
}
const kinds = Object.keys(jobs)

function start(job: string): Worker {
  const source = `(async () => {
    const { parentPort } = require('node:worker_threads')
    const { mx } = await import(${JSON.stringify(url)})
    parentPort.once('message', async (m) => {
      const x = mx.receive(m.x)
      { ${jobs[job]} }
      parentPort.postMessage({ y: mx.share(x.multiply(2)) })
      if (m.stays) setInterval(() => mx.eval(mx.ones([10])), 1)
    })
    parentPort.postMessage('ready')
  })()`
  return new Worker(source, { eval: true, stderr: true, stdout: true })
}

interface Workers {
  readonly workers: readonly { readonly job: number; readonly wait: number; readonly early: boolean }[]
  readonly size: number
}

/** Bytes that a worker may leave besides the answer that nobody received: its notes keep their memory, as `mx.share` says. */
const SLACK = 1 << 16
let before: number | null = null

export const workers: Fuzzer<Workers> = {
  seconds: 60,
  cases: fc
    .record({
      workers: fc.array(fc.record({ job: fc.nat(kinds.length - 1), wait: fc.nat(60), early: fc.boolean() }), {
        minLength: 1,
        maxLength: 4,
      }),
      size: fc.constantFrom(4, 3000, 100_000),
    })
    .map((drawn) =>
      Object.assign(drawn, {
        [fc.toStringMethod]: () =>
          `arrays of ${drawn.size}: ${drawn.workers
            .map(
              ({ job, wait, early }) =>
                `${kinds[job]}, terminated ${early ? "before it is ready" : ""} after ${wait} ms`,
            )
            .join("; ")}`,
      }),
    ),
  async attempt({ workers: list, size }) {
    const answers = await Promise.all(list.map(({ job, wait, early }) => one(kinds[job], wait, early, size)))
    mx.synchronize()
    mx.clearCache()
    const active = mx.getActiveMemory()
    before ??= active
    const grown = active - before
    before = active
    if (grown > list.length * (4 * size + SLACK)) throw new Finding("active memory", `grew by ${grown} bytes`)
    return answers.some((answered) => answered) ? "answered" : "terminated"
  },
}

/** One worker's life. Gives whether it answered. */
async function one(job: string, wait: number, early: boolean, size: number): Promise<boolean> {
  const worker = start(job)
  const ended = new Promise<null>((done) => worker.on("error", () => {}).once("exit", () => done(null)))
  const said = (): Promise<unknown> =>
    Promise.race([new Promise((done) => worker.once("message", done)), ended])
  const pause = (ms: number): Promise<undefined> =>
    new Promise((done) => setTimeout(() => done(undefined), ms))
  if (early) {
    await pause(wait)
    await worker.terminate()
    return false
  }
  if ((await said()) === null) throw new Finding("worker did not start", job)
  const x = mx.arange(size)
  const note = mx.share(x)
  const answer = said()
  worker.postMessage({ x: note, stays: wait % 2 === 0 })
  await Promise.race([answer, pause(wait)])
  await worker.terminate()
  const message = (await answer) as { y: unknown } | null
  takeBack(note)
  if (message === null) return false
  const { y } = mx.receive(message) as { y: import("@lazuli/core").Array }
  const list = y.toTypedArray() as Int32Array
  const at = list.findIndex((v, i) => v !== 2 * i)
  if (list.length !== size || at >= 0) throw new Finding("answer is wrong", `element ${at} is ${list[at]}`)
  y.dispose()
  x.dispose()
  return true
}

/** A note that its worker may not have lived to receive. */
function takeBack(note: object): void {
  try {
    ;(mx.receive(note) as unknown as import("@lazuli/core").Array).dispose()
  } catch (error) {
    if (!(error instanceof mx.LazuliError)) throw error
  }
}
