import { beforeAll, expect, test } from "vitest"
import { programOf, runJob } from "../test/run-job"

let program = ""
beforeAll(async () => {
  program = await programOf("joins")
})

/** The lines that each rank printed. */
async function told(mode: string, env = {}): Promise<string[][]> {
  const { out, errors } = await runJob([program, mode], 2, { backend: "ring", timeLimit: 2, env })
  expect(out.flat().length, errors.flat().join("\n")).toBeGreaterThan(0)
  return out.map((lines) => lines.map((line) => JSON.parse(line) as string))
}

test("the main thread joins after a worker thread has left", async () => {
  for (const lines of await told("worker", { LAZULI_JOIN_LIMIT: "10" }))
    expect(lines).toEqual(["gave 2", "gave 2"])
}, 60_000)

test("groups are made and closed behind the exchanges that were handed over before", async () => {
  for (const backend of ["ring", "any"]) {
    const { out, errors } = await runJob([program, "beside"], 3, { backend, timeLimit: 2 })
    expect(out, errors.flat().join("\n")).toEqual(Array(3).fill(['"0 wrong"']))
  }
}, 60_000)

test("operations after a failure say that the job failed before them", async () => {
  for (const [text] of await told("failed")) {
    const [first, second] = text.split("\n")
    const reason =
      /rank [01] is at operation 1 of the group, \w+ of 1 float32 element, and rank [01] at .* order/
    expect(first).toMatch(new RegExp(`^\\[all(Sum|Max)\\] ${reason.source}$`))
    expect(second).toMatch(
      new RegExp(`^\\[broadcast\\] ${reason.source} \\(the job failed before this operation\\)$`),
    )
  }
}, 60_000)

test("a message of another dtype than the receiver expects is called a message", async () => {
  for (const [text] of await told("message")) {
    const [sizes, difference] = text.split("\n")
    expect(sizes).toMatch(/^\[recv\] shape must consist of sizes, received /)
    expect(difference).toMatch(
      /operation 1 of the group, a message of 3000000 (float32|int32) elements, and rank/,
    )
  }
}, 60_000)
