/**
 * The programs of one compiled function: which of them serves a call, when it is traced anew and why, and how a call runs it.
 */
import {
  Array,
  applyNode,
  applyNodes,
  arraysOf,
  boundPending,
  currentStream,
  forEachLeaf,
  Mark,
  type Meta,
  mapArrays,
  type Node,
  onStream,
  type Stream,
  sameShape,
  TransformError,
  withArrays,
} from "@lazuli/core/engine"
import {
  type Capture,
  capture,
  captureAgain,
  captureForAnySizes,
  captureForRanks,
  type Recording,
  type Subject,
} from "./capture"
import { sameConstant } from "./constants"
import { type Donated, donatedBy, donatedPositions, giveUp } from "./donation"
import { type Explanation, explanationOf } from "./explain"
import type { CompileOptions } from "./options"
import { callProgram } from "./program"
import {
  difference,
  fits,
  keyOf,
  type ShapeDetail,
  type Signature,
  signatureOf,
  signatureOfConstants,
  signatureOfOutputs,
  signatureOfSlots,
} from "./signature"
import {
  checkSeen,
  constantsOf,
  leave,
  Places,
  placeName,
  readSlots,
  type Slot,
  slotsOf,
  snapshot,
  writePath,
} from "./state"

/** The counts of a compiled function. */
export interface CompileStats {
  readonly calls: number
  /** The number of times the function itself ran to be traced. */
  readonly traces: number
  /** The number of programs it keeps. */
  readonly programs: number
}

/** Programs that one compiled function keeps; the least recently used goes first. */
const MAX_PROGRAMS = 64
/** After this many traces a warning names the argument that keeps changing. */
const TRACES_BEFORE_WARNING = 8

/** A program, and what it takes for a call to use it. */
interface Entry {
  readonly signature: Signature
  /** That of the captured state. */
  readonly stateSignature: Signature
  readonly capture: Capture
  readonly params: { readonly program: Capture["program"] }
  /** Where the captured inputs were at the last call that used it. */
  holders: readonly object[]
  keys: readonly (string | number)[]
  /** The captured inputs' shapes and dtypes at the trace. */
  readonly state: readonly Meta[]
  /** Keys and values, in turn, of what else was in the captured inputs. */
  readonly constants: readonly unknown[]
  /** True if the captured outputs are the captured inputs, place by place. */
  readonly inPlace: boolean
  /** True if a call does nothing but compute one array and give it. */
  readonly single: boolean
  /** The current stream when it was traced, which it serves alone; null where it names none and serves all. */
  readonly stream: Stream | null
  /** The stream that it runs on where that is another. */
  readonly elsewhere: Stream | null
  /** The other key that finds it: that of the captured outputs as it leaves them. */
  readonly alias: string
}

/** The reason why a call wants a program. */
type Wanted = Pick<Entry, "signature" | "stateSignature">

const isSingle = ({ result, sources, left }: Capture): boolean =>
  result instanceof Array && sources.length === 1 && sources[0].from === "program" && left.length === 0

const NONE: readonly Node[] = []
const isAbstract = (a: Array): boolean => (a.node.mark & Mark.Abstract) !== 0

/** The names of a program's inputs: arguments, captured state, and what the function read from outside. */
function inputNames({ signature, stateSignature, capture: { outside } }: Entry): string[] {
  const arrays = [...signature, ...stateSignature].filter(({ kind }) => kind === "array")
  return [...arrays.map(({ path }) => path), ...outside.map((_, i) => `constant ${i}`)]
}

/** The names of a program's outputs: parts of the result, and captured state. */
function outputNames({ capture: { result, sources, outputPaths } }: Entry): string[] {
  const places: string[] = []
  forEachLeaf(result, (leaf, path) => {
    if (leaf instanceof Array) places.push(path === "" ? "result" : `result.${path}`)
  })
  places.push(...outputPaths.map(placeName))
  const names: string[] = []
  sources.forEach((source, i) => {
    if (source.from !== "program") return
    const { index } = source
    names[index] = index in names ? `${names[index]}\n${places[i]}` : places[i]
  })
  return names
}

/** The programs of one compiled function. */
export class Programs {
  private readonly entries = new Map<string, Entry>()
  private readonly aliases = new Map<string, string>()
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

  stats(): CompileStats {
    return { ...this.figures, programs: this.entries.size }
  }

  /** Runs the function as it is written. */
  callAsWritten(args: readonly unknown[]): unknown {
    this.figures.calls++
    return this.asWritten(args)
  }

  /** The arguments are copies, as those of a trace are. */
  private asWritten(args: readonly unknown[]): unknown {
    return this.f(...(mapArrays(args, ({ node }) => new Array(node)) as never[]))
  }

  call(args: readonly unknown[]): unknown {
    this.figures.calls++
    const { places, last } = this
    if (this.options.inputs !== undefined) places.read(this.options.inputs)
    const given: Node[] = []
    const serves = last !== null && (last.stream === null || last.stream === currentStream())
    if (serves && fits(last.signature, args, given) && this.stateFits(last))
      return this.replay(last, given, args, places.arrays, places)
    // The function may call itself, and may put other containers into the state.
    places.forget()
    const slots = slotsOf(this.options.inputs)
    const state = readSlots(slots)
    const entry = this.lookUp(args, slots)
    if (entry === null) return this.asWritten(args)
    const nodes = arraysOf(args).map(({ node }) => node)
    return this.replay(entry, nodes, args, state, null)
  }

  explain(args: readonly unknown[]): Explanation {
    const { inputs, outputs } = this.options
    const before = snapshot([inputs, outputs])
    let entry: Entry | null
    try {
      entry = this.lookUp(args, slotsOf(inputs))
    } finally {
      before.restore()
    }
    if (entry === null)
      throw new TransformError("explain", "the arguments belong to a trace, where nothing is compiled")
    return explanationOf(entry.capture.program, inputNames(entry), outputNames(entry))
  }

  /** True if the captured inputs are where they were, with the same shapes, dtypes and constants. */
  private stateFits(entry: Entry): boolean {
    const { holders, keys, arrays, constants } = this.places
    if (arrays.length !== entry.state.length || constants.length !== entry.constants.length) return false
    for (let i = 0; i < arrays.length; i++) {
      if (holders[i] !== entry.holders[i] || keys[i] !== entry.keys[i]) return false
      const { node } = arrays[i]
      const was = entry.state[i]
      if (node.dtype !== was.dtype || (node.mark & Mark.Abstract) !== 0) return false
      if (!sameShape(node.shape, was.shape)) return false
    }
    for (let i = 0; i < constants.length; i++)
      if (!sameConstant(constants[i], entry.constants[i])) return false
    return true
  }

  /** The program for arguments, traced if there is none; null inside another trace, which the operations join. */
  private lookUp(args: readonly unknown[], inputSlots: readonly Slot[]): Entry | null {
    const { inputs, outputs, shapeless = false } = this.options
    const signature = signatureOf(args)
    const given = arraysOf(args)
    if (given.some(isAbstract) || readSlots(inputSlots).some(isAbstract)) return null
    checkSeen(inputs)
    const constants = constantsOf(inputs)
    const arrays = signatureOfSlots(inputSlots)
    const captured = [...arrays, ...signatureOfConstants(constants)]
    const stateSignature = [...captured, ...signatureOfOutputs(slotsOf(outputs).map(({ path }) => path))]
    const keyFor = (detail: ShapeDetail, state = stateSignature): string =>
      `${detail} ${keyOf(signature, detail)}${keyOf(state, detail)}`
    const wantedKey = keyFor("sizes")
    const known = (k: string): string | undefined => (this.entries.has(k) ? k : this.aliases.get(k))
    // Programs that name streams are found by the current one besides.
    const here = currentStream()
    const suffix = `@${here.index}`
    let key = known(wantedKey) ?? known(wantedKey + suffix) ?? wantedKey
    let entry = this.entries.get(key)
    if (entry) {
      this.entries.delete(key)
      entry.holders = inputSlots.map(({ holder }) => holder)
      entry.keys = inputSlots.map(({ key: name }) => name)
    } else {
      const subject = { f: this.f, args, given, inputs: inputSlots, inputTrees: inputs, outputs }
      const state = readSlots(inputSlots).map(({ node }) => node)
      const wanted: Wanted = { signature, stateSignature }
      const anySizes = [keyFor("rank"), keyFor("none")]
      const found = shapeless
        ? this.captureShapeless(subject, anySizes, suffix, wanted)
        : this.captureNew(subject, wanted)
      const { program, namesStreams } = found
      const end = namesStreams ? suffix : ""
      key = wantedKey + end
      if (program && this.donated.length > 0)
        program.donated = donatedPositions(this.donated, args, state.length)
      // Containers that the program itself fills are there at the next call.
      const filled = [...captured, ...signatureOfOutputs(found.targets)]
      const recording = this.recordings.get(anySizes[0] + end)
      if (recording) this.recordings.set(keyFor("rank", filled) + end, recording)
      const elsewhere = program && program.stream !== here ? program.stream : null
      entry = {
        signature,
        stateSignature,
        capture: found,
        params: { program },
        holders: inputSlots.map(({ holder }) => holder),
        keys: inputSlots.map(({ key: name }) => name),
        state: state.map(({ shape, dtype }) => ({ shape, dtype })),
        constants: constants.flatMap(({ key: name, value }) => [name, value]),
        inPlace: inputs === outputs && found.left.length === 0 && samePaths(inputSlots, found.outputPaths),
        single: inputSlots.length === 0 && this.donated.length === 0 && elsewhere === null && isSingle(found),
        stream: namesStreams ? here : null,
        elsewhere,
        alias: keyFor("sizes", filled) + end,
      }
      this.aliases.set(entry.alias, key)
      // The function may have called itself.
      this.entries.get(key)?.capture.program?.release()
    }
    this.entries.set(key, entry)
    this.last = entry
    if (this.entries.size > MAX_PROGRAMS) this.evictOldest()
    return entry
  }

  private captureNew(subject: Subject, wanted: Wanted): Capture {
    this.announce(wanted)
    const found = capture(subject)
    this.figures.traces++
    return found
  }

  /**
   * `keys` are those of recordings for these numbers of axes, and for any; `suffix` stands in the keys of those that name streams. A
   * recording may serve other numbers of axes where its operations take them.
   */
  private captureShapeless(
    subject: Subject,
    keys: readonly string[],
    suffix: string,
    wanted: Wanted,
  ): Capture {
    const [ofRanks, ofAny] = keys
    const recorded = (key: string): Recording | undefined =>
      this.recordings.get(key) ?? this.recordings.get(key + suffix)
    const known = recorded(ofRanks)
    if (known) return captureAgain(known, subject)
    const other = recorded(ofAny)
    const served = other ? captureForRanks(other, subject) : null
    if (other && served) {
      this.remember(ofRanks + (other.namesStreams ? suffix : ""), other)
      return served
    }
    this.announce(wanted)
    const { capture: found, recording } = captureForAnySizes(subject)
    this.figures.traces++
    const end = recording.namesStreams ? suffix : ""
    this.remember(ofRanks + end, recording)
    this.remember(ofAny + end, recording)
    return found
  }

  private remember(key: string, recording: Recording): void {
    this.recordings.set(key, recording)
    if (this.recordings.size > 2 * MAX_PROGRAMS)
      this.recordings.delete(this.recordings.keys().next().value as string)
  }

  /** Says why the function is traced, and warns where one argument, or one place of the state, makes it so again and again. */
  private announce({ signature, stateSignature }: Wanted): void {
    const { onRecompile } = this.options
    const { last } = this
    if (last === null) {
      onRecompile?.("first call")
      return
    }
    const change = difference(last.signature, signature) ?? difference(last.stateSignature, stateSignature)
    const dropped = "its program was dropped for others"
    const isElsewhere = last.stream !== null && last.stream !== currentStream()
    onRecompile?.(change?.reason ?? (isElsewhere ? "the current stream changed" : dropped))
    if (change === null) return
    const count = (this.changes.get(change.path) ?? 0) + 1
    this.changes.set(change.path, count)
    if (count !== TRACES_BEFORE_WARNING) return
    process.emitWarning(
      `${this.f.name || "a compiled function"} was traced ${count + 1} times because ${change.path} kept changing (last ` +
        `${change.reason}). Each trace costs what many calls do: pass numbers as arrays` +
        `${this.options.shapeless ? "" : ", or compile with { shapeless: true } for sizes that vary"}.`,
      { type: "LazuliWarning", code: "LAZULI_RECOMPILE" },
    )
  }

  private evictOldest(): void {
    const [key, entry] = this.entries.entries().next().value as [string, Entry]
    this.entries.delete(key)
    if (this.aliases.get(entry.alias) === key) this.aliases.delete(entry.alias)
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
    const { program, outside, result, sources, resultCount, outputPaths, left } = entry.capture
    for (let i = 0; i < state.length; i++) nodes.push(state[i].node)
    const known = nodes.length
    if (program !== null) for (let i = 0; i < outside.length; i++) nodes.push(outside[i].node)
    if (entry.single) return new Array(applyNode(callProgram.primitive, nodes, entry.params))
    boundPending()
    const { elsewhere, params } = entry
    const computed =
      program === null
        ? NONE
        : elsewhere === null
          ? applyNodes(callProgram.primitive, nodes, params)
          : onStream(elsewhere, () => applyNodes(callProgram.primitive, nodes, params))
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
      for (const each of left) leave(this.options[each.tree], each)
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

const samePaths = (inputs: readonly Slot[], outputs: Capture["outputPaths"]): boolean =>
  inputs.length === outputs.length && inputs.every(({ path }, i) => String(path) === String(outputs[i]))
