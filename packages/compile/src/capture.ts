/**
 * Tracing: the function runs once on placeholders, and what it computed from them becomes a program. A failed trace leaves nothing
 * behind: captured state gets its arrays back.
 */
import { Array, arraysOf, Mark, type Node, sourceNode, TransformError, withArrays } from '@lazuli/core/engine'
import { inOrder, isLeaf } from './order'
import { Program } from './program'
import { readSlots, type Slot, slotsOf, writeSlots } from './state'

/** Where an output of a call comes from. */
type Source =
  | { readonly from: 'program'; readonly index: number }
  | { readonly from: 'argument'; readonly index: number }
  | { readonly from: 'outside'; readonly value: Array }

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
}

/** Runs `f` on placeholders shaped like `args`' arrays and the captured inputs. */
export function capture(
  f: (...args: never[]) => unknown,
  args: readonly unknown[],
  inputs: readonly Slot[],
  outputs: unknown,
): Capture {
  const given = arraysOf(args)
  const before = readSlots(inputs)
  const placeholders = [...given, ...before].map((a) =>
    sourceNode(a.node.shape, a.dtype, null, Mark.Abstract),
  )
  const handles = placeholders.map((node) => new Array(node))
  writeSlots(inputs, handles.slice(given.length))
  let result: unknown
  let slots: Slot[]
  let found: Array[]
  try {
    result = f(...(withArrays(args, handles.slice(0, given.length)) as never[]))
    slots = slotsOf(outputs)
    found = [...arraysOf(result), ...readSlots(slots)]
  } catch (error) {
    writeSlots(inputs, before)
    throw error
  }
  const inside = new Set(placeholders)
  // State that is an input and no output keeps its arrays; so does an output that the function did not touch.
  writeSlots(inputs, before)
  const traced = found.map((a) => a.node)
  const outside = outsideOf(traced, inside)
  const program = build(placeholders, traced, outside)
  const sources = program.sources(traced, found)
  return { program: program.program, outside, result, sources, resultCount: found.length - slots.length }
}

/** Leaves that are no placeholders of this trace: values the function read from outside. */
function outsideOf(roots: readonly Node[], inside: ReadonlySet<Node>): Array[] {
  const seen = new Set<Node>()
  for (const lead of inOrder(roots, isLeaf)) {
    for (const input of lead.inputs) {
      if (!isLeaf(input) || inside.has(input) || seen.has(input)) continue
      if (input.mark & Mark.Abstract) {
        throw new TransformError(
          'compile',
          'the function uses an array of another trace, which has no value here',
          {
            hint: 'Pass it as an argument, or name the tree that holds it in `inputs`',
          },
        )
      }
      seen.add(input)
    }
  }
  return [...seen].map((node) => new Array(node))
}

function build(placeholders: readonly Node[], traced: readonly Node[], outside: readonly Array[]) {
  const computed: Node[] = []
  for (const node of traced) if (!isLeaf(node) && !computed.includes(node)) computed.push(node)
  const program =
    computed.length > 0 ? new Program([...placeholders, ...outside.map((a) => a.node)], computed) : null
  const argumentOf = new Map(placeholders.map((node, i) => [node, i]))
  const positionOf = new Map(computed.map((node, i) => [node, i]))
  return {
    program,
    sources: (nodes: readonly Node[], found: readonly Array[]): Source[] =>
      nodes.map((node, i) => {
        const index = positionOf.get(node)
        if (index !== undefined) return { from: 'program', index }
        const argument = argumentOf.get(node)
        return argument === undefined
          ? { from: 'outside', value: found[i] }
          : { from: 'argument', index: argument }
      }),
  }
}
