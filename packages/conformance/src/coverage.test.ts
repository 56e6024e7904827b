/**
 * Coverage that was reached stays: no cell of coverage.json that is ok may become anything else, and no primitive may come without its
 * rules.
 */
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { expect, test } from "vitest"
import { type Coverage, coverageRows, fewer, worse } from "../../../tooling/coverage-table"
import { opsPage } from "../../../tooling/ops-page"

const root = fileURLToPath(new URL("../../..", import.meta.url))
const committed: Coverage = JSON.parse(readFileSync(`${root}/packages/conformance/coverage.json`, "utf8"))

test("every primitive keeps what it has, and has its rules", () => {
  const { rows, holes } = coverageRows(root)
  expect(holes, "what fails its column").toEqual([])
  expect(worse(committed.primitives, rows), "worse than packages/conformance/coverage.json").toEqual([])
  const better = worse(rows, committed.primitives)
  if (better.length > 0)
    console.log(
      `${better.length} cells are better than coverage.json says: run \`npm run coverage\` and commit it`,
    )
}, 300_000)

test("docs/ops.md is what `npm run generate` writes", () => {
  expect(readFileSync(`${root}/docs/ops.md`, "utf8")).toBe(opsPage(root))
}, 120_000)

test("every primitive has a kernel on Metal, or the reason beside it why there is none", () => {
  const [, table] = readFileSync(`${root}/docs/ops.md`, "utf8").split("\n## ")
  const rows = table.split("\n").filter((line) => line.startsWith("| `"))
  expect(rows.length).toBe(Object.keys(committed.primitives).length)
  expect(rows.filter((row) => /\| [–\s]*\|$/.test(row))).toEqual([])
})

test("a hole is noticed", () => {
  const row = { semantics: "scalar", vjp: "ok", metal: "–" }
  expect(worse({ a: row, b: row }, { a: { ...row, vjp: "no" } })).toEqual([
    "a, vjp: was ok, is no",
    "b is gone",
  ])
  expect(worse({ a: row }, { a: { ...row, metal: "ok" } })).toEqual([])
  expect(worse({ a: { ...row, vjp: "–" } }, { a: { ...row, vjp: "no" } })).toEqual(["a, vjp: was –, is no"])
  expect(fewer({ unary: 3, binary: 2 }, { unary: 2 })).toEqual([
    "unary: 3 golden cases passed, now 2",
    "binary: 2 golden cases passed, now it is gone",
  ])
  expect(fewer({ unary: 3 }, { unary: 3, binary: 2 })).toEqual([])
})
