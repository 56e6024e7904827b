/** The order of exchanges, which is the program's on every rank. */
import { expect, test } from "vitest"
import { programOf, runJob } from "../test/run-job"

const COUNT = process.env.LAZULI_PROPERTY_RUNS ?? "30"

test(
  "exchanges of random programs follow one order on all ranks",
  async () => {
    const program = await programOf("orders")
    const { code, out, errors } = await runJob([program, "1", COUNT], 2, { timeLimit: 20 })
    expect(code, errors.flat().join("\n")).toBe(0)
    for (const [line] of out) expect(JSON.parse(line)).toEqual([])
  },
  30_000 + 3000 * Number(COUNT),
)
