// `npm run conformance`: replays MLX's recorded answers through the public functions and prints what agrees, by family.
//
//   npm run conformance -- [--backend cpu,reference,metal,apple] [--through written,compile,shapeless] [--families unary,linalg]
//                          [--only REGEX] [--verbose]

import { parseArgs } from "node:util"
import {
  type FamilyResult,
  formatReplay,
  goldenFamilies,
  replayGolden,
  type Through,
} from "@lazuli/conformance"
import { listBackends } from "@lazuli/core/engine"
import { goldenSpaces } from "./golden-spaces"
import "@lazuli/backend-cpu"

const { values } = parseArgs({
  options: {
    backend: { type: "string", default: "reference,cpu" },
    families: { type: "string" },
    only: { type: "string" },
    through: { type: "string", default: "written" },
    verbose: { type: "boolean", default: false },
  },
})
const backends = values.backend.split(",")
const WAYS = ["written", "compile", "shapeless"] as const
const ways = values.through.split(",") as Through[]
if (!ways.every((way) => WAYS.includes(way))) {
  console.error(`functions run as written, or through compile or shapeless; received ${values.through}`)
  process.exit(2)
}
const metal = backends.includes("metal") ? await import("@lazuli/backend-metal") : null
// The runtime on Metal.framework, with the fake of its tests under it.
const apple = backends.includes("apple")
  ? (await import("../packages/backend-metal/test/apple-backend")).appleBackend
  : null

let failures = 0
for (const backend of backends) {
  if (!listBackends().some((b) => b.name === backend)) {
    console.error(`no backend is named "${backend}"; there are reference, cpu, metal and apple`)
    process.exit(2)
  }
  for (const through of ways) await report(backend, through)
}
process.exitCode = failures > 0 ? 1 : 0

async function report(backend: string, through: Through): Promise<void> {
  const families = values.families?.split(",") ?? goldenFamilies()
  const only = values.only === undefined ? undefined : new RegExp(values.only)
  const replay = (some = families): FamilyResult[] =>
    replayGolden({ spaces: goldenSpaces, backend, through, families: some, only })
  // Thousands of kernels, compiled together.
  if (backend === "metal") await metal?.metalBackend.rehearse(() => replay())
  if (backend === "apple") await apple?.rehearse(() => replay())
  // An interrupted run is repeated for the other families.
  const results = families.flatMap((family) => {
    const [result] = replay([family])
    console.error(`${family}: ${result.passed} passed, ${result.failed.length} failed`)
    return [result]
  })
  console.log(`\n${backend}${through === "written" ? "" : `, ${through}`}\n${formatReplay(results)}`)
  const absent = new Map<string, number>()
  for (const { failed, missing, deviating } of results) {
    failures += failed.length
    for (const { id, fn, problem } of failed) console.log(`FAIL ${id} ${fn}: ${problem}`)
    for (const [name, count] of Object.entries(missing)) absent.set(name, (absent.get(name) ?? 0) + count)
    if (values.verbose)
      for (const [id, reason] of Object.entries(deviating)) console.log(`deviates ${id}: ${reason}`)
  }
  const names = [...absent].sort().map(([name, count]) => `${name} (${count})`)
  if (names.length > 0) console.log(`missing: ${names.join(" ")}`)
}
