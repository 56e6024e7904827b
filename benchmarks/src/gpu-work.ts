/**
 * Work that several processes share in a folder: as gpu-processes.ts, which starts them, writes it, and as they, in gpu-job.ts, claim it
 * and tell of it.
 */
import { createHash } from "node:crypto"
import { writeFileSync } from "node:fs"
import { join } from "node:path"

/** A choice of kernels, and of memory. */
export interface Mode {
  readonly name: string
  /** Libraries that are hidden. */
  readonly without: string
  /** The generation as which the GPU chooses kernels, if not its own. */
  readonly major?: number
  /** A regular expression of the cases to run. */
  readonly only?: string
  /** True for small arrays that share memory, as users have them: only then loops run as graphs, which copy these. */
  readonly divides?: boolean
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

/** In the folder of a job: the job, the cases that are not to be run, and a file that is there once no more are to be. */
export const FILES = { job: "job.json", skipped: "skipped.json", stop: "stop" } as const

/** Claims what no other process has claimed: the file of that name is new. It names the process. */
export function isMine(folder: string, name: string, owner: string): boolean {
  const hash = createHash("sha1").update(name).digest("hex")
  try {
    writeFileSync(join(folder, `${hash}.claim`), owner, { flag: "wx" })
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false
    throw error
  }
}
