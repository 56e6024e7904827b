/**
 * Joining the job: once for each backend that is asked for, when a program first asks for the group.
 */
import { ArgumentError, type distributed } from "@lazuli/core"
import { choiceFrom, flagFrom, setConnector } from "@lazuli/core/engine"
import { communicatorBackends, connectBy, forgetJoined, isAvailable } from "./backends"
import { forgetGroups } from "./communicators"
import { ConnectedGroup } from "./connected-group"
import { leaveDevices } from "./device-communicators"
import { jobOf } from "./job"
import { type JoinOptions, library, native } from "./native"

const worlds = new Map<string, distributed.Group>()
/** True once the end of the process leaves a job. */
let leavesAtExit = false

function connect(asked: string): distributed.Group | null {
  // Without a wish, the group that there is.
  const first = worlds.values().next().value
  if (asked === "any" && first) return first
  const known = worlds.get(asked)
  if (known) return known
  const job = jobOf(process.env)
  if (job === null || job.size === 1) return null
  checkIsRank(job)
  checkVariables()
  const backend = asked === "any" ? (process.env.LAZULI_BACKEND ?? "any") : asked
  const group = new ConnectedGroup(connectBy(backend, job))
  // The others are told, so that they need not take it for lost.
  if (!leavesAtExit) process.once("exit", leave)
  leavesAtExit = true
  process.env.LAZULI_JOINED = String(process.pid)
  worlds.set(asked, group)
  worlds.set(backend, group)
  if (job.rank === 0 && flagFrom("LAZULI_QUIET") !== true)
    process.stderr.write(`lazuli: ${job.size} ranks, connected by ${group.communicator.backend}\n`)
  return group
}

/** Warns of values that the addon, which reads these variables itself, ignores. */
function checkVariables(): void {
  flagFrom("LAZULI_SECOND_THREAD")
  choiceFrom("LAZULI_MPI", ["memory", "messages", "collectives", "mixed"])
}

/** @throws ArgumentError in a process that has the environment of a rank and is none */
function checkIsRank({ rank, parent }: JoinOptions): void {
  const joined = process.env.LAZULI_JOINED
  if (joined && joined !== String(process.pid))
    throw new ArgumentError(
      "init",
      `this process is not rank ${rank}: process ${joined}, which started it, is`,
      {
        hint: "Start processes that are no ranks without the LAZULI_ variables",
      },
    )
  if (parent > 0 && process.ppid !== parent && !isThere(parent))
    throw new ArgumentError("init", "the launcher that started this process has ended")
}

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH"
  }
}

setConnector({ backends: communicatorBackends, isAvailable, connect })

/**
 * Leaves the job: connections end, and later operations fail. The end of the process does so too.
 * @example
 * leave()
 */
export function leave(): void {
  if (worlds.size > 0) delete process.env.LAZULI_JOINED
  worlds.clear()
  forgetJoined()
  leaveDevices()
  forgetGroups()
  if (library !== null) native().leave()
}
