/**
 * Joining a job in unusual ways, and what operations say in one that has failed: `worker` joins in a worker thread first and in the main
 * thread afterwards; `beside` splits, closes and joins by another way beside sums that were handed over; `failed` goes on after a failure;
 * `message` receives what was not sent; `join` only adds up. Prints what came of it.
 */
import { isMainThread, Worker } from "node:worker_threads"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"

const [, program, mode] = process.argv
const { distributed } = mx

const sum = (): unknown => distributed.allSum(mx.array([1])).item()
const messageOf = (run: () => unknown): string => {
  try {
    return `gave ${String(run())}`
  } catch (error) {
    return (error as Error).message
  }
}

const modes: Record<string, () => string | Promise<string>> = {
  join: () => messageOf(sum),
  async worker() {
    if (!isMainThread) return ""
    const worker = new Worker(program, { argv: ["join"] })
    await new Promise((resolve) => worker.once("exit", resolve))
    return messageOf(sum)
  },
  async beside() {
    const group = distributed.init(true)
    const rank = group.rank()
    const x = mx.ones([1000])
    const promises: Promise<void>[] = []
    let wrong = 0
    for (let i = 0; i < 60; i++) {
      const sums = [0, 1, 2, 3].map(() => distributed.allSum(x))
      promises.push(mx.asyncEval(sums))
      if (i === 30) distributed.init({ backend: "ring" })
      // Ranks are not equally far with them.
      if (i % 3 === rank) await promises.at(-1)
      const part = group.split(0, i % 2 ? rank : group.size() - 1 - rank)
      const again = distributed.allSum(x, { group: part })
      promises.push(mx.asyncEval(again))
      part.close()
      for (const sum of [...sums, again]) if (sum.index(0).item() !== group.size()) wrong++
    }
    await Promise.all(promises)
    return `${wrong} wrong`
  },
  failed() {
    const rank = distributed.init(true).rank()
    const x = mx.array([1])
    const first = messageOf(() => (rank === 0 ? distributed.allSum(x) : distributed.allMax(x)).item())
    return [first, messageOf(() => distributed.broadcast(x).item())].join("\n")
  },
  message() {
    const rank = distributed.init(true).rank()
    // Larger than what the sender may leave in the connection.
    const sizes = messageOf(() => distributed.recv([2, -1], mx.int32, 1 - rank))
    const large = mx.zeros([3_000_000], mx.float32)
    const text = messageOf(() =>
      mx.eval(rank === 0 ? distributed.send(large, 1) : distributed.recv([3_000_000], mx.int32, 0)),
    )
    return [sizes, text].join("\n")
  },
}
const text = await modes[mode]()
if (isMainThread || mode === "join") console.log(JSON.stringify(text))
