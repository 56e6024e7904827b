// The table of installations as it stands in docs/install.md, between two marks.

import { readFileSync, writeFileSync } from "node:fs"

const FILE = "docs/install.md"
const [BEGIN, END] = ["<!-- installations -->", "<!-- /installations -->"]
const cellsOf = (line) =>
  line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim())

/** Cells by set of packages and package manager, in a table's order. */
function parse(markdown) {
  const [[, ...managers], , ...lines] = markdown
    .split("\n")
    .filter((line) => line.startsWith("|"))
    .map(cellsOf)
  return new Map(lines.map(([set, ...cells]) => [set, new Map(cells.map((cell, i) => [managers[i], cell]))]))
}

/** The table with a row for each set of packages and a column for each package manager; what `rows` does not have stays as it was. */
export function updatedTable(markdown, rows) {
  const table = parse(markdown)
  for (const row of rows) {
    const set = row.set.replace(/[^, ]+/g, "`$&`")
    if (!table.has(set)) table.set(set, new Map())
    const times = row["import ms"] === undefined ? [] : [`${row["import ms"]} ms`, `${row["first ms"]} ms`]
    table.get(set).set(row.manager, [`${row.MB} MB`, row.packages, ...times].join(", "))
  }
  const managers = [...new Set([...table.values()].flatMap((cells) => [...cells.keys()]))]
  return [
    `| packages | ${managers.join(" | ")} |`,
    `|---|${managers.map(() => "---|").join("")}`,
    ...[...table].map(
      ([set, cells]) => `| ${set} | ${managers.map((manager) => cells.get(manager) ?? "–").join(" | ")} |`,
    ),
  ].join("\n")
}

/** Updates the page. */
export function writeTable(rows) {
  const text = readFileSync(FILE, "utf8")
  const [from, to] = [text.indexOf(BEGIN), text.indexOf(END)]
  if (from < 0 || to < from) throw new Error(`${FILE} has no ${BEGIN} before ${END}`)
  const table = updatedTable(text.slice(from + BEGIN.length, to), rows)
  writeFileSync(FILE, `${text.slice(0, from + BEGIN.length)}\n${table}\n${text.slice(to)}`)
}
