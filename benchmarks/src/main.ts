/**
 * `npm run bench [-- text …]`: every workload whose name contains every text, on Lazuli and on the peers that are installed, round by round in turn, with
 * ratios to the best peer and to what the machine can do. Each contestant is a process of its own.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { availableParallelism, cpus, tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { type Workload, workloads } from "./workloads"

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "string" },
    rounds: { type: "string" },
    only: { type: "string", multiple: true },
  },
})

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
/** How a contestant is started, without the workload. */
const contestants: Record<string, readonly string[]> = {
  eager: [process.execPath, at("./lazuli.js"), "WORKLOAD", "eager"],
  compiled: [process.execPath, at("./lazuli.js"), "WORKLOAD", "compiled"],
  pytorch: ["/usr/bin/python3", at("../peers/pytorch.py"), "WORKLOAD"],
  numpy: ["/usr/bin/python3", at("../peers/numpy_.py"), "WORKLOAD"],
  "jax-js": [process.execPath, at("../peers/jax-js.mjs"), "WORKLOAD"],
  tfjs: [process.execPath, at("../peers/tfjs.mjs"), "WORKLOAD"],
  onnxruntime: [process.execPath, at("../peers/onnxruntime.mjs"), "WORKLOAD"],
}
const OURS = ["eager", "compiled"]

interface Answer {
  readonly ready?: boolean
  readonly missing?: string
  readonly value?: number
}

/** One contestant at one workload. */
class Contestant {
  private readonly child: ChildProcess
  private readonly answers: AsyncIterator<string>
  readonly taken: number[] = []

  constructor(
    readonly name: string,
    workload: string,
  ) {
    const [command, ...args] = contestants[name].map((part) => (part === "WORKLOAD" ? workload : part))
    // The JavaScript peers write warnings about how else they could be installed.
    this.child = spawn(command, args, {
      stdio: ["pipe", "pipe", "ignore"],
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
    })
    this.child.on("error", () => {})
    this.child.stdin?.on("error", () => {})
    this.answers = createInterface({ input: this.child.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]()
  }

  async hear(): Promise<Answer> {
    for (;;) {
      const { value, done } = await this.answers.next()
      if (done) return { missing: "does not run" }
      // Whatever else a peer prints is no answer.
      if (value.startsWith("{")) return JSON.parse(value) as Answer
    }
  }

  async measure(): Promise<boolean> {
    this.child.stdin?.write("\n")
    const { value } = await this.hear()
    if (value !== undefined) this.taken.push(value)
    return value !== undefined
  }

  end(): void {
    this.child.stdin?.end()
    this.child.kill()
  }
}

interface Cell {
  readonly best: number
  readonly median: number
  readonly worst: number
}
interface Row {
  readonly workload: Workload
  readonly cells: Readonly<Record<string, Cell | string>>
}

async function measureRow(workload: Workload): Promise<Row> {
  const names = Object.keys(contestants).filter((name) => !values.only || values.only.includes(name))
  const cells: Record<string, Cell | string> = {}
  const running: Contestant[] = []
  // One after another, so that setting up disturbs nobody's measurement.
  for (const name of names) {
    const contestant = new Contestant(name, workload.name)
    const { missing } = await contestant.hear()
    if (missing === undefined) running.push(contestant)
    else {
      cells[name] = missing
      contestant.end()
    }
  }
  const rounds = Number(values.rounds ?? workload.rounds ?? 25)
  for (let round = 0; round < rounds; round++) for (const contestant of running) await contestant.measure()
  for (const contestant of running) {
    const scale = workload.unit === "µs" || workload.unit === "µs/op" ? 1000 / (workload.ops ?? 1) : 1
    const taken = contestant.taken.map((ms) => ms * scale).sort((a, b) => a - b)
    cells[contestant.name] = {
      best: taken[0],
      median: taken[taken.length >> 1],
      worst: taken[taken.length - 1],
    }
    contestant.end()
  }
  return { workload, cells }
}

interface Ceilings {
  readonly triad: number
  readonly triadAll: number
  readonly fma: number
  readonly fmaAll: number
}

/** What the machine can do, measured now; null where no compiler is there. */
function measureCeilings(): Ceilings | null {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-ceilings-"))
  try {
    const program = join(folder, "ceilings")
    const flags = ["-O3", "-march=native", "-pthread"]
    if (spawnSync("g++", [...flags, at("../ceilings/ceilings.cc"), "-o", program]).status !== 0) return null
    const { status, stdout } = spawnSync(program, { encoding: "utf8" })
    return status === 0 ? (JSON.parse(stdout) as Ceilings) : null
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const chosen = workloads.filter(({ name }) => positionals.every((text) => name.includes(text)))
if (chosen.length === 0) {
  console.error(
    `No workload's name contains ${positionals.join(" and ")}. They are:\n${workloads.map(({ name }) => `  ${name}`).join("\n")}`,
  )
  process.exit(2)
}

const ceilings = measureCeilings()
const digits = (v: number): string =>
  v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v >= 1 ? v.toFixed(2) : v.toFixed(3)
const gigas = (v: number): string => (v / 1e9).toFixed(1)
console.log(
  `${availableParallelism()} × ${cpus()[0].model}, Node ${process.version}; medians, and in brackets how far the worst is from the best`,
)
if (ceilings)
  console.log(
    `ceilings: triad ${gigas(ceilings.triad)} GB/s with one thread, ${gigas(ceilings.triadAll)} with all; multiply-adds ${gigas(ceilings.fma)} and ${gigas(ceilings.fmaAll)} GFLOP/s`,
  )

/** The least time that the machine needs, in the workload's unit; null where it is not known. */
function floorOf({ unit, bytes = 0, flops = 0 }: Workload): number | null {
  if (!ceilings || unit !== "ms" || bytes + flops === 0) return null
  const bandwidth = Math.max(ceilings.triad, ceilings.triadAll)
  return Math.max(bytes / bandwidth, flops / Math.max(ceilings.fma, ceilings.fmaAll)) * 1000
}

const isCell = (cell: Cell | string | undefined): cell is Cell => typeof cell === "object"
function show({ workload, cells }: Row): Record<string, string> {
  const shown: Record<string, string> = { unit: workload.unit }
  for (const name of Object.keys(contestants)) {
    const cell = cells[name]
    shown[name] = isCell(cell)
      ? `${digits(cell.median)} (${((cell.worst / cell.best - 1) * 100).toFixed(0)} %)`
      : ""
  }
  const medianOf = (names: readonly string[]): number =>
    Math.min(
      ...names
        .map((name) => cells[name])
        .filter(isCell)
        .map(({ median }) => median),
    )
  const [ours, peers] = [
    medianOf(OURS),
    medianOf(Object.keys(contestants).filter((name) => !OURS.includes(name))),
  ]
  shown["× best peer"] = Number.isFinite(ours) && Number.isFinite(peers) ? digits(peers / ours) : ""
  const floor = floorOf(workload)
  shown["of ceiling"] =
    floor !== null && Number.isFinite(ours) ? `${((floor / ours) * 100).toFixed(0)} %` : ""
  return shown
}

const rows: Row[] = []
for (const workload of chosen) {
  const row = await measureRow(workload)
  rows.push(row)
  const shown = show(row)
  console.log(
    `${workload.name}: ${Object.entries(shown)
      .flatMap(([key, text]) => (text && key !== "unit" ? [`${key} ${text}`] : []))
      .join(", ")} [${workload.unit}]`,
  )
}
console.table(Object.fromEntries(rows.map((row) => [row.workload.name, show(row)])))
if (values.json)
  writeFileSync(
    values.json,
    `${JSON.stringify({ node: process.version, cpu: cpus()[0].model, threads: availableParallelism(), ceilings, rows }, null, 2)}\n`,
  )
