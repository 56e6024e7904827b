/**
 * The memory of answers that are being sent.
 */
import type { ServerResponse } from "node:http"
import type { HttpBindings } from "@hono/node-server"
import type { MiddlewareHandler } from "hono"

/** Bytes of answers that may wait for their clients, all together. */
export const UNSENT_BYTES = 2 ** 28

/**
 * Ends answers that are complete and whose clients do not read them: those of which nothing was sent for `maxStallMs`, and the oldest ones
 * where all together hold more than `maxBytes`.
 */
export function answers(maxStallMs: number, maxBytes = UNSENT_BYTES): MiddlewareHandler {
  const unsent = new Set<ServerResponse>()
  const drop = (): void => {
    let bytes = [...unsent].reduce((sum, { writableLength }) => sum + writableLength, 0)
    for (const oldest of unsent) {
      if (bytes <= maxBytes || unsent.size === 1) return
      bytes -= oldest.writableLength
      unsent.delete(oldest)
      oldest.destroy()
    }
  }
  return async (c, next) => {
    const { incoming, outgoing } = (c.env as Partial<HttpBindings> | undefined) ?? {}
    if (incoming?.httpVersionMajor !== 1) return next()
    const response = outgoing as ServerResponse
    // Node's timer goes on while a part of the answer is sent, and closes the connection.
    response.once("prefinish", () => {
      // An answer may end after its client has left, and does not close again.
      if (response.destroyed) return
      response.setTimeout(maxStallMs)
      unsent.add(response)
      drop()
    })
    // Before Node's listener, which gives the connection its time to be idle.
    response.prependOnceListener("finish", () => response.setTimeout(0))
    response.once("close", () => unsent.delete(response))
    await next()
  }
}
