/** Wrong arguments of the library are errors that say what was expected. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../test/checkpoints"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-arguments-"))
afterAll(() => rmSync(scratch, { recursive: true }))
const folder = writeCheckpoint("llama", join(scratch, "llama"))
let model: lm.LoadedModel
beforeAll(async () => {
  model = await lm.load(folder)
})

test.each([undefined, null, 3, [null], [1, "a"], [{ role: "user" }], [{ role: "user", content: 3 }]])(
  "the prompt %j is neither a text, tokens nor a conversation",
  async (prompt) => {
    const reason =
      /the prompt must be a text, token ids, or messages with a role and a text as content, received/
    await expect(lm.generate(model, prompt as never)).rejects.toThrow(reason)
    expect(() => new lm.Batcher(model).stream(prompt as never)).toThrow(reason)
  },
)

test.each([
  [[], {}, /the prompt has no tokens/],
  ["the", { stop: 5 }, /stop must be a string or a list of strings/],
  ["the", { max_tokens: 5 }, /\[stream\] has no option "max_tokens"; .* Did you mean "maxTokens"\?/],
  ["the", { stop: "" }, /stop must be a string or a list of strings, none of them empty/],
  ["the", { signal: {} }, /\[stream\] signal must be an AbortSignal, received a plain object/],
  [
    "the",
    { draft: "small" },
    /\[stream\] draft must be one that load or fromConfig made, received the string "small"/,
  ],
  ["the", { stop: ["a", 5] }, /stop must be a string or a list of strings/],
  ["the", { maxCacheBytes: Number.NaN }, /maxCacheBytes must be a non-negative number/],
] as const)("generate(%j, %j) is rejected", async (prompt, options, reason) => {
  await expect(lm.generate(model, prompt, options as never)).rejects.toThrow(reason)
  expect(() => new lm.Batcher(model).stream(prompt, options as never)).toThrow(reason)
})

test("functions of the library refuse options of other names", async () => {
  const wrong = { nope: 1 } as never
  const refused = (op: string) => `[${op}] has no option "nope"`
  await expect(lm.load(folder, wrong)).rejects.toThrow(refused("load"))
  await expect(lm.embed(model, ["a"], wrong)).rejects.toThrow(refused("embed"))
  await expect(lm.train(model.network as never, [], wrong)).rejects.toThrow(refused("train"))
  expect(() => lm.makeCache(model.network as never, wrong)).toThrow(refused("makeCache"))
  expect(() => lm.quantize(model, wrong)).toThrow(refused("quantize"))
  expect(() => lm.save(model, join(scratch, "none"), wrong)).toThrow(refused("save"))
  expect(() => lm.readDataset("none", model.tokenizer!, wrong)).toThrow(refused("readDataset"))
  expect(() => lm.addAdapters(model.network, wrong)).toThrow(refused("addAdapters"))
  expect(() => new lm.Batcher(model, wrong)).toThrow(refused("batch"))
  expect(() => lm.createServer(model, wrong)).toThrow(refused("createServer"))
})

test("a model that was not awaited is named", async () => {
  const later = lm.load(folder) as never
  const refused = (op: string) =>
    `[${op}] the model must be one that load or fromConfig made, received a promise. Await it first`
  await expect(lm.generate(later, "the")).rejects.toThrow(refused("stream"))
  await expect(lm.embed(later, ["the"])).rejects.toThrow(refused("embed"))
  await expect(lm.rerank(later, "the", ["the"])).rejects.toThrow(refused("rerank"))
  expect(() => lm.quantize(later)).toThrow(refused("quantize"))
  expect(() => lm.save(later, join(scratch, "none"))).toThrow(refused("save"))
  expect(() => new lm.Batcher(later)).toThrow(refused("batch"))
  expect(() => lm.createServer(later)).toThrow(refused("createServer"))
  await expect(lm.generate(undefined as never, "the")).rejects.toThrow("received nothing")
})

test("a batch's requests share its options", () => {
  const batch = new lm.Batcher(model, { pageTokens: 16 })
  expect(() => batch.stream("the", { pageTokens: 8 })).toThrow(
    "[batch] all requests share one pageTokens. Pass it",
  )
  expect(() => batch.stream("the", { onPrefill: () => {} })).toThrow("[batch] onPrefill is not supported")
  expect(() => batch.stream("the", { pageTokens: 16 })).not.toThrow()
  expect(() => batch.stream("the", { prefillStep: 512 })).toThrow("all requests share one prefillStep")
  expect(() => batch.stream("the", { compile: false })).toThrow("all requests share one compile")
  const defaults = { prefillStep: 256, compile: true, maxCacheBytes: Infinity }
  expect(() => batch.stream("the", defaults)).not.toThrow()
  batch.close()
})

test("a model made by fromConfig is one", async () => {
  const { config } = model
  expect(await lm.generate(lm.fromConfig(config.values), [1, 2, 3], { maxTokens: 1 })).toBe("")
})

test("a cache must have the model's layers", async () => {
  const other = await lm.load(writeCheckpoint("gemma3", join(scratch, "gemma3")))
  const cache = lm.makeCache(other.network as lm.CausalNetwork)
  await expect(lm.generate(model, "the", { cache })).rejects.toThrow(
    /the cache has 3 layers, and the model 2/,
  )
})

test("a tiny temperature is greedy", async () => {
  const greedy = await lm.generate(model, "the", { maxTokens: 12 })
  for (const temperature of [1e-300, 1e-45, 1e-7])
    expect(await lm.generate(model, "the", { maxTokens: 12, temperature })).toBe(greedy)
})

test("load, save, embed, rerank and addAdapters reject options that they would misread", async () => {
  await expect(lm.load(folder, { dtype: mx.int32 })).rejects.toThrow(/dtype must be a floating-point dtype/)
  await expect(lm.load(folder, { activations: "int4" as never })).rejects.toThrow(/exact or int8, received/)
  expect(() => lm.save(model, "")).toThrow(/expected a folder or a .gguf file/)
  expect(() => lm.save(model, join(scratch, "x.gguf"), { type: "Q9" as never })).toThrow(
    /type must be one of F32, F16, .*received the string "Q9"/,
  )
  await expect(lm.embed(model, "the" as never)).rejects.toThrow(/expected a list of texts/)
  await expect(lm.embed(model, ["the"], { pooling: "max" as never })).rejects.toThrow(/pooling must be mean/)
  await expect(lm.rerank(model, "a", "the" as never)).rejects.toThrow(/expected a list of texts/)
  for (const [name, value] of [
    ["rank", 0],
    ["rank", 1.5],
    ["layers", 0],
  ] as const)
    expect(() => lm.addAdapters(model.network, { [name]: value })).toThrow(
      new RegExp(`${name} must be a positive integer`),
    )
  expect(() => lm.quantize(model, { groupSize: 7 })).toThrow(/inputs are a multiple of the group size 7$/)
  expect(() => lm.addAdapters(model.network, { scale: Number.NaN })).toThrow(/scale must be a finite number/)
})

test("an invalid tokenizer or chat template is named with the reason", () => {
  const files = model.tokenizer!.files
  expect(() => new lm.Tokenizer({ ...files, template: "{% if %}" })).toThrow(/chat template is invalid: \w/)
  expect(() => new lm.Tokenizer({ ...files, tokenizer: { model: 3 } })).toThrow(
    /tokenizer.json is invalid: \w/,
  )
})
