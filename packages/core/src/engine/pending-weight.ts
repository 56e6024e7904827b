/**
 * The weight of pending arrays: the bytes of their graph, and of the memory that is there for that graph alone, now or once it is
 * evaluated. It bounds what a program that evaluates nothing may pile up. Nothing here evaluates or gives back; see memory.ts.
 */
import { GRAPH_BYTES, isLarge, Mark, type Node } from "../graph/graph"

/** The number in a node's `visit` that says that it was weighed once. Traversals of evaluation have numbers above 0. */
const WEIGHED = -1
/** The number of a node that is evaluated without a traversal. */
export const NO_TRAVERSAL = 2 ** 30 - 1
let recount = WEIGHED

/** A number for weighing anew what was weighed before. */
export const newRecount = (): number => --recount

/**
 * The weight of a node and of everything pending behind it, as far as it was not weighed: ever, or in the given recount. What is about to
 * be evaluated weighs nothing.
 */
export function weigh(node: Node, round: number = WEIGHED): number {
  if (node.storage !== null) return 0
  const first = ownerOf(node)
  if (isMet(first, round)) return 0
  first.visit = round
  let weight = weightOf(first)
  const stack = [first]
  for (let application = stack.pop(); application !== undefined; application = stack.pop()) {
    const { inputs } = application
    let held = 0
    for (let i = 0; i < inputs.length; i++) {
      const input = ownerOf(inputs[i])
      if (isMet(input, round)) continue
      input.visit = round
      if (input.storage !== null) held += heldBy(input, round)
      else if (input.inputs.length > 0) {
        weight += weightOf(input)
        stack.push(input)
      }
    }
    if (held > 0) weight += Math.max(held - takenBy(application, round), 0)
  }
  return weight
}

/** An application is met by its first output, as in evaluation. */
const ownerOf = (node: Node): Node =>
  node.storage !== null || node.outputs === null ? node : node.outputs[0]

function isMet({ visit, storage }: Node, round: number): boolean {
  if (round < WEIGHED) return visit === round
  return storage === null ? visit !== 0 : visit < 0
}

/** Bytes that evaluation of an application would keep: results that a second reader or, where that is not watched, a handle waits for. */
function weightOf(application: Node): number {
  if ((application.mark & Mark.Abstract) !== 0 || application.primitive?.rules.view !== undefined)
    return GRAPH_BYTES
  return application.outputs === null
    ? keptOf(application)
    : application.outputs.reduce((bytes, each) => bytes + keptOf(each), 0)
}

const keptOf = (node: Node): number =>
  GRAPH_BYTES + (node.uses > 1 || (node.handles > 0 && !isLarge(node)) ? node.nbytes : 0)

/**
 * Bytes that evaluation of an application would take for results that have handles. What it is computed from gives no more back than what
 * it has beyond these: nothing where results take the memory of donated inputs.
 */
function takenBy(application: Node, round: number): number {
  if (round === WEIGHED) return 0
  const of = (node: Node): number => (node.handles > 0 && isLarge(node) ? node.nbytes : 0)
  const { outputs } = application
  return outputs === null ? of(application) : outputs.reduce((bytes, each) => bytes + of(each), 0)
}

/** Bytes of memory that only pending readers may still want, as far as that is known: the handles of small arrays are not watched. */
function heldBy(node: Node, round: number): number {
  const { storage } = node
  if (storage === null || (round < WEIGHED && node.handles > 0 && isLarge(node))) return 0
  return storage.nbytes / storage.refs
}
