import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, test } from "vitest"
import { programOf, runJob } from "../../test/run-job"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-reload-"))
afterAll(() => rmSync(scratch, { recursive: true }))

test.each([
  [2, 4],
  [4, 2],
])(
  "training of %i ranks goes on from its checkpoint on %i",
  async (before, after) => {
    const program = await programOf("reload")
    const folder = join(scratch, `${before}`)
    const losses: number[][] = []
    for (const [mode, ranks] of [
      ["begin", before],
      ["resume", after],
    ] as const) {
      const { code, out, errors } = await runJob([program, mode, folder], ranks, { timeLimit: 20 })
      expect(code, errors.flat().join("\n")).toBe(0)
      losses.push(JSON.parse(out[0][0]) as number[])
    }
    losses[0].forEach((loss, i) => expect(losses[1][i]).toBeCloseTo(loss, 10))
  },
  60_000,
)
