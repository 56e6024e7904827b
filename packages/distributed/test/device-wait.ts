/**
 * Ranks that wait for their devices, as those of GPUs do, every 20 ms: `stopped`, in which rank 1 never comes and rank 0 says how often it
 * looked, or ranks that have added other operations than others, for three seconds.
 */
import type { DistributedError } from "@lazuli/core"
import { connectBy } from "../src/backends"
import type { NativeCommunicator } from "../src/communicators"
import { jobOf } from "../src/job"
import { type JoinOptions, native } from "../src/native"

const sleep = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
// A relay is for what the last rank alone does.
if (process.env.LAZULI_RANK !== "2") delete process.env.LAZULI_PROXY
const group = connectBy(
  process.env.LAZULI_BACKEND as string,
  jobOf(process.env) as JoinOptions,
) as NativeCommunicator
const { rank, size } = group

/** The operations that ranks add; those of a number are equal. */
const CASES: Record<string, () => void> = {
  stopped() {
    if (rank === 1) sleep(20_000)
    add(group, 1)
  },
  // Operations that all have added are for their devices alone to do.
  idle() {
    add(group, 1)
    if (rank === 1) end(4000)
  },
  // Of more lanes than a rank tells of.
  lanes() {
    for (const each of Array.from({ length: 9 }, () => group.split(0, -1))) add(each, 1)
    const last = group.split(0, -1)
    if (rank === 1) sleep(20_000)
    add(last, 1)
  },
  // Of others no matter.
  outside() {
    const half = group.split(Math.floor((2 * rank) / size), -1)
    add(half, 1)
    if (rank < 2) end(0)
  },
  // As a rank that compiles is ahead of one that does not.
  ahead: () => add(group, 10 - 2 * rank),
  // Where what they wait for is longer ago than they remember, on one of them.
  far: () => add(group, rank === 1 ? 5097 : 5096),
  different: () => add(group, 10 - rank, rank === 1 ? 5 : -1),
  // Of two groups, each of which all have added.
  turned() {
    const again = group.split(0, -1)
    for (const each of rank === 1 ? [again, group] : [group, again]) add(each, 1)
  },
  // Of three groups, each of two: no two ranks have them in different orders. The last rank waits for all.
  circle() {
    const pairs = [0, 1, 2].map((i) => group.split([i, (i + 1) % 3].includes(rank) ? 1 : 0, -1))
    const mine = [[0, 2], [1, 0], [2, 1], []][rank]
    for (const each of mine) add(pairs[each], 1)
    add(group, 1)
  },
  // In which others have no part.
  apart() {
    const half = group.split(Math.floor((2 * rank) / size), -1)
    add(half, 10 + Math.floor((2 * rank) / size))
    if (rank < 2) half.watch.add(1, "send", 0, 1)
    add(group, 3)
  },
  // Each waits for what the other has not added.
  crossed() {
    if (rank === 0) group.watch.add(1, "send", 0, 1)
    else add(group, 1)
  },
  // Of which rank 1 tells, to rank 2 later than rank 0 leaves.
  late() {
    if (rank === 0) sleep(500)
    CASES.crossed()
  },
  around: () => group.watch.add(1, "send", rank, (rank + 1) % size),
}
function end(after: number): never {
  sleep(after)
  console.log(JSON.stringify({ message: null }))
  native().leave()
  process.exit()
}
function add({ watch }: NativeCommunicator, count: number, other = -1): void {
  for (let i = 0; i < count; i++) watch.add(i === other ? 1000 : i, "allSum")
}

const [, , name] = process.argv
let checks = 0
try {
  CASES[name]()
  const end = performance.now() + (name === "stopped" ? 60_000 : 3000)
  for (; performance.now() < end; checks++) {
    group.watch.wait(1000, "allSum")
    if (checks === 0 && name === "stopped") console.log(JSON.stringify({ pid: process.pid }))
    sleep(20)
  }
  console.log(JSON.stringify({ message: null, checks }))
  // Others may have begun later.
  sleep(500)
} catch (error) {
  console.log(JSON.stringify({ message: (error as DistributedError).message, checks }))
  process.exitCode = 3
}
