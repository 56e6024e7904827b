/** Commands that are interrupted, and what they refuse before they load a model. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, test } from "vitest"
import { writeCheckpoint } from "../../test/checkpoints"
import { captured } from "../../test/terminal"
import { run } from "./program"
import { Interrupted } from "./terminal"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-interrupts-"))
const data = join(scratch, "data.jsonl")
let folder = ""
beforeAll(() => {
  folder = writeCheckpoint("llama", join(scratch, "llama"))
  writeFileSync(data, JSON.stringify({ text: "the end of the beginning" }))
})
afterAll(() => rmSync(scratch, { recursive: true }))

/** A terminal at which a signal comes once this text was written. */
function interruptedAfter(text: string, signal: Interrupted["signal"], typed: readonly string[] = []) {
  const terminal = captured(typed)
  const controller = new AbortController()
  const { out } = terminal
  terminal.out = (written) => {
    out(written)
    if (terminal.written.out.includes(text)) controller.abort(new Interrupted(signal))
  }
  terminal.interruptible = (body) => body(controller.signal)
  return terminal
}

test("lora saves its adapters when it is interrupted, does not fuse, and goes on", async () => {
  const [out, fused, whole] = ["out", "fused", "whole"].map((name) => join(scratch, name))
  const lora = ["lora", "-m", folder, "-d", data, "--steps", "6"]
  const terminal = interruptedAfter("step 2:", "SIGTERM")
  expect(await run([...lora, "-o", out, "--fuse", fused], terminal)).toBe(143)
  expect(terminal.written.err).toContain("--fuse is left out")
  expect(terminal.written.out).not.toContain("step 4:")
  expect(existsSync(fused)).toBe(false)
  const adapters = (of: string): Buffer => readFileSync(join(of, "adapters.safetensors"))
  expect(adapters(out).length).toBeGreaterThan(100)
  expect(await run([...lora, "-o", out], captured())).toBe(0)
  expect(await run([...lora, "-o", whole], captured())).toBe(0)
  expect(adapters(out).equals(adapters(whole))).toBe(true)
})

test("lora loses nothing when it is interrupted while it reports", async () => {
  const out = join(scratch, "reported")
  const terminal = captured()
  terminal.out = (text) => {
    if (text.startsWith("after:")) throw new Interrupted("SIGINT")
  }
  const args = ["lora", "-m", folder, "-d", data, "--valid", data, "-o", out, "--steps", "1"]
  expect(await run(args, terminal)).toBe(130)
  expect(existsSync(join(out, "adapters.safetensors"))).toBe(true)
})

test("generate keeps the text so far", async () => {
  const terminal = interruptedAfter("", "SIGINT")
  const args = ["generate", "-m", folder, "-p", "the", "-n", "200", "--ignore-eos", "--temperature", "0"]
  expect(await run(args, terminal)).toBe(130)
  expect(terminal.written.err).toMatch(/generated \d+ tokens/)
})

test("losses that are not numbers end a run, without adapters", async () => {
  const out = join(scratch, "nan")
  const terminal = captured()
  const args = ["lora", "-m", folder, "-d", data, "-o", out, "--learning-rate", "1e30", "--steps", "9"]
  expect(await run(args, terminal)).toBe(1)
  expect(terminal.written.err).toMatch(/the losses of step \d are not numbers/)
  expect(existsSync(out)).toBe(false)
})

test("a chat goes on after a turn that fails, and shows its speed", async () => {
  const long = "the ".repeat(3000)
  const terminal = { ...captured(["the", long, "the"]), interactive: true }
  const short = join(scratch, "short")
  writeCheckpoint("gpt2", short)
  expect(await run(["chat", "-m", short, "-n", "3", "--ignore-eos"], terminal)).toBe(0)
  expect(terminal.written.err.match(/generated 3 tokens/g)?.length).toBe(2)
  expect(terminal.written.err).toMatch(/the prompt has \d+ tokens, the model supports/)
  expect(await run(["chat", "-m", short, "-n", "3"], captured([long, "the"]))).toBe(1)
})

test("wrong values are refused before a model is loaded", async () => {
  const generate = ["generate", "-m", "none", "-p", "the"]
  const lora = ["lora", "-m", "none", "-d", data, "-o", join(scratch, "never")]
  for (const [args, reason] of [
    [[...generate, "--temperature", "-1"], /temperature must be/],
    [[...generate, "-n", "0"], /must be a positive integer/],
    [[...generate, "--stop", ""], /stop must be/],
    [
      [...generate, "--raw", "--system", "be kind"],
      /--raw uses no chat template, in which --system would be/,
    ],
    [[...generate, "--model", "other"], /^error: --model is given twice/],
    [["serve", "-m", "none", "--max-rows", "0"], /^--max-rows must be a positive integer/],
    [["serve", "-m", "none", "--grace-ms", "-1"], /^--grace-ms must be a non-negative number/],
    [["serve", "-m", "none", "--max-connections", "0"], /^--max-connections must be a positive integer/],
    [["serve", "-m", "none", "--context-length", "0"], /^--context-length must be a positive integer/],
    [["serve", "-m", "none", "--cache-bits", "5"], /^--cache-bits must be 6 or 8/],
    [["serve", "-m", "none", "--allowed-hosts", "a/b"], /^--allowed-hosts must be a list of names/],
    [[...generate, "--cache-bits", "8", "--max-context", "9"], /pass --cache-bits or --max-context/],
    [["bench", "-m", "none", "--tokens", "0"], /Not a positive integer/],
    [["bench", "-m", "none", "--prompt-tokens", "-1"], /Not a positive integer/],
    [["quantize", "-m", "none", "-o", "never", "--bits", "7"], /mode affine has bits 2, 3, 4, 5, 6, 8/],
    [["quantize", "-m", "none", "-o", "never", "--group-size", "7"], /mode affine has --group-size 16/],
    [["quantize", "-m", "none", "-o", "never", "--mode", "mxfp4", "--bits", "8"], /mode mxfp4 has bits 4/],
    [
      ["eval", "-m", "none", "-d", data, "--max-tokens", "1"],
      /^--max-tokens must be an integer of at least 2/,
    ],
    [[...lora, "--max-tokens", "1"], /^--max-tokens must be an integer of at least 2/],
    [[...lora, "--rank", "0"], /^--rank must be a positive integer/],
    [[...lora, "--layers", "0"], /^--layers must be a positive integer/],
    [[...lora, "--dropout", "1"], /^--dropout must be a number in \[0, 1\)/],
    [["serve", "-m", "none", "--allowed-origins", "example.com"], /must be a list of origins/],
    [[...lora, "--steps", "0"], /must be a positive integer/],
    [[...lora, "--batch-size", "0"], /must be a positive integer/],
    [[...lora, "--learning-rate", "-1"], /must be/],
    [[...lora, "--fuse", join(scratch, "never")], /--fuse and --out are the same folder/],
  ] as const) {
    const terminal = captured()
    expect([args, await run(args, terminal)]).toEqual([args, 1])
    expect(terminal.written.err).toMatch(reason)
    expect(terminal.written.err).not.toContain("neither a folder")
  }
})

test("a system message needs a chat template", async () => {
  const plain = writeCheckpoint("llama", join(scratch, "plain"))
  const path = join(plain, "tokenizer_config.json")
  const config = JSON.parse(readFileSync(path, "utf8")) as object
  writeFileSync(path, JSON.stringify({ ...config, chat_template: undefined }))
  rmSync(join(plain, "chat_template.jinja"), { force: true })
  const terminal = captured()
  expect(await run(["generate", "-m", plain, "-p", "the", "--system", "be kind"], terminal)).toBe(1)
  expect(terminal.written.err).toMatch(/the model has no chat template, in which --system would be/)
})
