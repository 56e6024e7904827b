/** Ranks add operations of their devices, and find out whether the others have added the same ones, as the argument says. */
import type { DistributedError } from "@lazuli/core"
import { connectBy } from "../src/backends"
import type { NativeCommunicator } from "../src/communicators"
import { jobOf } from "../src/job"
import { type JoinOptions, native } from "../src/native"

const sleep = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
const group = connectBy(
  process.env.LAZULI_BACKEND as string,
  jobOf(process.env) as JoinOptions,
) as NativeCommunicator
const { rank } = group
/** Milliseconds until the others were known to have added the same up to a place; null where they were not within so many. */
function agrees(place: number, within = 3000): number | null {
  const began = performance.now()
  group.watch.ask(place, "allSum", 0)
  return group.watch.agrees(place, "allSum", within) ? performance.now() - began : null
}
const add = (operations: readonly number[], { watch } = group, from?: number, to?: number): number[] =>
  operations.map((each) => watch.add(each, "allSum", from, to))

const CASES: Record<string, () => unknown> = {
  // Others that are ahead say so at once, though they wait for nothing.
  ahead() {
    const operations = [1, 2, 3, 4, 5, 6, 7, 8]
    let took = 0
    if (rank === 0) add(operations)
    else
      for (const each of operations) {
        sleep(60)
        took += agrees(add([each])[0]) as number
      }
    sleep(1000)
    return took
  },
  // Those that are behind, as soon as they have come so far.
  behind() {
    if (rank === 0) sleep(700)
    const [place] = add([1])
    // As it does once the device has been given the operation.
    group.watch.call(false)
    return rank === 0 ? 0 : agrees(place)
  },
  lanes() {
    const halves = Array.from({ length: 20 }, () => group.split(0, -1))
    const places = halves.flatMap((each) => add([1], each))
    const took = agrees(places[19])
    sleep(1000)
    return took
  },
  // Messages need nobody to receive them.
  sent() {
    if (rank === 0) return agrees(add([1, 2], group, 0, 1)[1])
    sleep(1000)
    return 0
  },
  different() {
    const [first] = add([1])
    const told = agrees(first)
    const [, second] = add([2, rank === 0 ? 3 : 4])
    return [told, agrees(second)]
  },
  // One that has left has told of its last messages.
  gone() {
    if (rank === 0) {
      add([1, 2, 3], group, 0, 1)
      native().leave()
      return null
    }
    sleep(500)
    const told = agrees(add([1], group, 0, 1)[0])
    return [told, agrees(add([5], group, 0, 1)[0])]
  },
}

const [, , name] = process.argv
try {
  console.log(JSON.stringify({ took: CASES[name](), message: null }))
  sleep(500)
} catch (error) {
  console.log(JSON.stringify({ message: (error as DistributedError).message }))
  process.exitCode = 3
}
