/**
 * MLX's answers, replayed on the CPU backend: its kernels agree in value, shape and dtype.
 */
import "@lazuli/backend-cpu"
import { expect, test } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import { goldenFamilies, replayGolden } from "./replay"

test.each(goldenFamilies())("%s", (family) => {
  const [{ failed }] = replayGolden({ spaces: goldenSpaces, backend: "cpu", families: [family] })
  expect(failed).toEqual([])
})
