/**
 * Lazuli's side of lm.ts: loads the model that is named, with `int8` for rounded activations, and answers requests, a line of JSON each.
 * The peer's side with the same requests is peers/llama-cpp-speed.mjs.
 */
import { createInterface } from "node:readline"
import * as mx from "@lazuli/core"
import * as lm from "@lazuli/lm"
import "@lazuli/backend-cpu"

/** A request of lm.ts. */
export type Request =
  | { readonly kind: "context"; readonly tokens: number }
  | { readonly kind: "prompt"; readonly tokens: number }
  | { readonly kind: "decode"; readonly context: number; readonly tokens: number; readonly seconds: number }
  | { readonly kind: "streams"; readonly streams: number; readonly context: number; readonly tokens: number }
  | { readonly kind: "read" }

/** The answer: tokens (or bytes that were read) and the time that they took. */
export interface Answer {
  readonly count: number
  readonly ms: number
  /** Of a context: bytes of weights, of its cache, and of all memory at most. */
  readonly memory?: { readonly weights: number; readonly cache: number; readonly peak: number }
  readonly failure?: string
}

const READ_BYTES = 2 ** 28

const [source, activations] = process.argv.slice(2)
const model =
  source === "none"
    ? null
    : await lm.load(source, { activations: activations === "int8" ? "int8" : undefined })
const words = 32_000
const promptOf = (length: number, stream = 0): number[] =>
  Array.from({ length }, (_, i) => 3 + ((i * 7919 + stream * 104_729) % (words - 3)))
const loaded = (): lm.LoadedModel => {
  if (!model) throw new Error("there is no model")
  return model
}
const options = { ignoreEos: true } as const
const caches = new Map<number, lm.Cache>()
const newCache = (): lm.Cache => lm.makeCache(loaded().network as lm.CausalNetwork)

/** Reads a prompt and gives the first token. */
async function first(prompt: readonly number[], cache: lm.Cache): Promise<void> {
  for await (const _piece of lm.stream(loaded(), prompt, { ...options, cache, maxTokens: 1 })) void _piece
}

async function context(tokens: number): Promise<Answer> {
  const weights = mx.getActiveMemory()
  mx.resetPeakMemory()
  const cache = newCache()
  caches.set(tokens, cache)
  const begin = performance.now()
  await first(promptOf(tokens), cache)
  const ms = performance.now() - begin
  return { count: tokens, ms, memory: { weights, cache: lm.cacheBytes(cache), peak: mx.getPeakMemory() } }
}

async function prompt(tokens: number): Promise<Answer> {
  const begin = performance.now()
  await first(promptOf(tokens, 1), newCache())
  return { count: tokens, ms: performance.now() - begin }
}

/** Tokens after a context; the time is that from the first one on. */
async function decode(length: number, tokens: number, seconds: number): Promise<Answer> {
  let [begin, end, count] = [0, 0, -1]
  const cache = caches.get(length)
  for await (const _piece of lm.stream(loaded(), promptOf(length), {
    ...options,
    cache,
    maxTokens: tokens + 1,
  })) {
    end = performance.now()
    if (++count === 0) begin = end
    else if (end - begin > seconds * 1000) break
  }
  return { count, ms: end - begin }
}

/** Tokens of several answers, from the time on when all have begun. */
async function streams(many: number, length: number, tokens: number): Promise<Answer> {
  const batch = new lm.Batcher(loaded(), { maxRows: many, prefillStep: 512 })
  const times: number[] = []
  let read = 0
  const run = async (n: number): Promise<void> => {
    let begun = false
    for await (const _piece of batch.stream(promptOf(length, n), { ...options, maxTokens: tokens })) {
      times.push(performance.now())
      if (!begun) read = times[times.length - 1]
      begun = true
    }
  }
  await Promise.all(Array.from({ length: many }, (_, n) => run(n)))
  batch.close()
  return { count: times.filter((time) => time > read).length, ms: Math.max(...times) - read }
}

let floats: mx.Array | null = null
function read(): Answer {
  if (!floats) {
    // Not one element for all.
    floats = mx.contiguous(mx.ones([READ_BYTES / 4]))
    mx.eval(floats, floats.max())
  }
  const begin = performance.now()
  mx.eval(floats.max())
  return { count: READ_BYTES, ms: performance.now() - begin }
}

function answer(request: Request): Answer | Promise<Answer> {
  switch (request.kind) {
    case "context":
      return context(request.tokens)
    case "prompt":
      return prompt(request.tokens)
    case "decode":
      return decode(request.context, request.tokens, request.seconds)
    case "streams":
      return streams(request.streams, request.context, request.tokens)
    case "read":
      return read()
  }
}

const say = (message: object): void => void process.stdout.write(`${JSON.stringify(message)}\n`)
say({ ready: true })
for await (const line of createInterface({ input: process.stdin })) {
  try {
    say(await answer(JSON.parse(line) as Request))
  } catch (error) {
    say({ count: 0, ms: 0, failure: String(error) })
  }
}
process.exit(0)
