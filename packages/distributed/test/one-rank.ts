/**
 * A rank, and a thread and a child of it that want to join as well. Then it leaves the job, opens a file, which gets the number of the
 * listener that rank 0 inherited, and joins again. Prints what the others were told, a sum, and what is in the file.
 */
import { fork } from "node:child_process"
import { mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { isMainThread, parentPort, Worker } from "node:worker_threads"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import { leave } from "@lazuli/distributed"

const [, file, part] = process.argv

/** The error of a process or thread that joins. */
function told(): string {
  try {
    return `joined ${mx.distributed.init(true).size()} ranks`
  } catch (error) {
    return (error as Error).message
  }
}
const sum = (): unknown => mx.distributed.allSum(mx.array(1)).item()

if (!isMainThread) parentPort?.postMessage(told())
else if (part === "child") process.send?.(told())
else {
  mx.distributed.init(true)
  const listeners = process.listenerCount("exit")
  sum()
  const worker = await new Promise((resolve) => new Worker(file).once("message", resolve))
  const child = await new Promise((resolve) => fork(file, ["child"]).once("message", resolve))
  sum()
  leave()
  const folder = mkdtempSync(join(tmpdir(), "lazuli-one-rank-"))
  const path = join(folder, "mine")
  const mine = openSync(path, "w")
  mx.distributed.init(true)
  const again = sum()
  const added = process.listenerCount("exit") - listeners
  writeSync(mine, "mine")
  console.log(JSON.stringify({ worker, child, again, added, written: readFileSync(path, "utf8") }))
  rmSync(folder, { recursive: true })
}
