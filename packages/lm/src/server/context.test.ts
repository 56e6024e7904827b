/** The longest sequences that a server accepts. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { answerOf } from "../../test/answers"
import { writeCheckpoint } from "../../test/checkpoints"
import { maxCacheSize } from "../generate/caches"
import { Settings } from "../models/settings"
import { contextOf } from "./context"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-context-"))
let model: lm.LoadedModel
beforeAll(async () => {
  model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
})
afterAll(() => rmSync(scratch, { recursive: true }))

/** Tokens of a prompt, and a bias against the end. */
const prompt = (length: number) => ({
  prompt: Array.from({ length }, (_, i) => 3 + (i % 200)),
  logit_bias: { 257: -100 },
})

describe("a prompt and its answer have no more tokens than the model's config says", () => {
  test.each([
    [{ ...prompt(250), max_tokens: 6 }, 6],
    [prompt(250), 6],
  ])("and may have as many", async (asked, tokens) => {
    const { app } = lm.createServer(model)
    const { status, body } = await answerOf(app, "completions", asked)
    expect([status, body.usage.completion_tokens]).toEqual([200, tokens])
  })

  test.each([
    [
      "completions",
      { ...prompt(250), max_tokens: 7 },
      "the prompt has 250 tokens and max_tokens is 7, the context has 256 for both",
    ],
    ["completions", prompt(256), "the prompt has 256 tokens, the context has 256 for both"],
    [
      "chat/completions",
      { messages: [{ role: "user", content: "a".repeat(300) }], max_completion_tokens: 9 },
      /^the messages have \d+ tokens and max_completion_tokens is 9, the context has 256 for both$/,
    ],
    ["embeddings", { input: [[1], prompt(257).prompt] }, "the input has 257 tokens, the context has 256"],
  ])("in %s", async (path, asked, message) => {
    const { app } = lm.createServer(model)
    const { status, body } = await answerOf(app, path, asked)
    const param = { completions: "prompt", embeddings: "input" }[path] ?? "messages"
    expect([status, body.error]).toEqual([
      400,
      {
        type: "invalid_request_error",
        code: "context_length_exceeded",
        param,
        message: typeof message === "string" ? message : expect.stringMatching(message),
      },
    ])
  })

  test.each([
    { contextLength: 300 },
    // Attention never sees more tokens than the model knows.
    { maxContext: 64 },
  ])("unless an option raises it: %o", async (options) => {
    const { app } = lm.createServer(model, options)
    const { status, body } = await answerOf(app, "completions", { ...prompt(250), max_tokens: 40 })
    expect([status, body.usage.completion_tokens]).toEqual([200, 40])
  })

  test("of embeddings, maxContext limits nothing", async () => {
    const { app } = lm.createServer(model, { maxContext: 64 })
    expect((await answerOf(app, "embeddings", { input: prompt(256).prompt })).status).toBe(200)
    expect((await answerOf(app, "embeddings", { input: prompt(257).prompt })).status).toBe(400)
  })

  test("or lowers it", async () => {
    const { app } = lm.createServer(model, { contextLength: 20 })
    expect((await answerOf(app, "completions", { ...prompt(10), max_tokens: 10 })).status).toBe(200)
    expect((await answerOf(app, "completions", { ...prompt(10), max_tokens: 11 })).status).toBe(400)
    expect((await answerOf(app, "embeddings", { input: prompt(21).prompt })).status).toBe(400)
  })
})

test("configs that stretch their positions have as many", () => {
  const of = (config: object, options: lm.ServerOptions = {}): number =>
    contextOf({ ...model, config: new Settings({ model_type: "llama", ...config } as never) }, options)
  const yarn = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 32_768 }
  expect(of({ max_position_embeddings: 32_768, rope_scaling: yarn })).toBe(131_072)
  expect(of({ max_position_embeddings: 131_072, rope_parameters: yarn })).toBe(131_072)
  expect(of({ max_position_embeddings: 131_072, rope_scaling: { ...yarn, factor: 2 } })).toBe(131_072)
  // Others say how long sequences are once they are stretched.
  const llama3 = { ...yarn, rope_type: "llama3", factor: 32, original_max_position_embeddings: 8192 }
  expect(of({ max_position_embeddings: 131_072, rope_scaling: llama3 })).toBe(131_072)
  expect(of({ model_type: "gemma2" })).toBe(8192)
  expect(of({ text_config: { max_position_embeddings: 512 } })).toBe(512)
  expect(of({})).toBe(Number.POSITIVE_INFINITY)
  expect(of({ max_position_embeddings: 512 }, { maxContext: 513 })).toBe(512)
})

test("learned positions are the most that there are", async () => {
  const gpt2 = await lm.load(writeCheckpoint("gpt2", join(scratch, "gpt2")))
  const { maxPositions } = gpt2.network
  expect(maxPositions).toBeLessThan(1000)
  expect(contextOf(gpt2, { contextLength: 1000 })).toBe(maxPositions)
})

test("an embedded text is held to the memory of caches", async () => {
  const maxCacheBytes = maxCacheSize(model.network as lm.CausalNetwork, 600, 512) - 1
  const { app } = lm.createServer(model, { maxCacheBytes, contextLength: 1000 })
  const tooLarge = "text 1 of 600 tokens does not fit maxCacheBytes. Split or truncate it"
  const { status, body } = await answerOf(app, "embeddings", { input: [[1], prompt(600).prompt] })
  expect([status, body.error.message]).toEqual([400, tooLarge])
  expect((await answerOf(app, "embeddings", { input: [[1], [2]] })).status).toBe(200)
})
