/**
 * Letting go once work is encoded: of the graph behind an application, unless a trace wants it, and of the memory of intermediates that
 * nothing can read any more.
 */
import { type Application, forgetGraph, type Node, tracing } from "../graph/graph"
import { isKeptForTrace } from "./assignment"
import { lifetimes } from "./memory"

/** Lets go of the graph behind an evaluated application, unless an open trace wants it. */
export function detach(application: Application): void {
  if (isKeptForTrace(application)) {
    tracing.kept.push(application)
    return
  }
  const { inputs } = application
  if (application.outputs === null) forgetGraph(application)
  else {
    for (const output of application.outputs) {
      forgetGraph(output)
      releaseIfDead(output)
    }
  }
  for (let i = 0; i < inputs.length; i++) {
    const input = inputs[i]
    input.uses--
    releaseIfDead(input)
  }
}

/** Lets go of the graphs that evaluation kept for traces, once the last trace is closed. */
export function releaseKept(): void {
  const { kept } = tracing
  if (kept.length === 0) return
  tracing.kept = []
  for (const application of kept) if (application.primitive !== null) detach(application)
  retain(kept)
}

export function releaseIfDead(node: Node): void {
  if (node.uses === 0 && node.handles === 0 && node.storage !== null) lifetimes.releaseNode(node)
}

/** Sees to the memory of what was evaluated and may still be read: by a handle, a pending graph, or the engine that asked for it. */
export function retain(order: readonly Application[]): void {
  for (let i = 0; i < order.length; i++) {
    const application = order[i]
    if (application.outputs === null) {
      if (application.storage !== null) lifetimes.keep(application)
    } else {
      const { outputs } = application
      for (const output of outputs) {
        if (output.storage !== null) lifetimes.keep(output)
        // Siblings must not keep each other alive once the application is history.
        if (output.primitive === null) output.outputs = null
      }
    }
  }
}
