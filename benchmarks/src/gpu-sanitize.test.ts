/** The choice of cases that reach every kernel. */
import { expect, it } from "vitest"
import { fewest } from "./gpu-sanitize"

const candidate = (name: string, kernels: string, seconds = 1) => ({ name, kernels: [...kernels], seconds })
const chosen = (...candidates: ReturnType<typeof candidate>[]): string =>
  fewest(candidates, ({ name }) => Number(name === name.toUpperCase()))
    .map(({ name }) => name)
    .join("")

it("drops cases whose kernels others reach, those that take longest first", () => {
  expect(chosen(candidate("a", "xy"), candidate("b", "y"), candidate("c", "z"))).toBe("ac")
  expect(chosen(candidate("a", "x", 3), candidate("b", "x", 1), candidate("c", "x", 2))).toBe("b")
  expect(chosen(candidate("a", "xyz", 9), candidate("b", "xy"), candidate("c", "z"))).toBe("bc")
})
it("drops cases that need libraries first", () => {
  expect(chosen(candidate("A", "xy", 1), candidate("b", "x", 5), candidate("c", "y", 5))).toBe("bc")
  expect(chosen(candidate("A", "xyz"), candidate("b", "x"))).toBe("A")
})
