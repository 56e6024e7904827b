// Makes attempts in a process that may be lost: `node tooling/run-source.mjs tooling/fuzz/attempts.ts PART SEED FROM [TO] 3>&1`.
// Says on file descriptor 3, a line each, which attempt begins, and what it came to; without TO only what the attempt is.

import { writeSync } from "node:fs"
import fc from "fast-check"
import { Finding } from "./fuzzer"
import { parts } from "./parts"

/** The number of findings of a kind that are made small and shown. */
const SHOWN = 3
/** The time for making one finding smaller, in milliseconds. */
const PATIENCE = 20_000

// Most errors are refusals, and nobody looks where they come from until one is a finding.
const { stackTraceLimit } = Error
const [part, seed, from, to] = process.argv.slice(2)
const fuzzer = await parts[part]()
const seen = new Map<string, number>()
/** The process's usage when the attempt before ended. */
let used = process.resourceUsage()
if (to === undefined) {
  say({ text: shownOf(Number(from)) })
  process.exit()
}
for (let i = Number(from); i < Number(to); i++) {
  say({ begins: i })
  await attempt(i)
}
say({ ends: true })
// Threads and timers of the library must not keep a process that is done.
process.exit()

function say(line: object): void {
  writeSync(3, `${JSON.stringify(line)}\n`)
}

async function attempt(i: number): Promise<void> {
  let outcome = ""
  let kind: string | undefined
  Error.stackTraceLimit = 0
  const started = performance.now()
  const property = fc.asyncProperty(fuzzer.cases, async (drawn) => {
    const shown = kind === undefined ? 0 : (seen.get(kind) ?? 0)
    // Shrinking goes on only for what is shown, for a while, and keeps to one kind.
    if (kind !== undefined && (shown > SHOWN || performance.now() - started > PATIENCE)) return
    // Making it small takes many attempts, of which none hangs.
    if (kind !== undefined) say({ begins: i })
    try {
      outcome = await within(drawn)
    } catch (error) {
      const found = error instanceof Finding ? error : new Finding("unexpected error", String(error), error)
      if (kind !== undefined && found.kind !== kind) return
      if (kind === undefined) seen.set(found.kind, (seen.get(found.kind) ?? 0) + 1)
      kind = found.kind
      Error.stackTraceLimit = stackTraceLimit
      throw found
    }
  })
  const { failed, counterexample, errorInstance } = await fc.check(property, {
    seed: seedOf(i),
    numRuns: 1,
  })
  if (!failed) return say({ outcome })
  const shown = (seen.get(kind as string) ?? 0) <= SHOWN
  const text = shown ? `${fc.stringify(counterexample?.[0])}\n${traceOf(errorInstance)}` : null
  say({ kind, text })
}

/** The case of an attempt that nobody makes. */
function shownOf(i: number): string {
  let text = ""
  const property = fc.property(fuzzer.cases, (drawn) => {
    text = fc.stringify(drawn)
  })
  fc.assert(property, { seed: seedOf(i), numRuns: 1 })
  return text
}

/** One attempt within its bounds of time and memory. */
async function within(drawn: unknown): Promise<string> {
  const before = used
  const outcome = await fuzzer.attempt(drawn)
  used = process.resourceUsage()
  const seconds = (used.userCPUTime + used.systemCPUTime - before.userCPUTime - before.systemCPUTime) / 1e6
  const bytes = (used.maxRSS - before.maxRSS) * 1024
  if (seconds > (fuzzer.seconds ?? 1)) throw new Finding("slow", `took ${seconds.toFixed(1)} s`)
  if (bytes > (fuzzer.bytes ?? 1e9)) throw new Finding("memory", `the process grew by ${bytes / 1e6} MB`)
  return outcome
}

function traceOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { cause } = error
  return `${error.message}${cause instanceof Error ? `\n${cause.stack ?? cause.message}` : ""}`
}

/** A seed for each attempt, so that each can be repeated alone. */
function seedOf(i: number): number {
  return (Math.imul(Number(seed) + 1, 0x9e3779b1) ^ Math.imul(i + 1, 0x85ebca6b)) | 0
}
