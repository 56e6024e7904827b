/** Exchanges beside other work within CUDA graphs, on the doubles of NCCL and of the driver. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, expect, it } from "vitest"
import { bundle } from "../../../tooling/source-bundle.mjs"
import "../../backend-cuda/test/double"
import { runJob } from "../../distributed/test/run-job"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-exchanges-"))
afterAll(() => rmSync(scratch, { recursive: true }))

it("exchanges of gradients run beside the backward pass, and results are those of one process", async () => {
  const program = await bundle(fileURLToPath(new URL("../test/overlapped-exchanges.ts", import.meta.url)))
  const env = { LAZULI_CUDA_DOUBLE: "two-devices" }
  const { code, out, errors } = await runJob([program, scratch], 2, { env, timeLimit: 20 })
  expect(code, [...out, ...errors].flat().join("\n")).toBe(0)
  for (const [line] of out) {
    const { wrong, graphs } = JSON.parse(line) as { wrong: string[]; graphs: number[][] }
    expect(wrong).toEqual([])
    // Those of five buckets and of the loss: each begins behind other work and, but for the first, behind the one before; updates wait for
    // their own one.
    const [, beside, forks, joins] = graphs[0]
    expect({ beside, forks, joins }).toEqual({ beside: 6, forks: 6 + 5, joins: 5 + 6 })
  }
}, 120_000)
