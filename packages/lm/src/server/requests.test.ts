/** Requests that are wrong or ask for nothing, with OpenAI's client. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import OpenAI from "openai"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-requests-"))
let server: lm.LanguageServer
let client: OpenAI
let url = ""
beforeAll(async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
  server = lm.createServer(model, { apiKey: "secret", maxBodyBytes: 100_000, maxTokens: 200 })
  url = await server.listen(0)
  client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "secret", maxRetries: 0 })
})
afterAll(async () => {
  await server.close()
  rmSync(scratch, { recursive: true })
})

const messages = [{ role: "user" as const, content: "in the beginning" }]

test("parameters that ask for nothing are accepted", async () => {
  const nothing = {
    ...{ tools: [], tool_choice: "none", store: false, metadata: {}, top_k: -1, model: null },
    ...{ function_call: "none", parallel_tool_calls: false, service_tier: "auto", modalities: ["text"] },
    ...{ safety_identifier: "a", prompt_cache_key: "b" },
    response_format: { type: "text" },
  }
  const reply = await client.chat.completions.create({
    model: "llama",
    messages,
    max_tokens: 2,
    ...(nothing as object),
  })
  expect(reply.choices[0].message.role).toBe("assistant")
})

test.each(["the", "the end ".repeat(1000)])(
  "variables of the chat template are passed on: %#",
  async (content) => {
    const loaded = await lm.load(writeCheckpoint("llama", join(scratch, "thinking")))
    const template = "{{ messages[0].content }}{% if enable_thinking %}<think>{{ effort }}{% endif %}"
    const tokenizer = new lm.Tokenizer({ ...loaded.tokenizer!.files, template })
    const thinking = lm.createServer({ ...loaded, tokenizer }, { contextLength: 10_000 })
    const baseURL = `${await thinking.listen(0)}/v1`
    const asked = async (values?: object): Promise<number | undefined> => {
      const body = { model: "thinking", messages: [{ role: "user", content }], max_tokens: 1 }
      const reply = await new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 }).chat.completions.create({
        ...(body as OpenAI.ChatCompletionCreateParamsNonStreaming),
        ...(values && { chat_template_kwargs: values }),
      })
      return reply.usage?.prompt_tokens
    }
    const tokens = (text: string): number => tokenizer.encode(content + text, { special: false }).length
    try {
      expect(await asked()).toBe(tokens(""))
      expect(await asked({ enable_thinking: false })).toBe(tokens(""))
      expect(await asked({ enable_thinking: true, effort: "high" })).toBe(tokens("<think>high"))
    } finally {
      await thinking.close()
    }
  },
)

describe("rejected are", () => {
  const asked = { model: "llama", messages }
  test.each([
    ["tools", { ...asked, tools: [{ type: "function", function: { name: "f" } }] }, /tools is not supported/],
    ["formats", { ...asked, response_format: { type: "json_object" } }, /response_format/],
    [
      "variables that are no object",
      { ...asked, chat_template_kwargs: "a" },
      /chat_template_kwargs must be an object/,
    ],
    [
      "variables of other parameters",
      { ...asked, chat_template_kwargs: { tools: [{}] } },
      /chat_template_kwargs.tools is not supported/,
    ],
    [
      "variables of a thousand levels",
      { ...asked, chat_template_kwargs: JSON.parse(`${'{"a":'.repeat(1000)}1${"}".repeat(1000)}`) as object },
      /chat_template_kwargs must be an object of at most 64 levels/,
    ],
    [
      "formats that are no objects",
      { ...asked, response_format: "json" },
      /response_format must be of type "text"/,
    ],
    [
      "too many completion tokens",
      { ...asked, max_tokens: 5, max_completion_tokens: 1000 },
      /^400 max_completion_tokens must/,
    ],
    ["several answers", { ...asked, n: 2 }, /n must be 1/],
    ["too many tokens", { ...asked, max_tokens: 1000 }, /at most 200/],
    [
      "pictures",
      { ...asked, messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }] },
      /a text part/,
    ],
    ["wild temperatures", { ...asked, temperature: 9 }, /temperature/],
    ["biases of unknown tokens", { ...asked, logit_bias: { 288: 1 } }, /^400 logit_bias must .* of 288/],
    [
      "calls of tools in messages",
      { ...asked, messages: [...messages, { role: "assistant", content: "", tool_calls: [{ id: "a" }] }] },
      /messages\[1\].tool_calls is not supported/,
    ],
    [
      "results of tools",
      { ...asked, messages: [...messages, { role: "tool", content: "3", tool_call_id: "a" }] },
      /messages\[1\].tool_call_id is not supported/,
    ],
    [
      "names of authors",
      { ...asked, messages: [{ ...messages[0], name: "me" }] },
      /messages\[0\].name is not/,
    ],
    [
      "stream_options without a stream",
      { ...asked, stream_options: { include_usage: true } },
      /unless stream/,
    ],
    [
      "unknown stream_options",
      { ...asked, stream: true, stream_options: { x: 1 } },
      /stream_options.x is not/,
    ],
    ["a text as stream_options", { ...asked, stream: true, stream_options: "x" }, /must be an object/],
    ["top_logprobs alone", { ...asked, top_logprobs: 2 }, /unless logprobs is true/],
    ["storing", { ...asked, store: true }, /store must be false/],
    ["metadata of stored answers", { ...asked, metadata: { a: "b" } }, /metadata must be omitted: it is for/],
    ["a negative top_k", { ...asked, top_k: -2 }, /top_k must be an integer of at least -1/],
    ["models that have no name", { ...asked, model: { name: "llama" } }, /model must be a string/],
    [
      "unknown roles",
      { ...asked, messages: [{ role: "wizard", content: "a" }] },
      /role must be one of system/,
    ],
    ["empty stop strings", { ...asked, stop: ["a", ""] }, /stop must be .* none of them empty/],
    ["other modalities", { ...asked, modalities: ["text", "audio"] }, /modalities is not supported/],
    ["a choice among tools", { ...asked, tools: [], tool_choice: "auto" }, /tool_choice is not supported/],
  ])("%s", async (_name, body, reason) => {
    const error = await client.chat.completions.create(body as never).catch((e: unknown) => e)
    expect(error).toBeInstanceOf(OpenAI.BadRequestError)
    expect((error as Error).message).toMatch(reason)
  })

  test("others: a wrong key, another model, a large body, no JSON", async () => {
    const other = new OpenAI({ baseURL: `${url}/v1`, apiKey: "guess", maxRetries: 0 })
    await expect(other.models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError)
    await expect(client.chat.completions.create({ ...asked, model: "gpt-9" })).rejects.toBeInstanceOf(
      OpenAI.NotFoundError,
    )
    const large = { ...asked, messages: [{ role: "user" as const, content: "x".repeat(200_000) }] }
    await expect(client.chat.completions.create(large)).rejects.toMatchObject({ status: 413 })
    const headers = { authorization: "Bearer secret", "content-type": "application/json" }
    const deep = (key: string): string => `{"${key}": ${"[".repeat(20_000)}1${"]".repeat(20_000)}}`
    for (const body of ["{", ...["prompt", "model", "stop", "logit_bias", "metadata"].map(deep)]) {
      const broken = await fetch(`${url}/v1/completions`, { method: "POST", headers, body })
      expect(broken.status).toBe(400)
    }
  })
})

test("errors have OpenAI's codes and parameters", async () => {
  const ask = (path: string, body: object, key = "secret") =>
    fetch(`${url}/v1/${path}`, {
      method: "POST",
      headers: { authorization: `bearer ${key}` },
      body: JSON.stringify(body),
    })
  const type = "invalid_request_error"
  for (const [path, body, status, fields] of [
    ["completions", { prompt: "the", model: "x" }, 404, { param: "model", code: "model_not_found" }],
    [
      "completions",
      { prompt: "x".repeat(40_000) },
      400,
      { param: "prompt", code: "context_length_exceeded" },
    ],
    ["completions", { prompt: "" }, 400, { param: "prompt", code: null }],
    ["completions", { prompt: "the", stop: "" }, 400, { param: "stop", code: null }],
    ["embeddings", { input: "" }, 400, { param: "input", code: null }],
    ["chat/completions", { messages: [] }, 400, { param: "messages", code: null }],
  ] as const) {
    const response = await ask(path, body)
    const { error } = (await response.json()) as { error: object }
    expect([path, response.status, error]).toEqual([
      path,
      status,
      expect.objectContaining({ type, ...fields }),
    ])
  }
  const refused = await ask("completions", { prompt: "the" }, "guess")
  expect([refused.status, refused.headers.get("www-authenticate")]).toEqual([401, "Bearer"])
  const message = "the API key is missing or wrong"
  expect(await refused.json()).toEqual({ error: { message, type, param: null, code: "invalid_api_key" } })
})

test("tokens outside the vocabulary are bad requests, for embeddings too", async () => {
  // Without the name of a function.
  const reason = /^400 the vocabulary of 288 has no token 288/
  await expect(client.embeddings.create({ model: "llama", input: [1, 288] })).rejects.toThrow(reason)
  await expect(client.completions.create({ model: "llama", prompt: [1, 288] })).rejects.toThrow(reason)
})
