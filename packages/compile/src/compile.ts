/**
 * `compile`: a function that is traced once for each kind of arguments and afterwards costs one node a call.
 */
import { checkFunction, flagFrom, LazuliError, renamed } from "@lazuli/core/engine"
import { CachedPrograms, type CompileStats } from "./cached-programs"
import { donatedBy } from "./donation"
import type { Explanation } from "./explain"
import { type CompileOptions, checkCompileOptions } from "./options"

/** The members of a compiled function besides its call. */
export interface Compiled<A extends readonly unknown[] = readonly unknown[]> {
  /** The numbers of calls, traces and kept programs. */
  stats(): CompileStats
  /**
   * An account of the function for such arguments: which operations were fused, which were not and why, and what the plan takes. Traces
   * where no call did so before.
   */
  explain(...args: A): Explanation
}

let enabled = flagFrom("LAZULI_DISABLE_COMPILE") !== true

/** Lets compiled functions run as they were written; the environment variable `LAZULI_DISABLE_COMPILE=1` does the same. */
export function disableCompile(): void {
  enabled = false
}
/** Undoes {@link disableCompile}. */
export function enableCompile(): void {
  enabled = true
}

/**
 * The programs of functions that were compiled, for those who compile them again in the same way: by function, captured trees and listener,
 * all of which may go, and then by the other options.
 */
const shared: Level = new WeakMap()
type Level = WeakMap<object, Level | Map<string, CachedPrograms>>
const NOTHING = {}

function programsOf(f: (...args: never[]) => unknown, options: CompileOptions): CachedPrograms {
  const { inputs, outputs, onRecompile, shapeless = false, donate } = options
  let level = shared
  for (const part of [f, inputs, outputs]) level = below(level, part, () => new WeakMap()) as Level
  const list = below(level, onRecompile, () => new Map<string, CachedPrograms>()) as Map<
    string,
    CachedPrograms
  >
  const key = `${shapeless}|${donatedBy(donate)}`
  let programs = list.get(key)
  if (programs === undefined) {
    programs = new CachedPrograms(f, { ...options })
    list.set(key, programs)
  }
  return programs
}

function below<T extends Level | Map<string, CachedPrograms>>(level: Level, part: unknown, make: () => T): T {
  const key = (part ?? NOTHING) as object
  let next = level.get(key)
  if (next === undefined) level.set(key, (next = make()))
  return next as T
}

/** Errors of walks over arguments and state come under the name of `compile`. */
const ofTree = (error: unknown): unknown =>
  error instanceof LazuliError && error.op === "tree" ? renamed(error, "compile") : error

/**
 * A function that computes what `f` does, faster: `f` runs once for each combination of structure, shapes, dtypes and constants of its
 * arguments and of what else is in `inputs`, and what it computed is simplified, fused and planned. `f` must not have effects other than on
 * the trees named in
 * `inputs` and `outputs`. A call gives lazy arrays, as `f` does.
 *
 * Compiling a function again with the same options gives a function that shares the programs.
 *
 * With `shapeless`, `f` runs once for each combination of structure, ranks, dtypes and constants: for other sizes, the calls that it made
 * are made again. Where it looks at sizes itself, it runs for each.
 *
 * With `donate`, results take the memory of arrays that the caller gives up, so that a training step changes its state in place.
 *
 * @throws TransformError when `f` needs a value while it is traced
 * @example
 * const f = compile((x) => x.exp().add(1)); f(mx.zeros([2])).tolist() // => [2, 2]
 * @example
 * const g = compile((x) => x.flatten().sum(), { shapeless: true })
 * g(mx.ones([2, 3])).item() + g(mx.ones([4, 5])).item() // => 26
 * g.stats().traces // => 1
 */
export function compile<A extends unknown[], R>(
  f: (...args: A) => R,
  options: CompileOptions = {},
): ((...args: A) => R) & Compiled<A> {
  checkFunction("compile", f)
  checkCompileOptions(options)
  const programs = programsOf(f as (...args: never[]) => unknown, options)
  const call = (...args: A): R => {
    try {
      return (enabled ? programs.call(args) : programs.callAsWritten(args)) as R
    } catch (error) {
      throw ofTree(error)
    }
  }
  Object.defineProperty(call, "name", { value: f.name, configurable: true })
  return Object.assign(call, {
    stats: () => programs.stats(),
    explain: (...args: A) => programs.explain(args),
  })
}
