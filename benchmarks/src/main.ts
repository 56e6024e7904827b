/**
 * `npm run bench [-- text …]`: every workload whose name contains every text, on Lazuli and on the peers that are installed, round by round
 * in turn, with ratios to the best peer and to what the machine can do in the same round. Each contestant is a process of its own.
 * `--from` begins with a later row, `--compared` leaves out those that no peer has, and `--instructions` counts instead of measuring.
 */
import { writeFileSync } from "node:fs"
import { availableParallelism, cpus } from "node:os"
import { setTimeout } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { buildCeilings } from "./ceilings"
import { Contestant } from "./contestant"
import { countInstructions } from "./instructions"
import { median } from "./median"
import { buildProgram } from "./program"
import { type Workload, workloads } from "./workloads"

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "string" },
    rounds: { type: "string" },
    settle: { type: "string" },
    compared: { type: "boolean" },
    from: { type: "string" },
    only: { type: "string", multiple: true },
    instructions: { type: "boolean" },
  },
})
if (values.instructions) process.exit(await countInstructions(positionals, values.json))

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
/** Matrix products by the library's own call. */
const openblas = buildProgram(at("../peers/openblas.cc"), "-lopenblas")
const python = process.env.BENCH_PYTHON ?? "/usr/bin/python3"
/** Takes the time in the addon from what is measured. */
const outsideKernels = ["--import", new URL("./native-time.js", import.meta.url).href]
/** The commands that start contestants. Without a workload, one process serves all: importing a framework takes seconds. */
const contestants: Record<string, readonly string[]> = {
  eager: [process.execPath, at("./lazuli.js"), "WORKLOAD", "eager"],
  compiled: [process.execPath, at("./lazuli.js"), "WORKLOAD", "compiled"],
  "eager, JavaScript": [process.execPath, ...outsideKernels, at("./lazuli.js"), "WORKLOAD", "eager"],
  "compiled, JavaScript": [process.execPath, ...outsideKernels, at("./lazuli.js"), "WORKLOAD", "compiled"],
  composition: [process.execPath, at("./lazuli.js"), "WORKLOAD", "composition"],
  pytorch: [python, at("../peers/pytorch.py")],
  "torch.compile": [python, at("../peers/pytorch.py"), "compile"],
  jax: [python, at("../peers/jax_.py")],
  numpy: [python, at("../peers/numpy_.py")],
  "jax-js": [process.execPath, at("../peers/jax-js.mjs"), "WORKLOAD"],
  tfjs: [process.execPath, at("../peers/tfjs.mjs"), "WORKLOAD"],
  onnxruntime: [process.execPath, at("../peers/onnxruntime.mjs"), "WORKLOAD"],
  ...(openblas ? { openblas: [openblas, "WORKLOAD"] } : {}),
}
const OURS = ["eager", "compiled"]
/** JavaScript's part of those. */
const PARTS = ["eager, JavaScript", "compiled, JavaScript"]
const isPeer = (name: string): boolean => !OURS.includes(name) && !PARTS.includes(name)
/**
 * Between two measurements: some thread pools look for work on every core for a while after their last call, which would be the next one's
 * loss.
 */
const SETTLE_MS = Number(values.settle ?? 50)

interface Cell {
  readonly best: number
  readonly median: number
  readonly worst: number
  /** Round by round. */
  readonly taken: readonly number[]
}
interface Row {
  readonly workload: Workload
  readonly cells: Readonly<Record<string, Cell | string>>
  /** The median over the rounds of the best peer's time over ours. */
  readonly timesBestPeer?: number
  /** The median over the rounds of the least time that the machine needed then over ours. */
  readonly ofCeiling?: number
}

const isKept = (name: string): boolean => !!contestants[name] && !contestants[name].includes("WORKLOAD")
/** Those that serve one row after another. */
const kept: Record<string, Contestant> = {}
const leave = (contestant: Contestant): void => {
  if (!isKept(contestant.name)) contestant.end()
}

async function measureRow(workload: Workload): Promise<Row | undefined> {
  const names = Object.keys(contestants)
    .filter((name) => !values.only || values.only.includes(name))
    .filter((name) => workload.javascript || !PARTS.includes(name))
    .sort((a, b) => Number(OURS.includes(a)) - Number(OURS.includes(b)))
  const cells: Record<string, Cell | string> = {}
  const running: Contestant[] = []
  let floor = ceilings?.start(workload) ?? null
  await floor?.hear()
  // One after another, so that setting up disturbs nobody's measurement.
  for (const name of names) {
    if (values.compared && OURS.includes(name) && !running.some((each) => isPeer(each.name))) {
      floor?.end()
      return undefined
    }
    const contestant =
      kept[name] ??
      new Contestant(
        name,
        contestants[name].map((part) => (part === "WORKLOAD" ? workload.name : part)),
      )
    if (isKept(name)) kept[name] = contestant
    const { missing } = await (isKept(name) ? contestant.prepare(workload.name) : contestant.hear())
    if (missing === undefined) running.push(contestant)
    else {
      cells[name] = missing
      leave(contestant)
    }
  }
  const rounds = Number(values.rounds ?? workload.rounds ?? 25)
  for (let round = 0; round < rounds; round++)
    for (const contestant of floor ? [floor, ...running] : [...running]) {
      await setTimeout(SETTLE_MS)
      if (await contestant.measure()) continue
      // Measurements from before it stopped have no partners in the rounds after.
      leave(contestant)
      if (contestant === floor) floor = null
      else {
        cells[contestant.name] = `stopped in round ${round + 1}`
        running.splice(running.indexOf(contestant), 1)
      }
    }
  floor?.end()
  const scale = workload.unit === "µs" || workload.unit === "µs/op" ? 1000 / (workload.ops ?? 1) : 1
  for (const contestant of running) {
    const taken = contestant.taken.map((ms) => ms * scale)
    cells[contestant.name] = {
      best: Math.min(...taken),
      median: median(taken),
      worst: Math.max(...taken),
      taken,
    }
    leave(contestant)
  }
  const bestOf = (wanted: (name: string) => boolean): Contestant | undefined =>
    running
      .filter(({ name }) => wanted(name))
      .sort((a, b) => median(a.taken) - median(b.taken))
      .at(0)
  const ours = bestOf((name) => OURS.includes(name))
  const peer = bestOf(isPeer)
  // A machine that others use too is slow for everybody while it is: what was measured one after another is compared.
  const over = (other: Contestant): number | undefined =>
    ours && median(other.taken.map((taken, round) => taken / ours.taken[round]))
  return {
    workload,
    cells,
    ...(ours && peer ? { timesBestPeer: over(peer) } : {}),
    ...(ours && floor ? { ofCeiling: over(floor) } : {}),
  }
}

const first =
  values.from === undefined ? 0 : workloads.findIndex(({ name }) => name.includes(values.from as string))
const chosen = workloads.filter(
  ({ name }, i) => i >= first && positionals.every((text) => name.includes(text)),
)
if (chosen.length === 0) {
  console.error(
    `No workload's name contains ${positionals.join(" and ")}. They are:\n${workloads.map(({ name }) => `  ${name}`).join("\n")}`,
  )
  process.exit(2)
}

const ceilings = buildCeilings(at("../ceilings/ceilings.cc"))
const digits = (v: number): string =>
  v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v >= 1 ? v.toFixed(2) : v.toFixed(3)
const gigas = (v: number): string => (v / 1e9).toFixed(1)
console.log(
  `${availableParallelism()} × ${cpus()[0].model}, Node ${process.version}; medians, and in brackets how far the worst is from the best`,
)
if (ceilings) {
  const { triad, triadAll, readsAll, writesAll, fma, fmaAll } = ceilings.figures
  console.log(
    `ceilings: triad ${gigas(triad)} GB/s with one thread, ${gigas(triadAll)} with all (reads alone ${gigas(readsAll)}, writes ${gigas(writesAll)}); multiply-adds ${gigas(fma)} and ${gigas(fmaAll)} GFLOP/s; products and convolutions count as many as their definitions take, so an algorithm with fewer may pass the ceiling`,
  )
}

const isCell = (cell: Cell | string | undefined): cell is Cell => typeof cell === "object"
function show({ workload, cells, timesBestPeer, ofCeiling }: Row): Record<string, string> {
  const shown: Record<string, string> = { unit: workload.unit }
  for (const name of Object.keys(contestants)) {
    const cell = cells[name]
    shown[name] = isCell(cell)
      ? `${digits(cell.median)} (${((cell.worst / cell.best - 1) * 100).toFixed(0)} %)`
      : ""
  }
  shown["× best peer"] = timesBestPeer === undefined ? "" : digits(timesBestPeer)
  shown["of ceiling"] = ofCeiling === undefined ? "" : `${(ofCeiling * 100).toFixed(0)} %`
  return shown
}

const rows: Row[] = []
for (const workload of chosen) {
  const row = await measureRow(workload)
  if (!row) continue
  rows.push(row)
  const shown = show(row)
  console.log(
    `${workload.name}: ${Object.entries(shown)
      .flatMap(([key, text]) => (text && key !== "unit" ? [`${key} ${text}`] : []))
      .join(", ")} [${workload.unit}]`,
  )
}
console.table(Object.fromEntries(rows.map((row) => [row.workload.name, show(row)])))
for (const contestant of Object.values(kept)) contestant.end()
if (values.json)
  writeFileSync(
    values.json,
    `${JSON.stringify({ node: process.version, cpu: cpus()[0].model, threads: availableParallelism(), ceilings: ceilings?.figures ?? null, rows }, null, 2)}\n`,
  )
