import { mkdtempSync, readdirSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, test } from "vitest"
import { programOf, runJob } from "../../test/run-job"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-restarts-"))
afterAll(() => rmSync(scratch, { recursive: true }))

test("a job whose ranks are killed goes on from its last checkpoint, with the losses of one that is not", async () => {
  const program = await programOf("restarted")
  const run = (name: string, faults: string) =>
    runJob([program, join(scratch, name), faults], 2, { restarts: 3, timeLimit: 10 })
  const quiet = await run("quiet", "none")
  expect(quiet.code, quiet.errors.flat().join("\n")).toBe(0)
  const failing = await run("failing", "faults")
  expect(failing.code, failing.errors.flat().join("\n")).toBe(0)
  const lines = failing.out[0]
  // The checkpoint of step 20 does not count before its manifest is renamed, even where all parts are written.
  expect(lines.filter((line) => line.startsWith("from"))).toEqual(["from 0", "from 10", "from 15", "from 15"])
  const [start, ...expected] = quiet.out[0]
  expect([start, expected.length]).toEqual(["from 0", 30])
  // Those of every attempt, also of steps that a later one repeats.
  let step = 0
  for (const line of lines) {
    if (line.startsWith("from ")) step = Number(line.slice("from ".length))
    else expect(line).toBe(expected[step++])
  }
  expect(step).toBe(30)
  // Nothing is left of those that failed.
  expect(readdirSync(join(scratch, "failing")).length).toBe(3)
}, 60_000)
