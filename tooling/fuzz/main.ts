// `npm run fuzz`: random attempts at breaking the library.
//
//   npm run fuzz -- files | programs | calls | states | workers … [--runs N] [--seed S] [--from I]
//   npm run fuzz -- cuda         random programs on the double of CUDA's driver, which a build makes; by its name alone
//   npm run fuzz                 every other part, as often and from the seed that rates.json says
//   npm run fuzz -- --write      the same, and writes the rates that fell
//
// Without runs and seed of one's own, a kind found more often than rates.json allows is a failure; otherwise any finding is.
// Attempt I of a seed is always the same: `--seed S --from I --runs 1` repeats it.

import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { parts } from "./parts"
import { type Tally, tally } from "./tally"

interface Rates {
  readonly seed: number
  /** The number of attempts of each part, and how many of each kind they may find. */
  readonly parts: Record<string, { readonly runs: number; found: Record<string, number> }>
}

/** Attempts of a part that rates.json does not have yet. */
const USUAL = 1000
const ratesFile = fileURLToPath(new URL("rates.json", import.meta.url))
const rates = JSON.parse(readFileSync(ratesFile, "utf8")) as Rates
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    runs: { type: "string" },
    seed: { type: "string" },
    from: { type: "string" },
    write: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
})
if (values.help) {
  console.log(
    `npm run fuzz -- [${Object.keys(parts).join(" | ")}] [--runs N] [--seed S] [--from I] [--write]`,
  )
  process.exit()
}
for (const name of positionals)
  if (!Object.hasOwn(parts, name)) stop(`there is no part "${name}": ${Object.keys(parts)}`)
const own = values.runs !== undefined || values.seed !== undefined || values.from !== undefined
const seed = whole(values.seed, rates.seed)
const from = whole(values.from, 0)

let failed = false
for (const name of positionals.length > 0 ? positionals : Object.keys(rates.parts)) {
  rates.parts[name] ??= { runs: USUAL, found: {} }
  const allowed = rates.parts[name]
  const runs = whole(values.runs, allowed.runs)
  const start = performance.now()
  const found = await tally(name, seed, from, from + runs)
  const seconds = ((performance.now() - start) / 1000).toFixed(1)
  for (const { attempt, kind, text } of found.shown)
    console.log(`\n${kind} (npm run fuzz -- ${name} --seed ${seed} --from ${attempt} --runs 1)\n${text}`)
  const made = [found.outcomes, found.kinds].flatMap((counts) => Object.values(counts))
  const count = made.reduce((sum, n) => sum + n, 0)
  console.log(`${name}: ${count} attempts, seed ${seed}, ${seconds} s: ${summary(found)}`)
  for (const [kind, count] of Object.entries(found.kinds)) {
    const most = own ? 0 : (allowed.found[kind] ?? 0)
    if (count <= most) continue
    console.log(`${name}: "${kind}" was found ${count} times; at most ${most} are allowed`)
    failed = true
  }
  if (!own && values.write) allowed.found = sorted(found.kinds)
}
if (values.write && !failed) writeFileSync(ratesFile, `${JSON.stringify(rates, null, 2)}\n`)
process.exitCode = failed ? 1 : 0

function summary({ outcomes, kinds }: Tally): string {
  const listed = (counts: Record<string, number>): string =>
    Object.entries(sorted(counts))
      .map(([name, count]) => `${count} ${name}`)
      .join(", ")
  const total = Object.values(kinds).reduce((sum, count) => sum + count, 0)
  return `${total} findings${total ? ` (${listed(kinds)})` : ""}; ${listed(outcomes)}`
}

function sorted(counts: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(counts).sort(([a], [b]) => (a < b ? -1 : 1)))
}

function whole(text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise
  const n = Number(text)
  if (text === "" || !Number.isSafeInteger(n) || n < 0) stop(`expected a whole number, received "${text}"`)
  return n
}

function stop(message: string): never {
  console.error(`[fuzz] ${message}`)
  process.exit(2)
}
