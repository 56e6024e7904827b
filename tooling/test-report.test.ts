/** The outcome of the unit tests where a process dies: vitest itself names no file then. */
import { spawnSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { expect, onTestFinished, test } from "vitest"
import { outcomeOf } from "./test-report.mjs"

const vitest = join(dirname(createRequire(import.meta.url).resolve("vitest/package.json")), "vitest.mjs")

test("a file whose process dies is named beside those that fail", () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-report-"))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const sources = {
    good: "test('adds', () => {}); test.skip('later', () => {})",
    bad: "test('subtracts', () => { throw new Error('no') })",
    broken: "throw new Error('not loaded')",
    "dies-at-once": "process.abort()",
    dies: "test('one', () => {}); test('two', () => process.abort()); test('three', () => {})",
  }
  const files = Object.entries(sources).map(([name, source]) => {
    const path = join(folder, `${name}.test.js`)
    writeFileSync(path, source)
    return path
  })
  const report = join(folder, "report.json")
  const args = ["run", "--root", folder, "--globals", "--pool=forks", "--maxWorkers=1"]
  const { status } = spawnSync(
    process.execPath,
    [vitest, ...args, "--reporter=json", `--outputFile.json=${report}`],
    { cwd: folder, env: { ...process.env, VITEST: undefined }, encoding: "utf8" },
  )
  expect(status).toBe(1)
  const { passed, failed, skipped } = outcomeOf(JSON.parse(readFileSync(report, "utf8")), files, folder)
  expect(failed.sort()).toEqual([
    "bad.test.js > subtracts",
    "broken.test.js (the file itself: not loaded)",
    "dies-at-once.test.js (its process ended before its tests did)",
    "dies.test.js (its process ended before its tests did)",
  ])
  expect([passed >= 1, skipped]).toEqual([true, 1])
})

test("without a report nothing is counted", () => {
  expect(outcomeOf(null, ["/a.test.ts"], "/")).toEqual({ passed: 0, failed: [], skipped: 0 })
})
