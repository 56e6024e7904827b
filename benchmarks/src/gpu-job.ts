/**
 * One process of `npm run test:gpu -- --sanitize`: it runs what it can claim of the cases that several processes share, and tells which
 * kernels each made ready. gpu-processes.ts starts these processes.
 */
import { appendFileSync, existsSync, readFileSync, writeSync } from "node:fs"
import { dirname, join } from "node:path"
import { cudaRuntime } from "@lazuli/backend-cuda"
import * as mx from "@lazuli/core"
import { runCases } from "./gpu-cases"
import { FILES, isMine, type Job, type Mode, type Ran } from "./gpu-work"

/** Memory as the sanitizer sees most in it: new each time, and of exact sizes unless the mode asks for parts. */
function exposeMemory({ divides = false }: Mode, fills: boolean): void {
  const { newBuffer } = cudaRuntime
  Object.assign(cudaRuntime, {
    exactBuffers: !divides,
    dividesBuffers: divides,
    ...(fills && {
      newBuffer(this: typeof cudaRuntime, length: number, part?: number) {
        const made = newBuffer.call(this, length, part)
        this.write(made, 0, new Uint8Array(length).fill(0xff))
        return made
      },
    }),
  })
  mx.stream(mx.gpu, () => mx.setCacheLimit(0))
}

/** The kernels that were made ready since the last call; of `stage`, which is so in advance, where it ran. */
function newKernels({ divides }: Mode): (name: string) => string[] {
  let ready = cudaRuntime.kernels.size
  let runs = 0
  return (name) => {
    const made = [...cudaRuntime.kernels]
      .slice(ready)
      .filter((each) => !each.startsWith("stage "))
      // Its file in any folder, for runs that go on elsewhere.
      .map((each) => each.replace(/ .*\//, " "))
    ready = cudaRuntime.kernels.size
    const hasStaged = cudaRuntime.stagedRuns > runs
    const isNews = divides === true || runs === 0
    runs = cudaRuntime.stagedRuns
    return hasStaged && isNews ? [...made, divides ? `stage of a ${name}` : "stage of plans"] : made
  }
}

/** In a process of its own: runs what it can claim of the job in the folder of this file, and writes there what became of it. */
export function runJob(file: string): void {
  const folder = dirname(file)
  const read = (name: string): unknown => JSON.parse(readFileSync(join(folder, name), "utf8"))
  const job = read(FILES.job) as Job
  const skipped = new Set(read(FILES.skipped) as string[])
  const { mode, fills, inRow } = job
  const wanted = mode.only === undefined ? null : new RegExp(mode.only)
  exposeMemory(mode, fills)
  if (mode.major !== undefined) {
    const facts = { ...cudaRuntime.facts, major: mode.major }
    Object.defineProperty(cudaRuntime, "facts", { value: facts })
  }
  const places = job.cases && new Map(job.cases.map((name, i) => [name, Math.floor(i / inRow)]))
  const mine = new Map<string, boolean>()
  const isTaken = (name: string): boolean => {
    if (wanted?.test(name) === false || skipped.has(name)) return false
    const place = places ? places.get(name) : name
    if (place === undefined) return false
    const claim = String(place)
    const known = mine.get(claim) ?? (!existsSync(join(folder, FILES.stop)) && isMine(folder, claim, file))
    mine.set(claim, known)
    return known
  }
  const tell = (line: Ran | { problem: string }): void => appendFileSync(file, `${JSON.stringify(line)}\n`)
  let running: { name: string; begin: number } | null = null
  const kernelsSince = newKernels(mode)
  const end = (): void => {
    if (running === null) return
    const { name, begin } = running
    running = null
    // Throws once the GPU's context is lost, so that the cases after this one are not blamed.
    cudaRuntime.releaseBuffer(cudaRuntime.newBuffer(4))
    const kernels = kernelsSince(name)
    if (mode.divides && name.startsWith("loop ") && kernels.at(-1)?.startsWith("stage ") !== true)
      tell({ problem: `${name}: it did not run as a graph` })
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
  runCases(only, job.programs, (problem) => {
    tell({ problem })
    if (!problem.includes("context was lost")) return
    // Nothing works any more; another process goes on.
    writeSync(2, `${problem}\n`)
    process.exit(1)
  })
  end()
}
