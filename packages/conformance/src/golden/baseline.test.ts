/**
 * MLX's answers, replayed on the CPU backend with the least instruction set of x64, which few machines of today choose by themselves.
 */
import "@lazuli/backend-cpu"
import { deviceInfo } from "@lazuli/core"
import { expect, test, vi } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import { goldenFamilies, replayGolden } from "./replay"

vi.hoisted(() => {
  process.env.LAZULI_SIMD = "sse4"
})

test.runIf(process.arch === "x64")("sse4", () => {
  expect(deviceInfo("cpu").architecture).toBe("x64 sse4")
})

test.each(goldenFamilies())("%s", (family) => {
  const [{ passed, failed }] = replayGolden({ spaces: goldenSpaces, backend: "cpu", families: [family] })
  expect(failed).toEqual([])
  expect(passed).toBeGreaterThan(0)
})
