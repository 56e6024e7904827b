/**
 * MLX's answers, replayed on Metal's host runtime: its kernels agree in value, shape and dtype. A kernel that was not compiled before takes a
 * fraction of a second, and all families together need some two thousand, so these are the families whose functions have kernels of
 * their own: products and reductions whole, functions of elements in float32. `npm run conformance -- --backend metal` replays everything.
 */
import { readFileSync } from "node:fs"
import "@lazuli/backend-metal"
import { expect, test } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import { goldenCases, replayGolden } from "./replay"

const { golden } = JSON.parse(readFileSync(new URL("../../coverage.json", import.meta.url), "utf8")) as {
  golden: Record<string, number>
}

test.each(["matmul", "reduce"])("%s", (family) => {
  const [{ passed, failed }] = replayGolden({ spaces: goldenSpaces, backend: "metal", families: [family] })
  expect(failed).toEqual([])
  expect(passed, "fewer cases than coverage.json says").toBeGreaterThanOrEqual(golden[family])
}, 120_000)

/** Whether all arrays that a case is given are in float32. */
const inFloat32 = (args: readonly unknown[] = []): boolean =>
  args.every((v) => {
    const { dtype = "float32" } = (v ?? {}) as { dtype?: string }
    return dtype === "float32"
  })

test.each(["binary", "unary"])("%s, in float32", (family) => {
  const ids = goldenCases(family).flatMap(({ id, args }) => (inFloat32(args) ? [id] : []))
  const [{ passed, failed, deviating }] = replayGolden({
    spaces: goldenSpaces,
    backend: "metal",
    families: [family],
    only: new RegExp(`^(${ids.join("|")})$`),
  })
  expect(failed).toEqual([])
  expect(passed + Object.keys(deviating).length).toBe(ids.length)
  expect(passed).toBeGreaterThan(100)
}, 120_000)
