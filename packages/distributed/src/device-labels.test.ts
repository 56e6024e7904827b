/** Results of other ranks' devices, which are used once all are known to have added the same operations. */
import { beforeAll, expect, test } from "vitest"
import { programOf, runJob } from "../test/run-job"

let program = ""
beforeAll(async () => {
  program = await programOf("device-labels")
})
const run = async (name: string): Promise<{ took?: number; message: string | null }[]> => {
  const { out, errors } = await runJob([program, name], 2, { backend: "ring", timeLimit: 5 })
  return out.map(([line]) => JSON.parse(line ?? JSON.stringify({ message: errors.flat().join("\n") })))
}

// Ranks tell of themselves every 250 ms. Of one that is ahead there are eight waits.
test.each([
  ["ahead", 0, 400],
  ["behind", 300, 850],
  ["sent", 0, 50],
])(
  "ranks agree with one that is %s after %i to %i ms",
  async (name, least, most) => {
    const [{ took: first }, { took, message }] = await run(name)
    expect(message).toBe(null)
    const late = name === "sent" ? first : took
    expect(late).toBeGreaterThanOrEqual(least)
    expect(late).toBeLessThan(most)
  },
  20_000,
)

test("ranks agree about more groups than they tell of at once", async () => {
  for (const { took, message } of await run("lanes")) {
    expect(message).toBe(null)
    expect(took).toBeTypeOf("number")
  }
}, 20_000)

test.each(["different", "gone"])(
  "ranks whose operations differ do not agree: %s",
  async (name) => {
    const told = await run(name)
    for (const { message } of name === "gone" ? told.slice(1) : told)
      expect(message).toMatch(/^\[allSum\] rank [01] and rank [01] differ in operation [23] of a group/)
  },
  20_000,
)
