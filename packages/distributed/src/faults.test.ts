/** A rank fails, and every other one throws an error that names it, in time. */
import { beforeAll, expect, test } from "vitest"
import { startRelay } from "../test/relay"
import { hasMpirun, programOf, runJob, runUnderMpi } from "../test/run-job"

let program = ""
beforeAll(async () => {
  program = await programOf("faults")
})

const LIMIT = 1
const backends = process.platform === "linux" ? ["ring", "shm"] : ["ring"]
const faults: [fault: string, says: RegExp][] = [
  ["kill", /^\[allSum\] rank 1 was lost/],
  ["stop", /^\[allSum\] rank 1 has not been heard of for 1 s/],
  ["slow", /^\[allSum\] rank 1 has not reached this operation within 1 s/],
  ["exit", /^\[allSum\] rank 1 left the job/],
  ["shape", /^\[allSum\] rank 1 has an array of another shape/],
  ["count", /^\[allSum\] rank 1 is at operation \d+ of the group, allSum of 900 float32 elements/],
  ["dtype", /^\[allSum\] rank 1 is at operation \d+ of the group, allSum of 1000 int32 elements/],
  ["names", /^\[allSum\] rank 1 averages gradients of other names, shapes or dtypes than rank [02],/],
  ["types", /^\[allSum\] rank 1 averages gradients of other names, shapes or dtypes than rank [02],/],
  ["leaves", /^\[allSum\] rank 1 averages gradients of other names, shapes or dtypes than rank [02],/],
  ["tangents", /^\[allSum\] rank 1 is at .*, and rank [02] at .*, for a derivative/],
  ["cotangents", /^\[allGather\] rank 1 is at .*, and rank [02] at .*, for a derivative/],
  ["order", /^\[allSum\] rank 1 is at operation \d+ of the group, allMax of 1000 float32/],
]

const cases = backends
  .flatMap((backend) => faults.map(([fault, says]) => ({ backend, fault, says })))
  .filter(
    ({ backend, fault }) =>
      backend === "ring" || ["kill", "stop", "count", "names", "tangents"].includes(fault),
  )
test.each(cases)(
  "$fault by $backend",
  async ({ backend, fault, says }) => {
    const { code, out, errors } = await runJob([program, fault], 3, { backend, timeLimit: LIMIT })
    expect(code).not.toBe(0)
    for (const rank of [0, 2]) {
      expect(out[rank], errors.flat().join("\n")).toHaveLength(1)
      const { name, message, rank: named, op, took } = JSON.parse(out[rank][0])
      expect({ name, op }).toEqual({
        name: "DistributedError",
        op: fault === "cotangents" ? "allGather" : "allSum",
      })
      // Ranks may be surprised by each other where two do different things.
      const fits = says.test(message) && named === 1
      const converse =
        !["kill", "stop", "slow"].includes(fault) && /^\[(?:allSum|allGather)\] rank [02] /.test(message)
      expect(fits || converse, message).toBe(true)
      expect(took).toBeLessThan((LIMIT + 1.5) * 1000)
    }
  },
  30_000,
)

test.each(backends)(
  "a stopped rank is named in time by those that have work of their own first, by %s",
  async (backend) => {
    const { out, errors } = await runJob([program, "busy"], 3, { backend, timeLimit: LIMIT })
    for (const rank of [0, 2]) {
      const { message, took } = JSON.parse(out[rank][0] ?? "{}")
      expect(message, errors.flat().join("\n")).toMatch(/^\[allSum\] rank 1 has not been heard of for 1 s/)
      expect(took).toBeLessThan(1500)
    }
  },
  30_000,
)

test.each(backends)("broadcasts from different roots by %s", async (backend) => {
  const { out, errors } = await runJob([program, "root"], 2, { backend, timeLimit: LIMIT })
  for (const [line] of out) {
    const { name, op, message } = JSON.parse(line)
    expect({ name, op }, errors.flat().join("\n")).toEqual({ name: "DistributedError", op: "broadcast" })
    expect(message).toContain("broadcast of 1000 float32 elements from rank 0")
    expect(message).toContain("broadcast of 1000 float32 elements from rank 1")
  }
})

test("a machine that stops all ranks for longer than the limit does no harm", async () => {
  const pids: number[] = []
  const said: string[] = []
  const joined = { count: 0, at: 0 }
  const signal = (name: NodeJS.Signals): void => {
    for (const pid of pids) process.kill(pid, name)
  }
  const { code } = await runJob([await programOf("fault-rank"), "600", "1"], 3, {
    backend: "ring",
    timeLimit: LIMIT,
    print(line, rank, error) {
      if (error) return void said.push(`${rank}: ${line}`)
      const { pid, joined: is, ...rest } = JSON.parse(line)
      if (pid) pids.push(pid)
      else if (!is) said.push(JSON.stringify(rest))
      else if (++joined.count === 3) {
        signal("SIGSTOP")
        joined.at = performance.now()
        setTimeout(() => signal("SIGCONT"), 2 * LIMIT * 1000)
      }
    },
  })
  expect(performance.now() - joined.at).toBeGreaterThan(2 * LIMIT * 1000)
  expect(code, said.join("\n")).toBe(0)
  expect(said.filter((line) => line === '{"done":true}')).toHaveLength(3)
}, 60_000)

test("the time in which a process is stopped is no part of its wait for a device", async () => {
  const said: string[] = []
  const { code } = await runJob([await programOf("device-wait"), "stopped"], 2, {
    backend: "ring",
    timeLimit: LIMIT,
    print(line, _rank, error) {
      if (error) return
      said.push(line)
      const { pid } = JSON.parse(line)
      if (!pid) return
      process.kill(pid, "SIGSTOP")
      setTimeout(() => process.kill(pid, "SIGCONT"), 2 * LIMIT * 1000)
    },
  })
  expect(code).toBe(3)
  const { message, checks } = JSON.parse(said[1])
  expect(message).toMatch(/^\[allSum\] rank 1 has not reached this operation within 1 s/)
  expect(checks).toBeGreaterThan((LIMIT * 1000 * 0.4) / 20)
}, 60_000)

test.each([
  { what: "ahead", ends: false },
  { what: "apart", ends: false },
  { what: "far", ends: false },
  { what: "idle", ends: false },
  { what: "outside", ends: false },
  { what: "different", ends: true },
  { what: "crossed", ends: true },
  { what: "around", ends: true },
  { what: "turned", ends: true },
  { what: "circle", ends: true },
])(
  "long waits for devices whose operations are $what end with an error: $ends",
  async ({ what, ends }) => {
    const { code, out, errors } = await runJob([await programOf("device-wait"), what], 4, {
      backend: "ring",
      timeLimit: LIMIT,
    })
    expect(code, [...out, ...errors].flat().join("\n")).toBe(ends ? 3 : 0)
    for (const [line] of out) {
      const { message } = JSON.parse(line)
      if (what === "different")
        expect(message).toMatch(
          /^\[allSum\] rank \d and rank \d differ in operation \d+ of a group on their devices/,
        )
      else if (what === "turned" || what === "circle")
        expect(message).toMatch(
          /^\[allSum\] rank [012] and rank [012] wait for each other's devices, or for others that do/,
        )
      else if (ends) expect(message).toMatch(/^\[allSum\] rank \d and rank \d wait for each other's devices/)
      else expect(message).toBe(null)
    }
  },
  30_000,
)

test("an idle rank is named behind more groups than it tells of", async () => {
  const { out } = await runJob([await programOf("device-wait"), "lanes"], 2, {
    backend: "ring",
    timeLimit: LIMIT,
  })
  expect(JSON.parse(out[0][0]).message).toMatch(
    /^\[allSum\] rank 1 has not reached this operation within 1 s/,
  )
}, 30_000)

test("a rank that hears of the end of another before it hears why names the cause", async () => {
  // The third rank's control connection to the second, after two to the first.
  const relay = await startRelay("lag", 2, 0)
  const { out } = await runJob([await programOf("device-wait"), "late"], 3, {
    backend: "ring",
    timeLimit: LIMIT,
    env: { LAZULI_PROXY: `127.0.0.1:${relay.port}` },
  })
  relay.close()
  for (const [line] of out)
    expect(JSON.parse(line).message).toMatch(
      /^\[allSum\] rank [01] and rank [01] wait for each other's devices/,
    )
}, 30_000)

test
  .runIf(hasMpirun)
  .each(["memory", "messages"].flatMap((way) => ["kill", "stop", "count"].map((fault) => ({ fault, way }))))(
  "$fault by mpi with $way, under mpirun --enable-recovery",
  async ({ fault, way }) => {
    let ended = 0
    const { out } = await runUnderMpi([program, fault], 3, {
      env: { LAZULI_MPI: way, LAZULI_TIME_LIMIT: String(LIMIT) },
      print(_line, _rank, end) {
        // A stopped rank would keep it.
        if (++ended === 2) setTimeout(end, 500).unref()
      },
    })
    const told = out
      .flat()
      .filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line))
    expect(told.length).toBeGreaterThanOrEqual(2)
    for (const { name, op, rank, took } of told) {
      expect({ name, op }).toEqual({ name: "DistributedError", op: "allSum" })
      if (fault !== "count") expect(rank).toBe(1)
      expect(took).toBeLessThan((LIMIT + 1.5) * 1000)
    }
  },
  60_000,
)

test.runIf(hasMpirun)(
  "a rank that has left does not wait in MPI for one that is killed before it does",
  async () => {
    const { out } = await runUnderMpi([program, "late", "5", "10"], 2, {
      signal: AbortSignal.timeout(15_000),
    })
    expect(out).toEqual([[JSON.stringify({ name: "left" })], []])
  },
  60_000,
)

test.runIf(hasMpirun)(
  "sizes of which one goes by messages and the others by MPI's own algorithms differ at once",
  async () => {
    const { out, errors } = await runUnderMpi([program, "count", "5", "1000", "1000000"], 3, {
      env: { LAZULI_MPI: "mixed", LAZULI_TIME_LIMIT: String(4 * LIMIT) },
    })
    for (const lines of out) {
      const { name, message, took } = JSON.parse(lines[0] ?? "{}")
      expect(name, errors).toBe("DistributedError")
      expect(message).toMatch(/allSum of 900 float32 elements/)
      expect(message).toMatch(/allSum of 1000000 float32 elements/)
      expect(took).toBeLessThan(3 * LIMIT * 1000)
    }
  },
  60_000,
)

test
  .runIf(hasMpirun)
  .each(
    ["messages", "collectives"].flatMap((way) =>
      ["shape", "count", "dtype", "order", "root"].map((fault) => ({ fault, way })),
    ),
  )(
  "a difference in $fault by mpi with $way",
  async ({ fault, way }) => {
    const { out, errors } = await runUnderMpi([program, fault], 2, {
      env: { LAZULI_MPI: way, LAZULI_TIME_LIMIT: String(LIMIT) },
    })
    for (const lines of out) {
      const { name, message } = JSON.parse(lines[0] ?? "{}")
      expect(name, errors).toBe("DistributedError")
      expect(message).toMatch(/rank [01] (is at operation \d+ of the group|has an array of another shape)/)
    }
  },
  60_000,
)
