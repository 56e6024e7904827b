/**
 * Donation: arrays that a caller of a compiled function gives up, so that results can take their memory.
 */
import { ArgumentError, type Array, arraysOf, describe, isList, lifetimes } from "@lazuli/core/engine"
import type { Capture } from "./capture"
import type { ArrayLeaf } from "./state"

/** Positions of arguments, and `"state"` for the captured state that the function replaces. */
export type Donated = readonly (number | "state")[]

/** The option as a list. */
export const donatedBy = (donate: boolean | Donated | undefined): Donated =>
  typeof donate === "object" ? donate : donate ? ["state"] : []

/** @throws ArgumentError for what names neither the state nor arguments */
export function checkDonation(donate: unknown): void {
  if (donate === undefined || typeof donate === "boolean") return
  const valid =
    isList(donate) && donate.every((d) => d === "state" || (Number.isInteger(d) && Number(d) >= 0))
  if (valid) return
  throw new ArgumentError(
    "compile",
    `donate must be a boolean or a list of positions of arguments and "state", received ${describe(donate)}`,
  )
}

/**
 * The positions of what is donated among a call's arrays: those in the arguments, then the state's.
 * @throws ArgumentError for an argument that the call does not have
 */
export function donatedPositions(
  donated: Donated,
  args: readonly unknown[],
  stateCount: number,
): Set<number> {
  const missing = donated.find((which) => which !== "state" && which >= args.length)
  if (missing !== undefined)
    throw new ArgumentError(
      "compile",
      `donate names argument ${missing}, but the function was called with ${args.length}`,
    )
  const positions = new Set<number>()
  let at = 0
  const take = (count: number, wanted: boolean): void => {
    for (let i = 0; i < count; i++, at++) if (wanted) positions.add(at)
  }
  args.forEach((arg, i) => take(arraysOf(arg).length, donated.includes(i)))
  take(stateCount, donated.includes("state"))
  return positions
}

/** By output of the graph: the position of the input that it takes the place of in captured state, which `first` arrays precede. */
export function successorsOf(
  { sources, resultCount, outputPaths }: Capture,
  state: readonly ArrayLeaf[],
  first: number,
): Map<number, number> {
  const positions = new Map(state.map(({ path }, i) => [JSON.stringify(path), first + i]))
  const successors = new Map<number, number>()
  outputPaths.forEach((path, i) => {
    const source = sources[resultCount + i]
    const position = positions.get(JSON.stringify(path))
    if (source.from === "graph" && position !== undefined && !successors.has(source.index))
      successors.set(source.index, position)
  })
  return successors
}

/** Lets go of what was donated to a call, but for the handles that are kept: the call's node is then the only one that reads it. */
export function giveUp(
  donated: Donated,
  state: readonly Array[],
  kept: readonly Array[],
  args: readonly unknown[],
): void {
  const given = new Set<Array>()
  for (const which of donated)
    for (const handle of which === "state" ? state : arraysOf(args[which])) given.add(handle)
  for (const handle of kept) given.delete(handle)
  for (const handle of given) lifetimes.disposeHandle(handle)
}
