/**
 * `npm run test:gpu -- --sanitize memcheck,racecheck,initcheck`: NVIDIA's compute-sanitizer over every kernel that the cases of
 * gpu-cases.ts launch, each at least once, in the fewest of the cases.
 *
 * A survey runs all cases without the sanitizer, to know which of them make which kernels ready, as libraries are there or hidden and as
 * older GPUs would choose. Memory comes from the driver in the sizes that are asked for, is not used again, and is full of NaN: a result
 * that depends on bytes that nobody wrote differs. That holds for what CUDA's libraries write, too, which initcheck does not always see:
 * under it cuBLASLt, whose kernels write by TMA, is hidden, and what is only beside it is not run.
 */
import { spawn } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import type { Job, Mode, Ran } from "./gpu-job"

const LIBRARIES = "cublasLt,cudnn,cufft,cusolver"
/** Cases whose kernels depend on the generation. */
const BY_GENERATION = "^native |^golden (fast|quant|matmul)/"
const MODES: readonly Mode[] = [
  { name: "without libraries", without: LIBRARIES },
  { name: "as on Ampere", without: LIBRARIES, major: 8, only: BY_GENERATION },
  { name: "as on Turing", without: LIBRARIES, major: 7, only: BY_GENERATION },
  { name: "with libraries", without: "" },
]

/** A report of the sanitizer, and the case that ran about then. */
interface Report {
  readonly text: string
  readonly near: string
}

interface Outcome {
  readonly ran: readonly Ran[]
  readonly problems: readonly string[]
  /** Errors and hazards by the sanitizer's own count. */
  readonly errors: number
  readonly reports: readonly Report[]
  readonly seconds: number
}

/** The options of `test:gpu` that this needs. */
export interface SanitizeOptions {
  /** The program that processes run, with its arguments. */
  readonly command: readonly string[]
  readonly tools: readonly string[]
  readonly sanitizer: string
  readonly programs: number
  readonly jobs: number
  /** A regular expression of the cases to run. */
  readonly only: string
  /** Seconds that each run of a tool may take. */
  readonly seconds: number
}

/** Processes that may end early where one was. */
const MOST_LOST = 10
const SUMMARY = /(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)/
/** Lines of the sanitizer that begin no report: its own name, its summaries, and lines of one. */
const NO_REPORT = /COMPUTE-SANITIZER|SUMMARY|^=========\s*$|^========= {4}|LEAK/

/** Runs a job in processes that share it, under a tool of the sanitizer if one is named. */
async function run(job: Job, tool: string | null, options: SanitizeOptions): Promise<Outcome> {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-sanitize-"))
  writeFileSync(join(folder, "job.json"), JSON.stringify(job))
  const begin = performance.now()
  const [program, ...args] = tool
    ? [options.sanitizer, "--tool", tool, "--print-limit", "20", ...options.command]
    : options.command
  const reports: Report[] = []
  const problems: string[] = []
  let errors = 0
  const end = tool ? begin + options.seconds * 1000 : Number.POSITIVE_INFINITY
  const worker = async (): Promise<void> => {
    for (let lost = 0; ; ) {
      const child = spawn(program, args, {
        env: { ...process.env, LAZULI_GPU_CHECKS: folder, LAZULI_CUDA_WITHOUT: job.mode.without },
        stdio: ["ignore", "pipe", "pipe"],
        // The sanitizer has a process of its own.
        detached: true,
      })
      const kill = (): void => void process.kill(-(child.pid as number), "SIGKILL")
      const timer = tool && setTimeout(kill, Math.max(0, end - performance.now()))
      let near = ""
      let words = ""
      let isSummed = false
      const read = (text: string): void => {
        const summary = SUMMARY.exec(text)
        if (summary) {
          errors += Number(summary[1] ?? summary[2])
          isSummed = true
        } else if (text.startsWith("case ")) near = text.slice(5)
        else if (text.startsWith("=========")) {
          if (!NO_REPORT.test(text)) reports.push({ text, near })
          else if (/^========= {4,}(?:at|by|in) /.test(text) && reports.length > 0 && reports.length < 200) {
            const last = reports[reports.length - 1]
            if (last.text.length < 600)
              reports[reports.length - 1] = { ...last, text: `${last.text}\n${text}` }
          }
        } else words = `${words}\n${text}`.slice(-2000)
      }
      createInterface({ input: child.stdout }).on("line", read)
      createInterface({ input: child.stderr }).on("line", read)
      const [code, signal] = await new Promise<[number | null, string | null]>((done) =>
        child.on("close", (...how) => done(how)),
      )
      clearTimeout(timer ?? undefined)
      const isWhole = code === 0 && (tool === null || isSummed)
      if (isWhole) return
      problems.push(`${near || "a process"}: ended with ${signal ?? code}: ${words}`)
      // The cases that it had claimed are lost, and said to be; another one goes on.
      if (performance.now() >= end || ++lost > MOST_LOST) return
    }
  }
  await Promise.all(Array.from({ length: options.jobs }, worker))
  const ran: Ran[] = []
  for (const name of readdirSync(folder).filter((each) => each.endsWith(".jsonl")))
    for (const text of readFileSync(join(folder, name), "utf8").trimEnd().split("\n")) {
      const line = JSON.parse(text) as Ran | { problem: string }
      if ("problem" in line) problems.push(line.problem)
      else ran.push(line)
    }
  rmSync(folder, { recursive: true })
  return { ran, problems, errors, reports, seconds: (performance.now() - begin) / 1000 }
}

/** A case in a mode, with the kernels that it was the first of its process to need. */
interface Candidate extends Ran {
  readonly mode: Mode
}

/** The candidates without which a kernel would be missing: those that took longest, and need libraries, go first. */
export function fewest<C extends { readonly kernels: readonly string[]; readonly seconds: number }>(
  candidates: readonly C[],
  rankOf: (candidate: C) => number,
): C[] {
  const counts = new Map<string, number>()
  for (const { kernels } of candidates)
    for (const each of kernels) counts.set(each, (counts.get(each) ?? 0) + 1)
  const dearest = candidates.toSorted((a, b) => rankOf(b) - rankOf(a) || b.seconds - a.seconds)
  const dropped = new Set<C>()
  for (const each of dearest) {
    if (each.kernels.some((kernel) => counts.get(kernel) === 1)) continue
    for (const kernel of each.kernels) counts.set(kernel, (counts.get(kernel) as number) - 1)
    dropped.add(each)
  }
  return candidates.filter((each) => !dropped.has(each))
}

const kernelsOf = (all: readonly { readonly kernels: readonly string[] }[]): Set<string> =>
  new Set(all.flatMap(({ kernels }) => kernels))

/** Prints what was found; true where that is nothing. */
export async function sanitize(options: SanitizeOptions): Promise<boolean> {
  const { tools, programs } = options
  let isClean = true
  const tell = (what: string, { problems, reports, errors }: Outcome): void => {
    if (problems.length > 0 || reports.length > 0 || errors > 0) isClean = false
    for (const problem of problems) console.log(`FAIL ${what}: ${problem.slice(0, 1500)}`)
    for (const { text, near } of reports.slice(0, 40)) console.log(`REPORT ${what}, about ${near}: ${text}`)
  }
  const candidates: Candidate[] = []
  for (const mode of MODES) {
    const job = { mode: restricted(mode, options.only), programs, inRow: 1, fills: true }
    const outcome = await run(job, null, options)
    tell(`survey ${mode.name}`, outcome)
    candidates.push(
      ...outcome.ran.filter(({ kernels }) => kernels.length > 0).map((ran) => ({ ...ran, mode })),
    )
    console.log(
      `survey ${mode.name}: ${outcome.ran.length} cases, ${kernelsOf(outcome.ran).size} kernels, ${outcome.problems.length} problems, ${outcome.seconds.toFixed(0)} s`,
    )
  }
  const chosen = fewest(candidates, ({ mode }) => MODES.indexOf(mode))
  const all = kernelsOf(candidates)
  console.log(`${all.size} kernels; ${chosen.length} cases reach all of them`)
  for (const tool of tools) {
    const reached = new Set<string>()
    let [cases, seconds, errors] = [0, 0, 0]
    for (const mode of MODES) {
      const names = chosen.filter((each) => each.mode === mode).map(({ name }) => name)
      if (names.length === 0) continue
      const hides = tool === "initcheck" && mode.without === ""
      const job = {
        mode: { ...mode, only: undefined, ...(hides && { without: "cublasLt" }) },
        programs,
        cases: names,
        inRow: 4,
        fills: false,
      }
      const outcome = await run(job, tool, options)
      tell(`${tool} ${mode.name}`, outcome)
      for (const kernel of kernelsOf(outcome.ran)) reached.add(kernel)
      cases += outcome.ran.length
      seconds += outcome.seconds
      errors += outcome.errors
      console.log(
        `${tool} ${mode.name}: ${outcome.ran.length} of ${names.length} cases, ${kernelsOf(outcome.ran).size} kernels, ${outcome.errors} reports, ${outcome.seconds.toFixed(0)} s`,
      )
    }
    const missing = [...all].filter((kernel) => !reached.has(kernel))
    console.log(
      `${tool}: ${cases} cases, ${all.size - missing.length} of ${all.size} kernels, ${errors} reports, ${seconds.toFixed(0)} s`,
    )
    const names = missing.map((kernel) => kernel.split(" ")[0])
    if (missing.length > 0) console.log(`${tool}: not run: ${[...new Set(names)].join(", ")}`)
    // Beside cuBLASLt alone.
    if (missing.length > 0 && tool !== "initcheck") isClean = false
  }
  return isClean
}

/** A mode for cases that match both. */
const restricted = (mode: Mode, only: string): Mode => ({
  ...mode,
  only: mode.only ? `(?=${mode.only})(?=.*(?:${only}))` : only,
})
