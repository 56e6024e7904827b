/**
 * `npm run bench:gpu`: what operations take on an NVIDIA GPU, beside PyTorch's eager mode and torch.compile where a python3 has them. Times
 * are medians of calls that wait for their result; rounds of both take turns.
 *
 *   npm run bench:gpu -- [--only REGEX] [--rounds N] [--json FILE] [--without-pytorch] [--torch-compile REGEX] [--warm-up MS]
 *     [--turn-warm-up MS] [--parts]
 *
 * `--parts` says where the time of a call goes: before the launch, in it, in the wait and after; and what one of many calls takes that do
 * not wait for each other, which is the GPU's time where that is longer than the host's.
 */
import { writeFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { cudaRuntime as runtime } from "@lazuli/backend-cuda"
import * as mx from "@lazuli/core"
import { GpuPeer } from "./gpu-peer"
import { type Row, rows } from "./gpu-rows"
import { launchFloor } from "./launch-floor"
import { median } from "./median"

const { values } = parseArgs({
  options: {
    only: { type: "string", default: "" },
    rounds: { type: "string", default: "60" },
    json: { type: "string" },
    "without-pytorch": { type: "boolean", default: false },
    "torch-compile": { type: "string", default: "" },
    "warm-up": { type: "string", default: "600" },
    "turn-warm-up": { type: "string", default: "50" },
    parts: { type: "boolean", default: false },
  },
})

/** The rounds of each side are cut into so many turns. */
const TURNS = 4
/** A turn of short calls has more rounds, up to ten times as many: the GPU's clock changes within milliseconds. */
const TURN_MS = 50

/**
 * The other process had the GPU and the caches meanwhile, and a core that waited for it runs slowly at first: milliseconds, which are all
 * of a turn where a call takes a tenth of one. Each side of a turn begins with so many of them that do not count.
 */
const TURN_WARM_UP = Number(values["turn-warm-up"])

/** One call that waits, in ms. */
function once(f: () => mx.Array | mx.Array[]): number {
  const begin = performance.now()
  const made = f()
  mx.eval(made)
  const taken = performance.now() - begin
  for (const each of [made].flat()) each.dispose()
  return taken
}

/** V8 has compiled the code of a call after about so many of them: until then launching a product takes 0.2 ms in place of 0.02. */
const COMPILED_AFTER = 2000
const LONGEST_WARM_UP = 4000

/** A few calls, for so long, and in so long as `LONGEST_WARM_UP` as many as are asked for. Gives the ms of one. */
function warmUp(f: () => mx.Array | mx.Array[], ms: number, calls = 0): number {
  // The first calls compile kernels.
  for (let i = 0; i < 3; i++) once(f)
  const begin = performance.now()
  for (let i = 1; ; i++) {
    once(f)
    const passed = performance.now() - begin
    if (passed >= ms && (i >= calls || passed >= LONGEST_WARM_UP)) return passed / i
  }
}

/** Calls that do not wait for each other. */
const IN_A_ROW = 20

/** The medians of a call's parts, in µs. */
function partsOf(f: () => mx.Array | mx.Array[], waits: boolean): string {
  const { commit, wait } = runtime
  let before = 0
  let inside = 0
  let waiting = 0
  let begin = 0
  runtime.commit = (stream) => {
    const now = performance.now()
    if (inside === 0) before = now - begin
    const made = commit.call(runtime, stream)
    inside += performance.now() - now
    return made
  }
  runtime.wait = (submission) => {
    const now = performance.now()
    const failed = wait.call(runtime, submission)
    waiting += performance.now() - now
    return failed
  }
  const taken: number[][] = [[], [], [], [], []]
  try {
    for (let i = 0; i < 40; i++) {
      before = inside = waiting = 0
      begin = performance.now()
      const all = once(f)
      const parts = [all, before, inside, waiting, all - before - inside - waiting]
      parts.forEach((part, k) => taken[k].push(1000 * part))
    }
  } finally {
    runtime.commit = commit
    runtime.wait = wait
  }
  const inARow: number[] = []
  for (let i = 0; !waits && i < 7; i++) {
    const started = performance.now()
    for (let k = 0; k < IN_A_ROW; k++) {
      const made = [f()].flat()
      void mx.asyncEval(made)
      for (const each of made) each.dispose()
    }
    mx.synchronize()
    inARow.push((1000 * (performance.now() - started)) / IN_A_ROW)
  }
  const [all, ...each] = taken.map((part) => median(part).toFixed(1))
  const names = ["before", "launch", "wait", "after"]
  return `${all} µs: ${each.map((part, k) => `${names[k]} ${part}`).join(", ")}${waits ? "" : `; in a row ${median(inARow).toFixed(1)}`}`
}

interface Measured {
  readonly name: string
  readonly ours: number | string
  readonly eager: number | undefined
  readonly compiled: number | undefined
}

async function measure(row: Row, peer: GpuPeer | null): Promise<Measured> {
  const taken: Record<string, number[]> = { ours: [], eager: [], compiled: [] }
  let problem = ""
  const least = Math.ceil(Number(values.rounds) / TURNS)
  let rounds = least
  let f: (() => mx.Array | mx.Array[]) | null = null
  try {
    f = row.make()
    // Until code is compiled and memory is there to be used again.
    const ms = warmUp(f, Number(values["warm-up"]), COMPILED_AFTER)
    rounds = Math.max(least, Math.min(10 * least, Math.ceil(TURN_MS / ms)))
  } catch (error) {
    problem = (error as Error).message.split("\n")[0].slice(0, 200)
    f = null
  }
  const forms = (await peer?.make(row.name, new RegExp(values["torch-compile"]).test(row.name))) ?? []
  for (let turn = 0; turn < TURNS; turn++) {
    if (f) {
      warmUp(f, TURN_WARM_UP)
      for (let i = 0; i < rounds; i++) taken.ours.push(once(f))
    }
    for (const form of forms) taken[form].push(...((await peer?.run(form, rounds, TURN_WARM_UP)) ?? []))
  }
  if (f && values.parts) console.log(`  ${row.name}: ${partsOf(f, / step\b/.test(row.name))}`)
  f = null
  mx.clearCache()
  const of = (form: string): number | undefined => (taken[form].length ? median(taken[form]) : undefined)
  return { name: row.name, ours: of("ours") ?? problem, eager: of("eager"), compiled: of("compiled") }
}

function print(row: Row, { name, ours, eager, compiled }: Measured): void {
  const rate = (ms: number): string =>
    row.bytes
      ? `${(row.bytes / ms / 1e6).toFixed(0)} GB/s`
      : row.flops
        ? `${(row.flops / ms / 1e9).toFixed(1)} TFLOP/s`
        : ""
  const show = (ms: number | undefined): string =>
    ms === undefined ? "–" : row.ops ? `${((1000 * ms) / row.ops).toFixed(2)} µs` : `${ms.toFixed(3)} ms`
  const best = Math.min(eager ?? Infinity, compiled ?? Infinity)
  console.log(
    typeof ours === "string"
      ? `${name.padEnd(50)} ${ours}`
      : [
          name.padEnd(50),
          show(ours).padStart(12),
          rate(ours).padStart(14),
          `eager ${show(eager)}`.padStart(18),
          `compiled ${show(compiled)}`.padStart(21),
          Number.isFinite(best) ? `${(ours / best).toFixed(2)} ×` : "",
        ].join(" "),
  )
}

mx.setDefaultDevice(mx.gpu)
const begin = performance.now()
mx.eval(mx.add(mx.ones([2]), 1))
console.log(
  `${mx.deviceInfo(mx.gpu).deviceName}: first result after ${(performance.now() - begin).toFixed(0)} ms`,
)
const wanted = new RegExp(values.only)
const chosen = rows.filter(({ name }) => wanted.test(name))
const floor = chosen.some(({ ops }) => ops) ? launchFloor() : undefined
if (floor !== undefined)
  console.log(
    `launch floor: ${floor.toFixed(2)} µs a launch of an empty kernel, 1,000 in one call of the driver's addon`,
  )
const peer = values["without-pytorch"] ? null : new GpuPeer()
const table: Measured[] = []
for (const row of chosen) {
  const measured = await measure(row, peer)
  print(row, measured)
  table.push(measured)
}
peer?.end()
console.log(`without a kernel: ${JSON.stringify(mx.backendStats())}`)
if (values.json) writeFileSync(values.json, JSON.stringify({ floor, rows: table }, null, 1))
