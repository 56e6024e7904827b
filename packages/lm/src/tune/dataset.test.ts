/** Examples from lines of a file. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { writeExamples } from "../../test/examples"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-dataset-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const at = (name: string): string => join(scratch, name)
const model = await lm.load(writeCheckpoint("llama", at("llama")))
const file = writeExamples(at("data.jsonl"))

describe("a dataset", () => {
  test("masks prompts", async () => {
    const { tokenizer } = model
    const whole = lm.readDataset(file, tokenizer!)
    expect(whole.map(({ from }) => from)).toEqual([1, 1, 1, 1])
    const masked = lm.readDataset(file, tokenizer!, { maskPrompt: true })
    expect(masked.map(({ tokens }) => tokens)).toEqual(whole.map(({ tokens }) => tokens))
    for (const [i, text] of ["the end<|end|>", "beginning<|end|>"].entries())
      expect(tokenizer!.decode(masked[i].tokens.slice(masked[i].from), { special: true })).toBe(text)
  })

  test("never counts the prompt of a truncated example", async () => {
    const { tokenizer } = model
    const { tokens, from } = lm.readDataset(file, tokenizer!, { maskPrompt: true, maxTokens: 2 })[1]
    expect(from).toBeGreaterThanOrEqual(tokens.length)
  })

  /** The tokenizer with other files, and examples of some lines. */
  async function read(
    lines: readonly object[],
    files: Partial<lm.TokenizerFiles> = {},
    options: lm.DatasetOptions = {},
  ): Promise<{ tokenizer: lm.Tokenizer; examples: lm.Example[] }> {
    const tokenizer = new lm.Tokenizer({ ...model.tokenizer!.files, ...files })
    writeFileSync(at("lines.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"))
    return { tokenizer, examples: lm.readDataset(at("lines.jsonl"), tokenizer, options) }
  }
  const user = { role: "user", content: "the" }

  test("passes tools to the chat template, and refuses others", async () => {
    const template = "{{ tools | length if tools else 'none' }}{{ messages[0].content }}"
    const lines = [{ messages: [user] }, { messages: [user], tools: [{ name: "a" }, { name: "b" }] }]
    const { tokenizer, examples } = await read(lines, { template })
    expect(examples.map(({ tokens }) => tokenizer.decode(tokens))).toEqual(["nonethe", "2the"])
    for (const tools of ["a", ["a"], {}])
      await expect(read([{ messages: [user], tools }])).rejects.toThrow(
        /line 1: expected .*a list of "tools"/,
      )
  })

  test("takes messages that only call tools", async () => {
    const template =
      "{% for m in messages %}{{ m.content }}{{ m.tool_calls[0].function.name if m.tool_calls }}{% endfor %}"
    const calls = { role: "assistant", tool_calls: [{ function: { name: "end" } }] }
    const lines = [{ messages: [user, calls] }, { messages: [user, { ...calls, content: null }] }]
    const { tokenizer, examples } = await read(lines, { template })
    expect(examples.map(({ tokens }) => tokenizer.decode(tokens))).toEqual(["theend", "theend"])
    for (const tool_calls of [[], "end", null])
      await expect(read([{ messages: [user, { role: "assistant", tool_calls }] }])).rejects.toThrow(
        /line 1: expected/,
      )
  })

  test("joins the text parts of a message", async () => {
    const parts = (...content: object[]): object => ({ messages: [user, { role: "assistant", content }] })
    const text = (text: unknown): object => ({ type: "text", text })
    const { examples } = await read([parts(text("the "), text("end"))])
    const whole = await read([{ messages: [user, { role: "assistant", content: "the end" }] }])
    expect(examples).toEqual(whole.examples)
    for (const other of [{ type: "image_url" }, text(3)])
      await expect(read([parts(text("the"), other)])).rejects.toThrow(/line 1: expected/)
  })

  test("names the line of a conversation that the chat template rejects", async () => {
    const template =
      "{% if messages[0].role == 'user' %}the end{% else %}{{ raise_exception('no') }}{% endif %}"
    const lines = [{ messages: [user] }, { messages: [{ role: "poet", content: "the" }] }]
    await expect(read(lines, { template })).rejects.toThrow(
      /lines.jsonl, line 2: the chat template rejects the conversation: no/,
    )
    // The prompt is rendered only if it is masked.
    const short = "{% if messages | length == 2 %}the end{% else %}{{ raise_exception('short') }}{% endif %}"
    const pair = [{ messages: [user, { role: "assistant", content: "end" }] }]
    expect((await read(pair, { template: short })).examples.length).toBe(1)
    await expect(read(pair, { template: short }, { maskPrompt: true })).rejects.toThrow(/line 1: .*short/)
  })

  test("ends texts once, with the model's end token if the tokenizer names none", async () => {
    const { eos_token: _, ...config } = model.tokenizer!.files.config
    const bare = await read([{ text: "the" }], { config, eosIds: [258] })
    expect(bare.examples[0].tokens).toEqual([...bare.tokenizer.encode("the"), 258])
    const post_processor = {
      type: "TemplateProcessing",
      single: [{ Sequence: { id: "A", type_id: 0 } }, { SpecialToken: { id: "<|end|>", type_id: 0 } }],
      pair: [],
      special_tokens: { "<|end|>": { id: "<|end|>", ids: [257], tokens: ["<|end|>"] } },
    }
    const files = model.tokenizer!.files
    const lines = [{ text: "the" }, { prompt: "the", completion: " end" }]
    const { tokenizer, examples } = await read(
      lines,
      {
        tokenizer: { ...files.tokenizer, post_processor } as never,
        config: { ...files.config, chat_template: null },
      },
      { maskPrompt: true },
    )
    const decode = ({ tokens }: { tokens: readonly number[] }): string =>
      tokenizer.decode(tokens, { special: true })
    expect(examples.map(decode)).toEqual(["the<|end|>", "the end<|end|>"])
    expect(examples.map(({ from }) => from)).toEqual([1, tokenizer.encode("the", { special: false }).length])
  })

  test("masks no header of an assistant who does not answer", async () => {
    const { tokenizer, examples } = await read([{ messages: [user, user] }], {}, { maskPrompt: true })
    const [{ tokens, from }] = examples
    expect(tokenizer.decode(tokens.slice(from), { special: true })).toBe("<|user|>the<|end|>")
  })

  test("names the line of a mistake", async () => {
    const { tokenizer } = model
    writeFileSync(at("bad.jsonl"), '{"text": "fine, yes"}\n{"texts": 3}\n')
    expect(() => lm.readDataset(at("bad.jsonl"), tokenizer!)).toThrow(
      /bad.jsonl, line 2: expected an object with/,
    )
    expect(() => lm.readDataset(at("none.jsonl"), tokenizer!)).toThrow(/none.jsonl does not exist/)
    expect(() => lm.readDataset(scratch, tokenizer!)).toThrow(/is a folder, expected a file in it/)
    writeFileSync(at("marked.jsonl"), '\uFEFF{"text": "the end"}\n')
    expect(lm.readDataset(at("marked.jsonl"), tokenizer!).length).toBe(1)
  })
})
