/** `lazuli-lm` on tiny checkpoints. */
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

test("generate writes text to stdout and statistics to stderr", async () => {
  const terminal = captured()
  const args = ["generate", "--model", folder, "--prompt", "the", "--max-tokens", "5", "--ignore-eos"]
  expect(await run(args, terminal)).toBe(0)
  expect(terminal.written.out.length).toBeGreaterThan(1)
  expect(terminal.written.err).toMatch(/prompt \d+ tokens.*generated 5 tokens.*peak memory/)
})

test("user errors are shown without a stack trace", async () => {
  const terminal = captured()
  expect(await run(["generate", "--model", join(scratch, "none"), "--prompt", "x"], terminal)).toBe(1)
  expect(terminal.written.err).toMatch(/^\[load\] .*none is neither a folder, a file nor/)
  expect(terminal.written.err).not.toContain("    at ")
  expect(await run(["generate", "--model", folder], captured())).toBe(1)
})

test("chat answers each line of a conversation", async () => {
  const terminal = captured(["the beginning", "", "and the end"])
  expect(await run(["chat", "--model", folder, "--max-tokens", "6", "--ignore-eos"], terminal)).toBe(0)
  expect(terminal.written.out.split("\n").length).toBeGreaterThan(2)
})

test("serve listens until it is interrupted", async () => {
  const terminal = captured()
  let status = 0
  terminal.interruptible = async (body) => {
    const controller = new AbortController()
    const running = body(controller.signal)
    const url = /listening on (\S+)/.exec(terminal.written.out)?.[1]
    status = (await fetch(`${url}/health`)).status
    controller.abort()
    return running
  }
  expect(await run(["serve", "--model", folder, "--port", "0"], terminal)).toBe(0)
  expect(status).toBe(200)
})
