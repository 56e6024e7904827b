// The table of installations as it stands in docs/install.md, between two marks.

import { readFileSync, writeFileSync } from "node:fs"

const FILE = "docs/install.md"
const [BEGIN, END] = ["<!-- installations -->", "<!-- /installations -->"]

/** A row for each set of packages, a column for each package manager. */
export function markdownTable(rows) {
  const managers = [...new Set(rows.map(({ manager }) => manager))]
  const sets = [...new Set(rows.map(({ set }) => set))]
  const cell = (set, manager) => {
    const row = rows.find((one) => one.set === set && one.manager === manager)
    return row ? `${row.MB} MB, ${row.packages}, ${row["import ms"]} ms, ${row["first ms"]} ms` : "–"
  }
  const names = (set) =>
    set
      .split(", ")
      .map((name) => `\`${name}\``)
      .join(", ")
  return [
    `| packages | ${managers.join(" | ")} |`,
    `|---|${managers.map(() => "---|").join("")}`,
    ...sets.map((set) => `| ${names(set)} | ${managers.map((manager) => cell(set, manager)).join(" | ")} |`),
  ].join("\n")
}

/** Replaces it. */
export function writeTable(rows) {
  const text = readFileSync(FILE, "utf8")
  const [from, to] = [text.indexOf(BEGIN), text.indexOf(END)]
  if (from < 0 || to < from) throw new Error(`${FILE} has no ${BEGIN} before ${END}`)
  writeFileSync(FILE, `${text.slice(0, from + BEGIN.length)}\n${markdownTable(rows)}\n${text.slice(to)}`)
}
