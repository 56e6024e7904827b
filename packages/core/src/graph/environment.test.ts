import { afterEach, expect, test, vi } from "vitest"
import { choiceFrom, choicesFrom, flagFrom, integerFrom, secondsFrom } from "./environment"

const warnings = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
afterEach(() => {
  vi.unstubAllEnvs()
  warnings.mockClear()
})

let count = 0
/** A variable that was not warned of before. */
function variable(value: string | undefined): string {
  const name = `LAZULI_TEST_${count++}`
  vi.stubEnv(name, value)
  return name
}
const texts = (): unknown[] => warnings.mock.calls.map(([text]) => String(text).replace(/_TEST_\d+/, "_X"))

test.each(["abc", "-1", "0", "1e3", "257", "2.5", " 4"])(
  "%j is no count of threads, and is said to be ignored",
  (value) => {
    const name = variable(value)
    expect([integerFrom(name, 1, 256), integerFrom(name, 1, 256)]).toEqual([null, null])
    expect(texts()).toEqual([`LAZULI_X must be an integer from 1 to 256, received "${value}": it is ignored`])
  },
)

test("what a variable takes is its value, and one that is not set or empty has none", () => {
  expect(integerFrom(variable("256"), 1, 256)).toBe(256)
  expect(integerFrom(variable("0"), 0)).toBe(0)
  expect([secondsFrom(variable("0.5")), secondsFrom(variable("0"))]).toEqual([0.5, 0])
  expect(choiceFrom(variable("avx2"), ["avx512", "avx2"])).toBe("avx2")
  expect([flagFrom(variable("1")), flagFrom(variable("0"))]).toEqual([true, false])
  for (const value of [undefined, ""]) {
    const name = variable(value)
    expect([integerFrom(name, 1), choiceFrom(name, ["a"]), flagFrom(name)]).toEqual([null, null, null])
  }
  expect(texts()).toEqual([])
})

test("of a list the words that are known count, and the first other one is told", () => {
  const known = ["a", "b", "c"] as const
  expect(choicesFrom(variable("c, a"), known)).toEqual(["a", "c"])
  expect([choicesFrom(variable(""), known), choicesFrom(variable(undefined), known)]).toEqual([[], []])
  expect(texts()).toEqual([])
  expect(choicesFrom(variable("b,B x"), known)).toEqual(["b"])
  expect(texts()).toEqual(['LAZULI_X must be a list of some of a, b, c, received "B": it is ignored'])
})

test("words and flags name what they take", () => {
  expect([choiceFrom(variable("avx3"), ["avx512", "avx2"]), flagFrom(variable("true"))]).toEqual([null, null])
  expect(secondsFrom(variable("5s"))).toBe(null)
  expect(texts()).toEqual([
    'LAZULI_X must be one of avx512, avx2, received "avx3": it is ignored',
    'LAZULI_X must be one of 0, 1, received "true": it is ignored',
    'LAZULI_X must be a number of seconds, received "5s": it is ignored',
  ])
})
