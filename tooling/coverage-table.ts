// The table that may only get better: which primitives have kernels, derivatives in every dtype, batching rules, compile, and serve other
// sizes and files; and how many golden cases each family passes. packages/conformance/coverage.json holds what was reached; `npm run
// coverage` writes it.

import "@lazuli/backend-cpu"
import {
  checkApplications,
  compiledColumn,
  dtypesColumn,
  exportColumn,
  inferColumn,
  jvpColumn,
  replayGolden,
  secondOrderColumn,
  shapelessColumn,
  vjpColumn,
  vmapColumn,
} from "@lazuli/conformance"
import { primitiveByName } from "@lazuli/core/engine"
import { goldenSpaces } from "./golden-spaces"
import { opFacts } from "./op-facts"

/** `ok`, `–` where there is nothing to have (a derivative of integers), `no` where something is missing. */
export type Cell = "ok" | "–" | "no"
/** A primitive's row. */
export type CoverageRow = Readonly<Record<string, string>>
/** The contents of packages/conformance/coverage.json. */
export interface Coverage {
  readonly primitives: Readonly<Record<string, CoverageRow>>
  /** Passed golden cases by family, on both the reference and the CPU backend. */
  readonly golden: Readonly<Record<string, number>>
}

const CELLS = { ok: "ok", failed: "no", "not applicable": "–" } as const

/** The rows as they are now, with the reasons of holes. */
export function coverageRows(root: string): { rows: Record<string, CoverageRow>; holes: string[] } {
  const rows: Record<string, CoverageRow> = {}
  const holes: string[] = []
  for (const { name, semantics, cpu, metal, applications } of opFacts(root)) {
    const { results } = checkApplications(primitiveByName(name), applications, [
      inferColumn,
      vjpColumn,
      jvpColumn,
      secondOrderColumn,
      dtypesColumn,
      vmapColumn,
      compiledColumn,
      shapelessColumn,
      exportColumn,
    ])
    const cells = Object.fromEntries(results.map(({ column, status }) => [column, CELLS[status]]))
    rows[name] = { semantics, ...cells, cpu: cpu ? "ok" : "–", metal: metal ? "ok" : "–" }
    for (const { column, status, reason } of results)
      if (status === "failed") holes.push(`${name}, ${column}: ${reason}`)
    if (applications.length === 0)
      holes.push(`${name} has no sample: add a line to packages/conformance/src/samples.ts`)
  }
  return { rows, holes }
}

/** The number of cases that each family passes on the backend where fewer pass. */
export function goldenCounts(): Record<string, number> {
  const [reference, cpu] = ["reference", "cpu"].map((backend) =>
    replayGolden({ spaces: goldenSpaces, backend }),
  )
  return Object.fromEntries(
    reference.map(({ family, passed }, i) => [family, Math.min(passed, cpu[i].passed)]),
  )
}

/** The worth of a cell; what is no cell, such as the kind of semantics, is never better or worse. */
const WORTH: Readonly<Record<string, number>> = { no: 0, "–": 1, ok: 2 } satisfies Record<Cell, number>

/** Cells that were better before, and primitives that are gone. */
export function worse(before: Coverage["primitives"], now: Coverage["primitives"]): string[] {
  return Object.entries(before).flatMap(([name, row]) => {
    if (!now[name]) return [`${name} is gone`]
    return Object.entries(row)
      .filter(([column, cell]) => WORTH[cell] > (WORTH[now[name][column]] ?? -1))
      .map(([column, cell]) => `${name}, ${column}: was ${cell}, is ${now[name][column] ?? "gone"}`)
  })
}

/** Families that passed more cases before, and those that are gone. */
export function fewer(before: Coverage["golden"], now: Coverage["golden"]): string[] {
  return Object.entries(before)
    .filter(([family, count]) => !(now[family] >= count))
    .map(([family, count]) => `${family}: ${count} golden cases passed, now ${now[family] ?? "it is gone"}`)
}
