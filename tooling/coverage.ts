// `npm run coverage`: writes packages/conformance/coverage.json, the table that may only get better. Where a cell or a count got worse it
// writes nothing, unless it is told to: `npm run coverage -- --allow-worse`.

import { readFileSync, writeFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { type Coverage, coverageRows, fewer, goldenCounts, worse } from "./coverage-table"

const FILE = "packages/conformance/coverage.json"
const { values } = parseArgs({ options: { "allow-worse": { type: "boolean", default: false } } })
const before = JSON.parse(readFileSync(FILE, "utf8")) as Coverage

const { rows, holes } = coverageRows(".")
const golden = goldenCounts()
const losses = [...worse(before.primitives, rows), ...fewer(before.golden, golden)]
const refused = losses.length > 0 && !values["allow-worse"]
if (refused) console.error(`${FILE} is left as it was: these got worse, and --allow-worse is not given`)
else writeFileSync(FILE, `${JSON.stringify({ primitives: rows, golden }, null, 2)}\n`)
console.log([...losses, `${Object.keys(rows).length} primitives`, ...holes].join("\n"))
process.exitCode = holes.length > 0 || refused ? 1 : 0
