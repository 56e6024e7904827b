/**
 * Joining the job: once for each backend that is asked for, when a program first asks for the group.
 */
import type * as mx from "@lazuli/core"
import { setConnector } from "@lazuli/core/engine"
import { communicatorBackends, connectBy, forgetJoined, isAvailable } from "./backends"
import { ConnectedGroup } from "./connected-group"
import { jobOf } from "./job"
import { library, native } from "./native"

const worlds = new Map<string, mx.distributed.Group>()

function connect(asked: string): mx.distributed.Group | null {
  // Without a wish, the group that there is.
  const first = worlds.values().next().value
  if (asked === "any" && first) return first
  const known = worlds.get(asked)
  if (known) return known
  const job = jobOf(process.env)
  if (job === null || job.size === 1) return null
  const backend = asked === "any" ? (process.env.LAZULI_BACKEND ?? "any") : asked
  const group = new ConnectedGroup(connectBy(backend, job))
  // The others are told, so that they need not take it for lost.
  if (worlds.size === 0) process.once("exit", leave)
  worlds.set(asked, group)
  worlds.set(backend, group)
  if (job.rank === 0 && process.env.LAZULI_QUIET !== "1")
    process.stderr.write(`lazuli: ${job.size} ranks, connected by ${group.communicator.backend}\n`)
  return group
}

setConnector({ backends: communicatorBackends, isAvailable, connect })

/**
 * Leaves the job: connections end, and later operations fail. The end of the process does so too.
 * @example
 * leave()
 */
export function leave(): void {
  worlds.clear()
  forgetJoined()
  if (library !== null) native().leave()
}
