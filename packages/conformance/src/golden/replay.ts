/**
 * Replays golden vectors through the public functions on any backend, and tells what agrees, family by family.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as mx from "@lazuli/core"
import { onBackendNamed } from "../backend-choice"
import { invoke, namedValue, optionsOf, type AnyFunction, type Spaces } from "./calls"
import { compareValue } from "./compare"
import { type GoldenCase, Mismatch, Missing } from "./format"
import { runLayer, runOptimizer } from "./models"
import { runTransform } from "./transforms"
import { compareUnique } from "./unique"
import { runThrough, type Through } from "./through"
import { arrayOf, decode, leavesOf } from "./values"

/** The package's folder of vectors, beside `src` and beside `dist`. */
const FOLDER = ["../../golden", "../golden"]
  .map((path) => fileURLToPath(new URL(path, import.meta.url)))
  .find((path) => existsSync(`${path}/unary.json`)) as string

/** The names of the recorded families. */
export function goldenFamilies(folder: string = FOLDER): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .map((name) => name.slice(0, -".json".length))
    .sort()
}

/** The cases of a family. */
export function goldenCases(family: string, folder: string = FOLDER): GoldenCase[] {
  return (JSON.parse(readFileSync(`${folder}/${family}.json`, "utf8")) as { cases: GoldenCase[] }).cases
}

const listed = (v: unknown): unknown[] => (globalThis.Array.isArray(v) ? v : [v])

function outputsOf(c: GoldenCase, spaces: Spaces): unknown[] {
  if (c.transform) return runTransform(c, spaces)
  if (c.grads) return runOptimizer(c, spaces)
  if (c.fn.startsWith("nn.") && !c.fn.startsWith("nn.init.") && (c.call || c.parameters))
    return runLayer(c, spaces)
  const seeded = c.seed !== undefined || c.fn === "random.seed"
  const state = {
    trees: seeded ? [mx.random.state] : [],
    prepare: () => void (c.seed === undefined || mx.random.seed(c.seed)),
  }
  const called = (...xs: mx.Array[]): unknown[] => {
    let next = 0
    return resultsOf(c, spaces, () => xs[next++])
  }
  return runThrough(spaces.through, called, (c.args ?? []).flatMap(leavesOf).map(arrayOf), state)
}

/** The outputs of a call, or of the call of what it makes. */
function resultsOf(c: GoldenCase, spaces: Spaces, leaf: () => mx.Array): unknown[] {
  const result = invoke(c, spaces, leaf)
  if (c.then) return c.then.map((call) => invoke(call, spaces))
  if (c.call) {
    const how = { beside: "not an operand", named: namedValue(spaces) } as const
    const args = (c.call.args ?? []).map((v) => decode(v, how))
    return listed((result as AnyFunction)(...args, ...optionsOf(c.call.kwargs, how)))
  }
  if (c.calls)
    return c.calls.map(({ args = [] }) =>
      mx.array((result as AnyFunction)(...args.map((v) => decode(v, scalars))) as mx.Array).astype(mx.float32),
    )
  // A shape is one output.
  return c.fn === "core.broadcast_shapes" ? [result] : listed(result)
}
const scalars = {
  beside: "not an operand",
  named: (): never => {
    throw new Missing("a named value in a schedule")
  },
} as const

/**
 * Replays one case. Gives null where the answer agrees, or what differs.
 * @throws Missing where a function does not exist
 */
export function replayCase(c: GoldenCase, spaces: Spaces): string | null {
  try {
    const outputs = outputsOf(c, spaces)
    if (c.raises) {
      mx.eval(outputs)
      return `did not throw (${c.raises}: ${c.message ?? ""})`
    }
    const want = c.outputs ?? []
    if (outputs.length !== want.length) return `${outputs.length} outputs, expected ${want.length}`
    if (c.compare) compareUnique(outputs, c)
    else want.forEach((w, i) => compareValue(outputs[i], w, c, `output ${i}`))
    return null
  } catch (error) {
    if (error instanceof Missing) throw error
    if (error instanceof Mismatch) return error.message
    if (error instanceof mx.LazuliError) return c.raises ? null : `threw ${error.message}`
    return `threw ${(error as Error).stack}`
  }
}

/** Cases on which this library differs from MLX on purpose: a reason by id, for all backends or for those named. */
export type Deviations = Readonly<Record<string, string | { reason: string; backends: readonly string[] }>>

/** The outcome of a family's cases. */
export interface FamilyResult {
  readonly family: string
  readonly passed: number
  /** Cases that differ and have no reason to, and listed deviations that agree after all. */
  readonly failed: readonly { readonly id: string; readonly fn: string; readonly problem: string }[]
  /** The number of cases that wait for each function that does not exist. */
  readonly missing: Readonly<Record<string, number>>
  /** Cases that differ, with the reason. */
  readonly deviating: Readonly<Record<string, string>>
}

/** Options of the replay: which cases, and where. */
export interface ReplayOptions {
  /** Where names are looked up. `nn` and `optimizers` cases are missing without these. */
  readonly spaces: Spaces
  /** All by default. */
  readonly families?: readonly string[]
  /** The name of a registered backend; by default whatever serves the default device. */
  readonly backend?: string
  /** The way the functions of the cases are run; as they are written by default. */
  readonly through?: Through
  readonly deviations?: Deviations
  /** Where the vectors are, if not in this package. */
  readonly folder?: string
  /** Of the cases only those whose id this matches; asked of each before it runs. */
  readonly only?: Pick<RegExp, "test">
}

/** The deviations that this package knows of, with their reasons. */
export function knownDeviations(): Deviations {
  return JSON.parse(readFileSync(`${FOLDER}/../deviations.json`, "utf8")) as Deviations
}

/** Cases that a program cannot serve, by what their ids match: the error or difference that it gives instead, and the reason. */
interface Uncompiled {
  readonly cases: string
  readonly through: readonly Through[]
  readonly problem: string
  readonly reason: string
}
const uncompiled = JSON.parse(readFileSync(`${FOLDER}/../uncompiled.json`, "utf8")) as Uncompiled[]

/** The reason why a case differs when it is compiled, if it is one that must. */
function reasonCompiled(id: string, problem: string, through: Through): string | undefined {
  return uncompiled.find(
    (known) =>
      known.through.includes(through) && new RegExp(known.cases).test(id) && new RegExp(known.problem).test(problem),
  )?.reason
}

/** Replays families of golden vectors on a backend. */
export function replayGolden(options: ReplayOptions): FamilyResult[] {
  const { folder = FOLDER, families = goldenFamilies(folder) } = options
  const { backend, through } = options
  const spaces = { ...options.spaces, through }
  const run = (): FamilyResult[] => families.map((family) => replayFamily(family, folder, { ...options, spaces }))
  return backend === undefined ? run() : onBackendNamed(backend, run)
}

function replayFamily(family: string, folder: string, options: ReplayOptions): FamilyResult {
  const { spaces, deviations = knownDeviations(), backend = "", only, through = "written" } = options
  const failed: { id: string; fn: string; problem: string }[] = []
  const missing: Record<string, number> = {}
  const deviating: Record<string, string> = {}
  let passed = 0
  for (const c of goldenCases(family, folder)) {
    if (only && !only.test(c.id)) continue
    let problem: string | null
    try {
      problem = replayCase(c, spaces)
    } catch (error) {
      if (!(error instanceof Missing)) throw error
      missing[error.message] = (missing[error.message] ?? 0) + 1
      continue
    }
    const unserved = problem === null ? undefined : reasonCompiled(c.id, problem, through)
    if (unserved !== undefined) {
      deviating[c.id] = unserved
      continue
    }
    const listed = deviations[c.id]
    const known = listed !== undefined && (typeof listed === "string" || listed.backends.includes(backend))
    if (known && problem) deviating[c.id] = typeof listed === "string" ? listed : listed.reason
    else if (known) failed.push({ id: c.id, fn: c.fn, problem: "agrees, but is listed as a deviation" })
    else if (problem) failed.push({ id: c.id, fn: c.fn, problem })
    else passed++
  }
  return { family, passed, failed, missing, deviating }
}

/** A table of results: passed, failed, missing and deviating by family. */
export function formatReplay(results: readonly FamilyResult[]): string {
  const sum = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0)
  const rows = results.map(({ family, passed, failed, missing, deviating }) => [
    family,
    ...[passed, failed.length, sum(missing), Object.keys(deviating).length],
  ])
  const total = [1, 2, 3, 4].map((k) => rows.reduce((a, row) => a + (row[k] as number), 0))
  const all = [["family", "passed", "failed", "missing", "deviate"], ...rows, ["total", ...total]]
  return all
    .map((row) => row.map((cell, i) => (i === 0 ? String(cell).padEnd(14) : String(cell).padStart(9))).join(""))
    .join("\n")
}
