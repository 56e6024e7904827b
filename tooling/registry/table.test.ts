/** The table of installations keeps what a run did not measure. */
import { expect, test } from "vitest"
import { updatedTable } from "./table.mjs"

const before = `
| packages | npm | bun |
|---|---|---|
| \`@lazuli/core\` | 1.7 MB, 1, 30 ms, 33 ms | 0.8 MB, 1 |
`

test("rows replace their own cells, and new ones are added", () => {
  const rows = [
    { manager: "bun", set: "@lazuli/core", MB: "0.9", packages: 1, "import ms": "31", "first ms": "35" },
    { manager: "yarn", set: "@lazuli/core, @lazuli/backend-cpu", MB: "16.4", packages: 3 },
  ]
  expect(updatedTable(before, rows)).toBe(
    `| packages | npm | bun | yarn |
|---|---|---|---|
| \`@lazuli/core\` | 1.7 MB, 1, 30 ms, 33 ms | 0.9 MB, 1, 31 ms, 35 ms | – |
| \`@lazuli/core\`, \`@lazuli/backend-cpu\` | – | – | 16.4 MB, 3 |`,
  )
})
