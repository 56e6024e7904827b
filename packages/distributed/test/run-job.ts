/** Runs programs of this folder as jobs. */
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { createInterface } from "node:readline"
import { bundle } from "../../../tooling/source-bundle.mjs"
import { type LaunchOptions, launch } from "../src/launch"

/** Makes a program of this folder one file, which can be started many times. */
export const programOf = (name: string): Promise<string> =>
  bundle(new URL(`./${name}.ts`, import.meta.url).pathname)

/** Starts a job, and gives its exit code and what each rank printed. */
export async function runJob(
  command: readonly string[],
  ranks: number,
  options: Partial<LaunchOptions> = {},
): Promise<{ code: number; out: string[][]; errors: string[][] }> {
  const out: string[][] = Array.from({ length: ranks }, () => [])
  const errors: string[][] = Array.from({ length: ranks }, () => [])
  const code = await launch({
    command,
    ranks,
    print: (line, rank, error) => (error ? errors : out)[rank].push(line),
    ...options,
    env: { LAZULI_QUIET: "1", LAZULI_NUM_THREADS: "1", ...options.env },
  })
  return { code, out, errors }
}

const MPIRUN = "/usr/bin/mpirun"
/** True where there is Open MPI's launcher. */
export const hasMpirun = existsSync(MPIRUN)

/** Options of {@link runUnderMpi}. */
export interface MpiJobOptions {
  readonly env?: Readonly<Record<string, string>>
  /** A command that runs another. */
  readonly prefix?: readonly string[]
  /** Called with each line; every rank may be ended by what it gives. */
  readonly print?: (line: string, rank: number, end: () => void) => void
  readonly signal?: AbortSignal
}

/** The same by mpirun, which ends no other rank when one fails. */
export async function runUnderMpi(
  command: readonly string[],
  ranks: number,
  { env, prefix = [], print, signal }: MpiJobOptions = {},
): Promise<{ code: number | null; out: string[][]; errors: string }> {
  const out: string[][] = Array.from({ length: ranks }, () => [])
  const options = ["--allow-run-as-root", "--oversubscribe", "--enable-recovery", "--tag-output"]
  const idle = ["--mca", "mpi_yield_when_idle", "1", "-n", String(ranks)]
  const [first, ...rest] = [...prefix, MPIRUN, ...options, ...idle, process.execPath, ...command]
  const own = { LAZULI_BACKEND: "mpi", LAZULI_QUIET: "1", LAZULI_NUM_THREADS: "1", ...env }
  const child = spawn(first, rest, { env: { ...process.env, ...own }, stdio: ["ignore", "pipe", "pipe"] })
  const end = (): void => void child.kill("SIGTERM")
  signal?.addEventListener("abort", end, { once: true })
  let errors = ""
  child.stderr.on("data", (text) => {
    errors += String(text)
  })
  createInterface({ input: child.stdout }).on("line", (tagged) => {
    const [, rank, line] = /^\[\d+,(\d+)\]<stdout>:(.*)$/.exec(tagged) ?? []
    if (line === undefined) return
    out[Number(rank)].push(line)
    print?.(line, Number(rank), end)
  })
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve))
  return { code, out, errors }
}
