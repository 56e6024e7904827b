/**
 * `npm run bench:lm`: a Llama of 1.1 billion random weights at 4 bits through `@lazuli/lm`, beside llama.cpp (node-llama-cpp, where
 * `npm run bench:peers` has installed it): prompts of 512 tokens, single tokens after contexts of 128 and 4,000, several streams at once,
 * and the same beside a program that only computes. "Lazuli int8" rounds activations to 8 bits, as llama.cpp does. Contestants are
 * processes of their own and take turns.
 *
 *   npm run bench:lm -- [--short] [--only REGEX] [--rounds N] [--streams N] [--beside N] [--long N] [--pause] [--folder FOLDER]
 *     [--json FILE]
 *
 * `--pause` waits for a line of standard input before each round, and tells every measurement: reading the contexts takes
 * minutes that need no quiet machine.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { mkdirSync, writeFileSync } from "node:fs"
import { availableParallelism, cpus, tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import * as mx from "@lazuli/core"
import { BILLION, cacheRead, SMALL, weightsRead, writeFolder, writeGguf } from "./lm-files"
import type { Answer, Request } from "./lm-lazuli"
import "@lazuli/backend-cpu"
import { median } from "./median"

const { values } = parseArgs({
  options: {
    short: { type: "boolean", default: false },
    only: { type: "string", default: "^(llama.cpp|Lazuli bfloat16|Lazuli int8)$" },
    rounds: { type: "string", default: "3" },
    streams: { type: "string", default: "1" },
    beside: { type: "string", default: "1" },
    long: { type: "string", default: "4000" },
    pause: { type: "boolean", default: false },
    folder: { type: "string", default: join(tmpdir(), "lazuli-lm-benchmark") },
    json: { type: "string" },
  },
})
const { short } = values
const sizes = short ? SMALL : BILLION
const rounds = short ? 1 : Number(values.rounds)
const streamRounds = short ? 1 : Number(values.streams)
const besideRounds = short ? 1 : Number(values.beside)
const [PROMPT, DECODED] = short ? [64, 8] : [512, 24]
const CONTEXTS = short ? [300, 128] : [Number(values.long), 128]
/** Requests at once, the tokens that each has read, and writes. */
const [STREAMS, READ, WRITTEN] = [short ? [1, 4] : [1, 4, 16], 128, short ? 4 : 24]
/** Decoding ends after so many seconds: beside a competitor a peer may take minutes. */
const MOST_SECONDS = 4
/** The tokens of a prompt beside a competitor. */
const BESIDE_PROMPT = short ? 64 : 256

const began = performance.now()
const log = (text: string): void =>
  console.error(`${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s  ${text}`)

const input = values.pause ? createInterface({ input: process.stdin }) : null
const presses = input?.[Symbol.asyncIterator]()
/** Waits for a line where the user wants to say when the machine is quiet. */
async function pause(what: string): Promise<void> {
  if (!presses) return
  log(`a line begins ${what}`)
  await presses.next()
}

interface Contestant {
  readonly name: string
  readonly program: string
  /** Further arguments of the program. */
  readonly options?: readonly string[]
  /** The model's file or folder. */
  readonly model: () => string
  /** Bytes of a weight, and of a number in the cache. */
  readonly weightBytes: number
  readonly cacheBytes: number
}

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const file = (name: string): string => {
  mkdirSync(values.folder, { recursive: true })
  return join(values.folder, short ? `small-${name}` : name)
}
const gguf = (): string => writeGguf(file("random.gguf"), sizes)
const lazuli = at("./lm-lazuli.js")
const all: readonly Contestant[] = [
  {
    name: "llama.cpp",
    program: at("../peers/llama-cpp-speed.mjs"),
    model: gguf,
    weightBytes: 18 / 32,
    cacheBytes: 2,
  },
  ...([mx.bfloat16, mx.float32] as const).map((dtype) => ({
    name: `Lazuli ${dtype.name}`,
    program: lazuli,
    model: () => writeFolder(file(dtype.name), sizes, dtype),
    weightBytes: 1 / 2 + (2 * dtype.size) / 64,
    cacheBytes: dtype.size,
  })),
  {
    name: "Lazuli int8",
    program: lazuli,
    options: ["int8"],
    model: () => writeFolder(file("bfloat16"), sizes, mx.bfloat16),
    weightBytes: 1 / 2 + 4 / 64,
    cacheBytes: 2,
  },
  { name: "Lazuli GGUF", program: lazuli, model: gguf, weightBytes: 1 / 2 + 4 / 32, cacheBytes: 2 },
]

/** One contestant's process. */
class Running {
  readonly rates = new Map<string, number[]>()
  memory: Answer["memory"]
  private readonly child: ChildProcess
  private readonly lines: AsyncIterator<string>

  constructor(
    readonly contestant: Contestant | null,
    program: string,
    model: string,
  ) {
    const options = contestant?.options ?? []
    this.child = spawn(process.execPath, [program, model, ...options], { stdio: ["pipe", "pipe", "ignore"] })
    this.child.on("error", () => {})
    this.child.stdin?.on("error", () => {})
    this.lines = createInterface({ input: this.child.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]()
  }
  get name(): string {
    return this.contestant?.name ?? "reading"
  }
  /** The next answer; null where the process has ended. */
  async hear(): Promise<Answer | null> {
    for (;;) {
      const { value, done } = await this.lines.next()
      if (done) return null
      if (value.startsWith("{")) return JSON.parse(value) as Answer
    }
  }
  /** Measures, and keeps what there was a second under a row's name. */
  async measure(row: string, request: Request): Promise<Answer | null> {
    this.child.stdin?.write(`${JSON.stringify(request)}\n`)
    const answer = await this.hear()
    if (!answer || answer.failure) {
      log(`${this.name}, ${row}: ${answer?.failure ?? "the process ended"}`)
      return null
    }
    const taken = this.rates.get(row) ?? []
    const rate = answer.count / (answer.ms / 1000)
    taken.push(rate)
    if (values.pause) log(`${this.name}, ${row}: ${rate.toPrecision(4)}`)
    this.rates.set(row, taken)
    return answer
  }
  end(): void {
    this.child.stdin?.end()
    this.child.kill()
  }
}

async function start(): Promise<Running[]> {
  const running: Running[] = []
  for (const contestant of all.filter(({ name }) => new RegExp(values.only).test(name))) {
    const one = new Running(contestant, contestant.program, contestant.model())
    if (await one.hear()) running.push(one)
    else log(`${contestant.name} does not run`)
  }
  return running
}

const decoding = (tokens: number): string => `tokens after ${tokens}`
const beside = (row: string): string => `${row}, beside a loop`

async function round(
  running: readonly Running[],
  reading: Running,
  prompt: number,
  name: (row: string) => string,
): Promise<void> {
  for (const one of running) {
    await one.measure(name(`prompt of ${prompt}`), { kind: "prompt", tokens: prompt })
    for (const context of CONTEXTS)
      await one.measure(name(decoding(context)), {
        kind: "decode",
        context,
        tokens: DECODED,
        seconds: MOST_SECONDS,
      })
    // The ceiling is measured between contestants.
    for (let i = 0; i < 3; i++) await reading.measure(name("reading"), { kind: "read" })
  }
}

const reading = new Running(null, lazuli, "none")
await reading.hear()
await reading.measure("warm-up", { kind: "read" })
const running = await start()
log(`loaded ${running.map(({ name }) => name).join(", ")}`)
for (const one of running)
  for (const tokens of CONTEXTS) {
    const answer = await one.measure(`prompt of ${tokens}`, { kind: "context", tokens })
    // The longest comes first, while nothing else is there.
    if (tokens === CONTEXTS[0]) one.memory = answer?.memory
    log(`${one.name} has read ${tokens} tokens`)
  }
for (let i = 0; i < rounds; i++) {
  await pause(`round ${i + 1}`)
  await round(running, reading, PROMPT, (row) => row)
  // The same prompt as beside a competitor.
  for (const one of running)
    await one.measure(`prompt of ${BESIDE_PROMPT}`, { kind: "prompt", tokens: BESIDE_PROMPT })
  log(`round ${i + 1} of ${rounds}`)
}
for (let i = 0; i < streamRounds; i++) {
  await pause(`round ${i + 1} of the streams`)
  for (const streams of STREAMS)
    for (const one of running) {
      await one.measure(`${streams} at once, after ${READ}`, {
        kind: "streams",
        streams,
        context: READ,
        tokens: WRITTEN,
      })
      await reading.measure("reading", { kind: "read" })
    }
  log(`round ${i + 1} of ${streamRounds} of the streams`)
}
for (let i = 0; i < besideRounds; i++) {
  await pause(`round ${i + 1} beside a loop`)
  const loop = spawn(process.execPath, ["-e", "for(;;);"], { stdio: "ignore" })
  try {
    await round(running, reading, BESIDE_PROMPT, beside)
  } finally {
    loop.kill()
  }
  log(`round ${i + 1} of ${besideRounds} beside a loop`)
}
for (const one of [...running, reading]) one.end()
input?.close()

interface Cell {
  readonly rate: number
  readonly worst: number
  readonly best: number
  /** Of what the machine reads a second. */
  readonly ofReading?: number
  /** Of the rate without a competitor. */
  readonly ofAlone?: number
  /** Of llama.cpp, by rounds. */
  readonly ofPeer?: number
}

/** The bytes that a token after a context needs. */
const tokenBytes = ({ weightBytes, cacheBytes }: Contestant, context: number): number =>
  weightsRead(sizes) * weightBytes + cacheRead(sizes, context, cacheBytes)

const peer = running.find(({ name }) => name === "llama.cpp")
function cell(one: Running, row: string): Cell | null {
  const taken = one.rates.get(row)
  if (!taken) return null
  const rate = median(taken)
  const context = CONTEXTS.find((tokens) => decoding(tokens) === row)
  const alone = row.endsWith(beside("")) ? one.rates.get(row.slice(0, -beside("").length)) : undefined
  const others = one === peer ? undefined : peer?.rates.get(row)
  return {
    rate,
    worst: Math.min(...taken),
    best: Math.max(...taken),
    ...(context !== undefined && one.contestant
      ? { ofReading: (rate * tokenBytes(one.contestant, context)) / median(reading.rates.get("reading")!) }
      : {}),
    ...(alone ? { ofAlone: rate / median(alone) } : {}),
    ...(others ? { ofPeer: median(taken.map((each, i) => each / (others[i] ?? median(others)))) } : {}),
  }
}

const names = [...new Set(running.flatMap(({ rates }) => [...rates.keys()]))]
const table = names.map((row) => ({
  row,
  cells: Object.fromEntries(
    running.flatMap((one): [string, Cell][] => {
      const made = cell(one, row)
      return made ? [[one.name, made]] : []
    }),
  ),
}))
const percent = (part: number): string => `${(100 * part).toFixed(0)} %`
function show({ rate, worst, best, ofReading, ofAlone, ofPeer }: Cell): string {
  return [
    `${rate.toFixed(1)} (${worst.toFixed(1)}–${best.toFixed(1)})`,
    ofReading === undefined ? "" : `${percent(ofReading)} of reading`,
    ofAlone === undefined ? "" : `${percent(ofAlone)} of alone`,
    ofPeer === undefined ? "" : `${ofPeer.toFixed(2)} × llama.cpp`,
  ]
    .filter((text) => text !== "")
    .join(", ")
}
const gigabytes = (name: string): string => {
  const taken = reading.rates.get(name)
  return taken ? (median(taken) / 1e9).toFixed(1) : "–"
}
console.log(
  `${availableParallelism()} × ${cpus()[0].model}, Node ${process.version}; tokens a second, medians (worst–best)`,
)
console.log(`reading ${gigabytes("reading")} GB/s, beside a loop ${gigabytes(beside("reading"))} GB/s`)
for (const { row, cells } of table)
  console.log(
    `${row}: ${Object.entries(cells)
      .map(([name, made]) => `${name} ${show(made)}`)
      .join("; ")}`,
  )
for (const { name, memory } of running)
  if (memory) {
    const held = memory.weights + memory.cache
    console.log(
      `${name}: memory at most ${(memory.peak / 1e6).toFixed(0)} MB, ${(memory.peak / held).toFixed(2)} × weights (${(memory.weights / 1e6).toFixed(0)}) and cache (${(memory.cache / 1e6).toFixed(0)})`,
    )
  }
if (values.json)
  writeFileSync(
    values.json,
    `${JSON.stringify(
      {
        node: process.version,
        cpu: cpus()[0].model,
        threads: availableParallelism(),
        reading: Object.fromEntries(reading.rates),
        rows: table,
        memory: Object.fromEntries(running.map(({ name, memory }) => [name, memory])),
        taken: Object.fromEntries(running.map(({ name, rates }) => [name, Object.fromEntries(rates)])),
      },
      null,
      2,
    )}\n`,
  )
