/**
 * `npm run bench:contention [-- --rounds 9 --loops 1 --seconds 0.4]`: the share of its idle rate that work on all threads keeps beside
 * compute loops of the same priority in other processes. Beside it the share that as many independent loops as there are processors keep,
 * which is what the scheduler leaves. Rounds with and without the loops alternate.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { availableParallelism } from "node:os"
import { setTimeout as sleep } from "node:timers/promises"
import { parseArgs } from "node:util"
import { Worker } from "node:worker_threads"
import { mx } from "lazuli"
import { median } from "./median"

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "9" },
    loops: { type: "string", default: "1" },
    seconds: { type: "string", default: "0.4" },
  },
})
const [rounds, loops, seconds] = [values.rounds, values.loops, values.seconds].map(Number)

/** Calls in a second, for so many seconds. */
function rateOf(body: () => mx.Array): number {
  const start = performance.now()
  let calls = 0
  let passed = 0
  for (; passed < seconds * 1e3; passed = performance.now() - start) {
    mx.eval(body())
    calls++
  }
  return (calls * 1e3) / passed
}

const width = 2048
const dtype = mx.bfloat16
const packed = mx.quantize(mx.random.normal({ shape: [8192, width], dtype }))
/** Ones in memory of their own, not one element for all. */
const ones = (shape: number[], of: mx.Dtype = mx.float32): mx.Array => mx.contiguous(mx.ones(shape, of))
const [square, many, large] = [ones([1024, 1024]), ones([512, width], dtype), ones([16e6])]
const one = ones([1, width], dtype)
const query = ones([1, 32, 1, 64])
const keys = ones([1, 8, 4096, 64])
mx.eval(packed, square, many, large, one, query, keys)
const [w, scales, biases] = packed
const rows: readonly (readonly [name: string, body: () => mx.Array])[] = [
  ["one row times packed weights", () => mx.quantizedMatmul(one, w, scales, biases)],
  ["512 rows times packed weights", () => mx.quantizedMatmul(many, w, scales, biases)],
  ["product of 1024 × 1024", () => square.matmul(square)],
  ["sum of 64 MB", () => large.sum()],
  ["one query of 4,096 keys", () => mx.fast.scaledDotProductAttention(query, keys, keys, { scale: 1 })],
]

/** Independent loops, one a processor, and how far they have come. */
const count = availableParallelism()
const turns = new BigInt64Array(new SharedArrayBuffer(8 * count))
const LOOP = `
const { workerData: { turns, i, gate } } = require("node:worker_threads")
for (;;) {
  Atomics.wait(gate, 0, 0)
  for (let k = 0, x = 1; k < 1e5; k++) x = (x * 1.000001 + k) % 7
  turns[i]++
}`
const gate = new Int32Array(new SharedArrayBuffer(4))
const workers = Array.from(
  { length: count },
  (_, i) => new Worker(LOOP, { eval: true, workerData: { turns, i, gate } }),
)
async function rateOfLoops(): Promise<number> {
  const before = turns.reduce((a, b) => a + b)
  gate[0] = 1
  Atomics.notify(gate, 0)
  const start = performance.now()
  await sleep(seconds * 1e3)
  gate[0] = 0
  return (Number(turns.reduce((a, b) => a + b) - before) * 1e3) / (performance.now() - start)
}

/** The competing loops, stopped. */
const others: ChildProcess[] = Array.from({ length: loops }, () =>
  spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" }),
)
process.on("exit", () => {
  for (const other of others) other.kill("SIGKILL")
})
const compete = async (on: boolean): Promise<void> => {
  for (const other of others) other.kill(on ? "SIGCONT" : "SIGSTOP")
  await sleep(50)
}

const measured: [name: string, rate: () => number | Promise<number>][] = [
  ...rows.map(([name, body]): [string, () => number] => [name, () => rateOf(body)]),
  [`${count} independent loops`, rateOfLoops],
]
const idle: number[][] = measured.map(() => [])
const busy: number[][] = measured.map(() => [])
for (let round = -1; round < rounds; round++)
  for (const [i, [, rate]] of measured.entries())
    for (const on of round % 2 === 0 ? [true, false] : [false, true]) {
      await compete(on)
      const got = await rate()
      if (round >= 0) (on ? busy : idle)[i].push(got)
    }
for (const [i, [name]] of measured.entries()) {
  const shares = idle[i].map((rate, round) => busy[i][round] / rate)
  console.log(
    `${name}: ${median(idle[i]).toFixed(1)}/s idle, ${median(busy[i]).toFixed(1)}/s beside ${loops} ${loops === 1 ? "loop" : "loops"}: ${(100 * median(shares)).toFixed(0)} % (${(100 * Math.min(...shares)).toFixed(0)}–${(100 * Math.max(...shares)).toFixed(0)})`,
  )
}
for (const worker of workers) await worker.terminate()
process.exit(0)
