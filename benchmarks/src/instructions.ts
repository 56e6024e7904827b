/**
 * `npm run bench -- --instructions [text …]`: how many instructions a call takes, for what is the engine's own work. On a machine that
 * others use too, counts say more than times. Valgrind counts two runs, of which one goes on for so many calls more, so that starting and
 * warming up cancel out. When V8 compiles what still moves counts by up to 15 percent: there are several such pairs, each with its own
 * seeds, and the median counts.
 */
import { spawn, spawnSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { availableParallelism } from "node:os"
import { fileURLToPath } from "node:url"
import { median } from "./median"
import { workloads } from "./workloads"

interface Counted {
  readonly name: string
  readonly way: "eager" | "compiled"
  /** Calls that both runs make: enough for V8 to have compiled all that it will, and for the heap to have its size. */
  readonly warm: number
  /** Calls that one makes besides. */
  readonly calls: number
}
const row = (name: string, way: Counted["way"], warm: number, calls: number): Counted => ({
  name,
  way,
  warm,
  calls,
})
const rows: readonly Counted[] = [
  row("chain of 1,000 adds (16 elements)", "eager", 250, 150),
  row("chain of 1,000 adds (16 elements), handles held", "eager", 250, 150),
  row("one add, one eval (16 elements)", "eager", 120_000, 60_000),
  row("one add, one eval (16 elements)", "compiled", 120_000, 60_000),
  // The poll for dead handles, one in some 2,000 calls, is compiled after 30,000.
  row("eight adds, one eval (16 elements)", "eager", 45_000, 15_000),
  row("eight adds, one eval (16 elements)", "compiled", 120_000, 60_000),
  row("MLP step (4, 16-16-4, SGD momentum)", "eager", 1_500, 500),
  row("MLP step (4, 16-16-4, SGD momentum)", "compiled", 6_000, 4_000),
]

/**
 * The settings that make two runs alike: no threads, and no clock that decides when V8 compiles and collects. What it
 * compiles and collects is counted, as part of the calls that cause it.
 */
const flags = [
  "--single-threaded",
  "--predictable",
  // Incremental marking goes by the clock: on a busy machine it reached into the calls that are counted, a quarter of one add.
  "--no-incremental-marking",
  // The heap's growth goes by measured speeds: eight adds, compiled, read 6,352 and 9,749 on a busy machine, as collections fell.
  "--heap-growing-percent=50",
  "--no-memory-reducer",
]
/** Pairs of runs, each with seeds of its own. */
const PAIRS = 5
const environment = { ...process.env, LAZULI_NUM_THREADS: "1", OPENBLAS_NUM_THREADS: "1" }
/** Valgrind offers AVX2 at most, and dispatch follows; code that V8 replaces must be read again. */
const valgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--smc-check=all-non-file"]
const contestant = fileURLToPath(new URL("./lazuli.js", import.meta.url))

/** Instructions of a process that makes so many calls. @throws Error with what the process wrote */
function count({ name, way }: Counted, calls: number, seed: number): Promise<number> {
  const seeds = [`--hash-seed=${seed}`, `--random-seed=${seed}`]
  const program = [process.execPath, ...flags, ...seeds, contestant]
  const args = [...valgrind, ...program, name, way, "--calls", String(calls)]
  const child = spawn("valgrind", args, { env: environment, stdio: ["ignore", "ignore", "pipe"] })
  let said = ""
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text
  })
  return new Promise((resolve, reject) => {
    child.on("error", reject)
    child.on("close", (status) => {
      const refs = /I\s+refs:\s+([\d,]+)/.exec(said)
      if (status === 0 && refs) resolve(Number(refs[1].replaceAll(",", "")))
      else reject(new Error(`counting "${name}", ${way}, failed:\n${said.slice(-2000)}`))
    })
  })
}

interface Result extends Counted {
  /** The median of the pairs, the least and the most. */
  readonly instructions: number
  readonly least: number
  readonly most: number
  readonly perOperation: number
}

async function measure(row: Counted): Promise<Result> {
  const counts: number[] = []
  for (let seed = 1; seed <= PAIRS; seed++) {
    const ends = [row.warm, row.warm + row.calls]
    const [less, more] = await Promise.all(ends.map((calls) => count(row, calls, seed)))
    counts.push(Math.round((more - less) / row.calls))
  }
  const instructions = median(counts)
  const ops = workloads.find(({ name }) => name === row.name)?.ops ?? 1
  const [least, most] = [Math.min(...counts), Math.max(...counts)]
  return { ...row, instructions, least, most, perOperation: Math.round(instructions / ops) }
}

/** Prints the table, and writes it where `json` says. Gives the process's exit code. */
export async function countInstructions(texts: readonly string[], json: string | undefined): Promise<number> {
  const chosen = rows.filter(({ name, way }) => texts.every((text) => `${name}, ${way}`.includes(text)))
  if (chosen.length === 0) {
    console.error(
      `Instructions are not counted of ${texts.join(" and ")}. They are of:\n${rows.map(({ name, way }) => `  ${name}, ${way}`).join("\n")}`,
    )
    return 2
  }
  const { stdout, error } = spawnSync("valgrind", ["--version"], { encoding: "utf8" })
  if (error) {
    console.error(
      "Valgrind counts the instructions, and is not installed: apt-get install valgrind, or your system's equivalent.",
    )
    return 1
  }
  const results: Result[] = []
  // Counts do not mind company: as many rows at once as there are processors for their two runs.
  const queue = [...chosen]
  const work = async (): Promise<void> => {
    for (let row = queue.shift(); row; row = queue.shift()) {
      const result = await measure(row)
      results[chosen.indexOf(row)] = result
      const { name, way, instructions, least, most, perOperation } = result
      const rest = perOperation === instructions ? "" : `, ${perOperation} an operation`
      console.log(`${name}, ${way}: ${instructions} instructions a call (${least}–${most})${rest}`)
    }
  }
  await Promise.all(Array.from({ length: Math.max(1, availableParallelism() >> 1) }, work))
  console.table(
    Object.fromEntries(
      results.map(({ name, way, instructions, least, most, perOperation }) => [
        `${name}, ${way}`,
        { "instructions a call": instructions, least, most, "an operation": perOperation },
      ]),
    ),
  )
  if (json)
    writeFileSync(
      json,
      `${JSON.stringify({ node: process.version, arch: process.arch, valgrind: stdout.trim(), rows: results }, null, 2)}\n`,
    )
  return 0
}
