/**
 * The launcher: starts the processes of a job, here or by ssh, shows what they print with their ranks, and ends all when one fails.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { createRequire } from "node:module"
import { createServer, type Server } from "node:net"
import { availableParallelism, constants, hostname } from "node:os"
import { join, resolve } from "node:path"
import { ArgumentError } from "@lazuli/core"
import { library, native } from "./native"
import { optionsFor } from "./typescript-programs"

/** A job to start. */
export interface LaunchOptions {
  /** The program, as Node takes it, and its arguments. */
  readonly command: readonly string[]
  /** The number of ranks, on each host where there are several. */
  readonly ranks: number
  /** Machines that ssh reaches; this one by default. */
  readonly hosts?: readonly string[]
  readonly backend?: string
  /** A job that failed is started again at most so often. */
  readonly restarts?: number
  /** Seconds without progress after which an operation fails. */
  readonly timeLimit?: number
  /**
   * The processors of each rank of this machine: its share of them, where that has one for each of its threads, or all. A share by default.
   */
  readonly processors?: "share" | "all"
  /** Further environment variables. */
  readonly env?: Readonly<Record<string, string>>
  /** Receives what ranks print, a line at a time; the terminal by default. */
  readonly print?: (line: string, rank: number, error: boolean) => void
  /** Ends the job. */
  readonly signal?: AbortSignal
}

/** So long others may notice by themselves that a rank is gone, and say so, before they are ended. */
const GRACE = 1500
/** So long they may take to end. */
const PATIENCE = 2000
/** The same where somebody ends the job, and they may save what they have. */
const SAVING = 10_000
/** So long what a rank has printed is read once it has ended: processes that it started may keep its output open. */
const DRAIN = 200

/**
 * Runs a job to its end, and gives its exit code: that of the first rank that failed, 0 when none did. Ranks print with their rank in
 * front; when one fails the others are ended; ranks find each other at a port that is open while they do, with a secret of the job.
 * @example
 * const lines: string[] = []
 * const program = ['-e', 'console.log(process.env.LAZULI_RANK)']
 * await launch({ command: program, ranks: 2, print: (line) => lines.push(line) }) // => 0
 * lines.sort() // => ['0', '1']
 */
export async function launch(options: LaunchOptions): Promise<number> {
  const { ranks, restarts = 0, hosts } = options
  if (hosts?.length === 0) throw new ArgumentError("launch", "expected a host")
  const size = ranks * (hosts?.length ?? 1)
  if (!Number.isSafeInteger(ranks) || ranks < 1 || size > 4096)
    throw new ArgumentError("launch", `expected from 1 to 4096 ranks, received ${size}`)
  if (!Number.isSafeInteger(restarts) || restarts < 0)
    throw new ArgumentError("launch", `expected an integer number of restarts from 0, received ${restarts}`)
  const [program] = options.command
  if (program === undefined) throw new ArgumentError("launch", "expected a program to start")
  if (options.backend === "mpi")
    throw new ArgumentError("launch", 'the backend "mpi" is for processes that mpirun starts', {
      hint: `Start the program with LAZULI_BACKEND=mpi mpirun -n ${ranks} node ${options.command.join(" ")}`,
    })
  if (hostsOfRanks(options).every(isLocal)) checkIsThere(program)
  const command = [...optionsFor(program), ...options.command]
  for (let attempt = 0; ; attempt++) {
    const { code, interrupted } = await attemptTo({ ...options, command }, attempt)
    if (code === 0 || interrupted || attempt >= restarts) return code
    process.stderr.write(`lazuli: a rank failed; restart ${attempt + 1} of ${restarts}\n`)
  }
}

/** Looks for a program as Node will; an option may be one. */
function checkIsThere(program: string): void {
  if (program.startsWith("-")) return
  try {
    createRequire(join(process.cwd(), "launch.js")).resolve(resolve(program))
  } catch {
    throw new ArgumentError("launch", `there is no program "${program}"`)
  }
}

const isLocal = (host: string): boolean => ["localhost", "127.0.0.1", hostname()].includes(host)

/** The address of a host by which the others know it; ssh takes `user@host` too. */
const addressOf = (host: string): string =>
  isLocal(host) ? hostname() : host.slice(host.lastIndexOf("@") + 1)

/** Variables of this machine, or this process, alone. */
const OWN = new Set(["LAZULI_SECRET", "LAZULI_PARENT", "LAZULI_LIFELINE", "LAZULI_LISTENER", "LAZULI_JOINED"])
/** The variables by which the user has set something of ours, for ranks on other machines. */
const settings = (): Record<string, string> =>
  Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value = ""]) =>
      name.startsWith("LAZULI_") && !OWN.has(name) ? [[name, value]] : [],
    ),
  )

/** A server that rank 0 inherits: nobody else can take the port meanwhile. */
function listen(): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once("error", reject)
    server.listen({ host: "127.0.0.1", port: 0, backlog: 1024 }, () => resolve(server))
  })
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** Where each rank runs. */
function hostsOfRanks({ hosts = ["localhost"], ranks }: LaunchOptions): string[] {
  return hosts.flatMap((host) => new Array<string>(ranks).fill(host))
}

/** The end of a job. */
interface End {
  readonly code: number
  /** True if somebody asked for it: the job is not started again then. */
  readonly interrupted: boolean
}

async function attemptTo(options: LaunchOptions, attempt: number): Promise<End> {
  const { command, backend, timeLimit, env = {}, signal } = options
  const where = hostsOfRanks(options)
  const size = where.length
  const distant = where.some((host) => !isLocal(host))
  const server = distant ? null : await listen()
  const port = server
    ? (server.address() as { port: number }).port
    : 29500 + (randomBytes(2).readUInt16LE(0) % 2000)
  const listener = server ? (server as unknown as { _handle: { fd: number } })._handle.fd : -1
  const secret = randomBytes(32).toString("hex")
  const threads = Math.max(1, Math.floor(availableParallelism() / options.ranks))
  const ranks = where.map((host, rank): Rank => {
    const variables: Record<string, string> = {
      LAZULI_RANK: String(rank),
      LAZULI_SIZE: String(size),
      LAZULI_LOCAL_RANK: String(rank % options.ranks),
      LAZULI_ADDRESS: `${distant ? addressOf(where[0]) : "127.0.0.1"}:${port}`,
      LAZULI_RESTART: String(attempt),
      ...(backend ? { LAZULI_BACKEND: backend } : {}),
      ...(timeLimit ? { LAZULI_TIME_LIMIT: String(timeLimit) } : {}),
      ...env,
    }
    if (!isLocal(host)) {
      const there = { ...settings(), ...variables }
      return { host, start: () => startThere(host, command, there, secret, options.ranks) }
    }
    const here = { LAZULI_NUM_THREADS: process.env.LAZULI_NUM_THREADS ?? String(threads), ...variables }
    const start = (): ChildProcess => startHere(command, here, secret, rank === 0 ? listener : -1)
    const many = Number(here.LAZULI_NUM_THREADS) > threads
    const anywhere = options.processors === "all" || many
    const child = anywhere ? start() : onShare(rank % options.ranks, options.ranks, start)
    return { host: null, child, start: () => child }
  })
  // Rank 0 has it now.
  server?.close()
  return await endOf(ranks, options.print, signal)
}

/** A process of the job: a rank here, or the ssh that runs one on another machine. */
interface Rank {
  /** Null for this machine. */
  readonly host: string | null
  start(): ChildProcess
  /** Null before the start. */
  child?: ChildProcess
  /** True once ssh runs the program. */
  hasBegun?: boolean
}

/**
 * Starts a process on one of so many equal shares of this one's processors, if there are enough. Two ranks that the system wakes on one
 * processor stay there, beside an idle one, for milliseconds.
 */
function onShare(share: number, shares: number, start: () => ChildProcess): ChildProcess {
  if (shares === 1 || library === null) return start()
  const { keepOnShare } = native()
  keepOnShare(share, shares)
  try {
    return start()
  } finally {
    keepOnShare(0, 1)
  }
}

/** Node's options, without the source of `node -e`, which each rank would run again and launch a job of its own. */
function withoutSource(options: readonly string[]): string[] {
  return options.filter((option, i) => {
    const [before, name] = [options[i - 1], option.split("=")[0]]
    return !SOURCE.has(name) && !SOURCE.has(before)
  })
}
const SOURCE = new Set(["-e", "--eval", "-p", "--print", "-pe", "--input-type"])

/** Starts a rank on this machine, which inherits the listener if there is one. */
function startHere(
  command: readonly string[],
  variables: Readonly<Record<string, string>>,
  secret: string,
  listener: number,
): ChildProcess {
  const inherits = listener >= 0
  const env = {
    ...process.env,
    ...variables,
    LAZULI_SECRET: secret,
    LAZULI_PARENT: String(process.pid),
    LAZULI_LIFELINE: library === null ? "" : "3",
    LAZULI_JOINED: "",
    LAZULI_LISTENER: inherits ? "4" : "",
  }
  // The addon ends a rank with its launcher, also before it joins: the fourth file ends with this process, however that ends.
  const preload = library === null ? [] : ["--require", library]
  return spawn(process.execPath, [...preload, ...withoutSource(process.execArgv), ...command], {
    env,
    stdio: ["ignore", "pipe", "pipe", library === null ? "ignore" : "pipe", ...(inherits ? [listener] : [])],
  })
}

/** The line that ssh prints first once it runs a program. */
const BEGUN = "lazuli: begun"

/** Starts a rank on another machine. */
function startThere(
  host: string,
  command: readonly string[],
  variables: Readonly<Record<string, string>>,
  secret: string,
  ranks: number,
): ChildProcess {
  // The secret goes by the input: arguments are there for everybody to see. The end of the input ends the program.
  const words = Object.entries(variables).map(([name, value]) => `${name}=${quoted(value)}`)
  const program = ["node", ...command].map(quoted).join(" ")
  // Shells give commands in the background no input but another number for it.
  const script =
    `echo ${quoted(BEGUN)}; read -r LAZULI_SECRET; export LAZULI_SECRET; exec 3<&0; cd ${quoted(process.cwd())} || exit 1; ` +
    `threads=$(($(getconf _NPROCESSORS_ONLN) / ${ranks})); export LAZULI_NUM_THREADS=$((threads > 0 ? threads : 1)); ` +
    `env ${words.join(" ")} ${program} </dev/null 3<&- & child=$!; ` +
    `{ seconds=$(cat <&3); kill $child; n=0; while [ $n -lt "\${seconds:-${SAVING / 1000}}" ] && kill -0 $child; ` +
    "do sleep 1; n=$((n + 1)); done; kill -9 $child; } >/dev/null 2>&1 & guard=$!; " +
    "wait $child; code=$?; kill $guard; exit $code"
  // In a group of its own: a terminal's Ctrl-C would end ssh, and what the rank prints while it saves would be lost.
  const child = spawn("ssh", ["-o", "BatchMode=yes", "--", host, script], {
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  })
  // It may have ended by then, and says why by itself.
  child.stdin?.once("error", () => {})
  child.stdin?.write(`${secret}\n`)
  return child
}

/** So many connections are made to a host at once: servers drop some of more than ten that have not said yet who they are. */
const AT_ONCE = 8

/** Starts ranks that are not yet started, and gives their end once all have ended: when one fails the others are ended. */
function endOf(
  ranks: readonly Rank[],
  given: LaunchOptions["print"],
  signal: AbortSignal | undefined,
): Promise<End> {
  const streams = given ? [] : [process.stdout, process.stderr]
  const print = given ?? showIn(process.stdout, process.stderr)
  return new Promise<End>((resolve) => {
    let code = 0
    let running = ranks.length
    let waiting = ranks.filter(({ host }) => host !== null)
    let interrupted = false
    let ending = false
    const alive = (isThere: boolean): Rank[] =>
      ranks.filter(
        ({ host, child }) =>
          (host !== null) === isThere && child && child.exitCode === null && child.signalCode === null,
      )
    const startNoMore = (): void => {
      running -= waiting.length
      waiting = []
    }
    // The end of its input ends a rank on another machine, within so many seconds.
    const endThere = (patience: number): void => {
      startNoMore()
      for (const { child, hasBegun } of alive(true)) {
        if (hasBegun) child?.stdin?.end(String(Math.ceil(patience / 1000)))
        else child?.kill("SIGTERM")
      }
      if (running === 0) finish()
    }
    const kill = ({ child }: Rank): void => void child?.kill("SIGKILL")
    const end = (patience: number): void => {
      if (!ending) {
        for (const { child } of alive(false)) child?.kill("SIGTERM")
        endThere(patience)
      }
      ending = true
      // A stopped process takes no other signal; ssh ends with the rank that it started.
      setTimeout(() => alive(false).map(kill), patience).unref()
      setTimeout(() => alive(true).map(kill), patience + PATIENCE).unref()
    }
    const interrupt = (name: NodeJS.Signals): void => {
      code ||= 128 + signalNumber(name)
      // A terminal tells all of its processes.
      const isKnown = name === "SIGINT" && !interrupted && process.stdin.isTTY === true
      if (interrupted) end(PATIENCE)
      else if (!isKnown) end(SAVING)
      else {
        endThere(SAVING)
        setTimeout(() => end(PATIENCE), SAVING).unref()
      }
      interrupted = true
    }
    // Unlike a terminal's Ctrl-C, the processes know nothing of it.
    const abort = (): void => {
      code ||= 128 + signalNumber("SIGINT")
      interrupted = true
      end(PATIENCE)
    }
    const names = ["SIGINT", "SIGTERM"] as const
    const finish = (): void => {
      for (const name of names) process.off(name, interrupt)
      signal?.removeEventListener("abort", abort)
      // Lines printed last may fail yet.
      setTimeout(() => streams.map((stream) => stream.off("error", abort)), DRAIN).unref()
      resolve({ code, interrupted })
    }
    for (const name of names) process.on(name, interrupt)
    signal?.addEventListener("abort", abort)
    // The reader of what is printed has gone.
    for (const stream of streams) stream.on("error", abort)
    if (signal?.aborted) abort()
    const startNext = (host: string | null): void => {
      const next = waiting.find((each) => each.host === host)
      if (!next) return
      waiting = waiting.filter((each) => each !== next)
      follow(next)
    }
    const follow = (each: Rank): void => {
      const rank = ranks.indexOf(each)
      each.child ??= each.start()
      const { child, host } = each
      const begin = (): void => {
        if (!each.hasBegun) startNext(host)
        each.hasBegun = true
      }
      for (const stream of [child.stdout, child.stderr])
        if (stream)
          inLines(stream, (line) => {
            // A shell may print before it without an end of line.
            const begins = host !== null && !each.hasBegun && line.endsWith(BEGUN)
            if (begins) begin()
            const text = begins ? line.slice(0, -BEGUN.length) : line
            if (text !== "" || !begins) print(text, rank, stream === child.stderr)
          })
      child.once("error", (error) => {
        print(`cannot be started: ${error.message}`, rank, true)
        code ||= 127
      })
      whenEnded(child, (status, killedBy) => {
        const failed = status === null || status !== 0
        if (failed && !ending && !interrupted) {
          const its = status ?? 128 + signalNumber(killedBy)
          // By ssh a rank may be heard of after those that failed because of it, which no signal ends.
          if (code === 0 || (host !== null && code < 128 && its >= 128)) code = its
          print(killedBy ? `was ended by ${killedBy}` : `ended with code ${status}`, rank, true)
          startNoMore()
          setTimeout(() => end(PATIENCE), GRACE).unref()
        }
        if (--running === 0) finish()
        else begin()
      })
    }
    ranks.filter(({ host }) => host === null).map(follow)
    for (const host of new Set(waiting.map((each) => each.host)))
      for (let i = 0; i < AT_ONCE; i++) startNext(host)
  })
}

/** Calls `then` once a child has ended, or could not be started, and all that it printed has been read. */
function whenEnded(
  child: ChildProcess,
  then: (status: number | null, killedBy: NodeJS.Signals | null) => void,
): void {
  child.once("exit", () => {
    const close = (): void => {
      for (const stream of child.stdio) stream?.destroy()
    }
    // Once more is read what is there.
    setTimeout(() => setImmediate(close), DRAIN).unref()
  })
  child.once("close", then)
}

const signalNumber = (name: NodeJS.Signals | null): number => (name && constants.signals[name]) || 1

/** Longer lines are cut, so that a program that never ends one takes no memory. */
const MOST = 1 << 16

function inLines(stream: NodeJS.ReadableStream, take: (line: string) => void): void {
  let rest = ""
  stream.setEncoding("utf8")
  stream.on("data", (text: string) => {
    const lines = (rest + text).split("\n")
    rest = lines.pop() ?? ""
    lines.forEach(take)
    if (rest.length > MOST) {
      take(rest)
      rest = ""
    }
  })
  // Before the child's own end.
  stream.prependListener("close", () => {
    if (rest !== "") take(rest)
  })
}

const showIn =
  (out: NodeJS.WritableStream, err: NodeJS.WritableStream) =>
  (line: string, rank: number, error: boolean): void => {
    ;(error ? err : out).write(`[${rank}] ${line}\n`)
  }

const USAGE = `usage: lazuli launch [options] program [arguments]
  -n, --ranks N         the number of processes, on each host (2)
  --hosts a,b           machines reached by ssh; this one by default
  --backend NAME        ring, shm, nccl, or one from a package; mpi has mpirun instead
  --restarts N          restart a failed job, at most this many times (0)
  --time-limit SECONDS  fail an operation after this long without progress (5)
  --processors WHICH    share: each rank runs on its share of them; all: on any (share)`

/** An option's value; of `--name=value` and `-n4` too. */
interface Given {
  readonly name: string
  readonly value: string
  /** The number of arguments that it takes. */
  readonly count: number
}

function optionAt(args: readonly string[], at: number): Given {
  const [, name, value] = /^(--[^=]+)=(.*)$/s.exec(args[at]) ?? /^(-n)(\d+)$/.exec(args[at]) ?? []
  if (name !== undefined) return { name, value, count: 1 }
  return { name: args[at], value: args[at + 1] ?? "", count: 2 }
}

function numberIn({ name, value }: Given, least: number): number {
  const number = value === "" ? Number.NaN : Number(value)
  if (number >= least && Number.isFinite(number)) return number
  throw new ArgumentError("launch", `expected a number from ${least} after ${name}, received "${value}"`)
}

/** `lazuli launch …`: the exit code. @throws ArgumentError for arguments that do not fit */
export async function runCommand(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args
  const isHelp = (text: string | undefined): boolean => text === "--help" || text === "-h"
  if (command !== undefined && command !== "launch" && !isHelp(command))
    throw new ArgumentError("lazuli", `has no command "${command}"`, { hint: USAGE })
  if (command !== "launch" || rest.length === 0 || isHelp(rest[0])) {
    process.stdout.write(`${USAGE}\n`)
    return isHelp(command) || isHelp(rest[0]) ? 0 : 2
  }
  let ranks = 2
  let restarts = 0
  let hosts: string[] | undefined
  let backend: string | undefined
  let timeLimit: number | undefined
  let processors: LaunchOptions["processors"]
  let at = 0
  while (at < rest.length && rest[at].startsWith("-")) {
    if (rest[at] === "--") {
      at++
      break
    }
    const given = optionAt(rest, at)
    const { name, value } = given
    if (name === "-n" || name === "--ranks") ranks = numberIn(given, 1)
    else if (name === "--hosts") hosts = value.split(",").filter(Boolean)
    else if (name === "--backend") backend = value
    else if (name === "--restarts") restarts = numberIn(given, 0)
    else if (name === "--time-limit") timeLimit = numberIn(given, 0.001)
    else if (name === "--processors" && (value === "share" || value === "all")) processors = value
    else if (name === "--processors")
      throw new ArgumentError("launch", `expected share or all after ${name}, received "${value}"`)
    else throw new ArgumentError("launch", `has no option "${name}"`, { hint: USAGE })
    if (value === "" || hosts?.length === 0)
      throw new ArgumentError("launch", `expected a value after ${name}`)
    at += given.count
  }
  return await launch({ command: rest.slice(at), ranks, restarts, hosts, backend, timeLimit, processors })
}
