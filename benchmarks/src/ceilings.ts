/** What the machine can do, measured beside the contestants: the program in ceilings/, built where a compiler is there. */
import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Contestant } from "./contestant"
import type { Workload } from "./workloads"

/** A process that measures the machine's bandwidth and arithmetic when asked. */
export interface Ceilings {
  /** One process for a workload's floor; null where the workload has none. */
  start(workload: Workload): Contestant | null
  /** Bytes and floating-point operations a second, with one thread and with all. */
  readonly figures: Readonly<Record<"triad" | "triadAll" | "fma" | "fmaAll", number>>
  /** Removes the program. */
  end(): void
}

/** Builds the program from `source`; null where that does not work. */
export function buildCeilings(source: string): Ceilings | null {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-ceilings-"))
  const end = (): void => rmSync(folder, { recursive: true, force: true })
  const program = join(folder, "ceilings")
  const flags = ["-O3", "-march=native", "-pthread"]
  const built = spawnSync("g++", [...flags, source, "-o", program]).status === 0
  const { status, stdout } = built ? spawnSync(program, { encoding: "utf8" }) : { status: 1, stdout: "" }
  if (status !== 0) {
    end()
    return null
  }
  return {
    figures: JSON.parse(stdout),
    start: ({ unit, bytes = 0, flops = 0 }) =>
      unit === "ms" && bytes + flops > 0
        ? new Contestant("ceilings", [program, String(bytes), String(flops)])
        : null,
    end,
  }
}
