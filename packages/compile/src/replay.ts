/**
 * A call of a cached program: one application in the graph, its results in the form of the function's, captured state written back, and
 * what was donated given up.
 */
import {
  Array,
  addNode,
  addNodes,
  boundPending,
  Mark,
  type Meta,
  type Node,
  onStream,
  withArrays,
} from "@lazuli/core/engine"
import type { CachedProgram } from "./cached-program"
import type { Form, Outcome } from "./capture"
import { type Donated, giveUp } from "./donation"
import type { Leaves } from "./leaves"
import type { CompileOptions } from "./options"
import { arrayLeaves, leave, readLeaves, writePath } from "./state"
import { exchangingCall, type TracedGraph, tracedCall } from "./traced-graph"

const NONE: readonly Node[] = []
const NOTHING: readonly Array[] = []

export class Replay {
  constructor(
    private readonly options: CompileOptions,
    private readonly donated: Donated,
    private readonly leaves: Leaves,
  ) {}

  /** A call of a program that is single. The call's signature is the program's: nothing is inferred again. */
  single({ capture: { graph, outside }, params }: CachedProgram, nodes: Node[]): Array {
    for (let i = 0; i < outside.length; i++) nodes.push(outside[i].node)
    boundPending()
    const { meta, exchanges } = graph as TracedGraph
    return new Array(
      exchanges
        ? exchangingCall(graph as TracedGraph, nodes)[0]
        : addNode(tracedCall.primitive, nodes, params, meta as Meta),
    )
  }

  /**
   * Adds one call to the graph, and hands out its results. `nodes` are those of the arguments; `leaves` are those of `state` where they are
   * known.
   */
  call(
    cached: CachedProgram,
    nodes: Node[],
    args: readonly unknown[],
    state: readonly Array[],
    leaves: Leaves | null,
  ): unknown {
    const { graph, outside, result } = cached.capture
    for (let i = 0; i < state.length; i++) nodes.push(state[i].node)
    const known = nodes.length
    if (graph !== null) for (let i = 0; i < outside.length; i++) nodes.push(outside[i].node)
    boundPending()
    const computed = compute(cached, nodes)
    const values = valuesOf(cached, computed, nodes, known)
    this.writeBack(cached, values, leaves)
    this.giveUp(args, state, values, keptBy(cached, state))
    if (state.length > 0) this.leaves.forget()
    return result instanceof Array ? values[0] : withArrays(result, values)
  }

  /** Hands out the results of a call without a graph. Nothing is given up where `state` is null. */
  finish(outcome: Outcome, args: readonly unknown[], state: readonly Array[] | null): unknown {
    const { result, values, lent } = outcome
    this.fill(outcome, values)
    if (state !== null) {
      this.giveUp(args, state, values)
      this.giveUp(lent.args, lent.state, values, values)
    }
    this.leaves.forget()
    return withArrays(result, values)
  }

  /** Lets go of what was donated to a call, but for what is still in the trees: `left`, where that is known. */
  private giveUp(
    args: readonly unknown[],
    state: readonly Array[],
    results: readonly Array[],
    left: readonly Array[] | null = null,
  ): void {
    if (this.donated.length === 0 || results.some(({ node }) => node.mark !== Mark.None)) return
    giveUp(this.donated, state, left ?? readLeaves(arrayLeaves(this.options.inputs)), args)
  }

  /** Leaves in the captured trees what the function would have left there. */
  private writeBack(cached: CachedProgram, values: readonly Array[], leaves: Leaves | null): void {
    if (!cached.inPlace || leaves === null) {
      this.fill(cached.capture, values)
      return
    }
    const { resultCount } = cached.capture
    const { holders, keys } = leaves
    for (let i = 0; i < holders.length; i++) holders[i][keys[i]] = values[resultCount + i]
  }

  private fill({ resultCount, outputPaths, left }: Form, values: readonly Array[]): void {
    const { outputs } = this.options
    for (const each of left) leave(this.options[each.tree], each)
    outputPaths.forEach((path, i) => writePath(outputs, path, values[resultCount + i]))
  }
}

/** The arrays of the state that a call leaves in the captured inputs; null where they have to be looked for. */
function keptBy(
  { inPlace, capture: { outputPaths, left } }: CachedProgram,
  state: readonly Array[],
): readonly Array[] | null {
  if (inPlace) return NOTHING
  return outputPaths.length === 0 && left.length === 0 ? state : null
}

function compute({ capture: { graph }, params, elsewhere }: CachedProgram, nodes: Node[]): readonly Node[] {
  if (graph === null) return NONE
  const add = (): readonly Node[] =>
    graph.exchanges ? exchangingCall(graph, nodes) : addNodes(tracedCall.primitive, nodes, params, graph.meta)
  return elsewhere === null ? add() : onStream(elsewhere, add)
}

/** The arrays of the result, then those of the captured outputs. Of the nodes, the first `known` follow the call. */
function valuesOf(
  { capture: { sources } }: CachedProgram,
  computed: readonly Node[],
  nodes: readonly Node[],
  known: number,
): Array[] {
  const values: Array[] = []
  for (let i = 0; i < sources.length; i++) {
    const source = sources[i]
    values.push(
      new Array(
        source.from === "graph"
          ? computed[source.index]
          : source.from === "argument" && source.index < known
            ? nodes[source.index]
            : (source as { value: Array }).value.node,
      ),
    )
  }
  return values
}
