/**
 * For tests: the engine with this backend, bundled from the sources into one file, for processes and threads of their own.
 */
import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Worker, type WorkerOptions } from "node:worker_threads"
import { afterAll, beforeAll } from "vitest"
import { addon, buildEngine, engineUrl } from "./engine-build"

const env = { ...process.env, LAZULI_CPU_ADDON: addon }

/** The end of a process. */
export interface Ended {
  readonly status: number | null
  readonly signal: string | null
  readonly stdout: string
  readonly stderr: string
}

/** The bundle: made before the tests of the file that asks, and removed after them. */
export interface EngineBundle {
  /** Makes `mx` known to code of a module. */
  readonly preamble: string
  /** Runs code, in which `mx` is there, as a process of its own, to its end. */
  run(code: string, flags?: readonly string[]): Ended
  /** A thread that runs code, in which `mx`, `post` and `data` are there. */
  start(code: string, workerData?: unknown, options?: WorkerOptions): Worker
}

/** Bundles the engine for the tests of a file. */
export function bundleEngine(): EngineBundle {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-engine-"))
  const url = engineUrl(folder)
  const preamble = `const { mx } = await import(${JSON.stringify(url)});`
  beforeAll(() => buildEngine(folder))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  return {
    preamble,
    run(code, flags = []) {
      const args = [...flags, "--input-type=module", "--eval", `${preamble}\n${code}`]
      // A sanitizer makes it ten times as slow.
      return spawnSync(process.execPath, args, { env, encoding: "utf8", timeout: 250_000 })
    },
    start(code, workerData = null, options = {}) {
      const source = `(async () => {
        const { parentPort, workerData: data } = require('node:worker_threads')
        const post = (m) => parentPort.postMessage(m)
        ${preamble}
        ${code}
      })()`
      return new Worker(source, { eval: true, workerData, env, ...options })
    },
  }
}

/** The first message of a thread. */
export const answer = (worker: Worker): Promise<unknown> =>
  new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject))
