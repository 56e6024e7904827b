/**
 * Tracing: the function runs once on placeholders, and what it computed from them becomes a program. A failed trace leaves nothing
 * behind: captured state gets its arrays back.
 */
import {
  Array,
  arraysOf,
  Mark,
  type Node,
  sourceNode,
  TransformError,
  tracing,
  withArrays,
} from "@lazuli/core/engine"
import { inOrder } from "./order"
import { Program } from "./program"
import { reapply, rebuild } from "./rebuild"
import { readSlots, type Slot, slotsOf, snapshot, writeSlots } from "./state"

/** Where an output of a call comes from. */
type Source =
  | { readonly from: "program"; readonly index: number }
  | { readonly from: "argument"; readonly index: number }
  | { readonly from: "outside"; readonly value: Array }

/** What one trace found. */
export interface Capture {
  readonly program: Program | null
  /** Arrays from outside the trace that the program reads; they follow the arguments. */
  readonly outside: readonly Array[]
  /** The result's tree; its arrays are replaced at each call. */
  readonly result: unknown
  /** First the result's arrays, then the captured outputs'. */
  readonly sources: readonly Source[]
  /** How many of them belong to the result. */
  readonly resultCount: number
  /** Where the captured outputs' arrays go. */
  readonly outputPaths: readonly (readonly (string | number)[])[]
}

/** Runs `f` on placeholders shaped like `args`' arrays and the captured inputs. */
export function capture(
  f: (...args: never[]) => unknown,
  args: readonly unknown[],
  inputs: readonly Slot[],
  inputTrees: unknown,
  outputs: unknown,
): Capture {
  const restore = snapshot([inputTrees, outputs])
  try {
    return trace(f, args, inputs, inputTrees, outputs)
  } catch (error) {
    restore()
    throw error
  }
}

function trace(
  f: (...args: never[]) => unknown,
  args: readonly unknown[],
  inputs: readonly Slot[],
  inputTrees: unknown,
  outputs: unknown,
): Capture {
  const given = arraysOf(args)
  const epoch = ++tracing.begun
  const before = readSlots(inputs)
  const placeholders = [...given, ...before].map((a) =>
    sourceNode(a.node.shape, a.dtype, null, Mark.Abstract),
  )
  const handles = placeholders.map((node) => new Array(node))
  writeSlots(inputs, handles.slice(given.length))
  const result = f(...(withArrays(args, handles.slice(0, given.length)) as never[]))
  const slots = slotsOf(outputs)
  const found = [...arraysOf(result), ...readSlots(slots)]
  dropNew(slotsOf(inputTrees), inputs, slots)
  // State that is an input and no output keeps its arrays; so does an output that the function did not touch.
  writeSlots(inputs, before)
  const traced = found.map((a) => a.node)
  const isOutside = (node: Node): boolean => isFromOutside(node, epoch)
  const outside = outsideOf(traced, new Set(placeholders), isOutside)
  const { program, sources } = build(placeholders, found, outside, isOutside)
  const outputPaths = slots.map(({ path }) => path)
  return { program, outside, result, sources, resultCount: found.length - slots.length, outputPaths }
}

/** What the function put into trees that are inputs and no outputs has no value outside the trace. */
function dropNew(now: readonly Slot[], before: readonly Slot[], outputs: readonly Slot[]): void {
  const known = (slot: Slot, list: readonly Slot[]): boolean =>
    list.some(({ holder, key }) => holder === slot.holder && key === slot.key)
  for (const slot of now) if (!known(slot, before) && !known(slot, outputs)) delete slot.holder[slot.key]
}

/** Whether a node holds a value, or was waiting for it before the trace began. Constants belong to whoever reads them. */
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
  for (const lead of inOrder(roots, isOutside)) {
    for (const input of lead.inputs) {
      if (!isOutside(input) || inside.has(input) || seen.has(input)) continue
      if (input.mark & Mark.Abstract || (input.mark & Mark.Traced && tracing.depth > 0)) {
        throw new TransformError(
          "compile",
          "the function uses an array of another trace, which it did not get as an argument",
          {
            hint: "Pass it as an argument, or name the tree that holds it in `inputs`",
          },
        )
      }
      seen.add(input)
    }
  }
  return [...seen].map((node) => new Array(node))
}

/** Makes the program, with placeholders of its own for what comes from outside, and says where each found array comes from. */
function build(
  placeholders: readonly Node[],
  found: readonly Array[],
  outside: readonly Array[],
  isOutside: (node: Node) => boolean,
): { program: Program | null; sources: Source[] } {
  const computed: Node[] = []
  for (const { node } of found) if (!isOutside(node) && !computed.includes(node)) computed.push(node)
  const stands = outside.map(({ node }) => sourceNode(node.shape, node.dtype, null, Mark.Abstract))
  const leaves = new Map(outside.map(({ node }, i) => [node, stands[i]]))
  const outputs = rebuild(computed, leaves, isOutside, reapply)
  const program = computed.length > 0 ? new Program([...placeholders, ...stands], outputs) : null
  const argumentOf = new Map(placeholders.map((node, i) => [node, i]))
  const positionOf = new Map(computed.map((node, i) => [node, i]))
  const sources = found.map((value): Source => {
    const index = positionOf.get(value.node)
    if (index !== undefined) return { from: "program", index }
    const argument = argumentOf.get(value.node)
    return argument === undefined ? { from: "outside", value } : { from: "argument", index: argument }
  })
  return { program, sources }
}
