/**
 * `npm run bench [-- text …]` measures the rows whose names contain every text and prints a table: the best, the median and the
 * worst round. Machines are noisy: quote medians, and compare only what one run measured.
 */
import { writeFileSync } from "node:fs"
import { cpus } from "node:os"
import { parseArgs } from "node:util"
import { rows } from "./rows"

const { positionals, values } = parseArgs({ allowPositionals: true, options: { json: { type: "string" } } })
const chosen = rows.filter((row) => positionals.every((text) => row.name.includes(text)))
if (chosen.length === 0) {
  console.error(
    `No row's name contains ${positionals.join(" and ")}. The rows are:\n${rows.map((row) => `  ${row.name}`).join("\n")}`,
  )
  process.exit(2)
}

const results = chosen.map(({ name, unit, rounds, prepare }) => {
  const measure = prepare()
  // The first tenth warms up.
  for (let i = 0; i < Math.floor(rounds / 10); i++) measure()
  const taken = Array.from({ length: rounds }, measure).sort((a, b) => a - b)
  const shown = (v: number): number => Number(v.toPrecision(4))
  return {
    row: name,
    unit,
    best: shown(taken[0]),
    median: shown(taken[rounds >> 1]),
    worst: shown(taken[rounds - 1]),
  }
})

console.log(`${cpus().length} × ${cpus()[0].model}, Node ${process.version}`)
console.table(Object.fromEntries(results.map(({ row, ...rest }) => [row, rest])))
if (values.json)
  writeFileSync(
    values.json,
    `${JSON.stringify({ node: process.version, cpu: cpus()[0].model, results }, null, 2)}\n`,
  )
