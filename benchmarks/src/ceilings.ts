/** The machine's ceilings, measured beside the contestants: the program in ceilings/, built where a compiler is there. */
import { spawnSync } from "node:child_process"
import { Contestant } from "./contestant"
import { buildProgram } from "./program"
import type { Workload } from "./workloads"

/** A process that measures the machine's bandwidth and arithmetic when asked. */
export interface Ceilings {
  /** One process for a workload's floor; null where the workload has none. */
  start(workload: Workload): Contestant | null
  /** Bytes and floating-point operations a second, with one thread and with all. */
  readonly figures: Readonly<
    Record<"triad" | "triadAll" | "readsAll" | "writesAll" | "fma" | "fmaAll", number>
  >
}

/** Builds the program from `source`; null where that does not work. */
export function buildCeilings(source: string): Ceilings | null {
  const program = buildProgram(source)
  if (program === null) return null
  const { status, stdout } = spawnSync(program, { encoding: "utf8" })
  if (status !== 0) return null
  return {
    figures: JSON.parse(stdout),
    start: ({ unit, bytes = 0, flops = 0, written }) =>
      unit === "ms" && bytes + flops > 0
        ? new Contestant("ceilings", [program, ...[bytes, flops, written ?? []].flat().map(String)])
        : null,
  }
}
