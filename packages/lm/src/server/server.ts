/**
 * A server with OpenAI's API for chat, completions, embeddings and models, Cohere's for reranking, and health and metrics. All clients
 * share one batch.
 */
import { createHash, timingSafeEqual } from "node:crypto"
import { freemem, platform, totalmem } from "node:os"
import { serve as listen, type ServerType } from "@hono/node-server"
import * as mx from "@lazuli/core"
import { type Context, Hono } from "hono"
import { bodyLimit } from "hono/body-limit"
import { checkKind, type Kind, TEXT } from "../argument-kinds"
import { checkModel } from "../arguments"
import type { LoadedModel } from "../formats/load"
import { Batcher } from "../generate/batch"
import { EncoderNetwork } from "../models/network"
import { chatPage } from "./chat-page"
import { connections, IDLE_MS } from "./connections"
import { asRequestError, isExpected } from "./errors"
import { type Counts, RequestHandler } from "./request-handler"
import { bodyOf, checkName, RequestError } from "./requests"
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
  const key = apiKey === undefined ? null : digest(apiKey)

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
  app.use("/v1/*", bodyLimit({ maxSize: maxBodyBytes, onError: tooLarge }))
  app.get("/metrics", (c) => c.text(metrics(counts, batch)))
  const entry = { id: name, object: "model", created, owned_by: "local" }
  app.get("/v1/models", (c) => c.json({ object: "list", data: [entry] }))
  app.get("/v1/models/:name{.+}", (c) => {
    checkName(c.req.param("name"), name)
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
        checkKind("listen", "port", port, PORT)
        checkKind("listen", "host", host, TEXT)
        const serverOptions = { keepAliveTimeout: IDLE_MS }
        const made = listen({ fetch: app.fetch, port, hostname: host, serverOptions }, (info) =>
          resolve(`http://${host.includes(":") ? `[${host}]` : host}:${info.port}`),
        )
        made.once("error", reject)
        server = made
      }),
    close: async () => {
      batch?.close()
      const closed = server && new Promise<void>((resolve) => server?.close(() => resolve()))
      if (server && "closeAllConnections" in server) server.closeAllConnections()
      await Promise.all([closed, handler.close()])
    },
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
  const { status, body } = asRequestError(error)
  if (status === 429 || status === 503) c.header("retry-after", "1")
  return c.json(body, status)
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
