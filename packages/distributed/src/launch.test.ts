import { execFileSync } from "node:child_process"
import { existsSync } from "node:fs"
import { expect, test } from "vitest"
import { programOf, runJob } from "../test/run-job"
import { runCommand } from "./launch"

test.each([2])("%i processes add up an array, under transforms", async (n) => {
  const { code, out, errors } = await runJob([await programOf("first")], n, { backend: "ring" })
  expect(code, errors.flat().join("\n")).toBe(0)
  const total = (n * (n + 1)) / 2
  for (const lines of out) {
    const squares = [1, 2, 3].map((v) => {
      let sum = 1
      for (let r = 1; r <= n; r++) sum += (v * r) ** 2
      return sum
    })
    expect(JSON.parse(lines[0])).toEqual({
      size: n,
      sum: [total, 2 * total, 3 * total],
      grad: [2 * total, 4 * total, 6 * total],
      jvp: [n, n, n],
      vmap: [[total], [2 * total], [3 * total]],
      compiled: [squares, squares],
      large: [total, total],
      stats: {},
    })
  }
})

test.each([
  ["ring", 3, "0"],
  ["ring", 2, "1"],
  ["shm", 2, "0"],
  ["shm", 3, "0"],
] as const)(
  "every collective by %s on %i ranks, second thread %s",
  async (backend, n, second) => {
    if (backend === "shm" && process.platform !== "linux") return
    const env = { LAZULI_SECOND_THREAD: second }
    const { code, out, errors } = await runJob([await programOf("collectives")], n, { backend, env })
    expect(code, errors.flat().join("\n")).toBe(0)
    for (const [line] of out) expect(JSON.parse(line)).toEqual({ wrong: [], fallbacks: [] })
  },
  60_000,
)

const mpirun = "/usr/bin/mpirun"
test.runIf(existsSync(mpirun)).each(["messages", "collectives"])(
  "every collective under mpirun, by MPI's %s",
  async (way) => {
    const program = await programOf("collectives")
    const options = ["--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "2"]
    const own = { LAZULI_BACKEND: "mpi", LAZULI_MPI: way, LAZULI_NUM_THREADS: "1", LAZULI_QUIET: "1" }
    const env = { ...process.env, ...own }
    const text = execFileSync(mpirun, [...options, process.execPath, program], {
      env,
      timeout: 60_000,
    }).toString()
    const right = JSON.stringify({ wrong: [], fallbacks: [] })
    expect(text.trim().split("\n")).toEqual([right, right])
  },
  60_000,
)

test("the launcher keeps exit codes, ends the others, restarts and passes arguments", async () => {
  const started = performance.now()
  const script =
    "const r = process.env.LAZULI_RANK; console.log(r, process.argv[1]); " +
    "if (r === '1' && process.env.LAZULI_RESTART === '0') process.exit(7); else if (process.env.LAZULI_RESTART === '0') setTimeout(() => {}, 60000)"
  const first = await runJob(["-e", script, "word"], 2)
  expect(first.code).toBe(7)
  expect(first.out).toEqual([["0 word"], ["1 word"]])
  expect(first.errors[1]).toEqual(["ended with code 7"])
  expect(performance.now() - started).toBeLessThan(10_000)
  const second = await runJob(["-e", script, "word"], 2, { restarts: 1 })
  expect([second.code, second.out[0].length]).toEqual([0, 2])
  await expect(runCommand(["launch", "--rnks", "3", "x"])).rejects.toThrow("has no option")
  await expect(runCommand(["launch", "--backend", "mpi", "-n", "3", "x.js"])).rejects.toThrow(
    'the backend "mpi" is for processes that mpirun starts. Start the program with LAZULI_BACKEND=mpi mpirun -n 3 node x.js',
  )
})

test("an interrupt ends all ranks", async () => {
  const interrupt = new AbortController()
  const done = runJob(["-e", "console.log(process.pid); setTimeout(() => {}, 60000)"], 2, {
    signal: interrupt.signal,
    print: (line) => {
      pids.push(Number(line))
      if (pids.length === 2) interrupt.abort()
    },
  })
  const pids: number[] = []
  expect((await done).code).toBe(130)
  for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow("ESRCH")
})
