// Threads compute at once, each with a world of its own, and compiled functions run in them.
import assert from "node:assert/strict"
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads"
import { mx } from "lazuli"

const compute = mx.compile((x) => mx.tanh(x.matmul(x)).sum())
const work = (n) => compute(mx.full([32, 32], n / 100)).item()
if (isMainThread) {
  const results = await Promise.all(
    [1, 2, 3].map(
      (n) =>
        new Promise((done, fail) => {
          const worker = new Worker(new URL(import.meta.url), { workerData: n })
          worker.on("message", done)
          worker.on("error", fail)
        }),
    ),
  )
  assert.deepEqual(results, [1, 2, 3].map(work))
} else parentPort.postMessage(work(workerData))
