// Fits the cost model of docs/distributed.md to benchmarks/collectives.json, which holds measured all-reduces, and writes the tables and
// constants between the page's `generated` marks; the formulas are the page's own. `npm run generate` writes, `--check` compares:
//
//   node tooling/collective-costs.mjs [--check]

import { readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import ts from "typescript"

const root = join(dirname(fileURLToPath(import.meta.url)), "..")
const page = join(root, "docs/distributed.md")
const before = readFileSync(page, "utf8")
const { machines } = JSON.parse(readFileSync(join(root, "benchmarks/collectives.json"), "utf8"))
/** The machine to which the model is fitted. */
const { ranks } = machines.at(-1)

/** The page's own function. */
const [source] = /interface Link[\s\S]*?\n}\n/.exec(before) ?? []
const costs = new Function(`${ts.transpileModule(source, {}).outputText}; return costs`)()

/** Latency and bandwidth for which Σ ((latency + bytes / bandwidth) / time − 1)² is least: each size counts alike. */
function leastSquares(times, way) {
  let [aa, ab, bb, a, b] = [0, 0, 0, 0, 0]
  for (const [bytes, measured] of Object.entries(times)) {
    const seconds = measured[way] / 1e6
    const [p, q] = [1 / seconds, bytes / seconds]
    aa += p * p
    ab += p * q
    bb += q * q
    a += p
    b += q
  }
  const determinant = aa * bb - ab * ab
  const link = {
    latency: (a * bb - b * ab) / determinant,
    bandwidth: determinant / (b * aa - a * ab),
  }
  const ratios = Object.entries(times).map(
    ([bytes, measured]) => (link.latency + bytes / link.bandwidth) / (measured[way] / 1e6),
  )
  return { ...link, least: Math.min(...ratios), most: Math.max(...ratios) }
}

const digits = (x, n) => Number(x.toPrecision(n))
const shown = (x) => digits(x, 3).toLocaleString("en-US", { maximumFractionDigits: 1 })
const shownMeasured = (x) => x.toLocaleString("en-US")
const shownBytes = (n) => (n < 1024 ? `${n}` : n < 1 << 20 ? `${n / 1024} KB` : `${n / (1 << 20)} MB`)
const nameOf = (name) => (["ring", "shm", "mpi"].includes(name) ? `\`${name}\`` : name)
const table = (head, rows) =>
  [head, ...rows]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .toSpliced(1, 0, `|${"---|".repeat(head.length)}`)
    .join("\n")

const measured = () => machines.map(({ name, ranks }) => `On ${name}:\n\n${tablesOf(ranks)}`).join("\n\n")

function tablesOf(ranks) {
  return Object.entries(ranks)
    .map(([n, backends]) => {
      const names = Object.keys(backends)
      const sizes = [...new Set(names.flatMap((name) => Object.keys(backends[name]).map(Number)))].sort(
        (a, b) => a - b,
      )
      const cell = (name, bytes) => backends[name][bytes]?.map(shownMeasured).join(" / ") ?? "–"
      return table(
        [`bytes, ${n} ranks`, ...names.map(nameOf)],
        sizes.map((bytes) => [shownBytes(bytes), ...names.map((name) => cell(name, bytes))]),
      )
    })
    .join("\n\n")
}

/** Backends' peers. */
const PEERS = { ring: ["gloo", "Open MPI, TCP"], shm: ["gloo", "Open MPI"], mpi: ["Open MPI"] }
const LARGE = 64 << 20

/** The least and the most that a backend's times are of those of the better peer, of both ways. */
function rangeOf(backends, name, isMeant) {
  const all = Object.entries(backends[name])
    .filter(([bytes]) => isMeant(Number(bytes)))
    .flatMap(([bytes, its]) =>
      its.map((time, way) => time / Math.min(...PEERS[name].map((peer) => backends[peer][bytes][way]))),
    )
  return `${Math.min(...all).toFixed(2)} to ${Math.max(...all).toFixed(2)}`
}

const compared = () =>
  table(
    ["times the better peer", ...Object.keys(PEERS).map(nameOf)],
    machines.flatMap(({ cores, ranks: its }) =>
      Object.entries(its).flatMap(([n, backends]) =>
        [
          ["to 4 MB", (bytes) => bytes < LARGE],
          ["from 64 MB on", (bytes) => bytes >= LARGE],
        ].map(([sizes, isMeant]) => [
          `${n} ranks, ${cores}, ${sizes}`,
          ...Object.keys(PEERS).map((name) => rangeOf(backends, name, isMeant)),
        ]),
      ),
    ),
  )

const fitted = () =>
  table(
    ["two ranks, behind a barrier", "latency, µs", "bandwidth, GB/s", "model / measured"],
    Object.entries(ranks[2]).map(([name, times]) => {
      const { latency, bandwidth, least, most } = leastSquares(times, 0)
      const range = `${least.toFixed(2)} to ${most.toFixed(2)}`
      return [nameOf(name), shown(latency * 1e6), (bandwidth / 1e9).toFixed(2), range]
    }),
  )

/** The link of a backend, as the page names it. */
function linkOf(name) {
  const { latency, bandwidth } = leastSquares(ranks[2][name], 0)
  return { latency: digits(latency, 3), bandwidth: digits(bandwidth, 3) }
}

function constants() {
  const [ring, shm] = [linkOf("ring"), linkOf("shm")]
  const fastest = (n, bytes) => Object.entries(costs(n, bytes, ring)).sort(([, a], [, b]) => a - b)[0][0]
  const list = (names) => `[${names.map((name) => `'${name}'`).join(", ")}]`
  const literal = ({ latency, bandwidth }) =>
    `{ latency: ${digits(latency * 1e6, 3)}e-6, bandwidth: ${digits(bandwidth / 1e9, 3)}e9 }`
  return `\`\`\`ts
const ring = ${literal(ring)}
const shm = ${literal(shm)}
costs(2, 4, ring).everybody * 1e6 // => ${digits(costs(2, 4, ring).everybody * 1e6, 6)}
costs(2, 64 << 20, ring).ring * 1e3 // => ${digits(costs(2, 64 << 20, ring).ring * 1e3, 6)}
costs(2, 64 << 20, shm).ring * 1e3 // => ${digits(costs(2, 64 << 20, shm).ring * 1e3, 6)}
const fastest = (n: number, bytes: number) => {
  const all = Object.entries(costs(n, bytes, ring)).sort(([, a], [, b]) => a - b)
  return all[0][0]
}
const small = [16, 64, 256, 1024].map((n) => fastest(n, 1024)) // => ${list([16, 64, 256, 1024].map((n) => fastest(n, 1024)))}
const large = [2, 4, 64, 1024].map((n) => fastest(n, 4 << 20)) // => ${list([2, 4, 64, 1024].map((n) => fastest(n, 4 << 20)))}
costs(64, 4 << 20, ring).ring / costs(64, 4 << 20, ring).halving // => ${digits(costs(64, 4 << 20, ring).ring / costs(64, 4 << 20, ring).halving, 6)}
\`\`\``
}

const computed = () =>
  table(
    ["ranks", "ring", "tree", "halving and doubling"],
    [2, 4, 16, 64, 256, 1024].map((n) => {
      const { ring, tree, halving } = costs(n, 4 << 20, linkOf("ring"))
      return [n.toLocaleString("en-US"), ...[ring, tree, halving].map((seconds) => shown(seconds * 1e3))]
    }),
  )

const parts = { measured, compared, fitted, constants, computed }
let after = before
for (const [name, make] of Object.entries(parts)) {
  const marks = new RegExp(`(<!-- generated: ${name} -->\\n)[\\s\\S]*?(\\n<!-- /generated -->)`)
  if (!marks.test(after)) throw new Error(`docs/distributed.md has no part "${name}"`)
  after = after.replace(marks, (_, open, close) => `${open}${make()}${close}`)
}
if (!process.argv.includes("--check")) writeFileSync(page, after)
else if (after !== before) console.log("docs/distributed.md")
