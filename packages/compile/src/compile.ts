/**
 * `compile`: a function that is traced once for each kind of arguments and afterwards costs one node a call.
 */
import {
  Array,
  applyNode,
  applyNodes,
  arraysOf,
  checkOptions,
  isPlainObject,
  Mark,
  type Meta,
  type Node,
  sameShape,
  TransformError,
  withArrays,
} from "@lazuli/core/engine"
import {
  type Capture,
  capture,
  captureAgain,
  captureForAnySizes,
  type Recording,
  type Subject,
} from "./capture"
import { checkDonation, type Donated, donatedBy, donatedPositions, giveUp } from "./donation"
import { type Explanation, explanationOf } from "./explain"
import { callProgram } from "./program"
import { arrayKey, difference, fits, keyOf, type Signature, signatureOf } from "./signature"
import { Places, readSlots, type Slot, slotsOf, vacate, writePath } from "./state"

/** Options of {@link compile}. */
export interface CompileOptions {
  /** Mutable trees that the function reads: a Module, an optimizer's state, `mx.random.state`. */
  inputs?: unknown
  /** Mutable trees that the function changes; their arrays are replaced after each call. */
  outputs?: unknown
  /** One trace serves all sizes of arguments of the same rank and dtype; false by default. */
  shapeless?: boolean
  /** Called with the reason whenever the function is traced. */
  onRecompile?: (reason: string) => void
  /**
   * What a call may overwrite: `true` stands for the captured state that the function replaces, numbers for arguments by position,
   * `"state"` in a list for that state. Results then take the memory of these arrays, which have no value afterwards: reading one throws.
   */
  donate?: boolean | Donated
}

/** What a compiled function has done. */
export interface CompileStats {
  readonly calls: number
  /** How often the function itself ran to be traced. */
  readonly traces: number
  /** How many programs it keeps. */
  readonly programs: number
}

/** What a compiled function offers besides being called. */
export interface Compiled<A extends readonly unknown[] = readonly unknown[]> {
  /** How often it was called and traced, and how many programs it keeps. */
  stats(): CompileStats
  /**
   * What became of the function for such arguments: which operations were fused, which were not and why, and what the plan takes. Traces
   * where no call did so before.
   */
  explain(...args: A): Explanation
}

/** Programs that one compiled function keeps; the least recently used goes first. */
const MAX_PROGRAMS = 64
/** After this many traces a warning names the argument that keeps changing. */
const TRACES_BEFORE_WARNING = 8

let enabled = process.env.LAZULI_DISABLE_COMPILE !== "1"

/** Lets compiled functions run as they were written; the environment variable `LAZULI_DISABLE_COMPILE=1` does the same. */
export function disableCompile(): void {
  enabled = false
}
/** Undoes {@link disableCompile}. */
export function enableCompile(): void {
  enabled = true
}

/** A program, and what it takes for a call to use it. */
interface Entry {
  readonly key: string
  readonly signature: Signature
  readonly capture: Capture
  readonly params: { readonly program: Capture["program"] }
  /** Where the captured inputs were at the last call that used it. */
  holders: readonly object[]
  keys: readonly (string | number)[]
  /** What the captured inputs were traced with. */
  readonly state: readonly Meta[]
  /** Whether the captured outputs are the captured inputs, place by place. */
  readonly inPlace: boolean
  /** Whether a call does nothing but compute one array and give it. */
  readonly single: boolean
}

/** Gives the plans of compiled functions back that nobody can call any more. */
const dropped = new FinalizationRegistry<Map<string, Entry>>((programs) => {
  for (const { capture: c } of programs.values()) c.program?.release()
})

const isSingle = ({ result, sources, vacated }: Capture): boolean =>
  result instanceof Array && sources.length === 1 && sources[0].from === "program" && vacated.length === 0

const NONE: readonly Node[] = []
const isAbstract = (a: Array): boolean => (a.node.mark & Mark.Abstract) !== 0

/** Equal for state in the same places with the same dtypes and ranks, and sizes where they count. */
function stateKey(inputs: readonly Slot[], outputs: readonly Slot[], sizes: boolean): string {
  let key = ""
  for (const { holder, key: name, path } of inputs) {
    const { node } = holder[name] as Array
    key += `|${JSON.stringify(path)}${arrayKey(node.dtype, node.shape, sizes)}`
  }
  for (const { path } of outputs) key += `>${JSON.stringify(path)}`
  return key
}

/** The programs of one compiled function. */
class Programs {
  readonly entries = new Map<string, Entry>()
  private readonly recordings = new Map<string, Recording>()
  private readonly figures = { calls: 0, traces: 0 }
  private readonly places = new Places()
  private readonly changes = new Map<string, number>()
  private last: Entry | null = null
  private readonly donated: Donated

  constructor(
    private readonly f: (...args: never[]) => unknown,
    private readonly options: CompileOptions,
  ) {
    this.donated = donatedBy(options.donate)
  }

  /** Whether another compilation with these options would do the same. */
  isFor(options: CompileOptions): boolean {
    return (
      OPTIONS.every((key) => key === "donate" || options[key] === this.options[key]) &&
      String(donatedBy(options.donate)) === String(this.donated)
    )
  }

  stats(): CompileStats {
    return { ...this.figures, programs: this.entries.size }
  }

  call(args: readonly unknown[]): unknown {
    this.figures.calls++
    if (!enabled) return this.f(...(args as never[]))
    const { places, last } = this
    if (this.options.inputs !== undefined) places.read(this.options.inputs)
    const given: Node[] = []
    if (last !== null && fits(last.signature, args, given) && this.stateFits(last))
      return this.replay(last, given, args, places.arrays, places)
    // The function may call itself, and may put other containers into the state.
    places.forget()
    const slots = slotsOf(this.options.inputs)
    const state = readSlots(slots)
    const entry = this.lookUp(args, slots)
    if (entry === null) return this.f(...(args as never[]))
    return this.replay(
      entry,
      arraysOf(args).map(({ node }) => node),
      args,
      state,
      null,
    )
  }

  explain(args: readonly unknown[]): Explanation {
    const entry = this.lookUp(args, slotsOf(this.options.inputs))
    if (entry === null)
      throw new TransformError("explain", "the arguments belong to a trace, where nothing is compiled")
    return explanationOf(entry.capture.program)
  }

  /** Whether the captured inputs are where they were, with the same shapes and dtypes. */
  private stateFits(entry: Entry): boolean {
    const { holders, keys, arrays } = this.places
    if (arrays.length !== entry.state.length) return false
    for (let i = 0; i < arrays.length; i++) {
      if (holders[i] !== entry.holders[i] || keys[i] !== entry.keys[i]) return false
      const { node } = arrays[i]
      const was = entry.state[i]
      if (node.dtype !== was.dtype || (node.mark & Mark.Abstract) !== 0) return false
      if (!sameShape(node.shape, was.shape)) return false
    }
    return true
  }

  /** The program for arguments, traced if there is none; null inside another trace, which the operations join. */
  private lookUp(args: readonly unknown[], inputSlots: readonly Slot[]): Entry | null {
    const { inputs, outputs, shapeless = false } = this.options
    const given = arraysOf(args)
    if (given.some(isAbstract) || readSlots(inputSlots).some(isAbstract)) return null
    const signature = signatureOf(args)
    const outputSlots = slotsOf(outputs)
    const key = keyOf(signature, true) + stateKey(inputSlots, outputSlots, true)
    let entry = this.entries.get(key)
    if (entry) {
      this.entries.delete(key)
      entry.holders = inputSlots.map(({ holder }) => holder)
      entry.keys = inputSlots.map(({ key: name }) => name)
    } else {
      const subject = { f: this.f, args, given, inputs: inputSlots, inputTrees: inputs, outputs }
      const state = readSlots(inputSlots).map(({ node }) => node)
      const found = shapeless
        ? this.captureShapeless(
            subject,
            keyOf(signature, false) + stateKey(inputSlots, outputSlots, false),
            signature,
          )
        : this.captureNew(subject, signature)
      if (found.program && this.donated.length > 0)
        found.program.donated = donatedPositions(this.donated, args, state.length)
      entry = {
        key,
        signature,
        capture: found,
        params: { program: found.program },
        holders: inputSlots.map(({ holder }) => holder),
        keys: inputSlots.map(({ key: name }) => name),
        state: state.map(({ shape, dtype }) => ({ shape, dtype })),
        inPlace: inputs === outputs && found.vacated.length === 0 && samePaths(inputSlots, found.outputPaths),
        single: inputSlots.length === 0 && this.donated.length === 0 && isSingle(found),
      }
    }
    this.entries.set(key, entry)
    this.last = entry
    if (this.entries.size > MAX_PROGRAMS) this.evictOldest()
    return entry
  }

  private captureNew(subject: Subject, signature: Signature): Capture {
    this.announce(signature)
    const found = capture(subject)
    this.figures.traces++
    return found
  }

  private captureShapeless(subject: Subject, key: string, signature: Signature): Capture {
    const known = this.recordings.get(key)
    if (known) return captureAgain(known, subject)
    this.announce(signature)
    const { capture: found, recording } = captureForAnySizes(subject)
    this.figures.traces++
    this.recordings.set(key, recording)
    if (this.recordings.size > MAX_PROGRAMS)
      this.recordings.delete(this.recordings.keys().next().value as string)
    return found
  }

  /** Says why the function is traced, and warns where one argument makes it so again and again. */
  private announce(signature: Signature): void {
    const { onRecompile } = this.options
    const change = this.last === null ? null : difference(this.last.signature, signature)
    onRecompile?.(
      this.last === null
        ? "first call"
        : (change?.reason ?? "the captured state changed its structure, shapes or dtypes"),
    )
    if (change === null) return
    const count = (this.changes.get(change.path) ?? 0) + 1
    this.changes.set(change.path, count)
    if (count !== TRACES_BEFORE_WARNING) return
    process.emitWarning(
      `${this.f.name || "a compiled function"} was traced ${count + 1} times because ${change.path} kept changing (last ` +
        `${change.reason}). Each trace costs what many calls do: pass numbers as arrays, or compile with { shapeless: true } for ` +
        "sizes that vary.",
      { type: "LazuliWarning", code: "LAZULI_RECOMPILE" },
    )
  }

  private evictOldest(): void {
    const [key, entry] = this.entries.entries().next().value as [string, Entry]
    this.entries.delete(key)
    entry.capture.program?.release()
  }

  /**
   * Adds one call of a traced program to the graph, and hands out its results. `nodes` are those of the arguments; `places` are those of
   * `state` where they are known.
   */
  private replay(
    entry: Entry,
    nodes: Node[],
    args: readonly unknown[],
    state: readonly Array[],
    places: Places | null,
  ): unknown {
    const { program, outside, result, sources, resultCount, outputPaths, vacated } = entry.capture
    for (let i = 0; i < state.length; i++) nodes.push(state[i].node)
    const known = nodes.length
    if (program !== null) for (let i = 0; i < outside.length; i++) nodes.push(outside[i].node)
    if (entry.single) return new Array(applyNode(callProgram.primitive, nodes, entry.params))
    const computed = program === null ? NONE : applyNodes(callProgram.primitive, nodes, entry.params)
    const values: Array[] = []
    for (let i = 0; i < sources.length; i++) {
      const source = sources[i]
      values.push(
        new Array(
          source.from === "program"
            ? computed[source.index]
            : source.from === "argument" && source.index < known
              ? nodes[source.index]
              : (source as { value: Array }).value.node,
        ),
      )
    }
    if (entry.inPlace && places !== null) {
      const { holders, keys } = places
      for (let i = 0; i < holders.length; i++) holders[i][keys[i]] = values[resultCount + i]
    } else {
      const { outputs } = this.options
      for (const each of vacated) vacate(outputs, each)
      outputPaths.forEach((path, i) => writePath(outputs, path, values[resultCount + i]))
    }
    if (this.donated.length > 0 && !computed.some(({ mark }) => mark !== Mark.None)) {
      const kept = entry.inPlace ? [] : readSlots(slotsOf(this.options.inputs))
      giveUp(this.donated, state, kept, args, values)
    }
    if (state.length > 0) this.places.forget()
    return result instanceof Array ? values[0] : withArrays(result, values)
  }
}

/** The programs of functions that were compiled, for those who compile them again in the same way. */
const shared = new WeakMap<object, Programs[]>()

function programsOf(f: (...args: never[]) => unknown, options: CompileOptions): Programs {
  const list = shared.get(f) ?? []
  const known = list.find((programs) => programs.isFor(options))
  if (known) return known
  const programs = new Programs(f, { ...options })
  dropped.register(programs, programs.entries)
  shared.set(f, [...list, programs])
  return programs
}

const OPTIONS = ["inputs", "outputs", "shapeless", "onRecompile", "donate"] as const

const samePaths = (inputs: readonly Slot[], outputs: Capture["outputPaths"]): boolean =>
  inputs.length === outputs.length && inputs.every(({ path }, i) => String(path) === String(outputs[i]))

/**
 * A function that computes what `f` does, faster: `f` runs once for each combination of structure, shapes, dtypes and constants of its
 * arguments, and what it computed is simplified, fused and planned. `f` must not have effects other than on the trees named in
 * `inputs` and `outputs`. A call gives lazy arrays, as `f` does.
 *
 * Compiling a function again with the same options gives a function that shares the programs.
 *
 * With `shapeless`, `f` runs once for each combination of structure, ranks, dtypes and constants: for other sizes, the calls that it made
 * are made again. Numbers that it computes from sizes stay those of the first call.
 *
 * With `donate`, results take the memory of arrays that the caller gives up, so that a training step changes its state in place.
 *
 * @throws TransformError when `f` needs a value while it is traced, or a shapeless one depends on the sizes of the first call
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
  if (typeof (f as unknown) !== "function")
    throw new TransformError("compile", `expected a function, received ${typeof f}`)
  if (!isPlainObject(options as unknown))
    throw new TransformError(
      "compile",
      "options must be a plain object with inputs, outputs, shapeless, onRecompile or donate",
    )
  checkOptions("compile", options, OPTIONS)
  checkDonation(options.donate)
  const programs = programsOf(f as (...args: never[]) => unknown, options)
  const call = (...args: A): R => programs.call(args) as R
  return Object.assign(call, {
    stats: () => programs.stats(),
    explain: (...args: A) => programs.explain(args),
  })
}
