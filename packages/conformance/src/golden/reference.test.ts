/**
 * MLX's answers, replayed on the reference backend: every function that exists agrees in value, shape and dtype.
 */
import { expect, test } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import { goldenFamilies, replayGolden } from "./replay"

test.each(goldenFamilies())("%s", (family) => {
  const [{ failed }] = replayGolden({ spaces: goldenSpaces, backend: "reference", families: [family] })
  expect(failed).toEqual([])
})
