/** Chat templates, and special tokens of texts. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import { afterAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { tinyTokenizer } from "../../test/tokenizer"
import type { JsonObject } from "../models/settings"
import { Tokenizer } from "./tokenizer"
import { type Encodable, TokenizerThread, taskOf } from "./tokenizer-thread"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-tokenizer-"))
afterAll(() => rmSync(scratch, { recursive: true }))

const BEGIN = 256
/** Adds <|begin|> to texts. */
const post_processor = {
  type: "TemplateProcessing",
  single: [{ SpecialToken: { id: "<|begin|>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
  pair: [],
  special_tokens: { "<|begin|>": { id: "<|begin|>", ids: [BEGIN], tokens: ["<|begin|>"] } },
}
const tokenizerWith = (config: JsonObject): Tokenizer =>
  new Tokenizer({ tokenizer: { ...tinyTokenizer(), post_processor } as never, config })

const encodedBy = async (tokenizer: Tokenizer, items: readonly Encodable[]) => {
  const thread = new TokenizerThread(tokenizer)
  const results = await thread.encode(items.map((item) => taskOf(tokenizer, item)))
  await thread.close("done")
  return results
}

test("a rendered conversation does not begin twice", async () => {
  const tokenizer = tokenizerWith({
    bos_token: "<|begin|>",
    chat_template: "{{ bos_token }}{{ messages[0].content }}",
  })
  const messages = [{ role: "user", content: "the" }]
  const want = tokenizer.tokensOf(messages)
  expect(want).toEqual([BEGIN, ...tokenizer.encode("the", { special: false })])
  expect(tokenizer.tokensOf("the")).toEqual(want)
  const rendered = tokenizer.prompt(messages)
  expect(tokenizer.tokensOf(rendered)).toEqual(want)
  const texts = [{ text: "the" }, { text: rendered }, { text: messages }]
  const results = await encodedBy(tokenizer, texts)
  expect(results.map((got) => "ids" in got && got.ids)).toEqual([want, want, want])
})

test("a template's variables are those of transformers", () => {
  const tokenizer = tokenizerWith({
    pad_token: { content: "<|pad|>" },
    unk_token: null,
    chat_template:
      "{{ tools is none }} {{ documents is none }} {{ pad_token }} {{ unk_token is defined }} {{ x }}",
  })
  expect(tokenizer.prompt([], { values: { x: 3 } })).toBe("true true <|pad|> false 3")
  expect(tokenizer.prompt([], { values: { tools: [] } })).toMatch(/^false true/)
})

describe("several chat templates", () => {
  const named = (names: readonly string[]): JsonObject => ({
    chat_template: names.map((name) => ({ name, template: `${name}: {{ messages[0].content }}` })),
  })
  const messages = [{ role: "user", content: "hi" }]

  test("are chosen by tools or by name", () => {
    const tokenizer = tokenizerWith(named(["rag", "tool_use", "default"]))
    expect(tokenizer.prompt(messages)).toBe("default: hi")
    expect(tokenizer.prompt(messages, { values: { tools: null } })).toBe("default: hi")
    expect(tokenizer.prompt(messages, { values: { tools: [] } })).toBe("tool_use: hi")
    expect(tokenizer.prompt(messages, { template: "rag", values: { tools: [] } })).toBe("rag: hi")
    expect(tokenizer.templateSource).toMatch(/^default/)
    expect(() => tokenizer.prompt(messages, { template: "code" })).toThrow(
      '[chat] the model has no chat template "code". It has rag, tool_use, default',
    )
    expect(() => tokenizer.prompt(messages, { template: 3 as never })).toThrow(
      "[Tokenizer.prompt] template must be a string",
    )
  })

  test("need a default, unless one is alone", () => {
    const several = tokenizerWith(named(["rag", "code"]))
    expect(several.chats).toBe(true)
    expect(() => several.prompt(messages)).toThrow(
      'the model has no chat template "default". It has rag, code',
    )
    expect(tokenizerWith(named(["rag"])).prompt(messages)).toBe("rag: hi")
    expect(() => tokenizerWith({}).prompt(messages, { template: "rag" })).toThrow(
      "the model has no chat template.",
    )
  })

  test("are read from files and GGUF files, and saved", async () => {
    const folder = writeCheckpoint("llama", join(scratch, "named"))
    mkdirSync(join(folder, "additional_chat_templates"))
    writeFileSync(
      join(folder, "additional_chat_templates", "tool_use.jinja"),
      "tools: {{ messages[0].content }}",
    )
    const model = await lm.load(folder)
    const want = model.tokenizer!.prompt(messages)
    const places = ["saved", "saved", "saved.gguf"].map((name) => join(scratch, name))
    for (const place of places) lm.save(model, place)
    for (const place of [folder, ...places]) {
      const { tokenizer } = await lm.load(place)
      expect(tokenizer!.prompt(messages)).toBe(want)
      expect(tokenizer!.prompt(messages, { values: { tools: [] } })).toBe("tools: hi")
      expect(tokenizer!.prompt(messages, { template: "tool_use" })).toBe("tools: hi")
    }
    const { files } = model.tokenizer!
    const outside = new Tokenizer({ ...files, templates: { "../x": "" } })
    expect(() => lm.save({ ...model, tokenizer: outside }, join(scratch, "outside"))).toThrow(
      '[save] "../x" cannot be the name of a chat template\'s file',
    )
  })
})

test("a model whose chat template is invalid reads texts", async () => {
  const folder = writeCheckpoint("llama", join(scratch, "invalid"))
  writeFileSync(join(folder, "chat_template.jinja"), "{% if %}")
  const model = await lm.load(folder)
  await lm.generate(model, "the", { maxTokens: 1 })
  const refused = expect(lm.generate(model, [{ role: "user", content: "the" }])).rejects
  await refused.toThrow(/^\[chat\] the chat template is invalid: \w/)
  const results = await encodedBy(model.tokenizer!, [{ text: "the" }])
  expect(results).toMatchObject([{ ids: model.tokenizer!.encode("the") }])
})

test("a thread tells a conversation that the template rejects from one that cannot be encoded", async () => {
  const tokenizer = tokenizerWith({
    bos_token: "<|begin|>",
    chat_template: "{% if messages[0].content == 'no' %}{{ raise_exception('never') }}{% endif %}the",
  })
  const conversation = (content: string): Encodable => ({ text: [{ role: "user", content }] })
  const [rejected] = await encodedBy(tokenizer, [conversation("no")])
  expect(rejected).toEqual(tokenizer.rejection("never"))
  // It has no template of its own for texts, and fails with each.
  const broken = { type: "TemplateProcessing" }
  const files = { ...tokenizer.files, tokenizer: { ...tokenizer.files.tokenizer, post_processor: broken } }
  const [failed] = await encodedBy(new Tokenizer(files), [conversation("yes")])
  expect(failed).toBeInstanceOf(Error)
  expect(String(failed)).not.toMatch(/template/)
})

test("special tokens are read from their own file, too", async () => {
  const folder = writeCheckpoint("llama", join(scratch, "map"))
  writeFileSync(join(folder, "tokenizer_config.json"), '{ "pad_token": "<|end|>" }')
  writeFileSync(
    join(folder, "special_tokens_map.json"),
    '{ "bos_token": { "content": "<|begin|>" }, "eos_token": "<|user|>", "pad_token": "<|pad|>" }',
  )
  const { tokenizer } = await lm.load(folder)
  expect([tokenizer?.bosToken, tokenizer?.eosToken]).toEqual(["<|begin|>", "<|user|>"])
  expect(tokenizer?.files.config.pad_token).toBe("<|end|>")
})
