// `npm run conformance:ops`: every primitive's promises, column by column, on the samples and their derivatives.
//
//   npm run conformance:ops -- [NAME …] [--backend cpu,metal] [--columns infer,cpu,vjp]

import { parseArgs } from "node:util"
import "@lazuli/backend-cpu"
import {
  applicationsOf,
  checkApplications,
  discreteSamples,
  formatChecks,
  samples,
  standardColumns,
} from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { primitiveByName } from "@lazuli/core/engine"

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { backend: { type: "string", default: "cpu" }, columns: { type: "string" } },
})
const backends = values.backend.split(",")
if (backends.includes("metal")) await import("@lazuli/backend-metal")
const wanted = values.columns?.split(",")
const columns = standardColumns({ backends }).filter(({ name }) => wanted?.includes(name) ?? true)
const applications = applicationsOf([...samples, ...discreteSamples])
const names = positionals.length > 0 ? positionals : mx.listPrimitives().map(({ name }) => name)
const reports = names.map((name) => {
  const primitive = primitiveByName(name)
  return checkApplications(
    primitive,
    applications.filter((a) => a.primitive === primitive),
    columns,
  )
})
console.log(formatChecks(reports))
process.exitCode = reports.every(({ ok }) => ok) ? 0 : 1
