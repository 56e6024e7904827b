/** Idle connections, and clients whose requests are rejected while they send. */
import { once } from "node:events"
import { mkdtempSync, rmSync } from "node:fs"
import { type AddressInfo, connect, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { serve } from "@hono/node-server"
import * as lm from "@lazuli/lm"
import { Hono } from "hono"
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { BODIES } from "./bodies"
import { connections, PIPELINED } from "./connections"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-connections-"))
let server: lm.LanguageServer
let port = 0
beforeAll(async () => {
  const model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
  server = lm.createServer(model, { apiKey: "secret", exact: true, maxBodyBytes: 10_000 })
  port = Number(new URL(await server.listen(0)).port)
})
afterAll(async () => {
  await server.close()
  rmSync(scratch, { recursive: true })
})

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
const HEALTH = "GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
const head = (path: string, key: string, length: string): string =>
  `POST ${path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${key}\r\n${length}\r\n\r\n`

function send(socket: Socket, text: string): Promise<void> {
  return new Promise((resolve, reject) => socket.write(text, (error) => (error ? reject(error) : resolve())))
}

async function answer(socket: Socket): Promise<string> {
  const [data] = (await once(socket, "data")) as [Buffer]
  return data.toString()
}

test("an idle connection stays open far longer than the timeout sent to clients", async () => {
  const socket = connect(port, "127.0.0.1")
  await send(socket, HEALTH)
  expect(await answer(socket)).toMatch(/^HTTP\/1.1 200 [\s\S]*keep-alive: timeout=5\r\n/)
  // Node closes it after 5 seconds, later versions after 6.
  await pause(7000)
  await send(socket, HEALTH)
  expect(await answer(socket)).toMatch(/^HTTP\/1.1 200 /)
  socket.destroy()
  const streamed = await fetch(`http://127.0.0.1:${port}/v1/completions`, {
    method: "POST",
    headers: { authorization: "Bearer secret" },
    body: JSON.stringify({ model: "llama", prompt: "the", max_tokens: 2, stream: true }),
  })
  expect(streamed.headers.get("keep-alive")).toBe("timeout=5")
  expect(await streamed.text()).toMatch(/\[DONE\]/)
}, 20_000)

describe("a client hears that it is refused, though it sends for seconds and reads last:", () => {
  const length = "content-length: 40000"
  const chunks = "transfer-encoding: chunked"
  test.concurrent.each([
    ["a wrong key", 401, head("/v1/completions", "guess", length)],
    ["an unknown path", 404, head("/v2", "secret", length)],
    ["too large", 413, head("/v1/completions", "secret", length)],
    ["too large, in chunks", 413, head("/v1/completions", "secret", chunks)],
  ])(
    "%s",
    async (_name, status, start) => {
      const socket = connect(port, "127.0.0.1").pause()
      let failure: Error | null = null
      socket.on("error", (error) => {
        failure = error
      })
      const part = "x".repeat(2500)
      const piece = start.includes(chunks) ? `${part.length.toString(16)}\r\n${part}\r\n` : part
      await send(socket, start + piece.repeat(6))
      for (let i = 6; i < 16; i++) {
        await pause(300)
        await send(socket, piece)
      }
      if (start.includes(chunks)) await send(socket, "0\r\n\r\n")
      const closed = once(socket, "close")
      socket.resume()
      const text = await answer(socket)
      expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} [\\s\\S]*connection: close`))
      await closed
      expect(failure).toBeNull()
    },
    20_000,
  )
})

test.each([
  ["a wrong key", 401, "guess", "content-length: 40000", "x".repeat(40_000)],
  ["too large", 413, "secret", "content-length: 40000", "x".repeat(40_000)],
  [
    "too large, in chunks",
    413,
    "secret",
    "transfer-encoding: chunked",
    `9c40\r\n${"x".repeat(40_000)}\r\n0\r\n\r\n`,
  ],
])("a connection whose request is refused is used again: %s", async (_name, status, key, length, body) => {
  const socket = connect(port, "127.0.0.1")
  await send(socket, head("/v1/completions", key, length) + body)
  const text = await answer(socket)
  expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
  expect(text).not.toMatch(/connection: close/i)
  await send(socket, HEALTH)
  expect(await answer(socket)).toMatch(/^HTTP\/1.1 200 /)
  socket.destroy()
})

test("a connection has few requests at once", async () => {
  /** The number of answers to requests that are sent together. */
  const answersOf = async (requests: number): Promise<number> => {
    const socket = connect(port, "127.0.0.1")
    socket.on("error", () => {})
    let text = ""
    socket.on("data", (data) => {
      text += data
    })
    await send(socket, HEALTH.repeat(requests))
    await pause(1000)
    socket.destroy()
    return text.split("HTTP/1.1 200").length - 1
  }
  expect(await answersOf(PIPELINED)).toBe(PIPELINED)
  expect(await answersOf(10 * PIPELINED)).toBeLessThanOrEqual(PIPELINED)
})

test("the connection of a client that never stops sending is closed", async () => {
  const app = new Hono()
  app.use(connections(100, 300))
  app.post("/", (c) => c.text("no", 403))
  const bare = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" })
  await once(bare, "listening")
  const socket = connect((bare.address() as AddressInfo).port, "127.0.0.1")
  const closed = once(socket, "close")
  socket.on("error", () => {})
  socket.write("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nx")
  expect(await answer(socket)).toMatch(/^HTTP\/1.1 403 [\s\S]*connection: close/)
  const drip = setInterval(() => socket.write("x"), 50)
  await closed
  clearInterval(drip)
  await new Promise((resolve) => bare.close(resolve))
})

describe("bodies that are being received", () => {
  test("have a limit together, and others are answered", async () => {
    const model = await lm.load(join(scratch, "llama"))
    const own = lm.createServer(model, { maxBodyBytes: 1000, maxTokens: 1 })
    const address = await own.listen(0)
    const start = `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n`
    const held = await Promise.all(
      Array.from({ length: BODIES + 6 }, async (_, i) => {
        const socket = connect(Number(new URL(address).port), "127.0.0.1")
        await send(socket, `${start}${i % 2 ? "content-length: 1000" : "transfer-encoding: chunked"}\r\n\r\n`)
        return socket
      }),
    )
    const refused = await Promise.all(
      held.map((socket) => Promise.race([answer(socket).catch(() => ""), pause(4000).then(() => "")])),
    )
    expect(
      refused.filter((text) => /^HTTP\/1.1 429 .*too many requests are being sent/s.test(text)).length,
    ).toBe(6)
    const ask = (): Promise<number> =>
      fetch(`${address}/v1/completions`, { method: "POST", body: '{"prompt": "the"}' }).then((r) => r.status)
    expect((await fetch(`${address}/health`)).status).toBe(200)
    expect(await ask()).toBe(429)
    for (const socket of held) socket.destroy()
    await vi.waitFor(async () => expect(await ask()).toBe(200))
    await own.close()
  }, 20_000)

  test.each([
    ["that are too large", "/v1/completions", "transfer-encoding: chunked", `bb8\r\n${"x".repeat(3000)}\r\n`],
    ["for a path that does not read them", "/v1/models", "content-length: 900", "x"],
  ])(
    "are forgotten once they are answered, with those %s",
    async (_name, path, length, body) => {
      const model = await lm.load(join(scratch, "llama"))
      const own = lm.createServer(model, { maxBodyBytes: 1000, maxTokens: 1 })
      const address = await own.listen(0)
      const method = path === "/v1/models" ? "GET" : "POST"
      const start = `${method} ${path} HTTP/1.1\r\nhost: localhost\r\n${length}\r\n\r\n`
      const refuse = async (): Promise<void> => {
        const socket = connect(Number(new URL(address).port), "127.0.0.1")
        socket.on("error", () => {})
        await send(socket, start + body)
        expect(await answer(socket)).not.toMatch(/^HTTP\/1.1 429/)
        socket.destroy()
      }
      // More than fit beside each other, in two parts.
      for (let part = 0; part < 2; part++) await Promise.all(Array.from({ length: BODIES / 2 + 1 }, refuse))
      const asked = await fetch(`${address}/v1/completions`, { method: "POST", body: '{"prompt": "the"}' })
      expect(asked.status).toBe(200)
      await own.close()
    },
    30_000,
  )
})

describe("a server that closes", () => {
  const begin = async (graceMs: number, stream: boolean): Promise<string> => {
    const model = await lm.load(join(scratch, "llama"))
    const own = lm.createServer(model, { contextLength: 400 })
    const address = await own.listen(0)
    const body = JSON.stringify({
      prompt: "the",
      max_tokens: 300,
      temperature: 0,
      stream,
      logit_bias: { 257: -100 },
    })
    const response = fetch(`${address}/v1/completions`, { method: "POST", body }).then((r) => r.text())
    await vi.waitFor(() => expect(own.batch?.stats().active).toBe(1))
    await own.close(graceMs)
    await expect(fetch(`${address}/health`)).rejects.toThrow()
    return response
  }
  test("answers its requests first", async () => {
    expect(await begin(30_000, true)).toContain("[DONE]")
    expect(await begin(30_000, false)).toContain('"finish_reason":"length"')
  })
  test("tells the clients of those that it aborts", async () => {
    expect(await begin(0, true)).toMatch(/data: \{"error":\{"message":"the server is shutting down"/)
    expect(await begin(0, false)).toMatch(/the server is shutting down/)
  })
})
