/**
 * Tracing: the function runs once on placeholders, and what it computed from them becomes a traced graph. A failed trace leaves nothing
 * behind: captured state gets its arrays back. Where nothing is traced, the function runs on the arrays, with the same care for the state.
 * A trace for any sizes also keeps the function's calls, which other sizes repeat, unless the function looked at sizes itself: JavaScript's
 * numbers cannot follow them, and it runs again.
 */
import {
  Array,
  abstractly,
  arraysOf,
  type CallRecorder,
  calls,
  implicitState,
  LazuliError,
  Mark,
  type Node,
  sourceNode,
  streamsNamed,
  TransformError,
  tracing,
  withArrays,
  withoutHandles,
} from "@lazuli/core/engine"
import { inOrder } from "./order"
import { reapply, rebuild } from "./rebuild"
import { type RecordedCall, Recorder, repeat } from "./recorder"
import { checkResult } from "./result"
import {
  type ArrayLeaf,
  arrayLeaves,
  type Holder,
  type Holdings,
  holdingsOf,
  type Left,
  leftOf,
  type Path,
  readLeaves,
  type Snapshot,
  snapshot,
  writeLeaves,
} from "./state"
import { TracedGraph } from "./traced-graph"

/** Where an output of a call comes from. */
type Source =
  | { readonly from: "graph"; readonly index: number }
  | { readonly from: "argument"; readonly index: number }
  | { readonly from: "outside"; readonly value: Array }

/** Changes that a function leaves in the captured inputs or outputs. */
export interface LeftIn extends Left {
  readonly tree: "inputs" | "outputs"
}

/** The form of a function's result, apart from the values. */
export interface Form {
  /** The result's tree; its arrays are replaced at each call. */
  readonly result: unknown
  /** The number of arrays that belong to the result; the captured outputs' follow. */
  readonly resultCount: number
  /** Where the captured outputs' arrays go. */
  readonly outputPaths: readonly Path[]
  /** Where the captured outputs hold arrays after a call. */
  readonly targets: readonly Path[]
  /** Changes other than arrays that the function leaves in captured trees. */
  readonly left: readonly LeftIn[]
  /** True if it names streams: its operations then keep theirs, where the others follow the stream of each call. */
  readonly namesStreams: boolean
}

/** The findings of one trace. */
export interface Capture extends Form {
  readonly graph: TracedGraph | null
  /** Arrays from outside the trace that the graph reads; they follow the arguments. */
  readonly outside: readonly Array[]
  /** First the result's arrays, then the captured outputs'. */
  readonly sources: readonly Source[]
}

/** The results of a call that runs at once, without a graph, and what else it leaves. */
export interface Outcome extends Form {
  /** First the result's arrays, then the captured outputs'. */
  readonly values: readonly Array[]
  readonly lent: Lent
}

/** The handles that a function got in place of those that were captured or given to it. */
interface Lent {
  /** By argument. */
  readonly args: readonly (readonly Array[])[]
  readonly state: readonly Array[]
}

const NOTHING_LENT: Lent = { args: [], state: [] }

/** The findings of a trace for any sizes: the calls, and which of their results the function gives. */
export interface Recording extends Form {
  readonly calls: readonly RecordedCall[]
  /** True if the function looked at the sizes of arrays, or caught an error: then it is traced for each. */
  readonly isSized: boolean
  /** Where it looked; nothing where the program hides its stack. */
  readonly reads: readonly string[]
  /** The call whose error it caught, if one threw. */
  readonly caught: string | null
  /** True if it looked at sizes or numbers of axes. */
  readonly readShapes: boolean
  /** By number, or arrays from outside. */
  readonly found: readonly (number | Array)[]
  /** The part that could not be remembered, if any. */
  readonly gap: string | null
}

/** A function, what it is called with, and the state that it reads and changes. */
export interface Subject {
  readonly f: (...args: never[]) => unknown
  readonly args: readonly unknown[]
  /** The arrays of `args`. */
  readonly given: readonly Array[]
  readonly inputs: readonly ArrayLeaf[]
  readonly inputTrees: unknown
  readonly outputs: unknown
}

/** Runs the function on placeholders shaped like its arguments' arrays and the captured inputs. */
export function capture(subject: Subject): Capture {
  return traced(subject, null).capture
}

/** The same, and what it takes to capture for other sizes without running the function. */
export function captureForAnySizes(subject: Subject): { capture: Capture; recording: Recording } {
  const recorder = { current: null as Recorder | null }
  const { capture: first, found, outsideFound } = traced(subject, recorder)
  const { recorded, isSized, reads, caught, readShapes, gap } = recorder.current as Recorder
  const { result, resultCount, outputPaths, targets, left, namesStreams } = first
  const values = found.map((id, i) => id ?? outsideFound[i])
  return {
    capture: first,
    recording: {
      calls: recorded,
      isSized,
      reads,
      caught,
      readShapes,
      found: values,
      gap,
      result,
      resultCount,
      outputPaths,
      targets,
      left,
      namesStreams,
    },
  }
}

/**
 * Captures for the sizes of `subject`'s arguments from an earlier trace; null where the function is to run again, since it looked at sizes
 * itself or its calls do not take these.
 */
export const captureAgain = (recording: Recording, subject: Subject): Capture | null =>
  repeated(
    recording,
    subject,
    placeholdersFor([...subject.given, ...readLeaves(subject.inputs)]),
    abstractly,
    (nodes, found, epoch) => build(nodes, found, epoch, recording.namesStreams),
  )

/** The same for arrays with other numbers of axes than those of the trace. */
export const captureForRanks = (recording: Recording, subject: Subject): Capture | null =>
  recording.readShapes ? null : captureAgain(recording, subject)

/** The results for the sizes of `subject`, as its arguments' arrays give them at once: planning would cost more than it gains. */
export function applyAgain(recording: Recording, subject: Subject): Outcome | null {
  const applied = withoutHandles(() =>
    repeated(
      recording,
      subject,
      [...subject.given, ...readLeaves(subject.inputs)].map(({ node }) => node),
      atOnce,
      (_, values) => ({ values }),
    ),
  )
  return applied && { ...applied, values: applied.values.map(copyOf), lent: NOTHING_LENT }
}

/** The results of the function as it is written: it runs on the arrays themselves, and captured state is treated as in a trace. */
export const runAsWritten = (subject: Subject): Outcome =>
  undoneByErrors(subject, (before) => {
    const epoch = ++tracing.begun
    const nodes = [...subject.given, ...readLeaves(subject.inputs)].map(({ node }) => node)
    const taken = new Set<Array>()
    // A handle that the function made is the state's: one more could keep the memory from the next call.
    const take = (handle: Array): Array => {
      const isOwn = handle.node.epoch >= epoch && !before.nodeOf(handle) && !taken.has(handle)
      taken.add(handle)
      return isOwn ? handle : copyOf(handle)
    }
    const { form, found, lent } = run(subject, before, nodes, calls.recorder, take)
    return { ...form, values: found, lent }
  })

const copyOf = ({ node }: Array): Array => new Array(node)

const atOnce = <T>(body: () => T): T => body()

/** Makes a recording's calls on nodes, those of the arguments and then of the captured inputs. */
function repeated<T>(
  recording: Recording,
  { given, inputs }: Subject,
  nodes: readonly Node[],
  within: <T>(body: () => T) => T,
  finish: (nodes: readonly Node[], found: readonly Array[], epoch: number) => T,
): (Form & T) | null {
  if (recording.gap !== null || recording.isSized) return null
  const before = readLeaves(inputs)
  const state = implicitState.map((list) => [...list])
  const epoch = ++tracing.begun
  // Calls may read the state without being given it, as random draws do.
  writeLeaves(
    inputs,
    nodes.slice(given.length).map((node) => new Array(node)),
  )
  const outer = calls.recorder
  calls.recorder = null
  const make = (): Form & T => {
    const values = repeat(recording.calls, nodes)
    const found = recording.found.map((each) =>
      typeof each === "number" ? new Array(values[each] as Node) : each,
    )
    return { ...recording, ...finish(nodes, found, epoch) }
  }
  try {
    return within(make)
  } catch (error) {
    if (!(error instanceof LazuliError)) throw error
    implicitState.forEach((list, i) => (list as unknown[]).splice(0, list.length, ...state[i]))
    return null
  } finally {
    calls.recorder = outer
    writeLeaves(inputs, before)
  }
}

const placeholdersFor = (arrays: readonly Array[]): Node[] =>
  arrays.map((a) => sourceNode(a.node.shape, a.dtype, null, Mark.Abstract))

interface Traced {
  readonly capture: Capture
  /** The recorder's numbers of what was found. */
  readonly found: readonly (number | null)[]
  readonly outsideFound: readonly Array[]
}

function traced(subject: Subject, recording: { current: Recorder | null } | null): Traced {
  return undoneByErrors(subject, (before) => abstractly(() => trace(subject, before, recording)))
}

/** Runs `body`; where it throws, the captured trees hold again what they held. */
function undoneByErrors<T>({ inputTrees, outputs }: Subject, body: (before: Snapshot) => T): T {
  const before = snapshot([inputTrees, outputs])
  const outer = calls.recorder
  try {
    return body(before)
  } catch (error) {
    before.restore()
    throw error
  } finally {
    before.release()
    calls.recorder = outer
  }
}

function trace(subject: Subject, before: Snapshot, recording: { current: Recorder | null } | null): Traced {
  const epoch = ++tracing.begun
  const placeholders = placeholdersFor([...subject.given, ...readLeaves(subject.inputs)])
  const recorder = recording === null ? null : new Recorder(placeholders)
  if (recording) recording.current = recorder
  const { form, found } = run(subject, before, placeholders, recorder, copyOf)
  return {
    capture: { ...form, ...build(placeholders, found, epoch, form.namesStreams) },
    found: recorder ? found.map(({ node }) => recorder.idOf(node)) : [],
    outsideFound: found,
  }
}

/**
 * Runs the function on handles of its own for `nodes`, those of the arguments and then of the captured inputs. Finds copies of the arrays
 * of its result, and what `take` makes of those that it left in the captured outputs; what was captured shows again what it showed.
 */
function run(
  { f, args, given, inputs, inputTrees, outputs }: Subject,
  snapshot: Snapshot,
  nodes: readonly Node[],
  recorder: CallRecorder | null,
  take: (handle: Array) => Array,
): { form: Form; found: Array[]; lent: Lent } {
  const before = readLeaves(inputs)
  const contents = {
    inputs: inputTrees === outputs ? null : holdingsOf(inputTrees),
    outputs: holdingsOf(outputs),
  }
  const outputsBefore = contents.outputs.arrays
  const handles = nodes.map((node) => new Array(node))
  const ownArgs = withArrays(args, handles.slice(0, given.length)) as never[]
  const lent = { args: ownArgs.map((arg) => arraysOf(arg)), state: handles.slice(given.length) }
  writeLeaves(inputs, lent.state)
  calls.recorder = recorder
  const named = streamsNamed()
  const result = f(...ownArgs)
  calls.recorder = null
  checkResult(result)
  const held = arrayLeaves(outputs)
  // An output that is no input, and that the function did not touch, is nobody's business.
  const touched = held.filter(({ holder, key }) => {
    const array = holder[key] as Array
    return snapshot.entriesOf(holder)?.[key] !== array || snapshot.nodeOf(array) !== array.node
  })
  const found = [...arraysOf(result).map(copyOf), ...readLeaves(touched).map(take)]
  snapshot.restoreArrays()
  dropNew(arrayLeaves(inputTrees), inputs, held, snapshot)
  // State that is an input and no output keeps its arrays.
  const wasOutput = among(outputsBefore)
  for (const [i, leaf] of inputs.entries())
    if (leaf.holder[leaf.key] instanceof Array || !wasOutput(leaf)) leaf.holder[leaf.key] = before[i]
  const left: LeftIn[] = []
  for (const [tree, was] of Object.entries(contents) as ["inputs" | "outputs", Holdings | null][]) {
    if (was === null) continue
    const found = leftOf(tree === "inputs" ? inputTrees : outputs, was)
    if (found.vacated.length + found.written.length > 0) left.push({ tree, ...found })
  }
  const form: Form = {
    result,
    resultCount: found.length - touched.length,
    outputPaths: touched.map(({ path }) => path),
    targets: held.map(({ path }) => path),
    left,
    namesStreams: streamsNamed() > named,
  }
  return { form, found, lent }
}

/** Drops arrays that the function put into trees that are inputs and no outputs: they have no value outside the trace. */
function dropNew(
  now: readonly ArrayLeaf[],
  before: readonly ArrayLeaf[],
  outputs: readonly ArrayLeaf[],
  snapshot: Snapshot,
): void {
  const [wasInput, isOutput] = [among(before), among(outputs)]
  for (const leaf of now) {
    if (wasInput(leaf) || isOutput(leaf)) continue
    const was = snapshot.entriesOf(leaf.holder)
    if (was && leaf.key in was) leaf.holder[leaf.key] = was[leaf.key]
    else delete leaf.holder[leaf.key]
  }
}

/** Tells whether a leaf is one of these, by its holder: a state may have thousands. */
function among(leaves: readonly ArrayLeaf[]): (leaf: ArrayLeaf) => boolean {
  const keys = new Map<Holder, Set<string | number>>()
  for (const { holder, key } of leaves) {
    const known = keys.get(holder)
    if (known) known.add(key)
    else keys.set(holder, new Set([key]))
  }
  return ({ holder, key }) => keys.get(holder)?.has(key) === true
}

/** True if a node holds a value, or was waiting for it before the trace began. Constants belong to whoever reads them. */
function isFromOutside(node: Node, epoch: number): boolean {
  if (node.primitive === null) return true
  return (node.mark & Mark.Abstract) === 0 && node.epoch < epoch && !node.primitive.facts.immediate
}

/** The values from outside that the traced function reads. */
function outsideOf(
  roots: readonly Node[],
  inside: ReadonlySet<Node>,
  isOutside: (node: Node) => boolean,
): Array[] {
  const seen = new Set<Node>()
  for (const application of inOrder(roots, isOutside)) {
    for (const input of application.inputs) {
      if (!isOutside(input) || inside.has(input) || seen.has(input)) continue
      if (input.mark & Mark.Abstract || (input.mark & Mark.Traced && tracing.depth > 0)) {
        throw new TransformError(
          "compile",
          "the function uses an array from another trace, which was not passed to it as an argument",
          {
            hint:
              "Pass it as an argument, or name the tree that holds it in `inputs`. If an earlier compiled call left it in a variable, it " +
              "never gets a value: name the tree that holds it in that function's `outputs`",
          },
        )
      }
      seen.add(input)
    }
  }
  return [...seen].map((node) => new Array(node))
}

/** Makes the traced graph, with placeholders of its own for what comes from outside, and says where each found array comes from. */
function build(
  placeholders: readonly Node[],
  found: readonly Array[],
  epoch: number,
  namesStreams: boolean,
): Pick<Capture, "graph" | "outside" | "sources"> {
  const isOutside = (node: Node): boolean => isFromOutside(node, epoch)
  const computed = [...new Set(found.map(({ node }) => node).filter((node) => !isOutside(node)))]
  const outside = outsideOf(computed, new Set(placeholders), isOutside)
  const stands = placeholdersFor(outside)
  const leaves = new Map(outside.map(({ node }, i) => [node, stands[i]]))
  const outputs = rebuild(computed, leaves, isOutside, reapply)
  const graph =
    computed.length > 0 ? new TracedGraph([...placeholders, ...stands], outputs, namesStreams) : null
  const argumentOf = new Map(placeholders.map((node, i) => [node, i]))
  const positionOf = new Map(computed.map((node, i) => [node, i]))
  const sources = found.map((value): Source => {
    const index = positionOf.get(value.node)
    if (index !== undefined) return { from: "graph", index }
    const argument = argumentOf.get(value.node)
    return argument === undefined ? { from: "outside", value } : { from: "argument", index: argument }
  })
  return { graph, outside, sources }
}
