/**
 * MLX's answers, replayed on the reference backend: every function that exists agrees in value, shape and dtype.
 */
import { readFileSync } from "node:fs"
import { expect, test } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import { goldenFamilies, replayGolden } from "./replay"

const { golden } = JSON.parse(readFileSync(new URL("../../coverage.json", import.meta.url), "utf8")) as {
  golden: Record<string, number>
}

test.each(Object.keys(golden))("%s", (family) => {
  const [{ passed, failed }] = replayGolden({ spaces: goldenSpaces, backend: "reference", families: [family] })
  expect(failed).toEqual([])
  expect(passed, "fewer cases than coverage.json says").toBeGreaterThanOrEqual(golden[family])
})

test("coverage.json and the folder of vectors name the same families", () => {
  expect(Object.keys(golden).sort(), "a new family is counted by `npm run coverage`").toEqual(goldenFamilies())
})
