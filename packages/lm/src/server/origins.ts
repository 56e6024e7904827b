/**
 * Web pages that may use a server: those that it serves itself, and those of allowed origins; and the names by which it is reached.
 */
import type { MiddlewareHandler } from "hono"
import { RequestError } from "./requests"

/** An origin as browsers write it: in lower case, without a slash at the end and its scheme's own port; null if it is none. */
export function originOf(text: string): string | null {
  if (!/^[\w.+-]+:\/\/[^/?#@\s]+\/?$/.test(text) || !URL.canParse(text)) return null
  const { protocol, host } = new URL(text)
  return `${protocol}//${host}`.toLowerCase()
}

/** The host of an origin, null for those without. */
const hostOf = (origin: string): string | null => originOf(origin)?.replace(/^.*:\/\//, "") ?? null

/** A host as an origin has it, without its scheme's own port; null if it is none. */
export const hostNamed = (text: string, scheme = "http"): string | null => hostOf(`${scheme}://${text}`)

const withoutPort = (host: string): string => host.replace(/:\d+$/, "")

/** True for addresses and names of this machine. */
export const isLocal = (name: string): boolean =>
  /^(localhost|.+\.localhost|127(\.\d+){3}|\[?::1\]?)\.?$/i.test(name)

/** Origins and hosts that a server answers. */
interface Allowed {
  /** As {@link originOf} gives them; `*` is all. */
  readonly origins: readonly string[]
  /** Names, with a port or without. */
  readonly hosts: readonly string[]
}

/**
 * Refuses requests of other origins' pages: a page that the user visits could use the server without a key.
 * @param isPrivate - true if only this machine can reach the server, and needs no key. Other host names are then those of a page whose
 * name was made to lead here.
 */
export function origins(allowed: Allowed, isPrivate: () => boolean): MiddlewareHandler {
  const hosts = new Set([...allowed.hosts.map((name) => hostNamed(name)), ...allowed.origins.map(hostOf)])
  return async (c, next) => {
    if (allowed.origins.includes("*")) return next()
    const given = c.req.header("host")
    const host = given === undefined ? null : hostNamed(given)
    const isKnown = (name: string): boolean =>
      isLocal(withoutPort(name)) || hosts.has(name) || hosts.has(withoutPort(name))
    if (given !== undefined && isPrivate() && !(host !== null && isKnown(host)))
      throw new RequestError(
        403,
        `the host ${given} is not allowed; allowedHosts (--allowed-hosts) may name it`,
      )
    const origin = c.req.header("origin")
    if (origin === undefined) return next()
    const [scheme] = origin.split("://")
    const isOwn =
      given !== undefined && hostOf(origin) !== null && hostOf(origin) === hostNamed(given, scheme)
    if (!isOwn && !allowed.origins.includes(originOf(origin) ?? origin))
      throw new RequestError(
        403,
        `the origin ${origin} is not allowed; allowedOrigins (--allowed-origins) may name it`,
      )
    return next()
  }
}
