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

test("spread layers, by segments, quantized and fully spread, go on from their checkpoint on other numbers of ranks", async () => {
  const program = await programOf("spread-checkpoint")
  const folder = join(scratch, "spread")
  const results: number[][] = []
  for (const [mode, ranks] of [
    ["save", 2],
    ["load", 4],
    ["load", 1],
  ] as const) {
    const { code, out, errors } = await runJob([program, mode, folder], ranks, { timeLimit: 20 })
    expect(code, errors.flat().join("\n")).toBe(0)
    for (const [result, isSplit] of out) {
      expect(isSplit).toBe("true")
      results.push(JSON.parse(result) as number[])
    }
  }
  expect(results.length).toBe(7)
  for (const result of results) result.forEach((value, i) => expect(value).toBeCloseTo(results[0][i], 5))
}, 60_000)

test("a member reads only its parts of a checkpoint, one array after another", async () => {
  const program = await programOf("checkpoint-memory")
  const { code, out, errors } = await runJob([program, "load", join(scratch, "memory")], 4, { timeLimit: 20 })
  expect(code, errors.flat().join("\n")).toBe(0)
  for (const [line] of out) {
    const { most, own, whole } = JSON.parse(line) as Record<string, number>
    expect(most).toBeGreaterThanOrEqual(own)
    expect(most).toBeLessThanOrEqual(own + whole)
  }
}, 60_000)

test("a member that cannot read a checkpoint tells the others at once, and the job goes on", async () => {
  const program = await programOf("checkpoint-memory")
  const { code, out, errors } = await runJob([program, "lack", join(scratch, "lack")], 2, { timeLimit: 20 })
  expect(code, errors.flat().join("\n")).toBe(0)
  const told = out.map(([line]) => JSON.parse(line) as { name: string; message: string; took: number })
  expect(told.map(({ message }) => message)).toEqual([
    expect.stringMatching(/^\[loadSharded\] rank 1 failed: .*elsewhere" holds no checkpoint$/),
    expect.stringMatching(/^\[loadSharded\] ".*elsewhere" holds no checkpoint$/),
  ])
  for (const { took } of told) expect(took).toBeLessThan(5000)
}, 60_000)
