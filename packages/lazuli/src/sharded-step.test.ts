/** Exchanges of fully sharded layers within CUDA graphs, on the doubles of NCCL and of the driver. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, expect, it } from "vitest"
import { bundle } from "../../../tooling/source-bundle.mjs"
import "../../backend-cuda/test/double"
import { runJob } from "../../distributed/test/run-job"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-sharded-"))
afterAll(() => rmSync(scratch, { recursive: true }))

it("a layer's parameters are exchanged together, with the results of one by one, within memory's bound", async () => {
  const program = await bundle(fileURLToPath(new URL("../test/sharded-step.ts", import.meta.url)))
  const env = { LAZULI_CUDA_DOUBLE: "two-devices" }
  const { code, out, errors } = await runJob([program, scratch], 2, { env, timeLimit: 20 })
  expect(code, [...out, ...errors].flat().join("\n")).toBe(0)
  for (const [line] of out) {
    const { wrong, graphs, most, bound } = JSON.parse(line) as {
      wrong: string[]
      graphs: number[][]
      most: number
      bound: number
    }
    expect(wrong).toEqual([])
    // Six layers of six parameters, gathered for the forward and the backward pass, and their gradients.
    const [[, together], [, apart]] = graphs
    expect(together).toBeLessThanOrEqual(3 * 6)
    expect(apart).toBeGreaterThan(4 * together)
    expect(most).toBeLessThan(bound)
  }
}, 120_000)
