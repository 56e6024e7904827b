/** The server, with OpenAI's client. */
import { once } from "node:events"
import { mkdtempSync, rmSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type * as mx from "@lazuli/core"
import { lifetimes } from "@lazuli/core/engine"
import * as lm from "@lazuli/lm"
import OpenAI from "openai"
import { afterAll, beforeAll, describe, expect, type Mock, test, vi } from "vitest"
import "@lazuli/backend-cpu"
import { answerOf } from "../../test/answers"
import { writeCheckpoint } from "../../test/checkpoints"
import { spacedTokenizer, writeJson } from "../../test/tokenizer"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-server-"))
let model: lm.LoadedModel
let server: lm.LanguageServer
let client: OpenAI
let url = ""
beforeAll(async () => {
  model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
  server = lm.createServer(model, {
    apiKey: "secret",
    exact: true,
    maxRows: 4,
    maxWaiting: 8,
    maxBodyBytes: 100_000,
    maxTokens: 200,
    prefixBytes: 1e7,
  })
  url = await server.listen(0)
  client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "secret", maxRetries: 0 })
})
afterAll(async () => {
  await server.close()
  rmSync(scratch, { recursive: true })
})

const messages = [{ role: "user" as const, content: "in the beginning" }]

test("chat completions are the same whether streamed or not", async () => {
  const asked = { model: "llama", messages, temperature: 0, max_tokens: 30 }
  const whole = await client.chat.completions.create(asked)
  const [choice] = whole.choices
  expect(choice.message.role).toBe("assistant")
  expect(choice.message.content).toBe(await lm.generate(model, messages, { maxTokens: 30 }))
  expect(whole.usage?.total_tokens).toBe(
    (whole.usage?.prompt_tokens ?? 0) + (whole.usage?.completion_tokens ?? 0),
  )
  let text = ""
  let finish: string | null = null
  let usage: unknown
  const pieces = await client.chat.completions.create({
    ...asked,
    stream: true,
    stream_options: { include_usage: true },
  })
  for await (const piece of pieces) {
    text += piece.choices[0]?.delta.content ?? ""
    finish = piece.choices[0]?.finish_reason ?? finish
    usage = piece.usage ?? usage
    // Not undefined, in chunks before the last one.
    expect(piece.usage).toEqual(piece.choices.length > 0 ? null : whole.usage)
  }
  expect([text, finish]).toEqual([choice.message.content, choice.finish_reason])
  expect(usage).toEqual(whole.usage)
})

test("completions have log-probabilities", async () => {
  const done = await client.completions.create({
    model: "llama",
    prompt: "the",
    temperature: 0,
    max_tokens: 5,
    logprobs: 2,
  })
  expect(done.choices[0].text).toBe(await lm.generate(model, "the", { maxTokens: 5 }))
  const { logprobs } = done.choices[0]
  expect(logprobs?.token_logprobs?.length).toBe(done.usage?.completion_tokens)
  expect(logprobs?.top_logprobs?.length).toBe(done.usage?.completion_tokens)
  const pieces: string[] = []
  for await (const { text } of lm.stream(model, "the", { maxTokens: 5 })) pieces.push(text)
  const offsets = pieces.map((_, i) => pieces.slice(0, i).join("").length)
  expect(logprobs?.text_offset).toEqual(offsets)
  const streamed = await client.completions.create({
    model: "llama",
    prompt: "the",
    temperature: 0,
    max_tokens: 5,
    logprobs: 2,
    stream: true,
  })
  const seen: number[] = []
  for await (const { choices } of streamed) seen.push(...(choices[0]?.logprobs?.text_offset ?? []))
  expect(seen).toEqual(offsets)
})

test("offsets of text count characters, not parts of them", async () => {
  const { app, batch } = lm.createServer(model)
  vi.spyOn(batch!, "stream").mockImplementation(async function* () {
    for (const text of ["👍", "a", "b"])
      yield { text, token: 1, logprob: -1, top: [], finish: text === "b" ? "stop" : null }
  })
  const body = JSON.stringify({ prompt: "the", logprobs: 1 })
  const response = await app.request("/v1/completions", { method: "POST", body })
  const { choices } = (await response.json()) as OpenAI.Completion
  expect(choices[0].logprobs?.text_offset).toEqual([0, 1, 2])
})

test("a completion begins with the space before its first word, and an answer does not", async () => {
  const folder = writeCheckpoint("llama", join(scratch, "spaced"))
  writeJson(folder, "tokenizer.json", spacedTokenizer())
  const spaced = await lm.load(folder)
  const { app } = lm.createServer(spaced)
  const ask = async <T>(path: string, asked: object): Promise<T> => {
    const bias = { logit_bias: { [spaced.tokenizer!.idOf("▁a")!]: 100 }, max_tokens: 2, temperature: 0 }
    const body = JSON.stringify({ ...bias, ...asked })
    return (await (await app.request(`/v1/${path}`, { method: "POST", body })).json()) as T
  }
  for (const prompt of ["Hi", spaced.tokenizer!.encode("Hi")])
    expect((await ask<OpenAI.Completion>("completions", { prompt })).choices[0].text).toBe(" a a")
  const answer = await ask<OpenAI.ChatCompletion>("chat/completions", { messages })
  expect(answer.choices[0].message.content).toBe("a a")
})

test("log-probabilities have the bytes of tokens that are a part of a character", async () => {
  const tokens = model.tokenizer!.encode("東", { special: false })
  expect(tokens.length).toBeGreaterThan(1)
  expect(tokens.flatMap((token) => model.tokenizer!.bytesOf(token))).toEqual([...Buffer.from("東")])
  const { choices } = await client.chat.completions.create({
    model: "llama",
    messages,
    max_tokens: 1,
    logprobs: true,
    logit_bias: { [tokens[0]]: 100 },
  })
  expect(choices[0].logprobs?.content?.[0].bytes).toEqual([Buffer.from("東")[0]])
})

test("messages may be sent back as they came", async () => {
  const asked = { model: "llama", max_tokens: 2 }
  const { message } = (await client.chat.completions.create({ ...asked, messages })).choices[0]
  const again = { ...asked, messages: [...messages, { ...message, tool_calls: [] }, ...messages] }
  expect((await client.chat.completions.create(again)).choices.length).toBe(1)
})

/** The events of a stream, each of which must be a line of data in JSON. */
const eventsOf = (text: string): object[] =>
  text
    .trim()
    .split("\n\n")
    .map((event) => JSON.parse(/^data: (.*)$/.exec(event)![1]) as object)

test("unexpected errors are reported to the server, not to the client", async () => {
  const errors: unknown[] = []
  const { app } = lm.createServer(model, { onError: (error) => errors.push(error) })
  const failing = vi.spyOn(model.tokenizer!, "decode").mockImplementation(() => {
    throw new TypeError("a secret")
  })
  const ask = (stream: boolean) =>
    app.request("/v1/completions", {
      method: "POST",
      body: JSON.stringify({ prompt: "the", max_tokens: 2, stream }),
    })
  const whole = await ask(false)
  expect([whole.status, await whole.text()]).toEqual([500, expect.stringContaining("internal server error")])
  const streamed = await (await ask(true)).text()
  failing.mockRestore()
  const error = {
    message: "internal server error",
    type: "server_error",
    param: null,
    code: null,
  }
  expect(eventsOf(streamed)).toEqual([{ error }])
  expect(errors.map(String)).toEqual(["TypeError: a secret", "TypeError: a secret"])
  expect((await app.request("/v1/none")).status).toBe(404)
  expect(errors.length).toBe(2)
})

test("a stream that its client does not read is ended", async () => {
  const { app, batch } = lm.createServer(model, { maxStallMs: 100 })
  const body = JSON.stringify({ prompt: "the", max_tokens: 5, stream: true })
  const ask = async (): Promise<{ destroy: Mock; response: Response }> => {
    const destroy = vi.fn()
    const response = await app.request("/v1/completions", { method: "POST", body }, { outgoing: { destroy } })
    return { destroy, response }
  }
  const [read, unread] = [await ask(), await ask()]
  expect(await read.response.text()).toContain("[DONE]")
  await vi.waitFor(() => expect(unread.destroy).toHaveBeenCalledOnce())
  expect(read.destroy).not.toHaveBeenCalled()
  // A client that leaves does not wait for that.
  const left = await ask()
  await left.response.body?.cancel()
  await new Promise((resolve) => setTimeout(resolve, 300))
  expect(left.destroy).not.toHaveBeenCalled()
  expect(batch?.stats()).toMatchObject({ active: 0, waiting: 0 })
  expect(() => lm.createServer(model, { maxStallMs: 0 })).toThrow(/maxStallMs must be a positive integer/)
})

test("streams that have ended leave nothing", async () => {
  const own = lm.createServer(model)
  const batch = own.batch as lm.Batcher
  const signals: WeakRef<AbortSignal>[] = []
  const stream = batch.stream.bind(batch)
  batch.stream = (tokens, options) => {
    if (options?.signal) signals.push(new WeakRef(options.signal))
    return stream(tokens, options)
  }
  const address = await own.listen(0)
  for (let i = 0; i < 20; i++) {
    const body = JSON.stringify({ prompt: "the", max_tokens: 2, stream: true })
    const answer = await fetch(`${address}/v1/completions`, { method: "POST", body })
    expect(await answer.text()).toContain("[DONE]")
  }
  await vi.waitFor(() => {
    lifetimes.collectGarbage()
    expect(signals.filter((signal) => signal.deref()).length).toBeLessThan(5)
  }, 5000)
  expect(signals.length).toBe(20)
  await own.close()
})

test.each([false, true])("by default caches may use half of the free memory: compile %s", async (compile) => {
  const { app } = lm.createServer(model, { maxTokens: 2 ** 40, contextLength: 2 ** 41, compile })
  const body = JSON.stringify({ prompt: "the", max_tokens: 2 ** 40 })
  const response = await app.request("/v1/completions", { method: "POST", body })
  expect([response.status, await response.text()]).toEqual([
    400,
    expect.stringContaining("do not fit maxCacheBytes"),
  ])
})

test("embeddings have length 1, and do not depend on others in the batch", async () => {
  const { data } = await client.embeddings.create({ model: "llama", input: ["the", "in the end"] })
  const alone = await client.embeddings.create({ model: "llama", input: "the", encoding_format: "float" })
  for (const { embedding } of data) expect(Math.hypot(...embedding)).toBeCloseTo(1, 5)
  data[0].embedding.forEach((value, i) => expect(value).toBeCloseTo(alone.data[0].embedding[i], 4))
})

test("models, health, metrics and the chat page", async () => {
  expect((await client.models.list()).data.map(({ id }) => id)).toEqual(["llama"])
  expect((await client.models.retrieve("llama")).id).toBe("llama")
  expect(await (await fetch(`${url}/health`)).json()).toEqual({ status: "ok" })
  expect((await fetch(`${url}/metrics`)).status).toBe(401)
  const metrics = await fetch(`${url}/metrics`, { headers: { authorization: "Bearer secret" } })
  expect(await metrics.text()).toMatch(/lazuli_lm_generated_tokens_total \d+/)
  expect(await (await fetch(url)).text()).toContain("<title>llama</title>")
})

test("damaged weights are an error of the server that a retry does not mend", async () => {
  const broken = await lm.load(join(scratch, "llama"))
  for (const [, module] of broken.network.namedModules())
    if ("weight" in module) module.weight = (module.weight as mx.Array).multiply(Number.NaN)
  const { app } = lm.createServer(broken)
  const ask = (stream: boolean) =>
    app.request("/v1/completions", { method: "POST", body: JSON.stringify({ prompt: "the", stream }) })
  const whole = await ask(false)
  expect([whole.status, whole.headers.get("retry-after")]).toEqual([500, null])
  expect(eventsOf(await (await ask(true)).text())).toEqual([await whole.json()])
})

test("a model without a tokenizer is not asked for text", async () => {
  const { app } = lm.createServer({ ...model, tokenizer: null })
  const { status, body } = await answerOf(app, "completions", { prompt: [1, 2] })
  expect([status, body.error.message]).toEqual([400, expect.stringContaining("has no tokenizer")])
  expect((await answerOf(app, "embeddings", { input: [1, 2] })).status).toBe(200)
})

test("a client gets the error of a too large body while it is still sending", async () => {
  const { hostname, port } = new URL(url)
  const head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer secret\r\n"
  // This client, like many, reads only after it has sent everything.
  const patient = connect(Number(port), hostname).pause()
  await new Promise<void>((resolve, reject) => {
    patient.once("error", reject)
    patient.write(`${head}content-length: 8000000\r\n\r\n${"x".repeat(8e6)}`, (error) =>
      error ? reject(error) : resolve(),
    )
  })
  patient.resume()
  const [answer] = (await once(patient, "data")) as [Buffer]
  expect(answer.toString()).toMatch(/^HTTP\/1.1 413 [\s\S]*larger than 100000 bytes/)
  patient.destroy()
  // The connection of a client that never stops is closed.
  const socket = connect(Number(port), hostname)
  socket.write(`${head}content-length: 9000000\r\n\r\nx`)
  const [first] = (await once(socket, "data")) as [Buffer]
  expect(first.toString()).toMatch(/^HTTP\/1.1 413 [\s\S]*connection: close/i)
  socket.destroy()
})

test("concurrent requests get the answers of single ones, clients may disconnect, and a full queue rejects requests", async () => {
  const ask = (content: string, max_tokens = 12) =>
    client.chat.completions.create({
      model: "llama",
      messages: [{ role: "user", content }],
      temperature: 0,
      max_tokens,
    })
  const texts = Array.from({ length: 8 }, (_, i) => `${"the ".repeat(i + 1)}end`)
  const want = await Promise.all(
    texts.map((content) => lm.generate(model, [{ role: "user", content }], { maxTokens: 12 })),
  )
  const leaving = Array.from({ length: 3 }, async () => {
    const pieces = await client.chat.completions.create({
      model: "llama",
      messages,
      max_tokens: 200,
      stream: true,
      logit_bias: { 257: -100 },
    })
    for await (const piece of pieces) if (piece.choices[0]?.delta.content) break
    pieces.controller.abort()
  })
  const answers = await Promise.all(texts.map((content) => ask(content)))
  await Promise.all(leaving)
  expect(answers.map((answer) => answer.choices[0].message.content)).toEqual(want)
  const crowd = await Promise.allSettled(Array.from({ length: 40 }, () => ask("the", 30)))
  const refused = crowd.filter((result) => result.status === "rejected").map(({ reason }) => reason)
  expect(refused.length).toBeGreaterThan(0)
  for (const reason of refused) expect(reason).toBeInstanceOf(OpenAI.RateLimitError)
  for (let i = 0; i < 100 && (server.batch?.stats().active ?? 0) > 0; i++)
    await new Promise((r) => setTimeout(r, 20))
  expect(server.batch?.stats()).toMatchObject({ active: 0, waiting: 0, cacheBytes: 0 })
}, 60_000)

test("embeddings wait in a queue, which has a limit", async () => {
  const { app } = lm.createServer(model, { maxWaiting: 2 })
  const ask = async (): Promise<number> =>
    (await app.request("/v1/embeddings", { method: "POST", body: '{"input": "the"}' })).status
  const statuses = await Promise.all(Array.from({ length: 10 }, ask))
  expect(statuses.filter((status) => status === 200).length).toBe(3)
  expect(statuses.filter((status) => status === 429).length).toBe(7)
  expect(await ask()).toBe(200)
})

describe("long texts", () => {
  const text = "the beginning in the end, ".repeat(20_000)

  test("are tokenized beside other work", async () => {
    const own = lm.createServer(model)
    const begin = performance.now()
    const count = model.tokenizer!.encode(text).length
    const alone = performance.now() - begin
    // Starts the thread.
    await answerOf(own.app, "completions", { prompt: text })
    let [longest, last] = [0, performance.now()]
    const timer = setInterval(() => {
      longest = Math.max(longest, performance.now() - last)
      last = performance.now()
    }, 1)
    const { status, body } = await answerOf(own.app, "completions", { prompt: text })
    clearInterval(timer)
    longest = Math.max(longest, performance.now() - last)
    expect([status, body.error.message]).toEqual([
      400,
      `the prompt has ${count} tokens, the maximum is 32768`,
    ])
    expect(longest).toBeLessThan(alone / 2)
    await own.close()
  })

  test("have the tokens of short ones, in every request", async () => {
    const own = lm.createServer(model, { maxPromptTokens: 1e6, contextLength: 1e6, maxTokens: 1 })
    const { tokenizer } = model
    const some = text.slice(0, 5000)
    const long = [{ role: "user", content: some }]
    for (const [path, asked, tokens] of [
      ["completions", { prompt: some }, tokenizer!.tokensOf(some)],
      ["chat/completions", { messages: long }, tokenizer!.tokensOf(long)],
      ["embeddings", { input: ["the", some] }, [...tokenizer!.encode("the"), ...tokenizer!.encode(some)]],
    ] as const)
      expect((await answerOf(own.app, path, asked)).body.usage.prompt_tokens).toBe(tokens.length)
    const [seen] = [vi.spyOn(own.batch!, "stream")]
    await answerOf(own.app, "chat/completions", { messages: long })
    expect(seen.mock.calls[0][0]).toEqual(tokenizer!.tokensOf(long))
    await own.close()
    const reranker = await lm.load(writeCheckpoint("bert-reranker", join(scratch, "long-reranker")))
    const pairs = lm.createServer(reranker)
    const repeated = { query: "the ".repeat(2 ** 16), documents: ["a", "b", "c", "d", "e"] }
    expect(await answerOf(pairs.app, "rerank", repeated)).toMatchObject({
      status: 400,
      body: { error: { param: "query" } },
    })
    const { status, body } = await answerOf(pairs.app, "rerank", { query: "the", documents: ["a", some] })
    const { ids } = reranker.tokenizer!.encodePair("the", some)
    expect([status, body.error.message]).toEqual([
      400,
      `text 1 has ${ids.length} tokens, the model supports 64. Split or truncate it`,
    ])
    await pairs.close()
  })

  test("that the chat template rejects are bad requests, and a closed server answers", async () => {
    const files = { ...model.tokenizer!.files, template: "{{ raise_exception('no ' + messages[0].role) }}" }
    const own = lm.createServer({ ...model, tokenizer: new lm.Tokenizer(files) })
    const asked = { messages: [{ role: "user", content: text }] }
    const { status, body } = await answerOf(own.app, "chat/completions", asked)
    expect([status, body.error.message]).toEqual([400, "the chat template rejects the conversation: no user"])
    const late = answerOf(own.app, "completions", { prompt: text })
    await own.close()
    expect((await late).status).toBe(503)
  })
})

test("options out of range are rejected", () => {
  expect(() => lm.createServer(model, { maxTokens: 0 })).toThrow(/maxTokens must be a positive integer/)
  expect(() => lm.createServer(model, { maxBodyBytes: Number.NaN })).toThrow(/maxBodyBytes/)
  expect(() => lm.createServer(model, { apiKey: "" })).toThrow(/apiKey must be a string that is not empty/)
})

test("a reranker sorts documents, and rejects invalid requests", async () => {
  const reranker = await lm.load(writeCheckpoint("bert-reranker", join(scratch, "reranker")))
  const { app } = lm.createServer(reranker, { name: "order" })
  const ask = async (body: object): Promise<{ status: number; body: Record<string, never> }> => {
    const headers = { "content-type": "application/json" }
    const response = await app.request("/v1/rerank", { method: "POST", headers, body: JSON.stringify(body) })
    return { status: response.status, body: (await response.json()) as Record<string, never> }
  }
  const documents = ["the end", "in the beginning", "a"]
  const scores = await lm.rerank(reranker, "the", documents)
  const order = documents.map((_, i) => i).sort((a, b) => scores[b] - scores[a])
  const { body } = await ask({ model: "order", query: "the", documents, top_n: 2, return_documents: true })
  expect(body.results).toEqual(
    order.slice(0, 2).map((index) => ({
      index,
      relevance_score: scores[index],
      document: { text: documents[index] },
    })),
  )
  expect((await ask({ query: "the", documents: [{ text: "a" }] })).status).toBe(200)
  // Its root has no page that could only fail.
  expect((await app.request("/")).status).toBe(404)
  for (const wrong of [
    { documents },
    { query: "the" },
    { query: "the", documents: [] },
    { query: "the", documents: [3] },
    { query: "the", documents, top_n: 0 },
    { query: "the", documents, max_chunks_per_doc: 3 },
    { query: "the", documents: Array.from({ length: 257 }, () => "a") },
  ])
    expect((await ask(wrong)).status, JSON.stringify(wrong).slice(0, 60)).toBe(400)
  const writer = await lm.createServer(model).app.request("/v1/rerank", {
    method: "POST",
    body: JSON.stringify({ query: "the", documents }),
  })
  expect([writer.status, await writer.text()]).toEqual([400, expect.stringContaining("not a reranker")])
})
