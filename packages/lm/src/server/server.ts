/**
 * A server with OpenAI's API for chat, completions, embeddings and models, Cohere's for reranking, and health and metrics. All clients
 * share one batch.
 */
import { createHash, randomUUID, timingSafeEqual } from "node:crypto"
import { freemem, platform, totalmem } from "node:os"
import { type HttpBindings, serve as listen, type ServerType } from "@hono/node-server"
import * as mx from "@lazuli/core"
import { ArgumentError, LazuliError } from "@lazuli/core/engine"
import { type Context, Hono } from "hono"
import { bodyLimit } from "hono/body-limit"
import { type SSEStreamingApi, streamSSE } from "hono/streaming"
import { checkModel, factOf } from "../arguments"
import type { LoadedModel } from "../formats/load"
import { Batcher, BusyError } from "../generate/batch"
import { checkTexts, embed, encodePairs, scorePairs, type TokenPair } from "../generate/embed"
import { type Prompt, promptTokens } from "../generate/prompts"
import type { FinishReason, Piece } from "../generate/writer"
import { EncoderNetwork } from "../models/network"
import { chatPage } from "./chat-page"
import { connections, IDLE_MS } from "./connections"
import { MergingQueue } from "./merging-queue"
import {
  bodyOf,
  chatLogprobs,
  checkKnown,
  encodingOf,
  generationOf,
  includesUsage,
  inputsOf,
  messagesOf,
  promptOf,
  RequestError,
  rerankingOf,
  streams,
  textLogprobs,
} from "./requests"
import { batchOptionsOf, checkServer, type ServerOptions } from "./server-options"

/** A server, listening or not. */
export interface LanguageServer {
  /** The Hono application: `app.fetch(request)` answers without a network. */
  readonly app: Hono
  readonly batch: Batcher | null
  /** Starts listening. Resolves to the URL. */
  listen(port?: number, host?: string): Promise<string>
  /** Stops listening, and aborts current requests. */
  close(): Promise<void>
}

interface Counts {
  requests: number
  refused: number
  promptTokens: number
  generatedTokens: number
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest()

/**
 * Creates a server for a model.
 * @throws ArgumentError for options out of range
 * @example
 * const server = createServer(await load('my-model'))
 * const answer = await server.app.request('/health')
 * const health = await answer.json()
 * health // => { status: 'ok' }
 * await server.close()
 */
export function createServer(model: LoadedModel, options: ServerOptions = {}): LanguageServer {
  checkModel("createServer", model)
  checkServer(options)
  const { name = model.name, apiKey, maxBodyBytes = 2 ** 20 } = options
  const generates = !(model.network instanceof EncoderNetwork)
  const batch = generates
    ? new Batcher(model, {
        ...batchOptionsOf(options),
        maxCacheBytes: options.maxCacheBytes ?? Math.floor(freeMemory() / 2),
      })
    : null
  const counts: Counts = { requests: 0, refused: 0, promptTokens: 0, generatedTokens: 0 }
  const created = Math.floor(Date.now() / 1000)
  const app = new Hono()
  const key = apiKey === undefined ? null : digest(`Bearer ${apiKey}`)

  app.onError((error, c) => {
    counts.refused++
    if (!isExpected(error)) options.onError?.(error)
    return answerError(error, c)
  })
  app.notFound((c) => answerError(new RequestError(404, `${c.req.method} ${c.req.path} not found`), c))
  app.use(connections())
  app.get("/health", (c) => c.json({ status: "ok" }))
  app.get("/", (c) => c.html(chatPage(name)))
  const guard = async (c: Context, next: () => Promise<void>): Promise<void> => {
    // Digests have equal lengths, which timingSafeEqual needs.
    const sent = digest(c.req.header("authorization") ?? "")
    if (key && !timingSafeEqual(sent, key))
      throw new RequestError(401, "the API key is missing or wrong", "authentication_error")
    await next()
  }
  app.use("/v1/*", guard)
  app.use("/metrics", guard)
  const tooLarge = (): never => {
    throw new RequestError(413, `the request body is larger than ${maxBodyBytes} bytes`)
  }
  app.use("/v1/*", bodyLimit({ maxSize: maxBodyBytes, onError: tooLarge }))
  app.get("/metrics", (c) => c.text(metrics(counts, batch)))
  const entry = { id: name, object: "model", created, owned_by: "local" }
  app.get("/v1/models", (c) => c.json({ object: "list", data: [entry] }))
  app.get("/v1/models/:name{.+}", (c) => {
    if (c.req.param("name") !== name)
      throw new RequestError(404, `the model ${c.req.param("name")} does not exist`)
    return c.json(entry)
  })
  const handler = new RequestHandler(model, batch, name, options, counts)
  app.post("/v1/chat/completions", async (c) => handler.chat(c, await readBody(c)))
  app.post("/v1/completions", async (c) => handler.complete(c, await readBody(c)))
  app.post("/v1/embeddings", async (c) => handler.embed(c, await readBody(c)))
  app.post("/v1/rerank", async (c) => handler.rerank(c, await readBody(c)))

  let server: ServerType | null = null
  return {
    app,
    batch,
    listen: (port = 8080, host = "127.0.0.1") =>
      new Promise((resolve, reject) => {
        const serverOptions = { keepAliveTimeout: IDLE_MS }
        const made = listen({ fetch: app.fetch, port, hostname: host, serverOptions }, (info) =>
          resolve(`http://${host.includes(":") ? `[${host}]` : host}:${info.port}`),
        )
        made.once("error", reject)
        server = made
      }),
    close: () =>
      new Promise((resolve) => {
        batch?.close()
        if (!server) return resolve()
        server.close(() => resolve())
        if ("closeAllConnections" in server) server.closeAllConnections()
      }),
  }
}

/** Bytes of the default device's memory that are not in use. */
function freeMemory(): number {
  if (mx.defaultDevice().type === "gpu") {
    const { maxRecommendedWorkingSetSize, memorySize = Infinity } = mx.deviceInfo()
    return Math.max(0, (maxRecommendedWorkingSetSize ?? memorySize) - mx.getActiveMemory())
  }
  // macOS counts cached files as used.
  const free = platform() === "darwin" ? totalmem() : freemem()
  return Math.min(free, process.constrainedMemory() || Infinity)
}

async function readBody(c: Context): Promise<Readonly<Record<string, unknown>>> {
  let value: unknown
  try {
    value = await c.req.json()
  } catch (error) {
    if (error instanceof RequestError) throw error
    throw new RequestError(400, "the request body is not valid JSON")
  }
  return bodyOf(value)
}

function answerError(error: unknown, c: Context): Response {
  const { status, message, type, parameter } = asRequestError(error)
  if (status === 429 || status === 503) c.header("retry-after", "1")
  return c.json({ error: { message, type, param: parameter, code: null } }, status)
}

const isExpected = (error: unknown): boolean =>
  error instanceof RequestError || error instanceof BusyError || error instanceof LazuliError

/** Maps an error to one for the client, which does not see the messages of unexpected ones. */
function asRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) return error
  if (error instanceof BusyError) return new RequestError(429, error.message, "rate_limit_error")
  if (error instanceof ArgumentError) return new RequestError(400, factOf(error))
  if (error instanceof LazuliError) return new RequestError(503, factOf(error), "server_error")
  return new RequestError(500, "internal server error", "server_error")
}

/** Metrics in Prometheus's format. */
function metrics(counts: Counts, batch: Batcher | null): string {
  const { active = 0, waiting = 0, cacheBytes = 0, prefixBytes = 0 } = batch?.stats() ?? {}
  const rows: [string, string, number][] = [
    ["requests_total", "counter", counts.requests],
    ["refused_total", "counter", counts.refused],
    ["prompt_tokens_total", "counter", counts.promptTokens],
    ["generated_tokens_total", "counter", counts.generatedTokens],
    ["active_requests", "gauge", active],
    ["waiting_requests", "gauge", waiting],
    ["cache_bytes", "gauge", cacheBytes],
    ["prefix_bytes", "gauge", prefixBytes],
    ["memory_bytes", "gauge", mx.getActiveMemory()],
  ]
  return rows
    .map(([name, type, value]) => `# TYPE lazuli_lm_${name} ${type}\nlazuli_lm_${name} ${value}\n`)
    .join("")
}

/** The response format of an endpoint. */
interface ResponseFormat {
  readonly id: string
  /** The values of `object` in a response and in a streamed chunk. */
  readonly object: readonly [response: string, chunk: string]
  choice(text: string, pieces: readonly Piece[], finish: FinishReason): object
  chunk(piece: Piece): object
}

interface Usage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
}

const disconnect = (controller: AbortController): void =>
  controller.abort(new BusyError("the client disconnected"))

/**
 * Aborts when a request's client disconnects. A function of its own, since its listener must not reach the request: Node's `Request` keeps
 * listeners of its signal until it is freed, which they would prevent.
 */
function untilDisconnected(client: AbortSignal): AbortController {
  const controller = new AbortController()
  if (client.aborted) disconnect(controller)
  client.addEventListener("abort", () => disconnect(controller), { once: true })
  return controller
}

/** Handles the requests of each endpoint. */
class RequestHandler {
  private readonly embeddings: MergingQueue<readonly number[], Float32Array>
  private readonly scores: MergingQueue<TokenPair, number>
  constructor(
    private readonly model: LoadedModel,
    private readonly batch: Batcher | null,
    private readonly name: string,
    private readonly options: ServerOptions,
    private readonly counts: Counts,
  ) {
    const { maxWaiting = 256 } = options
    this.embeddings = new MergingQueue((lists) => embed(model, lists), maxWaiting)
    this.scores = new MergingQueue((pairs) => scorePairs(model, pairs), maxWaiting)
  }

  chat(c: Context, body: Readonly<Record<string, unknown>>): Promise<Response> {
    checkKnown(body, "chat")
    const logprobs = chatLogprobs(body)
    const logprobsOf = (pieces: readonly Piece[]): object | null =>
      logprobs === undefined
        ? null
        : { content: pieces.map((piece) => this.chatLogprob(piece)), refusal: null }
    const format: ResponseFormat = {
      id: `chatcmpl-${randomUUID()}`,
      object: ["chat.completion", "chat.completion.chunk"],
      choice: (content, pieces, finish) => ({
        index: 0,
        message: { role: "assistant", content, refusal: null },
        logprobs: logprobsOf(pieces),
        finish_reason: finish,
      }),
      chunk: (piece) => ({
        index: 0,
        delta: { content: piece.text },
        logprobs: logprobsOf([piece]),
        finish_reason: piece.finish,
      }),
    }
    const first = { index: 0, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }
    return this.answer(c, body, messagesOf(body), logprobs, format, first)
  }

  complete(c: Context, body: Readonly<Record<string, unknown>>): Promise<Response> {
    checkKnown(body, "completion")
    const logprobs = textLogprobs(body)
    let length = 0
    const logprobsOf = (pieces: readonly Piece[]): object | null => {
      if (logprobs === undefined) return null
      const offsets = pieces.map(({ text }) => {
        length += text.length
        return length - text.length
      })
      return this.textLogprob(pieces, offsets)
    }
    const format: ResponseFormat = {
      id: `cmpl-${randomUUID()}`,
      object: ["text_completion", "text_completion"],
      choice: (text, pieces, finish) => ({
        index: 0,
        text,
        logprobs: logprobsOf(pieces),
        finish_reason: finish,
      }),
      chunk: (piece) => ({
        index: 0,
        text: piece.text,
        logprobs: logprobsOf([piece]),
        finish_reason: piece.finish,
      }),
    }
    return this.answer(c, body, promptOf(body), logprobs, format, null)
  }

  async embed(c: Context, body: Readonly<Record<string, unknown>>): Promise<Response> {
    checkKnown(body, "embedding")
    this.checkModel(body)
    const inputs = inputsOf(body, 256)
    const max = this.options.maxPromptTokens ?? 32_768
    const lists = inputs.map((input) => promptTokens(this.model, input))
    const total = lists.reduce((sum, list) => sum + list.length, 0)
    if (total > max) throw new RequestError(400, `the input has ${total} tokens, the maximum is ${max}`)
    checkTexts("embed", this.model.network, lists)
    const encoding = encodingOf(body)
    const vectors = await this.embeddings.run(lists, untilDisconnected(c.req.raw.signal).signal)
    this.counts.requests++
    this.counts.promptTokens += total
    const data = vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: encoding === "float" ? [...vector] : Buffer.from(vector.buffer).toString("base64"),
    }))
    const usage = { prompt_tokens: total, total_tokens: total }
    return c.json({ object: "list", data, model: this.name, usage })
  }

  /** Documents sorted by score, in the format of Cohere's and Jina's servers. */
  async rerank(c: Context, body: Readonly<Record<string, unknown>>): Promise<Response> {
    checkKnown(body, "rerank")
    this.checkModel(body)
    const { query, documents, topN, returnsDocuments } = rerankingOf(body, 256)
    const pairs = encodePairs(this.model, query, documents)
    const total = pairs.reduce((sum, { ids }) => sum + ids.length, 0)
    const max = this.options.maxPromptTokens ?? 32_768
    if (total > max) throw new RequestError(400, `the input has ${total} tokens, the maximum is ${max}`)
    const scores = await this.scores.run(pairs, untilDisconnected(c.req.raw.signal).signal)
    this.counts.requests++
    this.counts.promptTokens += total
    const results = documents
      .map((text, index) => ({
        index,
        relevance_score: scores[index],
        ...(returnsDocuments ? { document: { text } } : {}),
      }))
      .sort((a, b) => b.relevance_score - a.relevance_score)
      .slice(0, topN)
    const usage = { prompt_tokens: total, total_tokens: total }
    return c.json({ model: this.name, results, usage })
  }

  private checkModel(body: Readonly<Record<string, unknown>>): void {
    const { model } = body
    if (model !== undefined && model !== this.name)
      throw new RequestError(
        404,
        `the model ${JSON.stringify(model)} does not exist; this server has ${this.name}`,
      )
  }

  private async answer(
    c: Context,
    body: Readonly<Record<string, unknown>>,
    prompt: Prompt,
    logprobs: number | undefined,
    format: ResponseFormat,
    first: object | null,
  ): Promise<Response> {
    this.checkModel(body)
    if (!this.batch) throw new RequestError(400, "the model is an encoder, which does not generate text")
    const options = generationOf(body, this.options.maxTokens ?? 1024, this.batch.vocabulary)
    const [isStreamed, countsTokens] = [streams(body), includesUsage(body)]
    const tokens = promptTokens(this.model, prompt)
    const max = this.options.maxPromptTokens ?? 32_768
    if (tokens.length > max)
      throw new RequestError(400, `the prompt has ${tokens.length} tokens, the maximum is ${max}`)
    const controller = untilDisconnected(c.req.raw.signal)
    const pieces = this.batch.stream(tokens, { ...options, logprobs, signal: controller.signal })
    this.counts.requests++
    this.counts.promptTokens += tokens.length
    const usage = (written: number): Usage => ({
      prompt_tokens: tokens.length,
      completion_tokens: written,
      total_tokens: tokens.length + written,
    })
    const head = { id: format.id, created: Math.floor(Date.now() / 1000), model: this.name }
    if (!isStreamed) {
      const all: Piece[] = []
      for await (const piece of pieces) all.push(piece)
      this.counts.generatedTokens += all.length
      const text = all.map((piece) => piece.text).join("")
      const choices = [format.choice(text, all, all[all.length - 1].finish ?? "stop")]
      return c.json({ ...head, object: format.object[0], choices, usage: usage(all.length) })
    }
    const shape = (choices: readonly object[], more: object = {}): { data: string } => ({
      data: JSON.stringify({ ...head, object: format.object[1], choices, ...more }),
    })
    return streamSSE(
      c,
      async (out) => {
        let stalled: NodeJS.Timeout | undefined
        out.onAbort(() => {
          // A write to a client that has left never ends, and its timer would keep the request's memory.
          clearTimeout(stalled)
          disconnect(controller)
        })
        const send = async (event: { data: string }): Promise<void> => {
          if (out.aborted) return
          stalled = setTimeout(() => {
            disconnect(controller)
            ;(c.env as Partial<HttpBindings> | undefined)?.outgoing?.destroy()
          }, this.options.maxStallMs ?? 60_000)
          try {
            await out.writeSSE(event)
          } finally {
            clearTimeout(stalled)
          }
        }
        if (first) await send(shape([first]))
        let written = 0
        for await (const piece of pieces) {
          written++
          this.counts.generatedTokens++
          if (piece.text !== "" || piece.finish !== null || logprobs !== undefined)
            await send(shape([format.chunk(piece)]))
        }
        if (countsTokens) await send(shape([], { usage: usage(written) }))
        await send({ data: "[DONE]" })
      },
      async (error, out: SSEStreamingApi) => {
        if (controller.signal.aborted) return
        if (!isExpected(error)) this.options.onError?.(error)
        const { message, type } = asRequestError(error)
        await out.writeSSE({ data: JSON.stringify({ error: { message, type, param: null, code: null } }) })
      },
    )
  }

  private chatLogprob(piece: Piece): object {
    const one = (
      token: number,
      logprob: number,
    ): { token: string; logprob: number; bytes: number[] | null } => {
      const text = this.model.tokenizer?.decode([token], { special: true }) ?? ""
      return { token: text, logprob, bytes: this.model.tokenizer?.bytesOf(token) ?? null }
    }
    return {
      ...one(piece.token, piece.logprob ?? 0),
      top_logprobs: piece.top.map(({ token, logprob }) => one(token, logprob)),
    }
  }

  private textLogprob(pieces: readonly Piece[], offsets: readonly number[]): object {
    const text = (token: number): string => this.model.tokenizer?.decode([token], { special: true }) ?? ""
    return {
      tokens: pieces.map(({ token }) => text(token)),
      token_logprobs: pieces.map(({ logprob }) => logprob),
      top_logprobs: pieces.map(({ top }) =>
        Object.fromEntries(top.map(({ token, logprob }) => [text(token), logprob])),
      ),
      text_offset: offsets,
    }
  }
}
