/** The command, on tiny checkpoints. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, test } from "vitest"
import { writeCheckpoint } from "../../test/checkpoints"
import { captured } from "../../test/terminal"
import { run } from "./program"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-command-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const folder = writeCheckpoint("llama", join(scratch, "llama"))

test("generate writes text, and numbers beside it", async () => {
  const terminal = captured()
  const args = ["generate", "--model", folder, "--prompt", "the", "--max-tokens", "5", "--ignore-eos"]
  expect(await run(args, terminal)).toBe(0)
  expect(terminal.written.out.length).toBeGreaterThan(1)
  expect(terminal.written.err).toMatch(/prompt \d+ tokens.*generated 5 tokens.*peak memory/)
})

test("a mistake is said without a trace", async () => {
  const terminal = captured()
  expect(await run(["generate", "--model", join(scratch, "none"), "--prompt", "x"], terminal)).toBe(1)
  expect(terminal.written.err).toMatch(/^\[load\] .*none is no folder/)
  expect(terminal.written.err).not.toContain("    at ")
  expect(await run(["generate", "--model", folder], captured())).toBe(1)
})
