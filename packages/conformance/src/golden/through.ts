/**
 * The ways to run cases: the functions as they are written, compiled, or compiled for any sizes after a trace for other ones.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"

/** A way to run the functions of cases. */
export type Through = "written" | "compile" | "shapeless"

/** The state that a case's function reads and changes besides its arguments. */
export interface CaseState {
  /** Mutable trees: a layer's, an optimizer's, the random generator's. */
  readonly trees?: readonly unknown[]
  /** Puts the trees into the state that a call begins with. */
  readonly prepare?: () => void
  /** True if the trees' arrays have the arguments' sizes, so that other ones do not go with them. */
  readonly fixedSizes?: boolean
}

/** The number of cases that were traced for other sizes than their own, and for their own. */
export const shapelessTraces = { otherSizes: 0, ownSizes: 0 }

/** Runs a function of arrays. */
export function runThrough<T>(
  through: Through | undefined,
  f: (...xs: mx.Array[]) => T,
  xs: readonly mx.Array[],
  { trees = [], prepare, fixedSizes = false }: CaseState = {},
): T {
  prepare?.()
  if (through === undefined || through === "written") return f(...xs)
  const state = trees.length > 0 ? { inputs: trees, outputs: trees } : {}
  if (through === "compile") return compile((...ys: mx.Array[]) => f(...ys), state)(...xs)
  const compiled = compile((...ys: mx.Array[]) => f(...ys), { ...state, shapeless: true })
  const traced = !fixedSizes && othersOf(xs).some((others) => takes(() => compiled(...others)))
  shapelessTraces[traced ? "otherSizes" : "ownSizes"]++
  prepare?.()
  return compiled(...xs)
}

function takes(call: () => unknown): boolean {
  try {
    call()
    return true
  } catch (error) {
    if (error instanceof mx.LazuliError) return false
    throw error
  }
}

/**
 * Arrays of other sizes to trace a function for: all axes twice as long, or the first ones, or the last ones. Their values do not matter.
 */
function othersOf(xs: readonly mx.Array[]): mx.Array[][] {
  const longer = (chosen: (axis: number, ndim: number) => boolean): mx.Array[] =>
    xs.map((x) => mx.tile(x, x.shape.map((n, axis) => (n > 1 && chosen(axis, x.ndim) ? 2 : 1))))
  if (!xs.some((x) => x.shape.some((n) => n > 1))) return []
  return [longer(() => true), longer((axis) => axis === 0), longer((axis, ndim) => axis === ndim - 1)]
}
