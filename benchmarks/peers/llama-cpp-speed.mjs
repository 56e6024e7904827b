// llama.cpp's side of lm.ts: loads the GGUF file that is named, and answers requests, a line of JSON each. Its cache is in float16, its
// own choice; it has as many threads as the machine has processors.
import { availableParallelism } from "node:os"
import { createInterface } from "node:readline"
import { getLlama, LlamaLogLevel } from "node-llama-cpp"

const threads = availableParallelism()
const llama = await getLlama({
  gpu: false,
  build: "never",
  logLevel: LlamaLogLevel.error,
  maxThreads: threads,
})
const model = await llama.loadModel({ modelPath: process.argv[2], gpuLayers: 0 })
const WORDS = 32_000
/** Room for tokens after a context. */
const ROOM = 128
const contextOf = (length, sequences = 1) =>
  model.createContext({ contextSize: length + ROOM, batchSize: 512, sequences, threads })
const promptOf = (length, stream = 0) =>
  Array.from({ length }, (_, i) => 3 + ((i * 7919 + stream * 104_729) % (WORDS - 3)))
/** Tokens that follow, the likeliest each, whatever they are. */
const follow = (sequence, tokens) => sequence.evaluate(tokens, { temperature: 0, yieldEogToken: true })

/** Reads a prompt and gives the first token. */
async function first(sequence, prompt) {
  for await (const token of follow(sequence, prompt)) return token
}

const contexts = new Map()

async function context({ tokens }) {
  const sequence = (await contextOf(tokens)).getSequence()
  const begin = performance.now()
  const token = await first(sequence, promptOf(tokens))
  contexts.set(tokens, { sequence, token, length: sequence.nextTokenIndex })
  return { count: tokens, ms: performance.now() - begin }
}

let forPrompts = null
async function prompt({ tokens }) {
  forPrompts ??= (await contextOf(tokens)).getSequence()
  await forPrompts.clearHistory()
  const begin = performance.now()
  await first(forPrompts, promptOf(tokens, 1))
  return { count: tokens, ms: performance.now() - begin }
}

async function decode({ context: at, tokens, seconds }) {
  const { sequence, token, length } = contexts.get(at)
  const surplus = sequence.nextTokenIndex - length
  if (surplus > 0) await sequence.eraseContextTokenRanges([{ start: length, end: length + surplus }])
  let [begin, end, count] = [0, 0, -1]
  for await (const _token of follow(sequence, [token])) {
    end = performance.now()
    if (++count === 0) begin = end
    if (count === tokens || (count > 0 && end - begin > seconds * 1000)) break
  }
  return { count, ms: end - begin }
}

async function streams({ streams: many, context: length, tokens }) {
  const shared = await contextOf(length, many)
  const times = []
  let read = 0
  const run = async (n) => {
    const sequence = shared.getSequence()
    let count = 0
    for await (const _token of follow(sequence, promptOf(length, n))) {
      times.push(performance.now())
      if (count === 0) read = times[times.length - 1]
      if (++count === tokens) break
    }
  }
  await Promise.all(Array.from({ length: many }, (_, n) => run(n)))
  await shared.dispose()
  return { count: times.filter((time) => time > read).length, ms: Math.max(...times) - read }
}

const answers = { context, prompt, decode, streams }
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`)
say({ ready: true })
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line)
  try {
    say(await answers[request.kind](request))
  } catch (error) {
    say({ count: 0, ms: 0, failure: String(error) })
  }
}
process.exit(0)
