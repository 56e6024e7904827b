/** Answers that their clients do not read, and connections beyond the maximum. */
import { once } from "node:events"
import { mkdtempSync, rmSync } from "node:fs"
import { type AddressInfo, connect, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type HttpBindings, serve } from "@hono/node-server"
import { lifetimes } from "@lazuli/core/engine"
import * as lm from "@lazuli/lm"
import { Hono } from "hono"
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { answers } from "./answers"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-answers-"))
let model: lm.LoadedModel
beforeAll(async () => {
  model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
})
afterAll(() => rmSync(scratch, { recursive: true }))

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
const get = (path: string): string => `GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`

/** A connection that asks and does not read. */
function asking(port: number, text: string): Socket {
  const socket = connect(port, "127.0.0.1").pause()
  socket.on("error", () => {})
  socket.write(text)
  return socket
}

/** Reads an answer until it is whole or the connection ends, at most a part of it at a time. Resolves to the share that came. */
async function shareOf(socket: Socket, bytes: number, waitMs = 0): Promise<number> {
  let [length, head] = [0, 0]
  const ended = { is: false }
  socket.once("close", () => {
    ended.is = true
  })
  socket.resume()
  const read = (chunk: Buffer): void => {
    if (length === 0) head = chunk.indexOf("\r\n\r\n") + 4
    length += chunk.length
    if (waitMs === 0) return
    socket.pause()
    setTimeout(() => socket.resume(), waitMs)
  }
  socket.on("data", read)
  while (!ended.is && length - head < bytes) await pause(20)
  socket.destroy()
  return (length - head) / bytes
}

/** A server of texts: `/LENGTH?wait=MS`. */
async function texts(maxStallMs: number, maxBytes?: number) {
  const app = new Hono()
  app.use(answers(maxStallMs, maxBytes))
  app.get("/:length", async (c) => {
    await pause(Number(c.req.query("wait") ?? 0))
    return c.text("x".repeat(Number(c.req.param("length"))))
  })
  const bare = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" })
  await once(bare, "listening")
  return { port: (bare.address() as AddressInfo).port, close: () => bare.close() }
}
const LARGE = 2 ** 26

describe("an answer that is not streamed", () => {
  test("is ended if its client does not read it", async () => {
    const own = lm.createServer(model, { maxStallMs: 300 })
    vi.spyOn(own.batch!, "stream").mockImplementation(async function* () {
      yield { text: "x".repeat(LARGE / 4), token: 1, logprob: -1, top: [], finish: "stop" }
    })
    const port = Number(new URL(await own.listen(0)).port)
    const body = '{"prompt": "the"}'
    const socket = asking(
      port,
      `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    await pause(4000)
    expect(await shareOf(socket, LARGE / 4)).toBeLessThan(0.7)
    await own.close()
  })

  test("is whole for a client that reads it slowly", async () => {
    const { port, close } = await texts(1500)
    const begin = performance.now()
    expect(await shareOf(asking(port, get(`/${LARGE / 2}`)), LARGE / 2, 8)).toBe(1)
    // So long that a limit of the whole would have ended it.
    expect(performance.now() - begin).toBeGreaterThan(3000)
    close()
  }, 20_000)

  test("may take longer than that to make, after another on its connection", async () => {
    const { port, close } = await texts(200)
    const socket = connect(port, "127.0.0.1")
    socket.write(get("/10") + get("/10?wait=1000"))
    await pause(1500)
    expect(String(socket.read()).match(/x{10}/g)?.length).toBe(2)
    socket.destroy()
    close()
  })
})

test("answers to clients that have left are forgotten", async () => {
  const responses: WeakRef<object>[] = []
  const app = new Hono<{ Bindings: HttpBindings }>()
  app.use(answers(60_000))
  app.get("/", async (c) => {
    const { outgoing } = c.env
    responses.push(new WeakRef(outgoing))
    await new Promise((resolve) => outgoing.once("close", resolve))
    await pause(20)
    return c.text("late")
  })
  const bare = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" })
  await once(bare, "listening")
  for (let i = 0; i < 20; i++) {
    const socket = asking((bare.address() as AddressInfo).port, get("/"))
    await vi.waitFor(() => expect(responses.length).toBe(i + 1))
    socket.destroy()
  }
  await vi.waitFor(() => {
    lifetimes.collectGarbage()
    expect(responses.filter((response) => response.deref()).length).toBeLessThan(5)
  }, 5000)
  bare.close()
})

test("the oldest unread answers are ended when all together hold too much", async () => {
  const { port, close } = await texts(60_000, 2.5 * LARGE)
  const unread: Socket[] = []
  for (let i = 0; i < 5; i++) {
    unread.push(asking(port, get(`/${LARGE}`)))
    await pause(200)
  }
  const shares = await Promise.all(unread.map((socket) => shareOf(socket, LARGE)))
  expect(shares.map((share) => share === 1)).toEqual([false, false, false, true, true])
  close()
})

describe("connections have a maximum", () => {
  const started = async (): Promise<{ own: lm.LanguageServer; port: number }> => {
    const own = lm.createServer(model, { maxConnections: 4 })
    return { own, port: Number(new URL(await own.listen(0)).port) }
  }
  /** The status of a request, 0 if there is no connection for it. */
  const statusOf = async (socket: Socket): Promise<number> => {
    socket.write(get("/health"))
    const data = await Promise.race([once(socket, "data"), once(socket, "close").then(() => [""])])
    return Number(/^HTTP\/1.1 (\d+)/.exec(String(data[0]))?.[1] ?? 0)
  }
  const opened = (port: number): Socket => connect(port, "127.0.0.1").on("error", () => {})

  test("to which idle ones give way", async () => {
    const { own, port } = await started()
    const idle = Array.from({ length: 4 }, () => opened(port))
    for (const socket of idle) expect(await statusOf(socket)).toBe(200)
    expect(await statusOf(opened(port))).toBe(0)
    await vi.waitFor(() => expect(idle.every((socket) => socket.destroyed)).toBe(true))
    expect(await statusOf(opened(port))).toBe(200)
    await own.close()
  })

  test("and those of requests go on", async () => {
    const { own, port } = await started()
    const body = JSON.stringify({ prompt: "the", max_tokens: 200, logit_bias: { 257: -100 } })
    const busy = Array.from({ length: 4 }, () =>
      fetch(`http://127.0.0.1:${port}/v1/completions`, { method: "POST", body }),
    )
    await vi.waitFor(() => expect(own.batch?.stats().active).toBe(4))
    expect(await statusOf(opened(port))).toBe(0)
    for (const response of await Promise.all(busy)) expect(response.status).toBe(200)
    await own.close()
  })

  test("which is a positive integer", () => {
    expect(() => lm.createServer(model, { maxConnections: 0 })).toThrow(/maxConnections must be a positive/)
  })
})
