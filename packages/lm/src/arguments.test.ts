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
    const reason = /the prompt must be a text, token ids, or messages with a role and a content, received/
    await expect(lm.generate(model, prompt as never)).rejects.toThrow(reason)
    expect(() => new lm.Batcher(model).stream(prompt as never)).toThrow(reason)
  },
)

test.each([
  [[], {}, /the prompt has no tokens/],
  ["the", { stop: 5 }, /stop must be a string or a list of strings/],
  ["the", { stop: ["a", 5] }, /stop must be a string or a list of strings/],
  ["the", { maxCacheBytes: Number.NaN }, /maxCacheBytes must be a non-negative number/],
] as const)("generate(%j, %j) is rejected", async (prompt, options, reason) => {
  await expect(lm.generate(model, prompt, options as never)).rejects.toThrow(reason)
  expect(() => new lm.Batcher(model).stream(prompt, options as never)).toThrow(reason)
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
  expect(() => lm.addAdapters(model.network, { scale: Number.NaN })).toThrow(/scale must be a finite number/)
})

test("an invalid tokenizer or chat template is named with the reason", () => {
  const files = model.tokenizer!.files
  expect(() => new lm.Tokenizer({ ...files, template: "{% if %}" })).toThrow(/chat template is invalid: \w/)
  expect(() => new lm.Tokenizer({ ...files, tokenizer: { model: 3 } })).toThrow(
    /tokenizer.json is invalid: \w/,
  )
})
