/**
 * `checkpoint`: gradient checkpointing. The function's intermediates are not kept for its gradient; the backward pass rebuilds their graph
 * with a dependency on the cotangents, so that they are recomputed when needed.
 */
import { depends } from "@lazuli/core"
import {
  Array,
  arraysOf,
  checkFunction,
  forsake,
  isInexact,
  Mark,
  type Node,
  ofTrees,
  withArrays,
  withFreshHandles,
  withOwnArrays,
} from "@lazuli/core/engine"
import { checkSynchronous } from "./argument"
import { type CallRules, customCall } from "./custom-primitive"
import { pullback } from "./pullback"
import { newEpoch, replay } from "./trace"

/** Captured nodes: those that the graph of `targets` reads, other than `inputs`, that are older than `epoch` and may be traced. */
function capturedBy(targets: readonly Node[], inputs: readonly Node[], epoch: number): Node[] {
  const seen = new Set<Node>(inputs)
  const captured: Node[] = []
  const stack = [...targets]
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (seen.has(node) || node.mark === Mark.None) continue
    seen.add(node)
    if (node.primitive === null || node.epoch < epoch) captured.push(node)
    else stack.push(...node.inputs)
  }
  return captured
}

/** The vjp of a call that began at `epoch`: rebuilds the graph from its inputs, with a dependency on the cotangents. */
function recomputing(name: string, epoch: number): CallRules {
  const rules: CallRules = {
    name,
    vjp: ({ primals, cotangents, inner }) => {
      const later = primals.map((x) => (isInexact(x.dtype) ? depends(x, cotangents) : x).node)
      const walk = newEpoch()
      const copies = replay(
        inner.map((y) => y.node),
        primals.map((x) => x.node),
        later,
        epoch,
      )
      const found = pullback(later, copies, cotangents, walk)
      // Nobody wants the values again, but for the gradient's sake.
      const given = found.map((g) => g?.node)
      for (const copy of copies) if (copy.epoch >= walk) forsake(copy, walk, given)
      return found
    },
    batched: () => rules,
  }
  return rules
}

/**
 * Gradient checkpointing: the same function, whose intermediates are recomputed for its gradient instead of being kept. Captured arrays get
 * gradients as well.
 *
 * @example
 * const block = checkpoint((x) => x.sin().exp())
 * grad((x) => block(x))(mx.array(0)).item() // => 1
 */
export function checkpoint<A extends readonly unknown[], R>(f: (...args: A) => R): (...args: A) => R {
  checkFunction("checkpoint", f)
  return (...args) =>
    ofTrees("checkpoint", () => {
      const epoch = newEpoch()
      const result = f(...withFreshHandles(args))
      checkSynchronous("checkpoint", result)
      const given = arraysOf(args)
      const inner = arraysOf(result)
      if (![...given, ...inner].some((x) => x.node.mark !== Mark.None)) return withOwnArrays(result, args)
      const nodes = given.map((x) => x.node)
      const captured = capturedBy(
        inner.map((y) => y.node),
        nodes,
        epoch,
      ).map((node) => new Array(node))
      const inputs = [...given, ...captured, ...inner]
      const outputs = customCall(inputs, given.length + captured.length, recomputing(f.name, epoch))
      return withArrays(result, outputs) as R
    })
}
