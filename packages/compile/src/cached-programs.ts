/**
 * The cached programs of one compiled function: which of them serves a call, and when it is traced anew.
 */
import {
  type Array,
  arraysOf,
  calls,
  currentStream,
  Mark,
  type Node,
  sameShape,
  TransformError,
} from "@lazuli/core/engine"
import { type CachedProgram, inputNames, isSingle, locate, outputNames } from "./cached-program"
import { type Capture, capture, runAsWritten, type Subject } from "./capture"
import { sameConstant } from "./constants"
import { type Donated, donatedBy, donatedPositions, successorsOf } from "./donation"
import { type Explanation, explanationOf } from "./explain"
import { ChangingNumbers, FirstCalls } from "./first-calls"
import { Leaves } from "./leaves"
import type { CompileOptions } from "./options"
import { ProgramCache } from "./program-cache"
import { ProgramKey } from "./program-key"
import { Recompilation } from "./recompilation"
import { Replay } from "./replay"
import { ShapelessTraces } from "./shapeless-traces"
import { fits, signatureOf } from "./signature"
import { type ArrayLeaf, arrayLeaves, checkSeen, readLeaves, snapshot } from "./state"

/** The counts of a compiled function. */
export interface CompileStats {
  readonly calls: number
  /** The number of times the function itself ran to be traced. */
  readonly traces: number
  /** The number of cached programs. */
  readonly programs: number
}

const isAbstract = (a: Array): boolean => (a.node.mark & Mark.Abstract) !== 0

/** The most calls between two looks at recent programs, where more programs take turns than are remembered. */
const LONGEST_WAIT = 63

/** The cached programs of one compiled function. */
export class CachedPrograms {
  private readonly cache = new ProgramCache()
  private readonly shapeless = new ShapelessTraces()
  private readonly numbers = new ChangingNumbers()
  private readonly first = new FirstCalls()
  private readonly recompilation: Recompilation
  private readonly leaves = new Leaves()
  private readonly donated: Donated
  private readonly replay: Replay
  private readonly figures = { calls: 0, traces: 0 }
  private last: CachedProgram | null = null
  /** Calls for which the program was not that of the call before. */
  private changes = 0
  /** Calls that {@link recall} still skips: more of them the more often in a row it has found nothing. */
  private waits = 0
  private fruitless = 0

  constructor(
    private readonly f: (...args: never[]) => unknown,
    private readonly options: CompileOptions,
  ) {
    this.donated = donatedBy(options.donate)
    this.recompilation = new Recompilation(f.name, options)
    this.replay = new Replay(options, this.donated, this.leaves)
  }

  stats(): CompileStats {
    return { ...this.figures, programs: this.cache.size }
  }

  /** Runs the function as it is written. */
  callAsWritten(args: readonly unknown[]): unknown {
    this.figures.calls++
    return this.asWritten(args, arrayLeaves(this.options.inputs))
  }

  /** Nothing is given up: the call may be part of another trace. */
  private asWritten(args: readonly unknown[], inputLeaves: readonly ArrayLeaf[]): unknown {
    return this.replay.finish(runAsWritten(this.subjectOf(args, inputLeaves)), args, null)
  }

  call(args: readonly unknown[]): unknown {
    this.figures.calls++
    // Arguments without placeholders may depend on sizes in a trace for any, as ones like an array do.
    if (calls.recorder !== null) return this.asWritten(args, arrayLeaves(this.options.inputs))
    const { leaves, last } = this
    const { inputs, outputs } = this.options
    const isStateless = inputs === undefined && outputs === undefined
    const given: Node[] = []
    if (last !== null) {
      const fitting = fitsCall(last, args, given) ? last : this.recall(args, given)
      if (fitting !== null && (isStateless || this.stateFits(fitting))) {
        if (fitting !== last) {
          this.changes++
          this.cache.use((this.last = fitting))
        }
        return fitting.single
          ? this.replay.single(fitting, given)
          : this.replay.call(fitting, given, args, leaves.arrays, leaves)
      }
    }
    this.changes++
    // The function may call itself, and may put other containers into the state.
    leaves.forget()
    const held = arrayLeaves(inputs)
    const state = readLeaves(held)
    const key = this.keyFor(args, held)
    if (key === null) return this.asWritten(args, held)
    const known = this.known(key, held)
    if (known === null && this.isPassing(key)) return this.callInPassing(args, held, key)
    const cached = (this.last = known ?? this.trace(args, held, key))
    const nodes = arraysOf(args).map(({ node }) => node)
    return cached.single
      ? this.replay.single(cached, nodes)
      : this.replay.call(cached, nodes, args, state, null)
  }

  /**
   * A program of the last calls that fits arguments; null where there is none. Numbers that change tend to be few, and a key costs more
   * than a small call. Keys know the structure of captured outputs too: here it is that of the inputs.
   */
  private recall(args: readonly unknown[], found: Node[]): CachedProgram | null {
    if (this.options.inputs !== this.options.outputs) return null
    if (this.waits > 0) {
      this.waits--
      return null
    }
    for (const program of this.cache.recent) {
      found.length = 0
      if (program === this.last || !fitsCall(program, args, found)) continue
      this.fruitless = 0
      return program
    }
    this.fruitless = Math.min(LONGEST_WAIT, 2 * this.fruitless + 1)
    this.waits = this.fruitless
    return null
  }

  explain(args: readonly unknown[]): Explanation {
    const { inputs, outputs } = this.options
    const before = snapshot([inputs, outputs])
    let cached: CachedProgram | null = null
    try {
      const held = arrayLeaves(inputs)
      const key = this.keyFor(args, held)
      if (key !== null) cached = this.last = this.known(key, held) ?? this.trace(args, held, key)
    } finally {
      before.restore()
      before.release()
    }
    if (cached === null)
      throw new TransformError("explain", "the arguments belong to a trace, where nothing is compiled")
    return explanationOf(cached.capture.graph, inputNames(cached), outputNames(cached))
  }

  /** True if the captured inputs are where they were, with the same shapes, dtypes and constants. */
  private stateFits(cached: CachedProgram): boolean {
    const { leaves } = this
    const { inputs } = this.options
    const isKnown = leaves.stillFits(cached, inputs)
    if (!isKnown) leaves.read(inputs)
    const { holders, keys, arrays, constants } = leaves
    if (!isKnown) {
      if (arrays.length !== cached.state.length || constants.length !== cached.constants.length) return false
      for (let i = 0; i < arrays.length; i++)
        if (holders[i] !== cached.holders[i] || keys[i] !== cached.keys[i]) return false
      for (let i = 0; i < constants.length; i++)
        if (!sameConstant(constants[i], cached.constants[i])) return false
      leaves.fit(cached)
    }
    for (let i = 0; i < arrays.length; i++) {
      const { node } = arrays[i]
      const was = cached.state[i]
      if (node.dtype !== was.dtype || (node.mark & Mark.Abstract) !== 0) return false
      if (!sameShape(node.shape, was.shape)) return false
    }
    return true
  }

  /** The key of a call; null inside another trace, which the operations join. */
  private keyFor(args: readonly unknown[], inputLeaves: readonly ArrayLeaf[]): ProgramKey | null {
    const { inputs, outputs } = this.options
    const signature = signatureOf(args)
    if (arraysOf(args).some(isAbstract) || readLeaves(inputLeaves).some(isAbstract)) return null
    checkSeen(inputs)
    return new ProgramKey(signature, inputLeaves, inputs, outputs)
  }

  /** The cached program for a key; null where there is none. */
  private known(key: ProgramKey, inputLeaves: readonly ArrayLeaf[]): CachedProgram | null {
    const known = this.cache.find(key)
    if (known) locate(known, inputLeaves)
    return known ?? null
  }

  /** True for a call that is not expected to come again. */
  private isPassing(key: ProgramKey): boolean {
    const mayPass =
      (this.options.shapeless === true && this.shapeless.mayPass(key)) || this.numbers.mayPass(key)
    return mayPass && this.first.isFirst(key, this.changes, this.cache.isFull)
  }

  /** A call without a cached program, for sizes or numbers that may not come again. */
  private callInPassing(
    args: readonly unknown[],
    inputLeaves: readonly ArrayLeaf[],
    key: ProgramKey,
  ): unknown {
    const state = readLeaves(inputLeaves)
    const subject = this.subjectOf(args, inputLeaves)
    const found = this.shapeless.apply(subject, key) ?? runAsWritten(subject)
    return this.replay.finish(found, args, state)
  }

  private subjectOf(args: readonly unknown[], inputLeaves: readonly ArrayLeaf[]): Subject {
    const { inputs, outputs } = this.options
    return { f: this.f, args, given: arraysOf(args), inputs: inputLeaves, inputTrees: inputs, outputs }
  }

  private trace(args: readonly unknown[], inputLeaves: readonly ArrayLeaf[], key: ProgramKey): CachedProgram {
    const { inputs, outputs } = this.options
    const here = currentStream()
    const state = readLeaves(inputLeaves).map(({ node }) => node)
    const found = this.capture(this.subjectOf(args, inputLeaves), key)
    this.numbers.note(key)
    const { graph, namesStreams, left, targets, outputPaths } = found
    const end = namesStreams ? key.suffix : ""
    if (graph && this.donated.length > 0) {
      graph.donated = donatedPositions(this.donated, args, state.length)
      if (inputs === outputs) graph.successors = successorsOf(found, inputLeaves, arraysOf(args).length)
    }
    // Containers that the graph itself fills are there at the next call.
    this.shapeless.follow(key.of("rank") + end, key.after("rank", targets) + end)
    const elsewhere = graph && graph.stream !== here ? graph.stream : null
    const cached: CachedProgram = {
      key: key.sizes + end,
      signature: key.signature,
      stateSignature: key.stateSignature,
      capture: found,
      params: { program: graph },
      holders: [],
      keys: [],
      state: state.map(({ shape, dtype }) => ({ shape, dtype })),
      constants: key.constants.flatMap(({ key: name, value }) => [name, value]),
      inPlace: inputs === outputs && left.length === 0 && samePaths(inputLeaves, outputPaths),
      single: inputLeaves.length === 0 && this.donated.length === 0 && elsewhere === null && isSingle(found),
      stream: namesStreams ? here : null,
      elsewhere,
      alias: key.after("sizes", targets) + end,
    }
    locate(cached, inputLeaves)
    this.cache.add(cached)
    return cached
  }

  private capture(subject: Subject, key: ProgramKey): Capture {
    const announce = (reads?: readonly string[]): void => this.recompilation.announce(key, this.last, reads)
    if (this.options.shapeless) {
      let traced = false
      const found = this.shapeless.capture(subject, key, (reads) => {
        announce(reads)
        traced = true
      })
      if (traced) this.figures.traces++
      return found
    }
    announce()
    const found = capture(subject)
    this.figures.traces++
    return found
  }
}

/** True if a program serves the current stream and such arguments, whose nodes are added to `found`. */
const fitsCall = ({ stream, signature }: CachedProgram, args: readonly unknown[], found: Node[]): boolean =>
  (stream === null || stream === currentStream()) && fits(signature, args, found)

const samePaths = (inputs: readonly ArrayLeaf[], outputs: Capture["outputPaths"]): boolean =>
  inputs.length === outputs.length && inputs.every(({ path }, i) => String(path) === String(outputs[i]))
