/** The self-test of a Mac, with the fake Metal for its GPU and a stand-in for its Python. */
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, it, vi } from "vitest"
import "@lazuli/backend-cpu"
import "../packages/backend-metal/test/apple-backend"
import { type SelfTest, selfTest } from "./self-test"
import { benchmarkRows } from "./self-test-rows"

const folder = mkdtempSync(join(tmpdir(), "lazuli-self-test-"))
afterAll(() => rmSync(folder, { recursive: true }))

it("writes one file with all parts", async () => {
  vi.spyOn(console, "log").mockImplementation(() => {})
  const python = join(folder, "python")
  const out = join(folder, "report.json")
  writeFileSync(python, '#!/bin/sh\necho \'{"version": "0.99", "ms": {"sum 4096²": 1.5}}\'\n')
  chmodSync(python, 0o755)
  await selfTest({ backend: "apple", out, scale: 256, primitives: ["square"], families: ["sort"], python })
  const report = JSON.parse(readFileSync(out, "utf8")) as SelfTest
  expect(report).toMatchObject({
    part: "done",
    device: { deviceName: "Fake Metal" },
    suite: { failed: [] },
    mlx: "0.99",
    problems: [],
  })
  expect(report.suite?.checked).toBe(1)
  expect(report.golden?.map(({ through, family, failed }) => [through, family, failed])).toEqual([
    ["written", "sort", []],
    ["compile", "sort", []],
  ])
  expect(report.golden?.every(({ passed }) => passed > 60)).toBe(true)
  expect(report.benchmark).toHaveLength(benchmarkRows(256).length)
  expect(report.benchmark?.filter(({ mlx }) => mlx !== null)).toMatchObject([{ name: "sum 4096²", mlx: 1.5 }])
}, 120_000)
