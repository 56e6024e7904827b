/** Stop strings in streams of text. */
import { expect, test } from "vitest"
import { StopFinder } from "./stops"

/** The output of pieces, and whether a stop string ended it. */
function run(stops: readonly string[], pieces: readonly string[]): [text: string, stopped: boolean] {
  const finder = new StopFinder(stops)
  let out = ""
  for (const piece of pieces) {
    const { text, stopped } = finder.push(piece)
    out += text
    if (stopped) return [out, true]
  }
  return [out + finder.finish(), false]
}

test.each([
  [["stop"], ["a st", "op b"], "a ", true],
  [["aab"], ["aa", "aa", "b"], "aa", true],
  [["abcd", "bc"], ["ab", "c"], "a", true],
  [["bc", "abcd"], ["abcd"], "", true],
  [["abx", "bcy"], ["a", "b", "c"], "abc", false],
  [["a"], ["", "bb"], "bb", false],
] as const)("%j ends %j after %j: %j", (stops, pieces, text, stopped) => {
  expect(run(stops, pieces)).toEqual([text, stopped])
})

test("random texts end where the first stop string begins, in pieces of any length", () => {
  let state = 7
  const random = (n: number): number => {
    state = (state * 48_271) % 2_147_483_647
    return state % n
  }
  const word = (length: number): string => Array.from({ length }, () => "ab"[random(2)]).join("")
  for (let round = 0; round < 500; round++) {
    const stops = Array.from({ length: 1 + random(3) }, () => word(3 + random(4)))
    const pieces = Array.from({ length: 12 }, () => word(random(4)))
    const text = pieces.join("")
    // The first piece in which a stop string ends decides.
    const ends = stops.flatMap((stop) => (text.includes(stop) ? text.indexOf(stop) + stop.length : []))
    let read = 0
    for (const piece of pieces) if (ends.every((end) => end > read)) read += piece.length
    const starts = stops.map((stop) => text.slice(0, read).indexOf(stop)).filter((at) => at >= 0)
    const want = starts.length === 0 ? text : text.slice(0, Math.min(...starts))
    expect(run(stops, pieces)).toEqual([want, starts.length > 0])
  }
})

test("the work does not grow with a stop string's length", () => {
  const stops = [" ".repeat(131_072), `${" ".repeat(131_071)}x`]
  const finder = new StopFinder(stops)
  // Compared with every suffix, this would take minutes.
  for (let i = 0; i < 1000; i++) expect(finder.push(" ".repeat(128)).text).toBe("")
  expect(finder.push("y").text).toHaveLength(128_001)
})
