/**
 * Several processes that train one model: each has a part of every batch, and all take the same steps.
 */
import { spawn } from "node:child_process"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import { mx } from "lazuli"

/** The processes; this one alone where it was started alone. */
export const everybody = (): mx.distributed.Group => mx.distributed.init()

/** True of a process that `lazuli launch` started. */
export const isRank = (): boolean => process.env.LAZULI_RANK !== undefined

/** Starts this program so many times; its exit code. */
export function startRanks(ranks: number, args: readonly string[]): Promise<number> {
  const folder = dirname(createRequire(import.meta.url).resolve("lazuli/package.json"))
  const launch = [join(folder, "bin/lazuli.mjs"), "launch", "-n", String(ranks)]
  const child = spawn(process.execPath, [...launch, process.argv[1], ...args], { stdio: "inherit" })
  // The launcher hears of it as well, and ends its ranks.
  const ignore = (): void => {}
  process.on("SIGINT", ignore)
  return new Promise((resolve, reject) => {
    child.once("error", reject)
    child.once("close", (code) => {
      process.off("SIGINT", ignore)
      resolve(code ?? 1)
    })
  })
}

/** The least of the processes' numbers, or the largest. */
export const least = (value: number): number => agreed(value, mx.distributed.allMin)
export const largest = (value: number): number => agreed(value, mx.distributed.allMax)
function agreed(value: number, choose: (x: mx.Array) => mx.Array): number {
  return everybody().size() === 1 ? value : (choose(mx.array(value, mx.int32)).item() as number)
}
