// `npm run coverage`: writes packages/conformance/coverage.json, the table that may only get better.

import { writeFileSync } from "node:fs"
import { coverageRows, goldenCounts } from "./coverage-table"

const { rows, holes } = coverageRows(".")
const lines = (entries: [string, unknown][]): string =>
  entries.map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)}`).join(",\n")
writeFileSync(
  "packages/conformance/coverage.json",
  `{\n  "primitives": {\n${lines(Object.entries(rows))}\n  },\n  "golden": {\n${lines(Object.entries(goldenCounts()))}\n  }\n}\n`,
)
console.log([`${Object.keys(rows).length} primitives`, ...holes].join("\n"))
process.exitCode = holes.length > 0 ? 1 : 0
