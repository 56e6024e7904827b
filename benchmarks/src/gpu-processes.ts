/**
 * The processes of `npm run test:gpu -- --sanitize`: a number of them share the work, each under a tool of the sanitizer or under none. All
 * that they tell is kept in a folder, so that a later run can go on where this one stopped.
 */
import { spawn } from "node:child_process"
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from "node:fs"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { FILES, type Job, type Ran } from "./gpu-work"

/** A job in a folder of its own, and the tool that watches its processes, if any. */
export interface Work {
  readonly name: string
  readonly job: Job
  readonly tool: string | null
  /** Processes that share it at most. */
  readonly processes: number
}

/** A report of the sanitizer, and the case that ran about then. */
interface Report {
  readonly text: string
  readonly near: string
}

export interface Outcome {
  readonly ran: readonly Ran[]
  readonly problems: readonly string[]
  /** Errors and hazards by the sanitizer's own count. */
  readonly errors: number
  readonly reports: readonly Report[]
  /** True where a process found nothing left to do, rather than that time was up. */
  readonly isComplete: boolean
}

/** A line of a folder's journal, or of what a process told; `whole` names the file of a process that ended well. */
type Line =
  | Ran
  | Report
  | { readonly problem: string; readonly case?: string }
  | { readonly errors: number }
  | { readonly whole: string }
  | { readonly isComplete: true }

export interface PoolOptions {
  /** The program that processes run, with its arguments. */
  readonly command: readonly string[]
  readonly sanitizer: string
  /** Processes at a time. */
  readonly jobs: number
  /** Seconds that each case may take. */
  readonly seconds: number
  /** Milliseconds, as of `performance.now`, at which no more cases are begun. */
  readonly end: number
  /** Ends it all earlier. */
  readonly signal?: AbortSignal
  /** The folder of everything. */
  readonly state: string
}

/** Processes of one piece of work that may end early. */
const MOST_LOST = 40
const MOST_UNBEGUN = 3
/** Seconds to end in once time is up. */
const GRACE = 15
const SUMMARY = /(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)/
/** Lines of the sanitizer that begin no report: its own name, its summaries, and lines of one. */
const NO_REPORT = /COMPUTE-SANITIZER|SUMMARY|^=========\s*$|^========= {4}|LEAK/
const JOURNAL = "journal.jsonl"

const folderOf = (state: string, { name }: Work): string => join(state, name.replaceAll(/\W+/g, "-"))

/** The lines of a file. One that a process did not finish writing is none. */
function linesOf<T>(path: string): T[] {
  if (!existsSync(path)) return []
  return readFileSync(path, "utf8")
    .split("\n")
    .flatMap((text) => {
      try {
        return [JSON.parse(text) as T]
      } catch {
        return []
      }
    })
}

/** All that is known of a piece of work. */
export function outcomeOf(state: string, work: Work): Outcome {
  const folder = folderOf(state, work)
  const journal = linesOf<Line>(join(folder, JOURNAL))
  const lines = journal.flatMap((line) =>
    "whole" in line ? [line, ...linesOf<Line>(join(folder, line.whole))] : [line],
  )
  return {
    ran: lines.filter((line) => "kernels" in line),
    problems: lines.flatMap((line) => ("problem" in line ? [line.problem] : [])),
    reports: lines.filter((line) => "text" in line),
    errors: lines.reduce((sum, line) => sum + ("errors" in line ? line.errors : 0), 0),
    isComplete: lines.some((line) => "isComplete" in line),
  }
}

/** Work under way. */
class Running {
  readonly folder: string
  isExhausted: boolean
  processes = 0
  lost = 0
  private isGivenUp = false
  private isStopped = false
  private started = 0

  constructor(
    readonly work: Work,
    private readonly options: PoolOptions,
  ) {
    this.folder = folderOf(options.state, work)
    mkdirSync(this.folder, { recursive: true })
    const path = join(this.folder, FILES.job)
    const text = JSON.stringify(work.job)
    if (existsSync(path) && readFileSync(path, "utf8") !== text)
      throw new Error(`${this.folder} is of another run: choose another folder, or remove it`)
    writeFileSync(path, text)
    this.isExhausted = outcomeOf(options.state, work).isComplete
    // A process that ended well may have told nothing.
    const whole = linesOf<Line>(join(this.folder, JOURNAL)).flatMap((line) =>
      "whole" in line ? [line.whole] : [],
    )
    const names = readdirSync(this.folder)
    for (const name of [...names, ...whole]) {
      const number = /^(\d+)\.jsonl$/.exec(name)
      if (number) this.started = Math.max(this.started, Number(number[1]))
    }
    for (const name of names)
      if (name.endsWith(".claim") || name === FILES.stop) unlinkSync(join(this.folder, name))
    this.skip()
  }

  private note(line: Line): void {
    appendFileSync(join(this.folder, JOURNAL), `${JSON.stringify(line)}\n`)
  }
  /** Leaves out the cases that ran, and those at which a process ended. */
  private skip(): void {
    const { ran } = outcomeOf(this.options.state, this.work)
    const ended = linesOf<Line>(join(this.folder, JOURNAL)).flatMap((line) =>
      "problem" in line && line.case ? [line.case] : [],
    )
    writeFileSync(
      join(this.folder, FILES.skipped),
      JSON.stringify([...ran.map(({ name }) => name), ...ended]),
    )
  }
  /** Lets others have the cases of a process whose results do not count. */
  private giveBack(owner: string): void {
    for (const name of readdirSync(this.folder).filter((each) => each.endsWith(".claim"))) {
      const path = join(this.folder, name)
      if (readFileSync(path, "utf8") === owner) unlinkSync(path)
    }
    this.skip()
    this.isExhausted = false
  }
  /** Lets processes end before their next case. */
  stop(): void {
    this.isStopped = true
    writeFileSync(join(this.folder, FILES.stop), "")
  }

  /** Runs one process to its end; `live` has a function that ends it. */
  async process(live: Set<() => void>): Promise<void> {
    const { command, sanitizer, seconds } = this.options
    const { tool, job } = this.work
    const own = `${++this.started}.jsonl`
    const owner = join(this.folder, own)
    const [program, ...args] = tool
      ? [sanitizer, "--tool", tool, "--print-limit", "1000", ...command]
      : command
    const child = spawn(program, args, {
      env: { ...process.env, LAZULI_GPU_CHECKS: owner, LAZULI_CUDA_WITHOUT: job.mode.without },
      stdio: ["ignore", "pipe", "pipe"],
      // The sanitizer has a process of its own.
      detached: true,
    })
    let ended = ""
    const kill = (why: string): void => {
      ended ||= why
      try {
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL")
      } catch {
        // It has ended already.
      }
    }
    const stop = (): void => kill("stopped")
    live.add(stop)
    let timer: NodeJS.Timeout | undefined
    const wait = (): void => {
      clearTimeout(timer)
      timer = setTimeout(() => kill(`took more than ${seconds} s`), seconds * 1000)
    }
    wait()
    let near = ""
    let words = ""
    let isSummed = false
    let last: Report | null = null
    const flush = (): void => {
      if (last) this.note(last)
      last = null
    }
    const read = (text: string): void => {
      const summary = SUMMARY.exec(text)
      if (summary) {
        this.note({ errors: Number(summary[1] ?? summary[2]) })
        isSummed = true
      } else if (text.startsWith("case ")) {
        near = text.slice(5)
        wait()
      } else if (!text.startsWith("=========")) words = `${words}\n${text}`.slice(-2000)
      else if (!NO_REPORT.test(text)) {
        flush()
        last = { text, near }
      } else if (last && /^========= {4,}(?:at|by|in) /.test(text) && last.text.length < 600)
        last = { ...last, text: `${last.text}\n${text}` }
    }
    createInterface({ input: child.stdout }).on("line", read)
    createInterface({ input: child.stderr }).on("line", read)
    const end = await new Promise<string | number | null>((done) => {
      child.on("error", (error) => done(error.message))
      child.on("close", (code, signal) => done(signal ?? code))
    })
    clearTimeout(timer)
    live.delete(stop)
    flush()
    if (end === 0 && (tool === null || isSummed)) {
      this.note({ whole: own })
      if (!this.isStopped) this.isExhausted = true
      return
    }
    if (ended !== "stopped") {
      const how = ended || `ended with ${end}`
      const problem = `${near || "a process"}: ${how}${isSummed || tool === null ? "" : `, without a summary of ${tool}`}: ${words}`
      this.note({ problem, ...(near && { case: near }) })
      this.lost++
    }
    this.giveBack(owner)
    // Where not even a first case was reached, none will be.
    if (this.lost > MOST_LOST || (!near && this.lost > MOST_UNBEGUN)) this.isExhausted = this.isGivenUp = true
  }
  /** Remembers that all of it is done. */
  complete(): void {
    if (!this.isStopped && !this.isGivenUp) this.note({ isComplete: true })
  }
}

/** Runs works, the first ones first; tells when one ends. Works that are complete already are not run again. */
export async function runAll(
  works: readonly Work[],
  options: PoolOptions,
  tell: (work: Work, outcome: Outcome) => void = () => {},
): Promise<Outcome[]> {
  const all = works.map((work) => new Running(work, options))
  const live = new Set<() => void>()
  let isStopped = false
  let last: NodeJS.Timeout | undefined
  const stop = (): void => {
    if (isStopped) return
    isStopped = true
    for (const each of all) each.stop()
    last = setTimeout(() => live.forEach((kill) => kill()), GRACE * 1000)
  }
  const timer = setTimeout(stop, Math.min(2 ** 31 - 1, Math.max(0, options.end - performance.now())))
  options.signal?.addEventListener("abort", stop)
  if (options.signal?.aborted) stop()
  const told = new Set(all.filter(({ isExhausted }) => isExhausted))
  const worker = async (): Promise<void> => {
    for (;;) {
      const free = all.find((each) => !each.isExhausted && each.processes < each.work.processes)
      if (isStopped || (!free && all.every((each) => each.isExhausted || each.processes === 0))) return
      if (!free) {
        // One that is under way may give cases back.
        await new Promise((done) => setTimeout(done, 20))
        continue
      }
      free.processes++
      await free.process(live)
      free.processes--
      if (free.isExhausted && free.processes === 0 && !told.has(free)) {
        told.add(free)
        free.complete()
        tell(free.work, outcomeOf(options.state, free.work))
      }
    }
  }
  await Promise.all(Array.from({ length: options.jobs }, worker))
  clearTimeout(timer)
  clearTimeout(last)
  options.signal?.removeEventListener("abort", stop)
  return works.map((work) => outcomeOf(options.state, work))
}

/** Removes the folder of everything. */
export const forget = (state: string): void => rmSync(state, { recursive: true, force: true })
