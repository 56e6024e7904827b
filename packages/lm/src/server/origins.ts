/**
 * Web pages that may use a server: those that it serves itself, and those of allowed origins.
 */
import type { MiddlewareHandler } from "hono"
import { RequestError } from "./requests"

/** The host of an origin, null for those without. */
function hostOf(origin: string): string | null {
  return URL.canParse(origin) ? new URL(origin).host : null
}

/** True for addresses and names of this machine. */
export const isLocal = (name: string): boolean =>
  /^(localhost|.+\.localhost|127(\.\d+){3}|\[?::1\]?)\.?$/i.test(name)

/**
 * Refuses requests of other origins' pages: a page that the user visits could use the server without a key.
 * @param isPrivate - true if only this machine can reach the server, and needs no key. Other host names are then those of a page whose
 * name was made to lead here.
 */
export const origins =
  (allowed: readonly string[], isPrivate: () => boolean): MiddlewareHandler =>
  async (c, next) => {
    if (allowed.includes("*")) return next()
    const [origin, host] = [c.req.header("origin"), c.req.header("host")]
    const hosts = allowed.map(hostOf)
    if (host !== undefined && isPrivate() && !isLocal(host.replace(/:\d+$/, "")) && !hosts.includes(host))
      throw new RequestError(403, `the host ${host} is not allowed`)
    if (origin !== undefined && hostOf(origin) !== host && !allowed.includes(origin))
      throw new RequestError(403, `the origin ${origin} is not allowed`)
    return next()
  }
