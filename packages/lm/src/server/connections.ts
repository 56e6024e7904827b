/** Connections: how long they are kept between requests, and how they end where a client is still sending. */
import type { IncomingMessage } from "node:http"
import { Socket } from "node:net"
import type { HttpBindings } from "@hono/node-server"
import type { MiddlewareHandler } from "hono"

/**
 * Milliseconds that an idle connection is kept. A request that is under way as the server closes is lost, so it is more than clients and
 * proxies keep one that is not used: OpenAI's client for Python 5 seconds, load balancers 60, Go 90.
 */
export const IDLE_MS = 120_000

/** Seconds that clients are told: far fewer, as a busy client hears an answer late, and counts from then. */
const TOLD_SECONDS = 5

/** The most bytes of a body that are read, and forgotten, before a request is refused. */
const REST_BYTES = 2 ** 24

/**
 * Reads on in a body that nobody read to its end, for a time, so that the connection can be used again. One whose client sends for longer
 * is closed after the answer, and is read until the client has sent all: closed over unread bytes it would be reset, and the answer lost.
 */
export const connections =
  (restMs = 2000, lingerMs = 30_000): MiddlewareHandler =>
  async (c, next) => {
    const incoming = (c.env as Partial<HttpBindings> | undefined)?.incoming
    if (incoming?.httpVersionMajor !== 1) return next()
    c.header("keep-alive", `timeout=${TOLD_SECONDS}`)
    await next()
    if (incoming.complete || incoming.destroyed || (await readRest(incoming, restMs))) return
    c.header("connection", "close")
    linger(incoming, lingerMs)
  }

/** True where the body came to its end in time. */
function readRest(incoming: IncomingMessage, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    let bytes = 0
    const done = (): void => {
      clearTimeout(timer)
      incoming.off("end", done).off("close", done)
      resolve(incoming.complete)
    }
    const timer = setTimeout(done, ms)
    // A reader that has given up would hold the bytes.
    incoming.removeAllListeners("data")
    incoming.on("data", (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes > REST_BYTES) done()
    })
    incoming.once("end", done).once("close", done).resume()
  })
}

/** Lets the server's end of a connection after an answer wait for what the client still sends. */
function linger(incoming: IncomingMessage, ms: number): void {
  const { socket } = incoming
  const close = (): void => Socket.prototype.destroySoon.call(socket)
  socket.destroySoon = () => {
    if (incoming.complete) return close()
    socket.end()
    incoming.once("end", close)
    const timer = setTimeout(() => socket.destroy(), ms)
    socket.once("close", () => clearTimeout(timer))
  }
}
