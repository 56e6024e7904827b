/** Rank 0 waits for a device that rank 1 does not reach, every 20 ms, and says how often until it is told. */
import type { DistributedError } from "@lazuli/core"
import { connectBy } from "../src/backends"
import { type NativeCommunicator, under } from "../src/communicators"
import { jobOf } from "../src/job"
import type { JoinOptions } from "../src/native"

const sleep = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
const group = connectBy(
  process.env.LAZULI_BACKEND as string,
  jobOf(process.env) as JoinOptions,
) as NativeCommunicator
if (group.rank === 1) sleep(20_000)
let checks = 0
try {
  for (; ; checks++) {
    under("allSum", () => group.check(true, 0, "allSum"))
    if (checks === 0) console.log(JSON.stringify({ pid: process.pid }))
    sleep(20)
  }
} catch (error) {
  console.log(JSON.stringify({ message: (error as DistributedError).message, checks }))
  process.exitCode = 3
}
