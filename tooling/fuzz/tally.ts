/**
 * Runs attempts in a process of their own and counts what they came to. A process that dies or does not answer is a finding too; the
 * attempts go on behind it in another one.
 */
import { spawn, spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { createInterface } from "node:readline"
import type { Readable } from "node:stream"
import { fileURLToPath } from "node:url"
import { bundle } from "../source-bundle.mjs"

export interface Tally {
  /** The number of times of each outcome. */
  readonly outcomes: Record<string, number>
  /** The number of times of each kind of finding. */
  readonly kinds: Record<string, number>
  /** Findings made small, a few of each kind. */
  readonly shown: { readonly attempt: number; readonly kind: string; readonly text: string }[]
}

/**
 * The seconds for which a process may say nothing: of its processor time, which is more than an attempt of any part may take, and in all,
 * because a busy machine is no finding.
 */
const MOST_WORK = 65
const MOST_SILENCE = 900
/** The kernel's clock, in ticks a second. */
const TICKS = 100
/** The number of characters shown of a dead process's last words. */
const LAST_WORDS = 4000

interface Line {
  readonly begins?: number
  readonly ends?: true
  readonly outcome?: string
  readonly kind?: string
  readonly text?: string | null
}

/** The program that the processes run. */
let program: string | null = null
let stopped = false
let working: ReturnType<typeof spawn> | null = null
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.once(signal, () => {
    stopped = true
    working?.kill("SIGKILL")
  })

/** The attempts `from` to `to` of a part, or as many as there are before a signal ends it. */
export async function tally(part: string, seed: number, from: number, to: number): Promise<Tally> {
  const found: Tally = { outcomes: {}, kinds: {}, shown: [] }
  program ??= await bundle(fileURLToPath(new URL("attempts.ts", import.meta.url)))
  for (let next = from; next < to && !stopped; ) next = (await attempts(part, seed, next, to, found)) + 1
  return found
}

/** Lets one process work; gives the last attempt that it began. */
function attempts(part: string, seed: number, from: number, to: number, found: Tally): Promise<number> {
  const args = [program as string, part, String(seed), String(from), String(to)]
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe", "pipe"] })
  working = child
  let attempt = from
  let begun = false
  let ended = false
  let words = ""
  let hung = false
  let heard = performance.now()
  let worked = 0
  const timer = setInterval(() => {
    const silence = (performance.now() - heard) / 1000
    hung = silence > MOST_SILENCE || (silence > MOST_WORK && workOf(child.pid) - worked > MOST_WORK)
    if (hung) child.kill("SIGKILL")
  }, 500)
  const count = (counts: Record<string, number>, name: string): void => {
    counts[name] = (counts[name] ?? 0) + 1
  }
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding("utf8").on("data", (text: string) => {
      words = (words + text).slice(-LAST_WORDS)
    })
  createInterface({ input: child.stdio[3] as Readable }).on("line", (text) => {
    const line = JSON.parse(text) as Line
    if (line.begins !== undefined) {
      attempt = line.begins
      begun = true
    }
    // Reading the clock of each attempt would cost more than most attempts.
    if (performance.now() - heard > 1000) worked = workOf(child.pid)
    heard = performance.now()
    if (line.ends) ended = true
    if (line.outcome !== undefined) count(found.outcomes, line.outcome)
    if (line.kind === undefined) return
    count(found.kinds, line.kind)
    if (line.text) found.shown.push({ attempt, kind: line.kind, text: line.text })
  })
  return new Promise((done, fail) =>
    child.on("close", (status, signal) => {
      clearInterval(timer)
      if (stopped) return done(attempt)
      if (!begun) return fail(new Error(`${part} did not begin: exit ${status ?? signal}\n${words}`))
      if (ended) return done(to)
      const kind = hung ? "hang" : "crash"
      count(found.kinds, kind)
      const what = caseOf(part, seed, attempt)
      found.shown.push({ attempt, kind, text: `${what}\nexit ${status ?? signal}\n${words}` })
      done(attempt)
    }),
  )
}

/** Names the case of an attempt whose process has died. */
function caseOf(part: string, seed: number, attempt: number): string {
  const args = [program as string, part, String(seed), String(attempt)]
  const { output } = spawnSync(process.execPath, args, { stdio: ["ignore", "ignore", "ignore", "pipe"] })
  return (JSON.parse(output[3]?.toString() || "{}") as Line).text ?? "(unknown)"
}

/** Seconds of processor time that a process has used; 0 where the system does not tell. */
function workOf(pid: number | undefined): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ")
    return (Number(fields[11]) + Number(fields[12])) / TICKS
  } catch {
    return 0
  }
}
