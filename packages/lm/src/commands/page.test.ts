/** Runs the commands and programs of docs/language-models.md in order, on a tiny checkpoint. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import * as nn from "@lazuli/nn"
import OpenAI from "openai"
import { afterAll, beforeAll, expect, test } from "vitest"
import { tiny, writeCheckpoint } from "../../test/checkpoints"
import "../../test/family"
import { captured } from "../../test/terminal"
import { run } from "./program"

const page = readFileSync(
  fileURLToPath(new URL("../../../../docs/language-models.md", import.meta.url)),
  "utf8",
)
const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-page-"))
const here = process.cwd()
beforeAll(() => process.chdir(scratch))
afterAll(() => {
  process.chdir(here)
  rmSync(scratch, { recursive: true })
})

/** `npx lazuli-lm a "b c"` → a, b c. */
const wordsOf = (line: string): string[] =>
  [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain)

const modules: Record<string, unknown> = { "@lazuli/lm": lm, "@lazuli/nn": nn, openai: { default: OpenAI } }

/** Programs share a scope, so that later ones see the declarations of earlier ones. */
async function runProgram(code: string, scope: Record<string, unknown>): Promise<void> {
  const body = code
    .replace(/^import '(.*)'$/gm, "")
    .replace(
      /^import \* as (\w+) from '(.*)'$/gm,
      (_, name: string, from: string) => `scope.${name} = modules['${from}']`,
    )
    .replace(
      /^import (\w+) from '(.*)'$/gm,
      (_, name: string, from: string) => `scope.${name} = modules['${from}'].default`,
    )
    .replace(/^(?:const|let) \[(.*)\] = /gm, ";[$1] = ")
    .replace(/^(?:const|let) (\w+) = /gm, "scope.$1 = ")
    .replace(/^class (\w+) /gm, "scope.$1 = class $1 ")
  const names = new Proxy(scope, {
    has: (_, key) => typeof key === "string" && !(key in globalThis) && !["scope", "modules"].includes(key),
  })
  // `with` adds the shared scope.
  const make = new Function(
    "names",
    "scope",
    "modules",
    `with (names) { return (async () => { ${body} })() }`,
  )
  await make(names, scope, modules)
}

test("all commands and programs run", async () => {
  writeCheckpoint("llama", "my-model")
  const blocks = [...page.matchAll(/```(sh|js|jsonl)\n([\s\S]*?)```/g)].map(([, kind, code]) => ({
    kind,
    code,
  }))
  expect(blocks.length).toBeGreaterThan(12)
  const scope: Record<string, unknown> = {}
  const ends: (() => Promise<void>)[] = []
  let url = ""
  for (const { kind, code } of blocks) {
    if (kind === "jsonl") writeFileSync("train.jsonl", code)
    else if (kind === "js") await runProgram(code.replace("http://127.0.0.1:8080", url), scope)
    else
      for (const line of code.trim().split("\n")) {
        if (line.startsWith("npm install")) continue
        const [npx, command, ...args] = wordsOf(line)
        expect([npx, command]).toEqual(["npx", "lazuli-lm"])
        const terminal = captured()
        if (args[0] !== "serve") {
          expect(await run(args, terminal), `${line}\n${terminal.written.err}`).toBe(0)
          continue
        }
        // The server runs until the end of the page.
        const controller = new AbortController()
        const listening = new Promise<void>((resolve) => {
          terminal.interruptible = (body) => {
            resolve()
            return body(controller.signal)
          }
        })
        const done = run(
          args.map((arg) => (arg === "8080" ? "0" : arg)),
          terminal,
        )
        await listening
        url = /listening on (\S+)/.exec(terminal.written.out)?.[1] ?? ""
        ends.push(async () => {
          controller.abort()
          expect(await done).toBe(0)
        })
      }
  }
  for (const end of ends) await end()
  expect(await run(["chat", "--model", "my-model", "--max-tokens", "4"], captured(["the"]))).toBe(0)
  expect((scope.answers as string[]).length).toBe(3)
}, 120_000)

test("the page has the families of test/family.ts, whose types are checked", async () => {
  const file = fileURLToPath(new URL("../../test/family.ts", import.meta.url))
  // Without the first comment, and with the quotes of pages.
  const code = readFileSync(file, "utf8").replace(/^.*\n/, "").replaceAll('"', "'")
  expect([...page.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, block]) => block)).toEqual([code])
  const { config, tensors } = tiny.qwen3
  const logits = async (values: object): Promise<mx.Array> => {
    const made = { tensors, config: { ...config, ...values } }
    const { network } = await lm.load(writeCheckpoint("qwen3", join(scratch, "family"), 1, made))
    return (network as lm.CausalNetwork).forward(mx.array([[1, 50, 90, 20]], mx.int32))
  }
  const [want, got] = [await logits({}), await logits({ model_type: "llama_qk_norm" })]
  expect(want.subtract(got).abs().max().item()).toBe(0)
  const bigram = lm.fromConfig({ model_type: "bigram", vocab_size: 8 })
  expect(bigram.network.forward(mx.array([[1, 2]], mx.int32)).shape).toEqual([1, 2, 8])
})

test("the table names every model_type", () => {
  const table = page.slice(page.indexOf("| `model_type`"))
  const named = [...table.matchAll(/^\| (`.*?`) \|/gm)].flatMap(([, cell]) =>
    [...cell.matchAll(/`([\w-]+)`/g)].map(([, name]) => name),
  )
  expect(named.filter((name) => name !== "model_type").sort()).toEqual(
    lm.modelTypes().filter((name) => !["bigram", "llama_qk_norm"].includes(name)),
  )
})
