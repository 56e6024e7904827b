/**
 * MLX's answers through compiled functions, and through functions compiled for any sizes and traced for other ones, on the CPU backend. A
 * third of the cases, some of every function; `npm run conformance -- --backend cpu --through compile,shapeless` replays all.
 */
import "@lazuli/backend-cpu"
import { expect, test, vi } from "vitest"
import { goldenSpaces } from "../../../../tooling/golden-spaces"
import type { GoldenCase } from "./format"
import { goldenCases, goldenFamilies, replayGolden } from "./replay"
import { shapelessTraces, type Through } from "./through"

/** Every third case of each function, beginning with number `first`, or the only one. */
function sample(cases: readonly GoldenCase[], first: number): string[] {
  const byFunction = new Map<string, string[]>()
  for (const { id, fn } of cases) byFunction.set(fn, [...(byFunction.get(fn) ?? []), id])
  return [...byFunction.values()].flatMap((ids) =>
    ids.filter((_, i) => i % 3 === Math.min(first, ids.length - 1)),
  )
}

const ways: [Through, number][] = [
  ["compile", 0],
  ["shapeless", 1],
]
test.each(ways.flatMap(([through, first]) => goldenFamilies().map((family) => [through, family, first] as const)))(
  "%s: %s",
  (through, family, first) => {
    // That sizes are looked at is told once for each function.
    vi.spyOn(process, "emitWarning").mockImplementation(() => {})
    const ids = sample(goldenCases(family), first)
    const [{ passed, failed, missing, deviating }] = replayGolden({
      spaces: goldenSpaces,
      backend: "cpu",
      through,
      families: [family],
      only: new RegExp(`^(${ids.join("|")})$`),
    })
    vi.restoreAllMocks()
    expect(failed).toEqual([])
    expect(missing).toEqual({})
    expect(passed + Object.keys(deviating).length).toBe(ids.length)
  },
)

test("most shapeless programs served sizes that they were not traced for", () => {
  expect(shapelessTraces.otherSizes).toBeGreaterThan(shapelessTraces.ownSizes)
})
