/**
 * `npm run test:gpu`: the conformance suite and MLX's golden vectors on an NVIDIA GPU, from what `npm run build` left. Processes share the
 * work, so that kernels are compiled side by side; one whose context is lost ends, and another one goes on.
 *
 * Random programs follow, each step against the CPU, and one in twenty compiled, and language models against themselves.
 *
 *   npm run test:gpu -- [--only REGEX] [--quick | --small] [--programs N] [--seed N] [--jobs N] [--seconds N] [--total N]
 *     [--json FILE]
 *   npm run test:gpu -- --sanitize memcheck,racecheck,initcheck [--sanitizer PATH] [--only REGEX] [--programs N] [--jobs N]
 *     [--seconds N] [--total N] [--state FOLDER]
 *
 * `--small` is one size. `--seconds` bounds each item, `--total` the whole: what is not begun by then is not run, and said.
 * `--sanitize` runs every kernel under the named tools of NVIDIA's compute-sanitizer; see gpu-sanitize.ts. There an item is a case.
 * `--sanitize survey` only looks for kernels, without the sanitizer, with memory full of NaN. What `--state` keeps is not run again by
 * the same command, so that two commands can share the work; SIGTERM ends one as `--total` does.
 */
import { fork } from "node:child_process"
import { writeFileSync } from "node:fs"
import { availableParallelism } from "node:os"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { backendSuite, formatChecks, goldenFamilies, replayGolden } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { goldenSpaces } from "../../tooling/golden-spaces"
import { nnSamples } from "../../tooling/nn-samples"
import { SMALL, suitePrimitives } from "./gpu-cases"
import { runJob } from "./gpu-job"
import { modelChecks } from "./gpu-models"
import { checkPrograms } from "./gpu-programs"
import { sanitize } from "./gpu-sanitize"
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"

/** The outcome of one item. */
interface Outcome {
  readonly item: string
  readonly passed: number
  readonly problems: readonly string[]
  /** Primitives that ran without a kernel. */
  readonly fallbacks: readonly string[]
  readonly seconds: number
}

const { values } = parseArgs({
  options: {
    only: { type: "string", default: "" },
    quick: { type: "boolean", default: false },
    small: { type: "boolean", default: false },
    sanitize: { type: "string" },
    sanitizer: { type: "string", default: "compute-sanitizer" },
    programs: { type: "string" },
    seed: { type: "string", default: "0" },
    jobs: { type: "string", default: String(Math.min(16, availableParallelism())) },
    seconds: { type: "string" },
    total: { type: "string", default: "Infinity" },
    json: { type: "string" },
    state: { type: "string" },
  },
})

const QUICK = {
  sizes: [7, 33],
  dtypes: [mx.float32, mx.bfloat16, mx.int32],
  fillings: ["as given", "special"],
  layouts: ["row-major", "transposed"],
} as const

/** Random programs of one item. */
const PROGRAMS = 100

async function check(item: string): Promise<Outcome> {
  const [kind, name] = item.split(" ")
  const begin = Date.now()
  mx.resetBackendStats()
  let passed = 0
  let problems: string[] = []
  try {
    if (kind === "suite") {
      const reports = backendSuite("cuda", {
        ...(values.small ? SMALL : values.quick ? QUICK : {}),
        primitives: [name],
        samples: nnSamples,
      })
      passed = reports.flatMap(({ results }) => results).filter(({ status }) => status === "ok").length
      const bad = reports.filter(({ ok }) => !ok)
      if (bad.length > 0) problems = [formatChecks(bad)]
    } else if (kind === "programs") {
      const checked = checkPrograms(Number(name), PROGRAMS)
      passed = checked.passed
      problems = checked.problems
    } else if (kind === "models") {
      mx.setDefaultDevice(mx.gpu)
      const problem = await modelChecks[name]()
      passed = problem === null ? 1 : 0
      problems = problem === null ? [] : [problem]
    } else
      for (const result of replayGolden({ spaces: goldenSpaces, backend: "cuda", families: [name] })) {
        passed += result.passed
        problems.push(...result.failed.map(({ id, fn, problem }) => `${id} ${fn}: ${problem}`))
      }
  } catch (error) {
    problems.push((error as Error).stack ?? String(error))
  }
  const fallbacks = Object.keys(mx.backendStats().cuda ?? {})
  return { item, passed, problems, fallbacks, seconds: (Date.now() - begin) / 1000 }
}

/** In a process that was started for it: items as they come. */
function work(): void {
  process.on("message", async (item: string) => {
    const outcome = await check(item)
    process.send?.(outcome, () => {
      // Nothing works any more once a context is lost.
      if (outcome.problems.some((problem) => problem.includes("context was lost"))) process.exit(1)
    })
  })
  process.on("disconnect", () => process.exit(0))
}

async function main(): Promise<void> {
  const wanted = new RegExp(values.only)
  const items = [
    ...goldenFamilies().map((family) => `golden ${family}`),
    ...suitePrimitives().map((name) => `suite ${name}`),
    ...Object.keys(modelChecks).map((name) => `models ${name}`),
    ...Array.from(
      { length: Math.ceil(Number(values.programs ?? 2000) / PROGRAMS) },
      (_, i) => `programs ${Number(values.seed) + i * PROGRAMS}`,
    ),
  ].filter((item) => wanted.test(item))
  const outcomes: Outcome[] = []
  const limit = Number(values.seconds ?? 120) * 1000
  const begin = Date.now()
  const end = begin + Number(values.total) * 1000
  const worker = async (): Promise<void> => {
    while (items.length > 0 && Date.now() < end) {
      const child = fork(self, process.argv.slice(2), {
        env: { ...process.env, LAZULI_GPU_CHECKS: "worker" },
      })
      let item = ""
      let timer: NodeJS.Timeout | undefined
      let ended = ""
      const next = (): void => {
        clearTimeout(timer)
        item = Date.now() < end ? (items.shift() ?? "") : ""
        if (item === "") {
          child.disconnect()
          return
        }
        timer = setTimeout(
          () => {
            ended = "took too long"
            child.kill("SIGKILL")
          },
          Math.min(limit, end - Date.now()),
        )
        child.send(item)
      }
      child.on("message", (outcome: Outcome) => {
        outcomes.push(outcome)
        item = ""
        if (child.connected && !outcome.problems.some((problem) => problem.includes("context was lost")))
          next()
      })
      next()
      const [code, signal] = await new Promise<[number | null, string | null]>((done) =>
        child.on("exit", (...how) => done(how)),
      )
      clearTimeout(timer)
      if (item !== "")
        outcomes.push({
          item,
          passed: 0,
          problems: [ended || `the process ended with ${signal ?? code}`],
          fallbacks: [],
          seconds: 0,
        })
    }
  }
  await Promise.all(Array.from({ length: Number(values.jobs) }, worker))
  outcomes.sort((a, b) => (a.item < b.item ? -1 : 1))
  for (const { item, problems } of outcomes)
    for (const problem of problems) console.log(`FAIL ${item}: ${problem.slice(0, 1500)}`)
  if (values.json) writeFileSync(values.json, JSON.stringify(outcomes, null, 1))
  if (items.length > 0) console.log(`not run for want of time: ${items.join(", ")}`)
  const failed = outcomes.filter(({ problems }) => problems.length > 0)
  const passed = outcomes.reduce((sum, outcome) => sum + outcome.passed, 0)
  const fallbacks = [...new Set(outcomes.flatMap((outcome) => outcome.fallbacks))].sort()
  console.log(`without a kernel: ${fallbacks.join(" ")}`)
  console.log(
    `${outcomes.length} items in ${((Date.now() - begin) / 1000).toFixed(0)} s: ${outcomes.length - failed.length} passed, ${failed.length} failed; ${passed} cases and columns agree`,
  )
  console.log(`failed: ${failed.map(({ item }) => item).join(", ")}`)
  process.exitCode = failed.length > 0 || items.length > 0 ? 1 : 0
}

/** Said by the process that started this one: that it is a worker, or where to tell of a job. */
const started = process.env.LAZULI_GPU_CHECKS
const self = fileURLToPath(import.meta.url)
if (started === "worker") work()
else if (started) runJob(started)
else if (values.sanitize) {
  const ended = new AbortController()
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => ended.abort())
  const isClean = await sanitize({
    command: [process.execPath, self],
    tools: values.sanitize.split(",").filter((tool) => tool !== "survey"),
    sanitizer: values.sanitizer,
    programs: Number(values.programs ?? 200),
    jobs: Number(values.jobs),
    only: values.only,
    seconds: Number(values.seconds ?? 120),
    total: Number(values.total),
    state: values.state,
    signal: ended.signal,
  }).catch((error: Error) => console.error(error.message))
  process.exitCode = isClean ? 0 : 1
} else await main()
