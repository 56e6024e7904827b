/**
 * `npm run soak [-- --tiny N --large N --only text --json FILE]`: long loops of training steps, 1,000,000 tiny and 10,000 large ones unless
 * told otherwise, each kind in a process of its own. Shows what memory was in use, and fails unless it was flat.
 */
import { spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { MODES, type Mode, type Size, WAITS, type Wait } from "./soak-steps"
import { type Sample, type Settled, verdict } from "./soak-verdict"

const SAMPLES = 200
const SHOWN = 10

const { values } = parseArgs({
  options: {
    tiny: { type: "string", default: "1000000" },
    large: { type: "string", default: "10000" },
    only: { type: "string", multiple: true, default: [] },
    json: { type: "string" },
  },
})

interface Outcome {
  readonly name: string
  readonly steps: number
  readonly samples: readonly Sample[]
  readonly settled: { readonly quarter: Settled; readonly end: Settled } | null
  readonly problems: readonly string[]
}

const columns = ["rss", "heapUsed", "heapTotal", "active", "cache", "peak"] as const
const inMB = (bytes: number): string => (bytes / 2 ** 20).toFixed(1).padStart(9)

function show(sample: Sample): void {
  const step = String(sample.step).padStart(9)
  const seconds = sample.seconds.toFixed(0).padStart(7)
  console.log(`${step}${seconds}${columns.map((column) => inMB(sample[column])).join(" ")}`)
}

async function run(size: Size, mode: Mode, wait: Wait, steps: number): Promise<Outcome> {
  const name = `${size} ${mode} ${wait}`
  console.log(`\n${name}: ${steps} steps`)
  console.log(`     step      s${columns.map((column) => column.padStart(9)).join(" ")} (MB)`)
  const what = JSON.stringify({ size, mode, wait, steps })
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL("./soak-one.js", import.meta.url)), what, String(SAMPLES)],
    { stdio: ["ignore", "pipe", "inherit"] },
  )
  const samples: Sample[] = []
  let settled: Outcome["settled"] = null
  for await (const line of createInterface({ input: child.stdout })) {
    const told = JSON.parse(line) as { sample?: Sample; settled?: Outcome["settled"] }
    settled = told.settled ?? settled
    if (!told.sample) continue
    samples.push(told.sample)
    if (samples.length % (SAMPLES / SHOWN) === 0) show(told.sample)
  }
  const problems = settled ? verdict(samples, settled.quarter, settled.end) : ["it did not reach its end"]
  if (settled) {
    const { active, buffers, heap } = settled.end
    console.log(`collected: ${active} bytes in ${buffers} buffers, heap ${inMB(heap).trim()} MB`)
  }
  for (const column of columns) {
    const all = samples.map((sample) => sample[column])
    const [low, high] = [Math.min(...all), Math.max(...all)]
    console.log(`${column.padEnd(10)}${inMB(low)} to${inMB(high)} MB`)
  }
  console.log(problems.length === 0 ? "flat" : `NOT FLAT: ${problems.join("; ")}`)
  return { name, steps, samples, settled, problems }
}

const outcomes: Outcome[] = []
for (const size of ["large", "tiny"] as const)
  for (const mode of MODES)
    for (const wait of WAITS) {
      const name = `${size} ${mode} ${wait}`
      const steps = Number(values[size])
      if (steps > 0 && values.only.every((text) => name.includes(text)))
        outcomes.push(await run(size, mode, wait, steps))
    }
if (values.json) writeFileSync(values.json, JSON.stringify(outcomes))
const rising = outcomes.filter(({ problems }) => problems.length > 0)
console.log(`\n${outcomes.length - rising.length} flat, ${rising.length} not`)
process.exitCode = rising.length > 0 ? 1 : 0
