/**
 * MLX's answers, replayed on Metal's host runtime: its kernels, and what runs for want of them, agree in value, shape and dtype.
 */
import { readFileSync } from "node:fs"
import { metalBackend } from "@lazuli/backend-metal"
import { beforeAll, expect, test } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import { type FamilyResult, replayGolden } from "./replay"

const { golden } = JSON.parse(readFileSync(new URL("../../coverage.json", import.meta.url), "utf8")) as {
  golden: Record<string, number>
}
const replay = (families: string[]): FamilyResult[] =>
  replayGolden({ spaces: goldenSpaces, backend: "metal", families })

// Some two thousand kernels, compiled together.
beforeAll(() => metalBackend.rehearse(() => replay(Object.keys(golden))), 600_000)

test.each(Object.keys(golden))("%s", (family) => {
  const [{ passed, failed }] = replay([family])
  expect(failed).toEqual([])
  expect(passed, "fewer cases than coverage.json says").toBeGreaterThanOrEqual(golden[family])
}, 120_000)
