/**
 * `npm run test:gpu -- --sanitize memcheck,racecheck,initcheck`: NVIDIA's compute-sanitizer over every kernel that the cases of
 * gpu-cases.ts make ready, each at least once, in the fewest of the cases.
 *
 * A survey runs all cases without the sanitizer, to know which of them make which kernels ready, as libraries are there or hidden and as
 * older GPUs would choose. Memory comes from the driver in the sizes that are asked for, is not used again, and is full of NaN: a result
 * that depends on bytes that nobody wrote differs. That holds for what CUDA's libraries write, too, which initcheck does not always see:
 * under it cuBLASLt and cuDNN, whose kernels write by TMA, are hidden, and kernels that are only needed beside libraries may be missing.
 * So may those of graphs: they copy small arrays with the rest of their parts of memory, and before their first value, to no effect.
 * Races that racecheck reports inside the libraries' own kernels are counted apart.
 *
 * It fails unless every kernel was made ready under every tool, without a report, a wrong result, or a process that ended early.
 */
import { spawnSync } from "node:child_process"
import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { forget, type Outcome, type PoolOptions, runAll, type Work } from "./gpu-processes"
import type { Job, Mode, Ran } from "./gpu-work"

const LIBRARIES = "cublasLt,cudnn,cufft,cusolver"
/** Cases whose kernels depend on the generation. */
const BY_GENERATION = "^native |^golden (fast|quant|matmul)/"
const BESIDE_LIBRARIES: Mode = { name: "with libraries", without: "" }
const MODES: readonly Mode[] = [
  { name: "without libraries", without: LIBRARIES, only: "^(?!loop )" },
  { name: "as on Ampere", without: LIBRARIES, major: 8, only: BY_GENERATION },
  { name: "as on Turing", without: LIBRARIES, major: 7, only: BY_GENERATION },
  { name: "in parts of memory", without: LIBRARIES, only: "^loop ", divides: true },
  { ...BESIDE_LIBRARIES, only: "^(?!loop )" },
]
const TOOLS = ["memcheck", "racecheck", "initcheck"]
/** Hidden from initcheck. */
const UNSEEN = "cublasLt,cudnn"
/** A race inside a kernel of NVIDIA's libraries. */
const OF_LIBRARY =
  /Race reported between (?:Read|Write) access at (?:void )?(?:cudnn|cublas|cufft|cusolver|cutlass)/
/** Cases for which a process under a tool is worth its start, and those that it takes in a row. */
const WORTH = 32
const IN_ROW = 4

/** The options of `test:gpu` that this needs. */
export interface SanitizeOptions extends Omit<PoolOptions, "end" | "state"> {
  /** Names of tools; without one there is only the survey. */
  readonly tools: readonly string[]
  readonly programs: number
  /** A regular expression of the cases to run. */
  readonly only: string
  /** Seconds after which no more cases are begun. */
  readonly total: number
  /** The folder to keep what is known in, and to go on from; one that is removed if not given. */
  readonly state?: string
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
const namesOf = (kernels: readonly string[]): string =>
  [...new Set(kernels.map((kernel) => kernel.split(" ")[0]))].join(", ")

/** Throws with what to do unless the sanitizer runs, and knows the tools. */
function demand({ sanitizer, tools }: SanitizeOptions): void {
  const unknown = tools.filter((tool) => !TOOLS.includes(tool))
  if (unknown.length > 0)
    throw new Error(`there is no tool ${unknown.join(", ")}; there are ${TOOLS.join(", ")}, and survey`)
  if (tools.length === 0) return
  const { error, status, stdout, stderr } = spawnSync(sanitizer, ["--version"], { encoding: "utf8" })
  if (!error && status === 0) {
    console.log(`${sanitizer}: ${stdout.trim().split("\n").at(-1)}`)
    return
  }
  const why = error ? error.message : `--version ended with ${status}: ${stderr.slice(0, 300)}`
  throw new Error(
    `compute-sanitizer cannot be run: ${why}. It comes with the CUDA toolkit; name it with --sanitizer PATH, as in --sanitizer /usr/local/cuda/bin/compute-sanitizer`,
  )
}

/** Prints what was found; true where that is nothing, and everything ran. */
export async function sanitize(options: SanitizeOptions): Promise<boolean> {
  if (!(Number.isInteger(options.jobs) && options.jobs > 0))
    throw new Error(`${options.jobs} is no number of processes: --jobs is at least 1`)
  demand(options)
  const state = options.state ?? mkdtempSync(join(tmpdir(), "lazuli-sanitize-"))
  try {
    return await sanitizeIn({ ...options, state, end: performance.now() + options.total * 1000 })
  } finally {
    if (options.state === undefined) forget(state)
  }
}

async function sanitizeIn(options: SanitizeOptions & PoolOptions): Promise<boolean> {
  const { tools, programs, jobs } = options
  const begin = performance.now()
  const since = (): string => `${((performance.now() - begin) / 1000).toFixed(0)} s`
  const tell = ({ name }: Work, { ran, problems, reports, errors, isComplete }: Outcome): void => {
    for (const problem of problems) console.log(`FAIL ${name}: ${problem.slice(0, 1500)}`)
    for (const { text, near } of reports.slice(0, 40)) console.log(`REPORT ${name}, about ${near}: ${text}`)
    console.log(
      `${name}: ${ran.length} cases, ${kernelsOf(ran).size} kernels made ready, ${Math.max(errors, reports.length)} reports, ${problems.length} failures${isComplete ? "" : ", not complete"}, after ${since()}`,
    )
  }
  const surveys = MODES.map((mode): Work => {
    const job = { mode: restricted(mode, options.only), programs, inRow: 1, fills: true }
    return {
      name: `survey ${mode.name}`,
      job,
      tool: null,
      // Few cases are in these.
      processes: mode.major || mode.divides ? Math.ceil(jobs / 4) : jobs,
    }
  })
  const surveyed = await runAll(surveys, options, tell)
  const candidates = surveyed.flatMap(({ ran }, i) =>
    ran.filter(({ kernels }) => kernels.length > 0).map((each): Candidate => ({ ...each, mode: MODES[i] })),
  )
  const all = kernelsOf(candidates)
  const isSurveyed = all.size > 0 && surveyed.every(({ problems }) => problems.length === 0)
  if (all.size === 0) console.log("FAIL survey: no case made a kernel ready")
  if (surveyed.some(({ isComplete }) => !isComplete)) {
    console.log("the survey is not complete, so that the cases of the tools are not known")
    return false
  }
  const rankOf = ({ mode }: Candidate): number => MODES.indexOf(mode)
  console.log(`${all.size} kernels, which ${fewest(candidates, rankOf).length} cases make ready`)
  const works = tools.flatMap((tool) => {
    const seen = candidates.filter(({ mode }) => !(checksWrites(tool) && mode.divides))
    return toolWorks(tool, fewest(seen, rankOf), options)
  })
  const outcomes = await runAll(works, options, tell)
  const elsewhere = kernelsOf(
    candidates.filter(({ mode }) => mode.name !== BESIDE_LIBRARIES.name && !mode.divides),
  )
  const verdicts = tools.map((tool) =>
    verdictOf(
      tool,
      works.flatMap((work, i) => (work.tool === tool ? [outcomes[i]] : [])),
      all,
      elsewhere,
    ),
  )
  console.log(`after ${since()}`)
  return isSurveyed && verdicts.every(Boolean)
}

/** True of the tool that asks for every byte to be written before it is read, as the rest of a divided buffer is not. */
const checksWrites = (tool: string): boolean => tool === "initcheck"

/** The chosen cases under a tool, by their modes, those of which there are most first. */
function toolWorks(tool: string, chosen: readonly Candidate[], { programs, jobs }: SanitizeOptions): Work[] {
  const works = MODES.flatMap((mode): Work[] => {
    const cases = chosen.filter((each) => each.mode === mode).map(({ name }) => name)
    if (cases.length === 0) return []
    const job: Job = {
      mode: {
        ...mode,
        only: undefined,
        ...(checksWrites(tool) && mode.without === "" && { without: UNSEEN }),
      },
      programs,
      cases: cases.toSorted(),
      inRow: IN_ROW,
      fills: false,
    }
    const processes = Math.min(jobs, Math.ceil(cases.length / WORTH))
    return [{ name: `${tool} ${mode.name}`, job, tool, processes }]
  })
  return works.toSorted((a, b) => (b.job.cases?.length ?? 0) - (a.job.cases?.length ?? 0))
}

/** Prints one line of a tool; true where it saw every kernel, and nothing wrong. */
function verdictOf(
  tool: string,
  outcomes: readonly Outcome[],
  all: ReadonlySet<string>,
  elsewhere: ReadonlySet<string>,
): boolean {
  const ran = outcomes.flatMap((outcome) => outcome.ran)
  const ready = kernelsOf(ran)
  const missing = [...all].filter((kernel) => !ready.has(kernel))
  const excused = checksWrites(tool) ? missing.filter((kernel) => !elsewhere.has(kernel)) : []
  const inexcusable = missing.filter((kernel) => !excused.includes(kernel))
  const sum = (of: (outcome: Outcome) => number): number => outcomes.reduce((n, each) => n + of(each), 0)
  const ofLibraries = sum((outcome) => outcome.reports.filter(({ text }) => OF_LIBRARY.test(text)).length)
  const reports = sum(({ errors, reports }) => Math.max(errors, reports.length)) - ofLibraries
  const failures = sum(({ problems }) => problems.length)
  const isComplete = outcomes.every((each) => each.isComplete)
  const isClean = isComplete && ran.length > 0 && inexcusable.length === 0 && reports === 0 && failures === 0
  console.log(
    `${tool}: ${isClean ? "passed" : isComplete ? "FAILED" : "FAILED, not complete"}: ${all.size - missing.length} of ${all.size} kernels made ready in ${ran.length} cases, ${reports} reports, ${failures} failures, ${inexcusable.length} kernels not made ready${excused.length > 0 ? `, and ${excused.length} excused` : ""}`,
  )
  if (inexcusable.length > 0) console.log(`${tool}: not made ready: ${namesOf(inexcusable)}`)
  if (excused.length > 0)
    console.log(
      `${tool}: excused, since they are only made ready beside cuBLASLt or cuDNN, whose writes it does not see, or copy unwritten parts of memory: ${namesOf(excused)}`,
    )
  if (ofLibraries > 0)
    console.log(`${tool}: ${ofLibraries} more reports are about the own kernels of CUDA's libraries`)
  return isClean
}

/** A mode for cases that match both. */
const restricted = (mode: Mode, only: string): Mode => ({
  ...mode,
  only: mode.only ? `(?=${mode.only})(?=.*(?:${only}))` : only,
})
