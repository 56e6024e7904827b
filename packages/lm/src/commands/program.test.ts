/** `lazuli-lm` on tiny checkpoints. */
import { spawnSync } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as lm from "@lazuli/lm"
import { afterAll, expect, test, vi } from "vitest"
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
  expect(terminal.written.err).toMatch(/^[^[].*none is neither a folder, a file nor/)
  expect(terminal.written.err).not.toContain("    at ")
  expect(await run(["generate", "--model", folder], captured())).toBe(1)
})

test("chat answers each line of a conversation", async () => {
  const terminal = captured(["the beginning", "", "and the end"])
  expect(await run(["chat", "--model", folder, "--max-tokens", "6", "--ignore-eos"], terminal)).toBe(0)
  expect(terminal.written.out.split("\n").length).toBeGreaterThan(2)
})

test("serve listens until it is interrupted, and says who may use it", async () => {
  const served = async (...args: string[]): Promise<string> => {
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
    expect(await run(["serve", "--model", folder, "--port", "0", ...args], terminal)).toBe(0)
    expect(status).toBe(200)
    return terminal.written.err
  }
  expect(await served("--allowed-origins", "https://a.org, https://b.org")).toBe("")
  expect(await served("--host", "0.0.0.0")).toMatch(
    /^anyone who can reach 0.0.0.0 may use the server: --api-key/,
  )
  expect(await served("--host", "0.0.0.0", "--api-key", "secret")).toBe("")
})

/** Runs a command that must end with this status. */
async function ran(args: readonly string[], status = 0, typed: readonly string[] = []) {
  const terminal = captured(typed)
  expect(await run(args, terminal), `${args.join(" ")}\n${terminal.written.err}`).toBe(status)
  return terminal.written
}

test("generate and chat pass variables to the chat template", async () => {
  const place = writeCheckpoint("llama", join(scratch, "variables"))
  const refusing = "{% if loud %}{{ raise_exception('not loud') }}{% endif %}{{ messages[0].content }}"
  writeFileSync(join(place, "chat_template.jinja"), refusing)
  for (const [command, typed] of [
    [["generate", "--prompt", "the"], []],
    [["chat"], ["the"]],
  ] as const) {
    const args = [...command, "--model", place, "--max-tokens", "2", "--chat-template-kwargs"]
    await ran([...args, '{"loud": false}'], 0, typed)
    expect((await ran([...args, '{"loud": true}'], 1, typed)).err).toContain(
      "rejects the conversation: not loud",
    )
    expect((await ran([...args, "[1]"], 1, typed)).err).toContain("Not a JSON object")
  }
  const raw = ["generate", "--prompt", "the", "--model", place, "--raw", "--chat-template-kwargs", "{}"]
  expect((await ran(raw, 1)).err).toContain("--chat-template-kwargs needs a chat template")
})

const asked = ["--prompt", "the", "--max-tokens", "12", "--ignore-eos"]
const generated = async (...args: string[]): Promise<string> =>
  (await ran(["generate", "--model", folder, ...asked, ...args])).out

test("adapters are trained, loaded by each command, and fused", async () => {
  const [data, adapters, fused] = ["data.jsonl", "adapters", "fused"].map((name) => join(scratch, name))
  writeFileSync(data, JSON.stringify({ prompt: "the", completion: "end of the beginning" }))
  const lora = ["lora", "-m", folder, "-d", data, "-o", adapters, "--learning-rate", "0.05", "--steps", "8"]
  const trained = await ran([...lora, "--dropout", "0.1"])
  expect(trained.out).toMatch(/step 8: loss/)
  expect(trained.err).toMatch(/peak memory/)
  expect((await ran([...lora, "--dropout", "0.1"])).err).toMatch(/already has 8 updates or more: pass more/)
  expect((await ran(lora, 1)).err).toMatch(/is from a run with adapters .* dropout 0.1, not/)
  const plain = await generated()
  const adapted = await generated("--adapters", adapters)
  expect(adapted).not.toBe(plain)
  await ran(["convert", "-m", folder, "--adapters", adapters, "-o", fused])
  expect((await ran(["generate", "--model", fused, ...asked])).out).toBe(adapted)
  const answered = await ran(["chat", "-m", folder, "--adapters", adapters, "-n", "12", "--ignore-eos"], 0, [
    "the",
  ])
  expect(answered.out).toBe(adapted)
  const evaluated = await ran(["eval", "-m", folder, "-d", data, "--adapters", adapters])
  expect(evaluated.out).toBe((await ran(["eval", "-m", fused, "-d", data])).out)
  expect(evaluated.err).toMatch(/1 examples?, \d+ tokens\/s; peak memory/)
})

test("lora says which examples it leaves out", async () => {
  const data = join(scratch, "cut.jsonl")
  const lines = [{ prompt: "the end of the beginning of the end", completion: "in" }, { text: "the end" }]
  writeFileSync(data, lines.map((line) => JSON.stringify(line)).join("\n"))
  const lora = ["lora", "-m", folder, "-d", data, "-o", join(scratch, "cut"), "--steps", "1", "--mask-prompt"]
  const { err } = await ran([...lora, "--max-tokens", "4"])
  expect(err).toMatch(/1 of 2 examples are left out: --max-tokens/)
  expect(err).toMatch(/adapters of rank 8, 1 examples/)
})

test("a run of lora has the same result each time, and when it is continued", async () => {
  const data = join(scratch, "seeded.jsonl")
  writeFileSync(data, JSON.stringify({ text: "the end of the beginning" }))
  const trained = async (name: string, seed: string, ...steps: string[]): Promise<Buffer> => {
    const out = join(scratch, name)
    for (const n of steps)
      await ran([
        "lora",
        "-m",
        folder,
        "-d",
        data,
        "-o",
        out,
        "--seed",
        seed,
        "--steps",
        n,
        "--dropout",
        "0.1",
      ])
    return readFileSync(join(out, "adapters.safetensors"))
  }
  const once = await trained("once", "3", "4")
  expect(await trained("again", "3", "4")).toEqual(once)
  expect(await trained("continued", "3", "2", "4")).toEqual(once)
  expect(await trained("other", "4", "4")).not.toEqual(once)
})

test("commands say which types of a GGUF file are converted", async () => {
  const file = join(scratch, "said.gguf")
  await ran(["convert", "-m", folder, "--type", "Q8_0", "-o", file])
  const { err } = await ran(["generate", "--model", file, ...asked])
  expect(err).toContain(
    "Q8_0 stays packed, 8 bits in groups of 32: 16 tensors; F32 is converted to float16: 5 tensors\n",
  )
})

test("drafts do not change the output, and a prompt may come from standard input", async () => {
  const plain = await generated()
  expect(await generated("--draft", folder, "--draft-tokens", "3")).toBe(plain)
  const typed = asked.map((arg) => (arg === "the" ? "-" : arg))
  expect((await ran(["generate", "--model", folder, ...typed], 0, ["the"])).out).toBe(plain)
  const model = await lm.load(folder)
  const text = await lm.generate(model, [{ role: "user", content: "the" }], {
    maxTokens: 12,
    ignoreEos: true,
    maxContext: 4,
  })
  expect(await generated("--max-context", "4")).toBe(`${text}\n`)
  expect((await ran(["generate", "--model", folder, ...asked, "--cache-bits", "4"], 1)).err).toMatch(/6 or 8/)
})

test("a model is not replaced by what is made of it", async () => {
  const reason = /--(out|fuse) .* is the model itself, which it would replace\. Choose another place/
  for (const command of ["convert", "quantize"])
    expect((await ran([command, "-m", folder, "-o", `${folder}/.`], 1)).err).toMatch(reason)
  const lora = ["lora", "-m", folder, "-d", "none.jsonl", "-o", join(scratch, "none"), "--fuse", folder]
  expect((await ran(lora, 1)).err).toMatch(reason)
})

test("what cannot be written is refused before work is done for it", async () => {
  const text = join(scratch, "notes.txt")
  writeFileSync(text, "mine")
  const data = join(scratch, "two.jsonl")
  writeFileSync(data, JSON.stringify({ text: "the end" }))
  const lora = ["lora", "-m", folder, "-d", data, "--steps", "1"]
  for (const [args, reason] of [
    // Before the model is loaded, which is none.
    [["convert", "-m", "none", "-o", text], /notes.txt has other files than a model's/],
    [["convert", "-m", "none", "-o", join(scratch, "x"), "--type", "Q8_0"], /type is only supported for/],
    [["quantize", "-m", "none", "-o", join(scratch, "x"), "--max-shard-bytes", "0"], /a positive number/],
    [["lora", "-m", "none", "-d", data, "-o", text], /--out .*notes.txt is a file, expected a folder/],
    [
      ["lora", "-m", "none", "-d", data, "-o", join(scratch, "y"), "--fuse", text],
      /notes.txt has other files/,
    ],
    [[...lora, "-o", join(scratch, "y"), "--dropout", "1"], /^--dropout must be a number in \[0, 1\)/],
    [["chat", "-m", folder, "-n", "-1"], /^-n must be a positive integer/],
  ] as const) {
    const written = await ran(args, 1)
    expect(written.err).toMatch(reason)
    expect(written.out).toBe("")
  }
  expect(readFileSync(text, "utf8")).toBe("mine")
  expect(existsSync(join(scratch, "x"))).toBe(false)
  expect(existsSync(join(scratch, "y"))).toBe(false)
})

test("messages name flags as they were typed, not options of the library", async () => {
  const generate = ["generate", "-m", folder, "-p", "the"]
  for (const [args, reason] of [
    [[...generate, "-n", "0"], /^-n must be a positive integer/],
    [[...generate, "-n0"], /^-n must be a positive integer/],
    [[...generate, "--max-tokens=0"], /^--max-tokens must be a positive integer/],
    [[...generate, "-t", "101"], /^-t must be a number from 0 to 100/],
    [[...generate, "--cache-bits", "8", "--max-context", "4"], /pass --cache-bits or --max-context\n$/],
    [["serve", "-m", folder, "--max-rows", "0"], /^--max-rows must be a positive integer/],
    [
      ["quantize", "-m", folder, "-o", join(scratch, "z"), "--max-shard-bytes", "0"],
      /^--max-shard-bytes must be/,
    ],
    [["convert", "-m", folder, "-o", join(scratch, "z"), "--type", "Q8_0"], /^--type is only supported for/],
    [
      ["eval", "-m", folder, "-d", "none", "--max-tokens", "1"],
      /^--max-tokens must be an integer of at least 2/,
    ],
  ] as const)
    expect((await ran(args, 1)).err).toMatch(reason)
})

test("errors of files and addresses are shown without a stack trace", async () => {
  const taken = createServer().listen(0, "127.0.0.1")
  await once(taken, "listening")
  const { port } = taken.address() as { port: number }
  const serve = ["serve", "--model", folder, "--port"]
  for (const [args, reason] of [
    [[...serve, String(port)], /^listen EADDRINUSE: address already in use/],
    [[...serve, "99999"], /Not a port/],
    [["eval", "-m", folder, "-d", scratch], /is a folder, expected a file in it/],
    [["convert", "-m", folder, "-o", join(folder, "config.json", "x")], /^ENOTDIR/],
  ] as const) {
    const { err } = await ran(args, 1)
    expect(err).toMatch(reason)
    expect(err).not.toContain("    at ")
  }
  taken.close()
})

test.each(["folder", "file.gguf"])("a killed convert leaves nothing of its %s", async (name) => {
  const path = (to: string): string => fileURLToPath(new URL(`../../../../${to}`, import.meta.url))
  const out = join(scratch, `killed-${name}`)
  const args = [path("tooling/run-source.mjs"), path("packages/lm/test/killed-convert.ts"), folder, out]
  const { signal, stderr } = spawnSync(process.execPath, args, { cwd: path("."), encoding: "utf8" })
  expect(signal, stderr).toBe("SIGINT")
  await vi.waitFor(
    () => expect(readdirSync(scratch).filter((each) => each.startsWith("killed-"))).toEqual([]),
    10_000,
  )
})

test("--version is that of the package", async () => {
  expect((await ran(["--version"])).out).toMatch(/^\d+\.\d+\.\d+\n$/)
})
