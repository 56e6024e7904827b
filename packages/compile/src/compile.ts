/**
 * `compile`: a function that is traced once for each kind of arguments and afterwards costs one node a call.
 */
import {
  Array,
  arraysOf,
  childrenOf,
  isList,
  isPlainObject,
  Mark,
  TransformError,
  withArrays,
} from "@lazuli/core/engine"
import { type Capture, capture } from "./capture"
import { callProgram } from "./program"
import { readSlots, type Slot, slotsOf, writePath } from "./state"

/** Options of {@link compile}. */
export interface CompileOptions {
  /** Mutable trees that the function reads: a Module, an optimizer's state, `mx.random.state`. */
  inputs?: unknown
  /** Mutable trees that the function changes; their arrays are replaced after each call. */
  outputs?: unknown
  /** Called with the reason whenever the function is traced. */
  onRecompile?: (reason: string) => void
}

/** What a compiled function offers besides being called. */
export interface Compiled {
  /** How often it was called and traced, and how many programs it keeps. */
  stats(): { calls: number; traces: number; programs: number }
}

/** Gives the plans of compiled functions back that nobody can call any more. */
const dropped = new FinalizationRegistry<Map<string, Capture>>((programs) => {
  for (const { program } of programs.values()) program?.release()
})

/** Programs that one compiled function keeps; the least recently used goes first. */
const MAX_PROGRAMS = 64

let enabled = process.env.LAZULI_DISABLE_COMPILE !== "1"

/** Lets compiled functions run as they were written; the environment variable `LAZULI_DISABLE_COMPILE=1` does the same. */
export function disableCompile(): void {
  enabled = false
}
/** Undoes {@link disableCompile}. */
export function enableCompile(): void {
  enabled = true
}

let identities = 0
const identity = new WeakMap<object, number>()

/** A string for a leaf that is no array: constants are part of what a program was traced for. */
function constantKey(leaf: unknown): string {
  if ((typeof leaf === "object" && leaf !== null) || typeof leaf === "function") {
    let id = identity.get(leaf)
    if (id === undefined) identity.set(leaf, (id = ++identities))
    return `#${id}`
  }
  return typeof leaf === "string"
    ? JSON.stringify(leaf)
    : Object.is(leaf, -0)
      ? "-0"
      : `${typeof leaf} ${String(leaf)}`
}

/** Equal for arguments that the same program serves: structure, shapes, dtypes, constants; and for the places of captured state. */
function keyOf(args: readonly unknown[], inputs: readonly Slot[], outputs: readonly Slot[]): string {
  let key = structureKey(args)
  for (const { holder, key: name, path } of inputs)
    key += `|${JSON.stringify(path)}${arrayKey(holder[name] as Array)}`
  for (const { path } of outputs) key += `>${JSON.stringify(path)}`
  return key
}

const arrayKey = ({ node }: Array): string => `${node.dtype.code}[${node.shape.join(",")}]`

function structureKey(tree: unknown): string {
  if (tree instanceof Array) return arrayKey(tree)
  if (isList(tree)) return `(${tree.map(structureKey).join(",")})`
  const children = childrenOf(tree) as Readonly<Record<string, unknown>> | undefined
  if (!children) return constantKey(tree)
  const kind = isPlainObject(tree) ? "" : constantKey((tree as object).constructor)
  return `${kind}{${Object.keys(children)
    .map((name) => `${JSON.stringify(name)}:${structureKey(children[name])}`)
    .join(",")}}`
}

/**
 * A function that computes what `f` does, faster: `f` runs once for each combination of structure, shapes, dtypes and constants of its
 * arguments, and what it computed is simplified, fused and planned. `f` must not have effects other than on the trees named in
 * `inputs` and `outputs`. A call gives lazy arrays, as `f` does.
 *
 * @throws TransformError when `f` needs a value while it is traced
 * @example
 * const f = compile((x) => x.exp().add(1)); f(mx.zeros([2])).tolist() // => [2, 2]
 */
export function compile<A extends unknown[], R>(
  f: (...args: A) => R,
  options: CompileOptions = {},
): ((...args: A) => R) & Compiled {
  if (typeof (f as unknown) !== "function")
    throw new TransformError("compile", `expected a function, received ${typeof f}`)
  if (!isPlainObject(options as unknown))
    throw new TransformError("compile", "options must be a plain object with inputs, outputs or onRecompile")
  const { inputs, outputs, onRecompile } = options
  const programs = new Map<string, Capture>()
  const figures = { calls: 0, traces: 0 }

  const call = (...args: A): R => {
    figures.calls++
    const given = arraysOf(args)
    // Inside another trace the operations join it; compiling them twice would only hide them.
    const inputSlots = slotsOf(inputs)
    const state = readSlots(inputSlots)
    if (!enabled || given.some(isAbstract) || state.some(isAbstract)) return f(...args)
    const key = keyOf(args, inputSlots, slotsOf(outputs))
    let entry = programs.get(key)
    if (entry) {
      programs.delete(key)
      programs.set(key, entry)
    } else {
      onRecompile?.(
        figures.traces === 0
          ? "first call"
          : "structure, shapes, dtypes or constants of the arguments changed",
      )
      figures.traces++
      entry = capture(f as (...args: never[]) => unknown, args, inputSlots, inputs, outputs)
      programs.set(key, entry)
      evictOldest(programs)
    }
    return replay(entry, [...given, ...state], outputs) as R
  }
  dropped.register(call, programs)
  return Object.assign(call, { stats: () => ({ ...figures, programs: programs.size }) })
}

const isAbstract = (a: Array): boolean => (a.node.mark & Mark.Abstract) !== 0

function evictOldest(programs: Map<string, Capture>): void {
  if (programs.size <= MAX_PROGRAMS) return
  const [key, entry] = programs.entries().next().value as [string, Capture]
  programs.delete(key)
  entry.program?.release()
}

/** Adds one call of a traced program to the graph, and hands out its results. */
function replay(
  { program, outside, result, sources, resultCount, outputPaths }: Capture,
  values: readonly Array[],
  outputs: unknown,
): unknown {
  const computed = program ? callProgram.all([...values, ...outside], { program }) : []
  const arrays = sources.map((source) => {
    if (source.from === "program") return computed[source.index]
    return new Array(source.from === "argument" ? values[source.index].node : source.value.node)
  })
  outputPaths.forEach((path, i) => writePath(outputs, path, arrays[resultCount + i]))
  return withArrays(result, arrays.slice(0, resultCount))
}
