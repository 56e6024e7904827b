/**
 * The job that this process belongs to, as the environment tells: `npx lazuli launch` says it in variables of ours, torchrun and mpirun in
 * theirs.
 */
import { ArgumentError } from "@lazuli/core"
import { describe } from "@lazuli/core/plugin"
import type { JoinOptions } from "./native"

type Environment = Readonly<Record<string, string | undefined>>

/** A number of seconds that an environment variable sets. */
function secondsOf(env: Environment, name: string, otherwise: number): number {
  const seconds = numberOf(env, name, otherwise)
  if (seconds > 0) return seconds
  throw new ArgumentError("init", `the environment variable ${name} must be above 0, received "${env[name]}"`)
}

function numberOf(env: Environment, name: string, otherwise: number): number {
  const text = env[name]
  if (text === undefined || text === "") return otherwise
  const value = Number(text)
  if (!Number.isFinite(value) || value < 0)
    throw new ArgumentError("init", `the environment variable ${name} must be a number, received "${text}"`)
  return value
}

/** A limit in seconds that has been set; see {@link setTimeLimit}. */
let limitSet: number | null = null

/**
 * Sets the number of seconds without progress after which an operation fails: 5, or what LAZULI_TIME_LIMIT says. It holds for jobs joined
 * afterwards: call it before `mx.distributed.init()`, on all ranks.
 * @example
 * setTimeLimit(30)
 */
export function setTimeLimit(seconds: number): void {
  if (!(seconds > 0 && Number.isFinite(seconds)))
    throw new ArgumentError(
      "setTimeLimit",
      `expected a number of seconds above 0, received ${describe(seconds)}`,
    )
  limitSet = seconds
}

/** The job of this process; null where it was started by itself. @throws ArgumentError for variables that do not fit together */
export function jobOf(env: Environment): JoinOptions | null {
  const variables: [rank: string, size: string][] = [
    ["LAZULI_RANK", "LAZULI_SIZE"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["RANK", "WORLD_SIZE"],
  ]
  const found = variables.find(([rank, size]) => env[rank] && env[size])
  const [own] = variables
  const [missing, given] = env[own[0]] ? [own[1], own[0]] : own
  if (found !== own && env[given]) throw new ArgumentError("init", `${given} is set, but ${missing} is not`)
  if (!found) return null
  const [rank, size] = found.map((name) => numberOf(env, name, 0))
  if (!Number.isSafeInteger(rank) || !Number.isSafeInteger(size) || size < 1 || size > 4096 || rank >= size)
    throw new ArgumentError(
      "init",
      `${found[0]}=${env[found[0]]} and ${found[1]}=${env[found[1]]} do not name a rank of a job`,
    )
  const [address, port] = rendezvous(env, found)
  if (!Number.isInteger(port) || port < 1 || port > 65535)
    throw new ArgumentError("init", `expected a port of rank 0 from 1 to 65535, received ${port}`)
  const joinLimit = secondsOf(env, "LAZULI_JOIN_LIMIT", 60)
  return {
    rank,
    size,
    address,
    port,
    listener: rank === 0 ? numberOf(env, "LAZULI_LISTENER", -1) : -1,
    secret: size > 1 ? secretOf(env, found, rank, address, joinLimit) : "",
    limit: limitSet ?? secondsOf(env, "LAZULI_TIME_LIMIT", 5),
    joinLimit,
    connections: connectionsOf(env),
    proxy: env.LAZULI_PROXY ?? "",
    parent: numberOf(env, "LAZULI_PARENT", 0),
  }
}

const MOST_CONNECTIONS = 64

/** The number of connections for data between two ranks. */
function connectionsOf(env: Environment): number {
  const count = numberOf(env, "LAZULI_CONNECTIONS", 1)
  if (Number.isInteger(count) && count >= 1 && count <= MOST_CONNECTIONS) return count
  throw new ArgumentError(
    "init",
    `LAZULI_CONNECTIONS must be an integer from 1 to ${MOST_CONNECTIONS}, received "${env.LAZULI_CONNECTIONS}"`,
  )
}

/** The variables that name a rank and the size of its job. */
type Variables = readonly [rank: string, size: string]

/** True where another program started all ranks on one host. */
function isOneHost(env: Environment, [, size]: Variables): boolean {
  const local: Record<string, string> = {
    OMPI_COMM_WORLD_SIZE: "OMPI_COMM_WORLD_LOCAL_SIZE",
    WORLD_SIZE: "LOCAL_WORLD_SIZE",
  }
  return size in local && env[local[size]] === env[size]
}

/** Addresses that only processes of this host reach. */
const LOCAL = ["127.0.0.1", "::1"]
/** Without the brackets that an IPv6 address has beside a port. The local host is one address, which all ranks take. */
const hostOf = (text: string): string => (text === "localhost" ? LOCAL[0] : text.replace(/^\[(.*)\]$/, "$1"))

/** The address where rank 0 listens. */
function rendezvous(env: Environment, variables: Variables): [address: string, port: number] {
  const given = env.LAZULI_ADDRESS
  if (given) {
    const [, host = "", port = ""] = /^(.+):(\d+)$/.exec(given) ?? []
    if (host === "") throw new ArgumentError("init", `LAZULI_ADDRESS must be host:port, received "${given}"`)
    return [hostOf(host), Number(port)]
  }
  const isAlone = isOneHost(env, variables)
  // torchrun's own store may be at MASTER_PORT, and its address is one of all the host's.
  if (env.MASTER_ADDR && env.MASTER_PORT)
    return [isAlone ? LOCAL[0] : hostOf(env.MASTER_ADDR), numberOf(env, "MASTER_PORT", 0) + 1]
  // mpirun on one host: a port that follows from the job's name.
  const job = env.PMIX_NAMESPACE ?? env.OMPI_MCA_ess_base_jobid ?? env.OMPI_MCA_orte_hnp_uri
  if (job && isAlone) {
    const digest = process.getBuiltinModule("node:crypto").createHash("sha256").update(job).digest()
    return [LOCAL[0], 20000 + (digest.readUInt16BE(0) % 12000)]
  }
  throw new ArgumentError("init", `${variables[0]} is set, but nothing says where rank 0 listens`, {
    hint: "Set LAZULI_ADDRESS=host:port on all ranks, or start them with `npx lazuli launch`",
  })
}

/**
 * The secret that all ranks share: that of our launcher or the user; of other launchers' jobs on one host, one that rank 0 puts where only
 * this user may read. Their names for a job can be guessed.
 */
function secretOf(
  env: Environment,
  variables: Variables,
  rank: number,
  address: string,
  seconds: number,
): string {
  if (env.LAZULI_SECRET) return env.LAZULI_SECRET
  const place = isOneHost(env, variables) ? placeOfSecret(env, variables) : null
  if (place) return secretAt(place, rank, seconds)
  if (LOCAL.includes(address)) return ""
  const isMpi = variables[0].startsWith("OMPI")
  throw new ArgumentError(
    "init",
    `rank 0 listens at ${address}, but LAZULI_SECRET is not set: anybody could join`,
    { hint: secretHint(isMpi) },
  )
}

const secretHint = (isMpi: boolean): string =>
  `Set LAZULI_SECRET to the same random text on all ranks${isMpi ? ": mpirun -x LAZULI_SECRET …" : ""}`

/** A file in a folder that a launcher makes for one job, and removes with it. */
interface Place {
  readonly launcher: string
  /** The folder that others may not look into; the file may lie deeper. */
  readonly folder: string
  readonly path: string
}

function placeOfSecret(env: Environment, [rank]: Variables): Place | null {
  if (rank === "RANK") {
    // folder/attempt_0/rank/error.json
    const [, folder, attempt] = /^(.*)\/([^/]+)\/[^/]+\/[^/]+$/.exec(env.TORCHELASTIC_ERROR_FILE ?? "") ?? []
    return folder ? { launcher: "torchrun", folder, path: `${folder}/${attempt}/lazuli-secret` } : null
  }
  const job = env.PMIX_NAMESPACE ?? env.OMPI_MCA_ess_base_jobid
  const folder = env.PMIX_SERVER_TMPDIR ?? env.OMPI_MCA_orte_jobfam_session_dir
  return job && folder ? { launcher: "mpirun", folder, path: `${folder}/lazuli-secret-${job}` } : null
}

/** The secret in a file; rank 0 makes one where there is none. */
function secretAt({ launcher, folder, path }: Place, rank: number, seconds: number): string {
  const fs = process.getBuiltinModule("node:fs")
  const found = fs.statSync(folder, { throwIfNoEntry: false })
  if (!found || found.uid !== process.getuid?.() || (found.mode & 0o077) !== 0)
    throw new ArgumentError(
      "init",
      `${launcher}'s folder "${folder}", where the job's secret would be, ${found ? "may be read by others" : "is not there"}`,
      { hint: secretHint(launcher === "mpirun") },
    )
  if (rank === 0 && !fs.existsSync(path)) {
    const secret = process.getBuiltinModule("node:crypto").randomBytes(32).toString("hex")
    fs.writeFileSync(`${path}.new`, secret, { mode: 0o600 })
    // Whole or not there.
    fs.renameSync(`${path}.new`, path)
  }
  const end = performance.now() + seconds * 1000
  while (!fs.existsSync(path)) {
    if (performance.now() > end)
      throw new ArgumentError("init", `rank 0 has put no secret into "${folder}" within ${seconds} s`)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
  }
  return fs.readFileSync(path, "utf8")
}
