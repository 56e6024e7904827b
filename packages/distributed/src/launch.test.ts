import { execFileSync, spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { availableParallelism, constants, tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { pathToFileURL } from "node:url"
import { afterAll, describe, expect, onTestFinished, test } from "vitest"
import { hasMpirun, type MpiJobOptions, programOf, runJob, runUnderMpi } from "../test/run-job"
import { type LaunchOptions, launch, runCommand } from "./launch"

test.each([
  [2, ""],
  [2, "1"],
])(
  "%i processes add up an array, under transforms; by the reference backend on rank %s",
  async (n, reference) => {
    const env = { REFERENCE: reference }
    const { code, out, errors } = await runJob([await programOf("first")], n, { backend: "ring", env })
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
  },
)

test.each([
  ["ring", 3, "0", 1],
  ["ring", 2, "1", 1],
  ["ring", 4, "0", 1],
  ["ring", 2, "1", 4],
  ["ring", 3, "0", 2],
  ["shm", 2, "0", 1],
  ["shm", 3, "0", 1],
] as const)(
  "every collective by %s on %i ranks, second thread %s, by %i connections",
  async (backend, n, second, connections) => {
    if (backend === "shm" && process.platform !== "linux") return
    const env = { LAZULI_SECOND_THREAD: second, LAZULI_CONNECTIONS: String(connections) }
    const { code, out, errors } = await runJob([await programOf("collectives")], n, { backend, env })
    expect(code, errors.flat().join("\n")).toBe(0)
    for (const [line] of out) expect(JSON.parse(line)).toEqual({ wrong: [], fallbacks: [], windows: 0 })
  },
  60_000,
)

/** The lines in which two ranks say which collectives were wrong; `prefix` is a command that runs another. */
async function underMpi(
  way: string,
  { prefix, env: more }: Pick<MpiJobOptions, "prefix" | "env"> = {},
): Promise<string[]> {
  const env = { LAZULI_MPI: way, ...more }
  const { out, errors } = await runUnderMpi([await programOf("collectives")], 2, { env, prefix })
  expect(out.flat(), errors).toHaveLength(2)
  return out.flat()
}
const told = (windows: number): string => JSON.stringify({ wrong: [], fallbacks: [], windows })
/** Of the whole group, of the same members in another order, and of a part that has all members. */
const ALL_WINDOWS = process.platform === "linux" ? 3 : 0

test.runIf(hasMpirun).each(["memory", "messages", "collectives", "mixed"])(
  "every collective under mpirun, by MPI's %s",
  async (way) => {
    const right = told(way === "memory" ? ALL_WINDOWS : 0)
    expect(await underMpi(way)).toEqual([right, right])
  },
  60_000,
)

/** The way by which Open MPI uses most fast networks, here over TCP and shared memory: its tags have fewer bits. */
const ucx = {
  OMPI_MCA_pml: "ucx",
  OMPI_MCA_pml_ucx_tls: "any",
  OMPI_MCA_pml_ucx_devices: "any",
  UCX_TLS: "tcp,self,sm",
  // It would print that a message was not received, which is meant.
  UCX_LOG_LEVEL: "error",
}
const hasUcx = /pml: ucx/.test(spawnSync("ompi_info", { encoding: "utf8" }).stdout ?? "")
test.runIf(hasMpirun && hasUcx).each(["memory", "messages", "collectives"])(
  "every collective under mpirun by UCX, by MPI's %s",
  async (way) => {
    const right = told(way === "memory" ? ALL_WINDOWS : 0)
    expect(await underMpi(way, { env: ucx })).toEqual([right, right])
  },
  60_000,
)

/** Runs a command where little memory can be shared, which only root may. */
const cramped = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=3m tmpfs /dev/shm && exec "$@"', "-"]
const canCramp = spawnSync(cramped[0], [...cramped.slice(1), "true"]).status === 0
test.runIf(hasMpirun && canCramp)(
  "mpi sends messages where there is no room for shared memory",
  async () => {
    expect(await underMpi("memory", { prefix: cramped })).toEqual([told(0), told(0)])
  },
  60_000,
)

test("a job that `node -e` launches runs its own program, not the launcher again", async () => {
  const launcher = pathToFileURL(await programOf("../src/launch")).href
  const program = join(mkdtempSync(join(tmpdir(), "lazuli-launch-")), "program.mjs")
  onTestFinished(() => rmSync(dirname(program), { recursive: true }))
  writeFileSync(program, "console.log('ran', process.argv[2])")
  const script = `import { launch } from ${JSON.stringify(launcher)}
    if (process.env.LAZULI_RANK) throw new Error("launched again")
    process.exitCode = await launch({ command: process.argv.slice(1), ranks: 1 })`
  const out = execFileSync(process.execPath, ["--input-type=module", "-e", script, program, "word"])
  expect(out.toString()).toBe("[0] ran word\n")
}, 30_000)

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
  await expect(runCommand(["lunch", "x"])).rejects.toThrow(
    '[lazuli] has no command "lunch". usage: lazuli launch',
  )
  await expect(runCommand(["launch", "--rnks", "3", "x"])).rejects.toThrow("has no option")
  for (const args of [["-nx"], ["--ranks=x"], ["--restarts", "x"], ["--time-limit", "0"], ["-n"]])
    await expect(runCommand(["launch", ...args, "x.js"])).rejects.toThrow(/has no option|expected a number/)
  await expect(runCommand(["launch", "--hosts", ",", "x.js"])).rejects.toThrow("a value after --hosts")
  for (const options of [{ hosts: [] }, { hosts: ["a", "b"], ranks: 4096 }, { restarts: Number.NaN }])
    await expect(launch({ command: ["-e", ""], ranks: 1, ...options })).rejects.toThrow("[launch] expected")
  await expect(runCommand(["launch", "-n4", "none.js"])).rejects.toThrow('there is no program "none.js"')
  await expect(runCommand(["launch", "-n4", "--", "none.js"])).rejects.toThrow(
    'there is no program "none.js"',
  )
  await expect(runCommand(["launch", "--backend", "mpi", "-n", "3", "x.js"])).rejects.toThrow(
    'the backend "mpi" is for processes that mpirun starts. Start the program with LAZULI_BACKEND=mpi mpirun -n 3 node x.js',
  )
})

test("a process that a rank has started keeps nobody waiting", async () => {
  const begin = performance.now()
  const script =
    "require('node:child_process').spawn('sleep', ['15'], { stdio: 'inherit' }); process.stdout.write('last'); " +
    "setTimeout(() => process.kill(process.pid, 'SIGBUS'), 100)"
  const { code, out } = await runJob(["-e", script], 1)
  expect([code, out]).toEqual([128 + constants.signals.SIGBUS, [["last"]]])
  expect(performance.now() - begin).toBeLessThan(8000)
})

test("a process joins once, whatever its threads and children inherit", async () => {
  const { code, out, errors } = await runJob([await programOf("one-rank")], 2, { backend: "ring" })
  expect(code, errors.flat().join("\n")).toBe(0)
  for (const [line] of out) {
    const { worker, child, again, added, written } = JSON.parse(line)
    expect(worker).toBe("[init] this process has joined the job already")
    expect(child).toMatch(/^\[init\] this process is not rank \d: process \d+, which started it, is/)
    expect([again, added, written]).toEqual([2, 0, "mine"])
  }
}, 60_000)

test.each([false, true])("an interrupt ends all ranks, in a terminal at once too: %s", async (isTTY) => {
  const { isTTY: before } = process.stdin
  Object.assign(process.stdin, { isTTY })
  onTestFinished(() => void Object.assign(process.stdin, { isTTY: before }))
  const begin = performance.now()
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
  // Ctrl-C leaves them ten seconds.
  expect(performance.now() - begin).toBeLessThan(9000)
  for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow("ESRCH")
})

test.each([
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const)("a job that %s ends is not started again", async (name, expected) => {
  const lines: string[] = []
  const { code } = await runJob(["-e", "console.log('here'); setTimeout(() => {}, 60000)"], 1, {
    restarts: 2,
    print: (line) => {
      lines.push(line)
      process.emit(name, name)
    },
  })
  expect([code, lines]).toEqual([expected, ["here"]])
})

describe("a program in TypeScript", () => {
  const folder = mkdtempSync(join(tmpdir(), "lazuli-typescript-"))
  afterAll(() => rmSync(folder, { recursive: true }))
  const program = join(folder, "program.ts")
  writeFileSync(program, "const ran: string = 'ran'\nconsole.log(ran)\n")
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }')
  const runsByItself =
    Boolean((process.features as { typescript?: unknown }).typescript) ||
    process.allowedNodeEnvironmentFlags.has("--experimental-strip-types")

  test.skipIf(runsByItself)("asks for tsx or another Node", async () => {
    await expect(runCommand(["launch", program])).rejects.toThrow(
      /^\[launch\] Node 20\S* cannot run ".*program.ts", which is TypeScript. Run `npm install --save-dev tsx`/,
    )
  })
  test("runs by Node or, where that cannot, by the project's tsx", async () => {
    const tsx = join(folder, "node_modules/tsx")
    mkdirSync(tsx, { recursive: true })
    writeFileSync(join(tsx, "package.json"), '{ "exports": "./loader.mjs" }')
    const hook =
      "export const load = (url, context, next) => url.endsWith('.ts') ? " +
      "{ format: 'module', source: 'console.log(`ran`)', shortCircuit: true } : next(url, context)"
    writeFileSync(
      join(tsx, "loader.mjs"),
      `import { register } from "node:module"\nregister(${JSON.stringify(`data:text/javascript,${encodeURIComponent(hook)}`)})\n`,
    )
    const { code, out } = await runJob([program], 2)
    expect([code, out]).toEqual([0, [["ran"], ["ran"]]])
  })
})

describe.runIf(process.platform === "linux")("the processors of ranks", () => {
  const list = `import { readFileSync } from "node:fs"
    console.log(/^Cpus_allowed_list:\\s*(.*)$/m.exec(readFileSync("/proc/thread-self/status", "utf8"))[1])`
  const allowed = async (ranks: number, options: Partial<LaunchOptions> = {}): Promise<string[]> => {
    const { out } = await runJob(["--input-type=module", "--eval", list], ranks, options)
    return out.map(([line]) => line)
  }
  const mine = (): string =>
    String(/^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync("/proc/thread-self/status", "utf8"))?.[1])
  const count = availableParallelism()

  test.runIf(count > 1)("are shares, and this process keeps its own", async () => {
    const before = mine()
    const [first, second] = await allowed(2)
    expect(mine()).toBe(before)
    expect([first, second]).not.toContain(before)
    const numbers = [first, second].flatMap(numbersIn)
    expect(numbers.sort((a, b) => a - b)).toEqual(numbersIn(before))
  })

  test("are all where that is asked for, or ranks or their threads are more", async () => {
    const before = mine()
    expect(await allowed(2, { processors: "all" })).toEqual([before, before])
    expect(await allowed(2, { env: { LAZULI_NUM_THREADS: String(count) } })).toEqual([before, before])
    expect(new Set(await allowed(count + 1))).toEqual(new Set([before]))
  })
})

/** The numbers of a list like `0-2,5`. */
function numbersIn(list: string): number[] {
  return list.split(",").flatMap((range) => {
    const [first, last = first] = range.split("-").map(Number)
    return Array.from({ length: last - first + 1 }, (_, i) => first + i)
  })
}

test("a job ends when nobody reads any more what it prints", async () => {
  setTimeout(() => process.stdout.emit("error", new Error("write EPIPE")), 300)
  expect(await runCommand(["launch", "-n", "1", "--", "-e", "setInterval(() => {}, 1000)"])).toBe(130)
})
