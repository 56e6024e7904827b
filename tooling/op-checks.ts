// `npm run conformance:ops`: every primitive's promises, column by column, on the samples and their derivatives.
//
//   npm run conformance:ops -- [NAME …] [--backend cpu,metal] [--columns infer,cpu,vjp] [--suite [--compiled]]
//
// With --suite: each backend against the reference, in sizes around the edges of vectors and blocks too; --compiled runs it through
// `compile`.

import { parseArgs } from "node:util"
import "@lazuli/backend-cpu"
import {
  applicationsOf,
  backendSuite,
  type Column,
  checkApplications,
  discreteSamples,
  formatChecks,
  type OpReport,
  samples,
  standardColumns,
} from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { primitiveByName } from "@lazuli/core/engine"
import { nnSamples, UNREACHABLE } from "./nn-samples"

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    backend: { type: "string", default: "cpu" },
    columns: { type: "string" },
    suite: { type: "boolean", default: false },
    compiled: { type: "boolean", default: false },
  },
})
const backends = values.backend.split(",")
const { compiled } = values
const metal = backends.includes("metal") ? await import("@lazuli/backend-metal") : null
// The runtime on Metal.framework, with the fake of its tests under it.
const apple = backends.includes("apple")
  ? (await import("../packages/backend-metal/test/apple-backend")).appleBackend
  : null
const wanted = values.columns?.split(",")
const columns = standardColumns({ backends }).filter(({ name }) => wanted?.includes(name) ?? true)
const applications = applicationsOf([...samples, ...discreteSamples, ...nnSamples])
const all = mx.listPrimitives().map(({ name }) => name)
const names = (positionals.length > 0 ? positionals : all).filter((name) => !Object.hasOwn(UNREACHABLE, name))
const checked = (some: readonly Column[]): OpReport[] =>
  names.map((name) => {
    const primitive = primitiveByName(name)
    return checkApplications(
      primitive,
      applications.filter((a) => a.primitive === primitive),
      some,
    )
  })
// Thousands of Metal kernels: compiled together they take minutes, one by one an hour.
for (const backend of [metal?.metalBackend, apple])
  await backend?.rehearse(() => {
    if (values.suite) backendSuite(backend.name, { primitives: names, samples: nnSamples })
    else checked(columns.filter(({ name }) => name === backend.name))
  })
/** The suite takes many minutes: what is done shows, and an interrupted run is repeated for the other names. */
const onReport = (report: OpReport): void =>
  console.error(`${report.primitive} ${report.ok ? "ok" : "FAILED"}`)
const reports = values.suite
  ? backends.flatMap((backend) =>
      backendSuite(backend, { primitives: names, samples: nnSamples, compiled, onReport }),
    )
  : checked(columns)
console.log(formatChecks(reports))
for (const [name, reason] of Object.entries(UNREACHABLE))
  console.log(`${name} is not among them: it ${reason}`)
process.exitCode = reports.every(({ ok }) => ok) ? 0 : 1
