import { mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, test } from "vitest"
import { programOf, runJob } from "../../test/run-job"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-failing-saves-"))
afterAll(() => rmSync(scratch, { recursive: true }))

test("a member that cannot write is named by all others at once, and the job goes on", async () => {
  const program = await programOf("failing-saves")
  const { code, out, errors } = await runJob([program, scratch], 3, { timeLimit: 20 })
  expect(code, errors.flat().join("\n")).toBe(0)
  interface Told {
    told: { name?: string; message: string; rank?: number; op?: string; took: number }[]
    after: number[]
  }
  const ranks = out.map(([line]) => JSON.parse(line) as Told)
  for (const [attempt, failed] of [
    [1, 1],
    [2, 0],
  ])
    ranks.forEach(({ told }, rank) => {
      const { name, message, rank: named, op, took } = told[attempt]
      const reason = `ENOSPC: no space left for ${attempt + 1}`
      if (rank === failed) expect(message).toContain(reason)
      else expect({ name, named, op }).toEqual({ name: "DistributedError", named: failed, op: "saveSharded" })
      if (rank !== failed)
        expect(message).toMatch(new RegExp(`^\\[saveSharded\\] rank ${failed} failed: .*${reason}$`))
      expect(took).toBeLessThan(10_000)
    })
  for (const { told, after } of ranks) {
    expect([told[0], told[3]]).toEqual([{}, {}])
    expect(after).toEqual([1, 4])
  }
  expect(readdirSync(scratch).length).toBe(4)
}, 60_000)
