/**
 * A server with OpenAI's API for chat, completions, embeddings and models, Cohere's for reranking, and health and metrics. All clients
 * share one batch.
 */
import { createHash, timingSafeEqual } from "node:crypto"
import type { Server } from "node:http"
import { freemem, platform, totalmem } from "node:os"
import { setTimeout } from "node:timers/promises"
import { serve as listen } from "@hono/node-server"
import * as mx from "@lazuli/core"
import { type Context, Hono } from "hono"
import { bodyLimit } from "hono/body-limit"
import { cors } from "hono/cors"
import { checkKind, type Kind, TEXT } from "../argument-kinds"
import { checkModel } from "../arguments"
import type { LoadedModel } from "../formats/load"
import { Batcher } from "../generate/batch"
import { EncoderNetwork } from "../models/network"
import { answers } from "./answers"
import { ARRIVAL_MS, bodyBudget } from "./bodies"
import { chatPage } from "./chat-page"
import { connections, IDLE_MS, LONGEST_MS } from "./connections"
import { asRequestError, isExpected } from "./errors"
import { Counts } from "./metrics"
import { isLocal, originOf, origins } from "./origins"
import { RequestHandler } from "./request-handler"
import { bodyOf, checkName, RequestError } from "./requests"
import { batchOptionsOf, checkGrace, checkServer, type ServerOptions, stallOf } from "./server-options"

/** A server, listening or not. */
export interface LanguageServer {
  /** The Hono application: `app.fetch(request)` answers without a network. */
  readonly app: Hono
  readonly batch: Batcher | null
  /** Starts listening. Resolves to the URL. */
  listen(port?: number, host?: string): Promise<string>
  /** Stops listening, and aborts requests that do not end in `graceMs`, 0 by default. */
  close(graceMs?: number): Promise<void>
}

const PORT: Kind = {
  expected: "an integer from 0 to 65535",
  accepts: (value) => Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= 65_535,
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
  const { name = model.name, apiKey, maxBodyBytes = 2 ** 20, allowedHosts = [] } = options
  const allowedOrigins = (options.allowedOrigins ?? []).map((origin) => originOf(origin) ?? origin)
  const generates = !(model.network instanceof EncoderNetwork)
  const maxCacheBytes = options.maxCacheBytes ?? Math.floor(freeMemory() / 2)
  const batch = generates ? new Batcher(model, { ...batchOptionsOf(options), maxCacheBytes }) : null
  const counts = new Counts()
  const created = Math.floor(Date.now() / 1000)
  const handler = new RequestHandler(model, batch, name, { ...options, maxCacheBytes }, counts)
  const app = new Hono()
  /** The host to listen on. */
  let address = ""
  const key = apiKey === undefined ? null : digest(apiKey)

  app.onError((error, c) => {
    if (!isExpected(error)) options.onError?.(error)
    // A client that left is not refused.
    const counted = c.req.raw.signal.aborted ? null : counts
    return answerError(asRequestError(error, handler.isClosing), c, counted)
  })
  app.notFound((c) => {
    throw new RequestError(404, `${c.req.method} ${c.req.path} not found`)
  })
  app.use(answers(stallOf(options)))
  app.use(connections())
  app.use(async (c, next) => {
    if (handler.isClosing) c.header("connection", "close")
    await next()
  })
  app.use(origins({ origins: allowedOrigins, hosts: allowedHosts }, () => !key && isLocal(address)))
  if (allowedOrigins.length > 0)
    app.use("/v1/*", cors({ origin: allowedOrigins.includes("*") ? "*" : allowedOrigins, maxAge: 600 }))
  app.get("/health", (c) => c.json({ status: "ok" }))
  app.get("/", (c) => {
    if (batch && model.tokenizer?.chats) return c.html(chatPage(name))
    throw new RequestError(404, "there is no chat page: the model has no chat template")
  })
  const guard = async (c: Context, next: () => Promise<void>): Promise<void> => {
    const [, sent = ""] = /^bearer +(.*)$/i.exec(c.req.header("authorization") ?? "") ?? []
    // Digests have equal lengths, which timingSafeEqual needs.
    if (key && !timingSafeEqual(digest(sent), key)) {
      c.header("www-authenticate", "Bearer")
      throw new RequestError(401, "the API key is missing or wrong", { code: "invalid_api_key" })
    }
    await next()
  }
  app.use("/v1/*", guard)
  app.use("/metrics", guard)
  const tooLarge = (): never => {
    throw new RequestError(413, `the request body is larger than ${maxBodyBytes} bytes`)
  }
  app.use("/v1/*", bodyBudget(maxBodyBytes))
  app.use("/v1/*", bodyLimit({ maxSize: maxBodyBytes, onError: tooLarge }))
  app.get("/metrics", (c) => c.text(counts.page(batch)))
  const entry = { id: name, object: "model", created, owned_by: "local" }
  app.get("/v1/models", (c) => c.json({ object: "list", data: [entry] }))
  app.get("/v1/models/:name{.+}", (c) => {
    checkName(c.req.param("name"), name)
    return c.json(entry)
  })
  app.post("/v1/chat/completions", async (c) => handler.chat(c, await readBody(c)))
  app.post("/v1/completions", async (c) => handler.complete(c, await readBody(c)))
  app.post("/v1/embeddings", async (c) => handler.embed(c, await readBody(c)))
  app.post("/v1/rerank", async (c) => handler.rerank(c, await readBody(c)))

  let server: Server | null = null
  return {
    app,
    batch,
    listen: (port = 8080, host = "127.0.0.1") =>
      new Promise((resolve, reject) => {
        checkKind("listen", "port", port, PORT)
        checkKind("listen", "host", host, TEXT)
        const serverOptions = { keepAliveTimeout: IDLE_MS, requestTimeout: ARRIVAL_MS }
        address = host
        const made = listen({ fetch: app.fetch, port, hostname: host, serverOptions }, (info) =>
          resolve(`http://${host.includes(":") ? `[${host}]` : host}:${info.port}`),
        )
        made.once("error", reject)
        server = made as Server
        server.maxConnections = options.maxConnections ?? 1024
        // Makes room for the next one.
        server.on("drop", () => server?.closeIdleConnections())
      }),
    close: async (graceMs = 0) => {
      checkGrace(graceMs)
      handler.isClosing = true
      const abort = async (): Promise<void> => {
        batch?.close()
        await handler.close()
      }
      await (server ? ended(server, graceMs, abort) : abort())
    },
  }
}

/** Milliseconds in which clients can receive the error of a request that was aborted. */
const FAREWELL_MS = 500

/** Stops listening, and ends connections: those of requests when they are answered, or aborted after `graceMs`. */
async function ended(server: Server, graceMs: number, abort: () => Promise<void>): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  const idle = setInterval(() => server.closeIdleConnections(), 20)
  const within = (ms: number): Promise<unknown> =>
    Promise.race([closed, setTimeout(ms, null, { ref: false })])
  await within(Math.min(graceMs, LONGEST_MS))
  await abort()
  await within(FAREWELL_MS)
  server.closeAllConnections()
  clearInterval(idle)
  await closed
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

function answerError({ status, body }: RequestError, c: Context, counts: Counts | null): Response {
  counts?.addError(status)
  if (status === 429 || status === 503) c.header("retry-after", "1")
  return c.json(body, status)
}
