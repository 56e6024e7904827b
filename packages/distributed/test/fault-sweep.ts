/**
 * `npm run faults -- [runs] [limit] [seed] [first] [faults]`: jobs of two to four ranks to which something happens at a random moment, one
 * after the other. Every rank must then throw an error that names a rank within the limit, or come to a right end; no process, port or
 * shared memory may be left. A run depends on the seed and its own number alone: `first` continues an interrupted sweep, or repeats a run,
 * and `faults`, as in `kill,stop`, leaves out the runs with others.
 */
import { readdirSync } from "node:fs"
import { connect } from "node:net"
import { isThere as isAlive } from "./processes"
import { type Harm, startRelay } from "./relay"
import { hasMpirun, programOf, runJob, runUnderMpi } from "./run-job"

const [runs = 900, limit = 0.3, seed = 1, first = 0] = process.argv.slice(2, 6).map(Number)
const wanted = process.argv[6]?.split(",")
/** Seconds that a loaded machine may add to the limit. */
const SLACK = 2
const STEPS = 400

let state = 0
function random(below: number): number {
  state = (state + 0x6d2b79f5) >>> 0
  let t = Math.imul(state ^ (state >>> 15), state | 1)
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
  return ((t ^ (t >>> 14)) >>> 0) % below
}

type Fault = Harm | "kill" | "stop"
const FAULTS: Fault[] = [
  "kill",
  "stop",
  "kill",
  "stop",
  "cut",
  "delay",
  "corrupt",
  "reorder",
  "silence",
  "none",
]

/** Milliseconds in which this process ran: a machine that stops all processes for a while stops this clock too. */
let ran = 0
const TICK = 20
let ticked = performance.now()
setInterval(() => {
  const now = performance.now()
  ran += Math.min(now - ticked, 10 * TICK)
  ticked = now
}, TICK).unref()
const clock = (): number => ran + Math.min(performance.now() - ticked, 10 * TICK)

interface Said {
  /** By this process's clock. */
  readonly at: number
  readonly pid?: number
  readonly port?: number
  readonly joined?: boolean
  readonly step?: number
  readonly done?: boolean
  readonly wrong?: number
  readonly name?: string
  readonly message?: string
  readonly rank?: number
}

const sharedMemory = (): string =>
  process.platform === "linux"
    ? String(readdirSync("/dev/shm").filter((name) => /lazuli(?!-double)/i.test(name)))
    : ""
const isOpen = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1")
    const tell = (open: boolean) => () => {
      socket.destroy()
      resolve(open)
    }
    socket.once("connect", tell(true)).once("error", tell(false))
  })

/** Draws the fault of a run, and begins its random numbers. */
function faultOf(number: number): Fault {
  state = Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(number + 1, 0x85ebca6b)
  return FAULTS[random(FAULTS.length)]
}

interface Trial {
  readonly kind: string
  /** True if all ranks joined. */
  readonly met: boolean
  /** True if the fault came when the other ranks needed nothing more of the victim. */
  readonly late: boolean
  /** Seconds from the fault to the last error. */
  readonly took: number
  readonly problems: string[]
}

async function trial(program: string, number: number): Promise<Trial> {
  const fault = faultOf(number)
  const ranks = 2 + random(3)
  const isSignal = fault === "kill" || fault === "stop"
  // The others have connections that a relay can harm.
  const backends = ["ring", ...(process.platform === "linux" ? ["shm"] : []), ...(hasMpirun ? ["mpi"] : [])]
  const backend = isSignal ? backends[random(backends.length)] : "ring"
  const victim = random(ranks)
  const moment = random(120)
  const [connection, bytes] = [random(ranks * (ranks - 1)), random(400_000)]
  const relay = isSignal ? null : await startRelay(fault, connection, bytes)
  const said: Said[][] = Array.from({ length: ranks }, () => [])
  let joined = 0
  let struck = 0
  let resumed = false
  const lastOf = (lines: readonly Said[]): Said | undefined => lines[lines.length - 1]
  const areOthersDone = (): boolean => said.every((lines, rank) => rank === victim || lastOf(lines)?.done)
  // A victim that is stopped when the others are done keeps nobody waiting but the launcher, and must come to a right end once it goes on.
  const resume = (): void => {
    const { pid } = said[victim][0]
    if (fault !== "stop" || struck === 0 || resumed || pid === undefined || !areOthersDone() || !isAlive(pid))
      return
    resumed = true
    process.kill(pid, "SIGCONT")
  }
  const stop = new AbortController()
  // A loaded machine may take long over all steps; it hangs where none is done.
  let heard = clock()
  const guard = setInterval(() => clock() - heard > (limit + 40) * 1000 && stop.abort(), 1000)
  const hear = (line: string, rank: number): void => {
    if (!line.startsWith("{")) return
    const it = JSON.parse(line) as Said
    heard = clock()
    said[rank].push({ ...it, at: heard })
    if (it.done) resume()
    if (!it.joined || ++joined < ranks || !isSignal) return
    setTimeout(() => {
      struck = clock()
      const pid = said[victim][0].pid as number
      if (isAlive(pid)) process.kill(pid, fault === "kill" ? "SIGKILL" : "SIGSTOP")
      resume()
    }, moment)
  }
  const command = [program, String(STEPS), String(random(2 ** 31))]
  const env = { LAZULI_JOIN_LIMIT: "30", ...(relay && { LAZULI_PROXY: `127.0.0.1:${relay.port}` }) }
  if (backend === "mpi")
    await runUnderMpi(command, ranks, {
      signal: stop.signal,
      env: { ...env, LAZULI_TIME_LIMIT: String(limit) },
      print(line, rank) {
        hear(line, rank)
        // It would wait for a stopped rank.
        const haveFailed = said.every((lines, r) => r === victim || lastOf(lines)?.name !== undefined)
        const pid = said[victim][0]?.pid
        if (fault === "stop" && haveFailed && pid !== undefined && isAlive(pid)) process.kill(pid, "SIGKILL")
      },
    })
  else
    await runJob(command, ranks, {
      backend,
      timeLimit: limit,
      signal: stop.signal,
      env,
      print: (line, rank, error) => void (error || hear(line, rank)),
    })
  clearInterval(guard)
  relay?.close()
  const problems: string[] = []
  if (stop.signal.aborted) problems.push(`it hung after ${JSON.stringify(said.map(lastOf))}`)
  let took = 0
  said.forEach((lines, rank) => {
    const last = lastOf(lines)
    if (lines.some(({ wrong }) => wrong !== undefined)) problems.push(`rank ${rank} had a wrong sum`)
    if (isSignal && rank === victim && !resumed) return
    if (last?.done) return
    if (last?.name !== "DistributedError" || last.rank === undefined)
      problems.push(`rank ${rank} ended with ${JSON.stringify(last)}`)
    else if (struck > 0) {
      took = Math.max(took, (last.at - struck) / 1000)
      if (last.rank !== victim) problems.push(`rank ${rank} blames rank ${last.rank}: ${last.message}`)
    }
  })
  if (took > limit + SLACK) problems.push(`it took ${took.toFixed(2)} s`)
  for (const lines of said)
    for (const { pid, port } of lines) {
      if (pid !== undefined && isAlive(pid)) problems.push(`process ${pid} is left`)
      if (port !== undefined && (await isOpen(port))) problems.push(`port ${port} is left`)
    }
  if (sharedMemory() !== "") problems.push(`shared memory is left: ${sharedMemory()}`)
  const kind = `${fault} by ${backend}`
  return { kind, met: joined === ranks, late: isSignal && areOthersDone(), took, problems }
}

const program = await programOf("fault-rank")
const counts = new Map<string, { runs: number; slowest: number }>()
let failures = 0
let done = 0
/** Runs in which all ranks joined. */
let together = 0
let late = 0
let stopped = false
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => (stopped = true))
for (let i = first; i < first + runs && !stopped; i++) {
  if (wanted && !wanted.includes(faultOf(i))) continue
  const { kind, met, late: isLate, took, problems } = await trial(program, i)
  if (met) together++
  if (isLate) late++
  const entry = counts.get(kind) ?? { runs: 0, slowest: 0 }
  counts.set(kind, { runs: entry.runs + 1, slowest: Math.max(entry.slowest, took) })
  done++
  if (problems.length > 0) {
    failures++
    console.log(`run ${i}, ${kind}: ${problems.join("; ")}`)
  }
  if (done % 50 === 0) console.log(`${done} runs, ${failures} failed`)
}
for (const [kind, { runs: n, slowest }] of [...counts].sort())
  console.log(`${kind.padEnd(18)} ${String(n).padStart(4)} runs, slowest ${slowest.toFixed(2)} s`)
console.log(
  `${done} runs with a limit of ${limit} s, all ranks joined in ${together}, ${late} signals came late: ${failures} failed`,
)
process.exitCode = failures > 0 ? 1 : 0
