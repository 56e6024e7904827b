// `npm run self-test`: for the owner of a Mac. Runs the suite of primitives, MLX's recorded answers and a benchmark on the GPU, beside MLX
// itself where `python3` has it, and writes one file to send back. What is done is written after each part, so that a crash leaves the
// rest.
//
//   npm run self-test -- [--out FILE] [--scale N]    N divides the benchmark's sizes

import { execFileSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { cpus, release, totalmem } from "node:os"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { backendSuite, formatChecks, replayGolden, type Through } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { listBackends } from "@lazuli/core/engine"
import type { GpuBackend } from "@lazuli/gpu-kernels"
import { goldenSpaces } from "./golden-spaces"
import { benchmarkRows, type Row } from "./self-test-rows"

/** The file that is sent back. */
export interface SelfTest {
  readonly when: string
  readonly machine: Readonly<Record<string, string | number>>
  readonly device: Readonly<Record<string, string | number | undefined>>
  /** The part that runs, or ran when the process ended; "done" at the end. */
  part: string
  /** By primitive, those that disagree. */
  suite?: { readonly checked: number; readonly failed: readonly string[]; readonly text: string }
  /** By family and the way that functions ran. */
  golden?: {
    readonly through: Through
    readonly family: string
    readonly passed: number
    readonly failed: readonly string[]
  }[]
  /** Medians in milliseconds; MLX's are null where Python lacks it. */
  benchmark?: { readonly name: string; readonly ms: number; readonly mlx: number | null }[]
  mlx?: string
  /** Errors that ended a part. */
  problems: string[]
}

/** The parts that a test runs; a Mac runs everything. */
export interface SelfTestOptions {
  readonly backend?: string
  readonly out: string
  readonly scale?: number
  readonly primitives?: readonly string[]
  readonly families?: readonly string[]
  readonly python?: string
}

function said(command: string, args: readonly string[]): string {
  try {
    return execFileSync(command, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim()
  } catch {
    return ""
  }
}

/** Runs all parts. Gives the report, which is on disk too. */
export async function selfTest(options: SelfTestOptions): Promise<SelfTest> {
  const { backend = "metal", out, scale = 1, primitives, families, python = "python3" } = options
  const served = listBackends().find(({ name }) => name === backend) as GpuBackend
  mx.setBackend(backend, "gpu")
  const report: SelfTest = {
    when: new Date().toISOString(),
    machine: {
      platform: `${process.platform}-${process.arch}`,
      system: said("sw_vers", ["-productVersion"]) || release(),
      processor: cpus()[0]?.model ?? "",
      memory: totalmem(),
      node: process.version,
      commit: said("git", ["rev-parse", "HEAD"]),
    },
    device: { ...mx.deviceInfo(mx.gpu) },
    part: "",
    problems: [],
  }
  const part = async (name: string, body: () => void | Promise<void>): Promise<void> => {
    report.part = name
    writeFileSync(out, JSON.stringify(report, null, 2))
    console.log(`${name} …`)
    try {
      await body()
    } catch (error) {
      report.problems.push(`${name}: ${(error as Error).stack ?? error}`)
    }
  }

  await part("suite", async () => {
    const run = () =>
      backendSuite(backend, { sizes: [1, 7, 33, 1025], primitives: primitives && [...primitives] })
    if (served.emulated) await served.rehearse(run)
    const reports = run()
    const failed = reports.filter(({ ok }) => !ok)
    report.suite = {
      checked: reports.length,
      failed: failed.map(({ primitive }) => primitive),
      text: formatChecks(failed),
    }
  })
  report.golden = []
  for (const through of ["written", "compile"] as const)
    await part(`golden, ${through}`, async () => {
      const run = () =>
        replayGolden({ spaces: goldenSpaces, backend, through, families: families && [...families] })
      if (served.emulated) await served.rehearse(run)
      for (const { family, passed, failed } of run())
        report.golden?.push({
          through,
          family,
          passed,
          failed: failed.map(({ id, fn, problem }) => `${id} ${fn}: ${problem}`),
        })
    })
  await part("benchmark", () => {
    const rows = benchmarkRows(scale)
    const beside = mlxTimes(rows, python)
    report.mlx = beside.version
    report.benchmark = rows.map(({ name, run }) => ({
      name,
      ms: mx.stream(mx.gpu, () => median(run)),
      mlx: beside.ms[name] ?? null,
    }))
  })
  report.part = "done"
  writeFileSync(out, JSON.stringify(report, null, 2))
  return report
}

/** Milliseconds of a run, waited for: the median of eleven after two. */
function median(run: () => mx.Array): number {
  const times: number[] = []
  for (let i = 0; i < 13; i++) {
    const start = performance.now()
    mx.eval(run())
    mx.synchronize()
    times.push(performance.now() - start)
  }
  return times.slice(2).sort((a, b) => a - b)[5]
}

/** The same rows in MLX, by its own Python. */
function mlxTimes(
  rows: readonly Row[],
  python: string,
): { version: string; ms: Readonly<Record<string, number>> } {
  const program = `
import json, time
try:
    import mlx.core as mx
    import mlx.nn as nn
except ImportError:
    print(json.dumps({"version": "", "ms": {}}))
    raise SystemExit
ms = {}
for name, setup, body in json.loads(${JSON.stringify(JSON.stringify(rows.map(({ name, setup, body }) => [name, setup, body])))}):
    scope = {"mx": mx, "nn": nn}
    exec(setup, scope)
    run = eval("lambda: " + body, scope)
    times = []
    for i in range(13):
        start = time.perf_counter()
        mx.eval(run())
        mx.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    ms[name] = sorted(times[2:])[5]
print(json.dumps({"version": mx.__version__, "ms": ms}))
`
  const answer = said(python, ["-c", program])
  return answer ? JSON.parse(answer) : { version: "", ms: {} }
}

// Run by itself, not by a test.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: { out: { type: "string", default: "lazuli-self-test.json" }, scale: { type: "string" } },
  })
  await import("@lazuli/backend-cpu")
  const { hasMetalGpu } = await import("@lazuli/backend-metal")
  if (!hasMetalGpu()) {
    console.error(
      "there is no GPU of a Mac here: npm run self-test needs Apple silicon and macOS 14 or newer",
    )
    process.exit(1)
  }
  const { suite, golden, problems, benchmark } = await selfTest({
    out: values.out,
    scale: Number(values.scale ?? 1),
  })
  const wrong = (golden ?? []).reduce((sum, { failed }) => sum + failed.length, 0)
  console.log(
    `suite: ${suite?.checked ?? 0} primitives, ${suite?.failed.length ?? "?"} disagree\n` +
      `golden: ${(golden ?? []).reduce((sum, { passed }) => sum + passed, 0)} agree, ${wrong} disagree`,
  )
  for (const { name, ms, mlx } of benchmark ?? [])
    console.log(`${name}: ${ms.toFixed(3)} ms${mlx === null ? "" : `, MLX ${mlx.toFixed(3)}`}`)
  for (const problem of problems) console.log(problem)
  console.log(`\nPlease send ${values.out} back: docs/macs.md says where, and what to look at.`)
  process.exitCode = wrong > 0 || problems.length > 0 || (suite?.failed.length ?? 1) > 0 ? 1 : 0
}
