/**
 * One process of `npm run test:gpu -- --sanitize`: it runs what it can claim of the cases that several processes share, and tells which
 * kernels each made ready. gpu-sanitize.ts starts these processes.
 */
import { createHash } from "node:crypto"
import { appendFileSync, closeSync, openSync, readFileSync, writeSync } from "node:fs"
import { join } from "node:path"
import { cudaRuntime } from "@lazuli/backend-cuda"
import * as mx from "@lazuli/core"
import { runCases } from "./gpu-cases"

/** A choice of kernels. */
export interface Mode {
  readonly name: string
  /** Libraries that are hidden. */
  readonly without: string
  /** The generation as which the GPU chooses kernels, if not its own, for cases that this matches. */
  readonly major?: number
  readonly only?: string
}

/** The work of processes that share it. */
export interface Job {
  readonly mode: Mode
  readonly programs: number
  /** The names of the cases to run, all if not given. */
  readonly cases?: readonly string[]
  /** Cases in a row that one process takes. */
  readonly inRow: number
  /** True to fill memory with NaN. */
  readonly fills: boolean
}

/** One case that ran, and the kernels that its process made ready for it. */
export interface Ran {
  readonly name: string
  readonly kernels: readonly string[]
  readonly seconds: number
}

/** Claims what no other process has claimed: the file of that name is new. */
function isMine(folder: string, name: string): boolean {
  const hash = createHash("sha1").update(name).digest("hex")
  try {
    closeSync(openSync(join(folder, `${hash}.claim`), "wx"))
    return true
  } catch {
    return false
  }
}

/** Memory as the sanitizer sees most in it: of exact sizes, and new each time. */
function exposeMemory(fills: boolean): void {
  const { newBuffer } = cudaRuntime
  Object.assign(cudaRuntime, {
    exactBuffers: true,
    dividesBuffers: false,
    ...(fills && {
      newBuffer(this: typeof cudaRuntime, length: number) {
        const made = newBuffer.call(this, length)
        this.write(made, 0, new Uint8Array(length).fill(0xff))
        return made
      },
    }),
  })
  mx.stream(mx.gpu, () => mx.setCacheLimit(0))
}

/** In a process of its own: runs what it can claim of the job in a folder, and writes what became of it there. */
export function runJob(folder: string): void {
  const job = JSON.parse(readFileSync(join(folder, "job.json"), "utf8")) as Job
  const { mode, fills, inRow } = job
  const wanted = mode.only === undefined ? null : new RegExp(mode.only)
  exposeMemory(fills)
  if (mode.major !== undefined) {
    const facts = { ...cudaRuntime.facts, major: mode.major }
    Object.defineProperty(cudaRuntime, "facts", { value: facts })
  }
  const places = job.cases && new Map(job.cases.map((name, i) => [name, Math.floor(i / inRow)]))
  const mine = new Map<string, boolean>()
  const isTaken = (name: string): boolean => {
    if (wanted?.test(name) === false) return false
    const place = places ? places.get(name) : name
    if (place === undefined) return false
    const claim = String(place)
    const known = mine.get(claim) ?? isMine(folder, claim)
    mine.set(claim, known)
    return known
  }
  const tell = (line: Ran | { problem: string }): void =>
    appendFileSync(join(folder, `${process.pid}.jsonl`), `${JSON.stringify(line)}\n`)
  let running: { name: string; begin: number } | null = null
  let ready = cudaRuntime.kernels.size
  const end = (): void => {
    if (running === null) return
    const { name, begin } = running
    const kernels = [...cudaRuntime.kernels].slice(ready)
    ready = cudaRuntime.kernels.size
    running = null
    tell({ name, kernels, seconds: (performance.now() - begin) / 1000 })
  }
  const only = (name: string): boolean => {
    end()
    if (!isTaken(name)) return false
    // For reports, and in case the process ends.
    writeSync(1, `case ${name}\n`)
    running = { name, begin: performance.now() }
    return true
  }
  runCases(only, job.programs, (problem) => tell({ problem }))
  end()
}
