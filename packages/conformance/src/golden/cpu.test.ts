/**
 * MLX's answers, replayed on the CPU backend: its kernels agree in value, shape and dtype.
 */
import { readFileSync } from "node:fs"
import "@lazuli/backend-cpu"
import { expect, test } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import { replayGolden } from "./replay"

const { golden } = JSON.parse(readFileSync(new URL("../../coverage.json", import.meta.url), "utf8")) as {
  golden: Record<string, number>
}

test.each(Object.keys(golden))("%s", (family) => {
  const [{ passed, failed }] = replayGolden({ spaces: goldenSpaces, backend: "cpu", families: [family] })
  expect(failed).toEqual([])
  expect(passed, "fewer cases than coverage.json says").toBeGreaterThanOrEqual(golden[family])
})
