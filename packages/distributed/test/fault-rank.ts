/**
 * A rank for fault-sweep.ts: says its process and port, and adds up arrays of many sizes until it is told of a failure or all is done.
 * Without a backend of arrays, so that it starts quickly.
 */
import { type DistributedError, float32 } from "@lazuli/core"
import { connectBy } from "../src/backends"
import { asError } from "../src/communicators"
import { leave } from "../src/connect"
import { jobOf } from "../src/job"
import type { JoinOptions } from "../src/native"

const [, , steps, seed] = process.argv.map(Number)
const say = (about: object): void => console.log(JSON.stringify(about))
try {
  const job = jobOf(process.env) as JoinOptions
  say({ pid: process.pid, port: job.port })
  const group = connectBy(process.env.LAZULI_BACKEND as string, job)
  say({ joined: true })
  let state = seed
  for (let step = 0; step < steps; step++) {
    if (step % 20 === 0) say({ step })
    state = (Math.imul(state, 1103515245) + 12345) >>> 0
    const count = 1 + ((state >>> 8) % (step % 4 === 0 ? 100_000 : 500))
    const input = new Float32Array(count).fill(group.rank + 1)
    const output = new Float32Array(count)
    const bytes = (x: Float32Array): Uint8Array => new Uint8Array(x.buffer)
    group.run({
      kind: "allReduce",
      reduction: "sum",
      dtype: float32,
      input: bytes(input),
      output: bytes(output),
      count,
      peer: 0,
      name: "allSum",
      shape: count,
      structure: 0,
      derivative: 0,
    })
    const sum = (group.size * (group.size + 1)) / 2
    if (!output.every((value) => value === sum)) say({ wrong: step })
  }
  say({ done: true })
  leave()
} catch (caught) {
  const error = asError("allSum", caught) as DistributedError
  say({ name: error.name, message: error.message, rank: error.rank, op: error.op })
  process.exitCode = 3
}
