/**
 * The memory of request bodies that are being received.
 */
import type { HttpBindings } from "@hono/node-server"
import type { MiddlewareHandler } from "hono"
import { tooMany } from "./requests"

/** Number of bodies of the largest size that may be under way. */
export const BODIES = 64
/** Milliseconds in which a request must have arrived. */
export const ARRIVAL_MS = 60_000

/** Refuses a body that would not fit beside those that are being received; `maxBytes` is the limit of one. */
export function bodyBudget(maxBytes: number): MiddlewareHandler {
  let reserved = 0
  return async (c, next) => {
    const incoming = (c.env as Partial<HttpBindings> | undefined)?.incoming
    const { "content-length": length, "transfer-encoding": coding } = incoming?.headers ?? {}
    const bytes = coding === undefined ? Number(length ?? 0) : maxBytes
    // A larger one is refused for its size; small ones are bounded by the number of connections, and those who hold large ones back keep
    // nobody from asking.
    if (!incoming || bytes * BODIES <= maxBytes || bytes > maxBytes || incoming.complete) return next()
    if (reserved + bytes > BODIES * maxBytes) throw tooMany("too many requests are being sent")
    reserved += bytes
    let isHeld = true
    const release = (): void => {
      if (isHeld) reserved -= bytes
      isHeld = false
    }
    incoming.once("end", release)
    try {
      // Node tells nothing more of a body whose answer has gone out before it came.
      return await next()
    } finally {
      release()
    }
  }
}
