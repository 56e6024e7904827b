/** Keep-alive, and closing connections of clients that are still sending. */
import type { IncomingMessage } from "node:http"
import { Socket } from "node:net"
import type { HttpBindings } from "@hono/node-server"
import type { MiddlewareHandler } from "hono"
import { tooMany } from "./requests"

/**
 * Milliseconds before the server closes an idle connection. A request that arrives at that moment is lost, so this is longer than clients
 * and proxies keep idle connections: OpenAI's Python client 5 seconds, load balancers 60, Go 90.
 */
export const IDLE_MS = 120_000
/** The longest time that Node's timers wait; they do not wait at all for longer ones. */
export const LONGEST_MS = 2 ** 31 - 1

/** The timeout sent to clients in seconds: far shorter, because a busy client starts counting late. */
const CLIENT_SECONDS = 5

/**
 * Maximum number of requests of a connection that are not answered: clients send one after the other, and the answers of others wait for
 * those before them.
 */
export const PIPELINED = 2

/** Maximum number of bytes of an unread body to discard. */
const DISCARD_BYTES = 2 ** 24

/**
 * Discards the rest of a request body that a handler did not read, so that the connection can be reused. If the client sends for longer
 * than `discardMs`, the connection closes after the response, but is still read until the client is done: closing a socket with unread
 * bytes resets the connection, and the response would be lost.
 */
export function connections(discardMs = 2000, lingerMs = 30_000): MiddlewareHandler {
  const open = new WeakMap<Socket, number>()
  return async (c, next) => {
    const { incoming, outgoing } = (c.env as Partial<HttpBindings> | undefined) ?? {}
    if (incoming?.httpVersionMajor !== 1) return next()
    const { socket } = incoming
    const count = (open.get(socket) ?? 0) + 1
    if (count > PIPELINED) {
      socket.destroy()
      throw tooMany("the connection has too many requests")
    }
    open.set(socket, count)
    outgoing?.once("close", () => open.set(socket, (open.get(socket) ?? 1) - 1))
    c.header("keep-alive", `timeout=${CLIENT_SECONDS}`)
    await next()
    if (incoming.complete || incoming.destroyed || (await discardRest(incoming, discardMs))) return
    c.header("connection", "close")
    linger(incoming, lingerMs)
  }
}

/** Resolves to true if the body ended in time. */
function discardRest(incoming: IncomingMessage, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    let bytes = 0
    const done = (): void => {
      clearTimeout(timer)
      incoming.off("end", done).off("close", done)
      resolve(incoming.complete)
    }
    const timer = setTimeout(done, ms)
    // A listener of an abandoned reader would buffer the bytes.
    incoming.removeAllListeners("data")
    incoming.on("data", (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes > DISCARD_BYTES) done()
    })
    incoming.once("end", done).once("close", done).resume()
  })
}

/** Delays closing the connection after the response until the client has sent everything. */
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
