/** Faults of kernels that the test double shows when it is asked to: access behind memory, and an order that nobody asked for. */
import { spawnSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import { failing } from "../test/double"
import "./index"

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url))

it("threads and blocks run in either order", () => {
  mx.setBackend("cuda", "gpu")
  const last = (): number[] =>
    mx.stream(mx.gpu, () => {
      const [y] = mx.fast.metalKernel({
        name: "last",
        inputNames: [],
        outputNames: ["y"],
        source: "uint i = thread_position_in_grid.x; y[0] = int(i); y[1 + i / 64] = int(i % 64);",
      })({
        inputs: [],
        grid: [128, 1, 1],
        threadgroup: [64, 1, 1],
        outputShapes: [[3]],
        outputDtypes: [mx.int32],
      })
      return y.tolist() as number[]
    })
  expect(last()).toEqual([127, 63, 63])
  expect(failing("reverse", last)).toEqual([0, 0, 0])
})

/** A kernel of 8 threads on arrays of 8 in a process of its own. */
function run(source: string): { signal: NodeJS.Signals | null; stdout: string } {
  const args = [path("../../../tooling/run-source.mjs"), path("../test/beyond.ts"), source]
  const env = { ...process.env, LAZULI_CUDA_DOUBLE: "guard" }
  const cwd = path("../../..")
  return spawnSync(process.execPath, args, { env, cwd, encoding: "utf8" })
}

it("access behind an array ends the process", () => {
  const within = run("uint i = thread_position_in_grid.x; y[i] = x[i] + i;")
  expect([within.signal, within.stdout.trim()]).toEqual([null, "[1,2,3,4,5,6,7,8]"])
  expect(run("uint i = thread_position_in_grid.x; y[i] = x[i + 1];").signal).toBe("SIGSEGV")
  expect(run("uint i = thread_position_in_grid.x; y[i + 1] = x[i];").signal).toBe("SIGSEGV")
}, 120_000)
