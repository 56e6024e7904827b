/** Connections that are cut, damaged, delayed, silent or out of order end in an error that names a rank, in time, or do no harm. */
import { beforeAll, expect, test } from "vitest"
import { type Harm, startRelay } from "../test/relay"
import { programOf, runJob } from "../test/run-job"

let program = ""
beforeAll(async () => {
  program = await programOf("faults")
})

const LIMIT = 1
const harms: Harm[] = ["none", "delay", "cut", "corrupt", "reorder", "silence"]
// Behind the handshake, and before or in the middle of the data: of a control connection (0) and of one for data (1).
const cases = harms.flatMap((harm) => [
  { harm, which: 1, bytes: 60_000 },
  ...(harm === "corrupt" || harm === "cut" ? [{ harm, which: 0, bytes: 900 }] : []),
])

/** Expects that two ranks did all their work, or that each met an error that names a rank. Gives which. */
function expectOutcome(
  { code, out, errors }: Awaited<ReturnType<typeof runJob>>,
  isHarmless: boolean,
): boolean {
  const told = out.map(([line]) => JSON.parse(line ?? "{}"))
  if (isHarmless) {
    expect(code, errors.flat().join("\n")).toBe(0)
    expect(told.map(({ name }) => name)).toEqual(["none", "none"])
    return true
  }
  for (const { name, message, rank } of told) {
    expect(name, message).toBe("DistributedError")
    expect([0, 1]).toContain(rank)
  }
  return false
}

test.each(cases)("$harm of connection $which after $bytes bytes", async ({ harm, which, bytes }) => {
  const relay = await startRelay(harm, which, bytes)
  const began = performance.now()
  // A control connection carries little: the job must not end before.
  const steps = which === 0 ? ["5", "20000"] : []
  const { code, out, errors } = await runJob([program, "none", ...steps], 2, {
    backend: "ring",
    timeLimit: LIMIT,
    env: { LAZULI_PROXY: `127.0.0.1:${relay.port}` },
  })
  relay.close()
  if (expectOutcome({ code, out, errors }, harm === "none" || harm === "delay")) return
  expect(performance.now() - began).toBeLessThan(20_000)
})

// Arrays of four pieces for each of two ranks: every connection has some.
test.each([
  { harm: "none", connections: 4 },
  { harm: "cut", connections: 2 },
  { harm: "cut", connections: 4 },
  { harm: "corrupt", connections: 4 },
  { harm: "silence", connections: 2 },
] as const)(
  "$harm of the last of $connections connections for data",
  async ({ harm, connections }) => {
    const relay = await startRelay(harm, connections, 1_500_000)
    const { code, out, errors } = await runJob([program, "none", "5", "40", String(1 << 20)], 2, {
      backend: "ring",
      timeLimit: LIMIT,
      env: { LAZULI_PROXY: `127.0.0.1:${relay.port}`, LAZULI_CONNECTIONS: String(connections) },
    })
    relay.close()
    expectOutcome({ code, out, errors }, harm === "none")
  },
  60_000,
)
test("what a rank sent before it left may be late", async () => {
  const relay = await startRelay("lag", 1, 0)
  const { code, errors } = await runJob([program, "none", "5", "3"], 2, {
    backend: "ring",
    timeLimit: 2,
    env: { LAZULI_PROXY: `127.0.0.1:${relay.port}` },
  })
  relay.close()
  expect(code, errors.flat().join("\n")).toBe(0)
}, 60_000)

test("a connection cut while the ranks connect: the waiting rank hears of it before its limit", async () => {
  const limit = 10
  const relay = await startRelay("cut", 1, 0)
  const began = performance.now()
  const { out } = await runJob([program, "none"], 2, {
    backend: "ring",
    timeLimit: limit,
    env: { LAZULI_PROXY: `127.0.0.1:${relay.port}` },
  })
  const took = performance.now() - began
  relay.close()
  for (const [line] of out)
    expect(JSON.parse(line ?? "{}")).toMatchObject({ name: "DistributedError", op: "init", rank: 0 })
  expect(out.flat().join("\n")).toContain("rank 0 cannot be reached")
  expect(took).toBeLessThan(limit * 1000)
}, 60_000)

test("ranks that learn of a connection that did not come about are told between whom", async () => {
  // The last one that is made.
  const relay = await startRelay("cut", 5, 0)
  const { out } = await runJob([program, "none"], 3, {
    backend: "ring",
    timeLimit: LIMIT,
    env: { LAZULI_PROXY: `127.0.0.1:${relay.port}` },
  })
  relay.close()
  for (const [line] of out) {
    const { name, message } = JSON.parse(line ?? "{}")
    expect(name, message).toBe("DistributedError")
    expect(message).toMatch(/rank \d cannot be reached by rank \d/)
  }
}, 60_000)
