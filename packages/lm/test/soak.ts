/**
 * Many concurrent clients of a server, some of which read slowly or never, disconnect or send too much. Fails if an answer is lost or
 * wrong, or memory grows: `node tooling/run-source.mjs packages/lm/test/soak.ts [--seconds 600] [--clients 200] [--shared]`. With
 * `--shared` the rows of the batch share buffers, as they do by default; otherwise it is exact.
 */
import { once } from "node:events"
import { mkdtempSync, rmSync } from "node:fs"
import { type IncomingMessage, request } from "node:http"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import { numbers, writeCheckpoint } from "./checkpoints"

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "600" },
    clients: { type: "string", default: "200" },
    shared: { type: "boolean", default: false },
  },
})
const seconds = Number(values.seconds)
const clients = Number(values.clients)

/** Milliseconds until the server ends an answer that nobody reads. */
const STALL_MS = 5000

const scratch = mkdtempSync(join(tmpdir(), "lazuli-lm-soak-"))
const model = await lm.load(writeCheckpoint("llama", join(scratch, "llama")))
const server = lm.createServer(model, {
  exact: !values.shared,
  maxRows: 16,
  maxWaiting: clients,
  maxBodyBytes: 20_000,
  maxTokens: 64,
  prefixBytes: 4e6,
  maxStallMs: STALL_MS,
})
const url = await server.listen(0)
const TEXTS = ["the end", "in the beginning", "a", "the the the", "東京"]
const TOKENS = 12
const want = new Map<string, string>()
for (const text of TEXTS)
  want.set(text, await lm.generate(model, text, { maxTokens: TOKENS, ignoreEos: false }))
const vectors = new Map<string, Float32Array>()
for (const text of TEXTS) vectors.set(text, (await lm.embed(model, [text]))[0])

const counts = {
  whole: 0,
  embedded: 0,
  unread: 0,
  streamed: 0,
  left: 0,
  refused: 0,
  wrong: 0,
  failed: 0,
  busy: 0,
}
/** Failed requests, with their kind, duration and reason. */
const reasons: string[] = []
/** Kinds of requests, with their shares. */
const KINDS = {
  ...{ "too large": 0.07, "too large in chunks": 0.05, whole: 0.26, embedded: 0.1, unread: 0.001 },
  ...{ "read slowly": 0.1, streamed: 0.28, leaves: 0.139 },
}
type Kind = keyof typeof KINDS
const asked: Record<string, number> = {}
const next = numbers(1)
const end = performance.now() + seconds * 1000
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

const post = (path: string, body: object, signal?: AbortSignal): Promise<Response> =>
  fetch(`${url}/v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  })
const ask = (body: object, signal?: AbortSignal): Promise<Response> =>
  post("completions", { model: "llama", temperature: 0, max_tokens: TOKENS, ...body }, signal)

/** Sends more than the limit without saying how much it will be. Resolves to the status. */
async function sendChunks(): Promise<number> {
  const sending = request(`${url}/v1/completions`, { method: "POST" })
  const answered = once(sending, "response") as Promise<[IncomingMessage]>
  for (let i = 0; i < 8; i++) {
    sending.write("x".repeat(5000))
    await pause(20)
  }
  sending.end()
  const [response] = await answered
  response.resume()
  await once(response, "end")
  return response.statusCode ?? 0
}

/** Asks for more than the connection holds, and reads only when the server must have ended it. Resolves to the number of whole answers. */
async function leaveUnread(requests: number): Promise<number> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname).pause()
  // The end may be that of a connection which was cut off.
  socket.on("error", () => {})
  const body = JSON.stringify({ input: Array.from({ length: 256 }, () => "a"), encoding_format: "float" })
  const head = `POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-length: ${body.length}\r\n\r\n`
  for (let i = 0; i < requests; i++) {
    socket.write(head + body)
    await pause(100)
  }
  await pause(3 * STALL_MS)
  let answers = 0
  socket.setEncoding("latin1").on("data", (text: string) => {
    answers += text.split('"usage"').length - 1
  })
  socket.resume()
  await Promise.race([once(socket, "close"), pause(STALL_MS)])
  socket.destroy()
  return answers
}

function kindAt(share: number): Kind {
  let sum = 0
  for (const [kind, part] of Object.entries(KINDS)) {
    sum += part
    if (share < sum) return kind as Kind
  }
  return "leaves"
}

async function one(prompt: string, kind: Kind): Promise<void> {
  if (kind === "too large") {
    const response = await ask({ prompt: "x".repeat(30_000) })
    await response.text()
    if (response.status === 413) counts.refused++
    else counts.wrong++
    return
  }
  if (kind === "too large in chunks") {
    if ((await sendChunks()) === 413) counts.refused++
    else counts.wrong++
    return
  }
  if (kind === "unread") {
    const asked = 50
    if ((await leaveUnread(asked)) < asked) counts.unread++
    else counts.wrong++
    return
  }
  if (kind === "embedded") {
    const response = await post("embeddings", { input: prompt, encoding_format: "float" })
    const { data } = (await response.json()) as { data?: { embedding: number[] }[] }
    const got = data?.[0].embedding ?? []
    const near = vectors.get(prompt)?.every((x, i) => Math.abs(x - got[i]) < 1e-4)
    if (response.status === 429) counts.busy++
    else if (near) counts.embedded++
    else counts.wrong++
    return
  }
  if (kind === "whole") {
    const response = await ask({ prompt })
    const body = (await response.json()) as { choices?: { text: string }[] }
    if (response.status === 429) counts.busy++
    else if (body.choices?.[0].text === want.get(prompt)) counts.whole++
    else counts.wrong++
    return
  }
  const controller = new AbortController()
  const leaves = kind === "leaves"
  const response = await ask(
    { prompt, stream: true, ...(leaves ? { max_tokens: 64 } : {}) },
    controller.signal,
  )
  if (response.status === 429) {
    await response.text()
    counts.busy++
    return
  }
  const slow = kind === "read slowly"
  let text = ""
  let held = ""
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) break
      held += value
      const lines = held.split("\n")
      held = lines.pop() ?? ""
      for (const line of lines)
        if (line.startsWith("data: {"))
          text += (JSON.parse(line.slice(6)) as { choices: { text: string }[] }).choices[0]?.text ?? ""
      if (slow) await pause(50)
      if (leaves && text.length > 2) {
        controller.abort()
        counts.left++
        return
      }
    }
  } catch (error) {
    if (!leaves) throw error
    counts.left++
    return
  }
  if (leaves) counts.left++
  else if (text === want.get(prompt)) counts.streamed++
  else counts.wrong++
}

const memory = (): number[] =>
  [process.memoryUsage().rss, mx.getActiveMemory()].map((n) => Math.round(n / 2 ** 20))
const seen: number[][] = []
const watch = setInterval(() => seen.push(memory()), Math.max(1000, (seconds * 1000) / 20))
await Promise.all(
  Array.from({ length: clients }, async () => {
    while (performance.now() < end) {
      const prompt = TEXTS[Math.floor(next() * TEXTS.length)]
      const kind = kindAt(next())
      asked[kind] = (asked[kind] ?? 0) + 1
      const began = performance.now()
      await one(prompt, kind).catch((error: Error) => {
        counts.failed++
        const { cause } = error as { cause?: { code?: string; message?: string } }
        const ms = Math.round(performance.now() - began)
        reasons.push(
          `${kind}, after ${ms} ms: ${error.message}: ${cause?.code ?? ""} ${cause?.message ?? ""}`,
        )
      })
    }
  }),
)
clearInterval(watch)
for (let i = 0; i < 200 && (server.batch?.stats().active ?? 0) > 0; i++) await pause(50)
const left = server.batch?.stats()
console.log(JSON.stringify({ asked, counts, reasons, left, rssAndActiveMiB: seen }))
await server.close()
rmSync(scratch, { recursive: true })
const half = seen.slice(Math.floor(seen.length / 2))
const grew = half.length > 1 ? half[half.length - 1][0] / half[0][0] : 1
if (counts.wrong > 0 || counts.failed > 0 || left?.active || left?.waiting || grew > 1.2)
  throw new Error(`the server failed: memory × ${grew.toFixed(2)}`)
