/**
 * `opCheck`: everything that a primitive's definition promises, checked on samples, as data and as a table.
 */
import type * as mx from "@lazuli/core"
import { type AnyParams, listBackends, Primitive, primitiveByName } from "@lazuli/core/engine"
import type { Sample } from "../samples"
import { type Application, applicationsOf } from "./applications"
import { vmapColumn } from "./batches"
import type { Column } from "./column"
import { jvpColumn, secondOrderColumn, vjpColumn } from "./derivatives"
import { dtypesColumn } from "./dtypes"
import { compiledColumn, memoryColumn } from "./engines"
import { inferColumn } from "./inference"
import { type KernelOptions, kernelColumn } from "./kernels"
import { exportColumn, shapelessColumn } from "./programs"

/** The subject of a check: a primitive, what `definePrimitive` gave for it, or its name. */
export type Subject = string | Primitive | { readonly primitive: Primitive }

/** Inputs and parameters to apply the primitive to. Inputs in float64 let derivatives be compared to many digits. */
export interface DirectSample {
  readonly name?: string
  readonly inputs: readonly mx.Array[]
  readonly params?: AnyParams
}
/** A function that uses the primitive, with inputs; see {@link Sample}. */
export type OpSample = DirectSample | (Omit<Sample, "name"> & { readonly name?: string })

/** Options of {@link opCheck}. */
export interface OpCheckOptions extends KernelOptions {
  /** The columns to check; {@link standardColumns} by default. */
  readonly columns?: readonly Column[]
  /** Names of registered backends to compare with the reference; all but the reference by default. */
  readonly backends?: readonly string[]
}

/** One cell of the table. */
export interface CheckResult {
  readonly column: string
  readonly status: "ok" | "failed" | "not applicable"
  /** The failure, with the sample that shows it, or why nothing can be said. */
  readonly reason: string | null
}

/** A primitive's row. */
export interface OpReport {
  readonly primitive: string
  readonly ok: boolean
  readonly results: readonly CheckResult[]
}

/** The columns that every primitive must pass. */
export function standardColumns(options: OpCheckOptions = {}): Column[] {
  const backends =
    options.backends ??
    listBackends()
      .map((b) => b.name)
      .filter((name) => name !== "reference")
  return [
    inferColumn,
    ...backends.map((name) => kernelColumn(name, options)),
    jvpColumn,
    vjpColumn,
    secondOrderColumn,
    dtypesColumn,
    vmapColumn,
    compiledColumn,
    shapelessColumn,
    exportColumn,
    memoryColumn,
  ]
}

function primitiveOf(subject: Subject): Primitive {
  if (typeof subject === "string") return primitiveByName(subject)
  return subject instanceof Primitive ? subject : subject.primitive
}

function applicationsIn(primitive: Primitive, samples: readonly OpSample[]): Application[] {
  return samples.flatMap((sample, i) => {
    const name = sample.name ?? `sample ${i}`
    if (!("f" in sample))
      return [{ primitive, params: sample.params ?? {}, inputs: sample.inputs, sample: name }]
    return applicationsOf([{ ...sample, name }]).filter((a) => a.primitive === primitive)
  })
}

/**
 * Checks a primitive on samples, column by column: what `infer` promises, every backend's kernel against the reference over dtypes and
 * layouts, derivatives against finite differences and against each other by every subset of the inputs, second derivatives, derivatives in
 * other dtypes, batches against loops, compiled calls and derivatives, those for other sizes and from files, and memory given back.
 *
 * @example
 * const { ok } = opCheck('tanh', [{ inputs: [mx.array(Float64Array.of(-1, 0.5))] }])
 * ok // => true
 */
export function opCheck(
  subject: Subject,
  samples: readonly OpSample[],
  options: OpCheckOptions = {},
): OpReport {
  const primitive = primitiveOf(subject)
  return checkApplications(
    primitive,
    applicationsIn(primitive, samples),
    options.columns ?? standardColumns(options),
  )
}

const UNUSED = "no sample uses the primitive"

/** {@link opCheck} on applications that are at hand already. Without any, nothing was checked, and every column fails. */
export function checkApplications(
  primitive: Primitive,
  applications: readonly Application[],
  columns: readonly Column[],
): OpReport {
  const results = columns.map((column) => checkColumn(column, applications))
  const ok = applications.length > 0 && results.every(({ status }) => status !== "failed")
  return { primitive: primitive.name, ok, results }
}

function checkColumn(column: Column, applications: readonly Application[]): CheckResult {
  if (applications.length === 0) return { column: column.name, status: "failed", reason: UNUSED }
  let passed = false
  let reason: string | null = null
  for (const application of applications) {
    try {
      const said = column.check(application)
      if (said === null) passed = true
      else reason = said
    } catch (error) {
      const { inputs, params, sample } = application
      const kinds = inputs.map((x) => `${x.dtype.name}[${x.shape}]`).join(", ")
      const given = Object.keys(params).length > 0 ? ` with ${describe(params)}` : ""
      const what = error instanceof Error ? error.message : String(error)
      return { column: column.name, status: "failed", reason: `${what} (${sample}: ${kinds}${given})` }
    }
  }
  return { column: column.name, status: passed ? "ok" : "not applicable", reason: passed ? null : reason }
}

function describe(params: AnyParams): string {
  // Programs and functions are long, or no data at all: then the names must do.
  try {
    const text = JSON.stringify(params)
    if (text.length <= LONGEST_PARAMS) return text
  } catch {}
  return Object.keys(params).join(", ")
}
const LONGEST_PARAMS = 200

const MARKS = { ok: "ok", failed: "FAILED", "not applicable": "–" } as const

/** A table of reports, with the reasons of failures below it. */
export function formatChecks(reports: readonly OpReport[]): string {
  const columns = [...new Set(reports.flatMap(({ results }) => results.map(({ column }) => column)))]
  const rows = [
    ["primitive", ...columns],
    ...reports.map(({ primitive, results }) => [
      primitive,
      ...columns.map(
        (name) => MARKS[results.find(({ column }) => column === name)?.status ?? "not applicable"],
      ),
    ]),
  ]
  const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => row[i].length)))
  const table = rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]))
      .join("  ")
      .trimEnd(),
  )
  const failures = reports.flatMap(({ primitive, results }) =>
    results
      .filter(({ status }) => status === "failed")
      .map(({ column, reason }) => `${primitive}, ${column}: ${reason}`),
  )
  return [...table, ...(failures.length > 0 ? ["", ...failures] : [])].join("\n")
}
