/** Web pages of other origins. */
import { mkdtempSync, rmSync } from "node:fs"
import { request } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as lm from "@lazuli/lm"
import OpenAI from "openai"
import { afterAll, beforeAll, expect, test } from "vitest"
import "@lazuli/backend-cpu"
import { writeCheckpoint } from "../../test/checkpoints"
import { isLocal } from "./origins"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-origins-"))
const servers: lm.LanguageServer[] = []
let model: lm.LoadedModel
beforeAll(async () => {
  model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
})
afterAll(async () => {
  for (const server of servers) await server.close()
  rmSync(scratch, { recursive: true })
})

interface Failure {
  readonly error: { readonly message: string }
}

/** Starts a server. Returns a function that sends a request, and resolves to its status and headers. */
async function started(options: lm.ServerOptions, host = "127.0.0.1") {
  const server = lm.createServer(model, options)
  servers.push(server)
  const { port } = new URL(await server.listen(0, host))
  const ask = (headers: Record<string, string>, method = "GET") =>
    new Promise<{ status: number; headers: NodeJS.Dict<string | string[]> }>((resolve, reject) => {
      request({ port, host: "127.0.0.1", path: "/v1/models", method, headers }, (response) => {
        response.resume()
        resolve({ status: response.statusCode!, headers: response.headers })
      })
        .once("error", reject)
        .end()
    })
  return { ask, port }
}

test("pages of other origins are refused, and those of the server are not", async () => {
  const { ask, port } = await started({})
  expect((await ask({})).status).toBe(200)
  expect((await ask({ origin: `http://127.0.0.1:${port}` })).status).toBe(200)
  for (const origin of ["https://example.com", "http://127.0.0.1:1", "null"])
    expect((await ask({ origin })).status, origin).toBe(403)
})

test("a name that leads here is refused, unless there is a key or others can reach the server", async () => {
  const { ask, port } = await started({})
  const foreign = { host: "example.com", origin: "http://example.com" }
  expect((await ask(foreign)).status).toBe(403)
  expect((await ask({ host: `localhost:${port}` })).status).toBe(200)
  expect((await (await started({}, "0.0.0.0")).ask({ host: "example.com" })).status).toBe(200)
  const keyed = await started({ apiKey: "secret" })
  expect((await keyed.ask({ ...foreign, authorization: "Bearer secret" })).status).toBe(200)
  const proxied = await started({ allowedOrigins: ["http://example.com"] })
  expect((await proxied.ask(foreign)).status).toBe(200)
})

test("pages of allowed origins may use the server with a key", async () => {
  const origin = "https://example.com"
  const { ask, port } = await started({ apiKey: "secret", allowedOrigins: [origin] })
  const asked = { origin, "access-control-request-method": "POST" }
  const before = await ask({ ...asked, "access-control-request-headers": "authorization" }, "OPTIONS")
  expect(before.status).toBe(204)
  expect(before.headers["access-control-allow-origin"]).toBe(origin)
  expect(before.headers["access-control-allow-headers"]).toBe("authorization")
  const answer = await ask({ origin, authorization: "Bearer secret" })
  expect([answer.status, answer.headers["access-control-allow-origin"]]).toEqual([200, origin])
  // The page can read errors too.
  const wrong = await ask({ origin })
  expect([wrong.status, wrong.headers["access-control-allow-origin"]]).toEqual([401, origin])
  expect((await ask({ ...asked, origin: "https://example.org" }, "OPTIONS")).status).toBe(403)
  const client = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: "secret" })
  expect((await client.models.list({ headers: { origin } })).data.length).toBe(1)
  const all = await started({ allowedOrigins: ["*"] })
  expect((await all.ask({ origin: "null" })).headers["access-control-allow-origin"]).toBe("*")
})

test("allowed origins must be origins, and hosts names", () => {
  for (const wrong of [
    ["example.com"],
    ["https://example.com/a"],
    ["https://a@example.com"],
    ["https://"],
    "*",
  ])
    expect(() => lm.createServer(model, { allowedOrigins: wrong as never })).toThrow(/allowedOrigins must be/)
  for (const wrong of [["http://example.com"], ["a/b"], [""], [3], "example.com"])
    expect(() => lm.createServer(model, { allowedHosts: wrong as never })).toThrow(/allowedHosts must be/)
})

test("allowed origins may be written in other ways than browsers do", async () => {
  const written = ["https://Example.com:443/", "HTTP://example.org:80", "vscode-webview://One/"]
  const { ask } = await started({ allowedOrigins: written })
  for (const origin of ["https://example.com", "http://example.org", "vscode-webview://one"]) {
    const { status, headers } = await ask({ origin })
    expect([origin, status, headers["access-control-allow-origin"]]).toEqual([origin, 200, origin])
  }
  for (const origin of ["http://example.com", "https://example.org", "https://example.com:8443"])
    expect((await ask({ origin })).status, origin).toBe(403)
})

test("a server is reached by the names of allowed hosts", async () => {
  const { ask, port } = await started({ allowedHosts: ["host.docker.internal", "Example.com:81"] })
  const statusOf = async (host: string): Promise<number> => (await ask({ host })).status
  for (const host of [`host.docker.internal:${port}`, "HOST.docker.internal", "example.com:81"])
    expect(await statusOf(host), host).toBe(200)
  for (const host of ["example.com", "example.com:82", "docker.internal"])
    expect(await statusOf(host), host).toBe(403)
  // Its own page is reached by it too, but no other.
  const host = `host.docker.internal:${port}`
  expect((await ask({ host, origin: `http://${host}` })).status).toBe(200)
  expect((await ask({ host, origin: "http://host.docker.internal:1" })).status).toBe(403)
})

test("who is refused hears which option allows it", async () => {
  const { app } = lm.createServer(model)
  const origin = "http://example.com"
  const { error } = (await (await app.request("/v1/models", { headers: { origin } })).json()) as Failure
  expect(error.message).toBe(
    "the origin http://example.com is not allowed; allowedOrigins (--allowed-origins) may name it",
  )
})

test("names of this machine", () => {
  const local = ["localhost", "LOCALHOST", "app.localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"]
  expect(local.filter(isLocal)).toEqual(local)
  expect(
    ["example.com", "localhost.example.com", "127.0.0.1.example.com", "0.0.0.0", ""].filter(isLocal),
  ).toEqual([])
})
