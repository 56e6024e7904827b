/** `test:gpu -- --sanitize` as a whole, on the driver's double and under a sanitizer that stands in for NVIDIA's. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, expect, it, vi } from "vitest"
import "../../packages/backend-cuda/test/double"
import { bundle } from "../../tooling/source-bundle.mjs"
import { sanitize } from "./gpu-sanitize"

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url))

const state = mkdtempSync(join(tmpdir(), "lazuli-sanitize-double-"))
afterAll(() => rmSync(state, { recursive: true }))

it("runs cases under the tools, and loops in parts of memory as graphs", async () => {
  const lines: string[] = []
  const log = vi.spyOn(console, "log").mockImplementation((line: string) => void lines.push(line))
  const isClean = await sanitize({
    command: [process.execPath, await bundle(at("./gpu-checks.ts"))],
    sanitizer: at("../test/compute-sanitizer"),
    tools: ["memcheck", "racecheck", "initcheck"],
    programs: 0,
    jobs: 2,
    only: "^(loop |native plan |golden binary/1$)",
    seconds: 300,
    total: Number.POSITIVE_INFINITY,
    state,
  }).finally(() => log.mockRestore())
  const text = lines.join("\n")
  expect(isClean, text).toBe(true)
  expect(text).toContain("survey in parts of memory: 5 cases")
  // Kernels have the same names wherever they are cached.
  const told = readFileSync(join(state, "memcheck-in-parts-of-memory/1.jsonl"), "utf8")
  expect(told).toMatch(/"kernels":\["map [^/"]+"/)
  expect(told).not.toContain("/")
  for (const tool of ["memcheck", "racecheck"])
    expect(text).toMatch(
      new RegExp(`${tool}: passed: (\\d+) of \\1 kernels made ready in \\d+ cases, 0 reports`),
    )
  // It is spared loops, and the kernels that only these need.
  expect(text).toMatch(/initcheck: passed: \d+ of \d+ kernels made ready in \d+ cases, 0 reports/)
  expect(text).toMatch(/initcheck: excused, .*: .*stage/)
}, 600_000)
