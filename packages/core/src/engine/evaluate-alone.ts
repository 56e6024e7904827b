/**
 * The evaluation of one node by itself, as loops that evaluate each step ask for: one kernel on evaluated arrays. Small elementwise work
 * may share storages and wait (docs/decisions/0021). All else is evaluate.ts's.
 */
import { type Backend, backendFor, type Encoder } from "../graph/backend"
import { type Application, Mark, type Node, type Primitive } from "../graph/graph"
import { isDebugging } from "./debug"
import { lifetimes } from "./memory"
import { mostOf } from "./memory-budget"
import { allocate, areReady, awaitValue, encoding, runEncoder } from "./outputs"
import { detach } from "./past-graphs"
import { NO_TRAVERSAL } from "./pending-weight"

/** True if a kernel always runs for a primitive where there is one. */
const isWork = ({ rules, facts }: Primitive): boolean =>
  rules.view === undefined && rules.undo === undefined && rules.plan === undefined && !facts.exchanges

/**
 * Computes one application of evaluated arrays, as a loop that evaluates each step asks for, without what only graphs need: an order, and
 * room for intermediates. Returns false, with nothing computed, where it takes more than a kernel.
 */
export function computeAlone(node: Node): boolean {
  const { primitive, inputs } = node
  if (primitive === null || node.outputs !== null || node.alias !== null) return false
  const { elementwise } = primitive
  if (!elementwise && !isWork(primitive)) return false
  // Of a trace, within another evaluation, or to be blamed by itself.
  if (node.mark !== Mark.None || encoding.isUnderWay || isDebugging()) return false
  for (let i = 0; i < inputs.length; i++) {
    const input = inputs[i]
    if (input.storage === null && !(elementwise && input.primitive?.facts.immediate === true)) return false
  }
  const backend = backendFor(node.stream.device)
  if (!areReady(backend, inputs)) return false
  const encoder = backend.queue.lower(node as Application)
  if (encoder === null || encoder.overwrites !== undefined) return false
  // As a traversal would mark it: what is about to be evaluated is not weighed as pending.
  node.visit = NO_TRAVERSAL
  const mayShare = elementwise && backend.queue.isCertain?.(node) === true
  if (mayShare && lifetimes.place(node, backend.memory)) {
    runPlaced(node as Application, encoder)
    if (backend.queue.flushSoon) backend.queue.flushSoon()
    else backend.queue.flush()
    return true
  }
  lifetimes.relieve(0)
  const shared = mayShare ? lifetimes.bytesToShare(node) : 0
  if (!lifetimes.admits(mostOf(Math.max(shared, node.nbytes)))) return false
  if (shared > 0) {
    lifetimes.openShared(allocate(backend, node, primitive.name, shared))
    lifetimes.place(node, backend.memory)
    runPlaced(node as Application, encoder)
  } else runWithOwn(node as Application, backend, encoder)
  backend.queue.flush()
  if (node.storage !== null) awaitValue(node.storage)
  return true
}

/** Runs a node's encoder with memory of its own. */
function runWithOwn(node: Application, backend: Backend, encoder: Encoder): void {
  encoding.isUnderWay = true
  try {
    runEncoder(node, backend, encoder)
    detach(node)
  } finally {
    encoding.isUnderWay = false
    if (node.storage !== null) lifetimes.keep(node)
  }
}

/** Runs the encoder of a node that got a part of a storage. */
function runPlaced(node: Application, encoder: Encoder): void {
  encoding.isUnderWay = true
  try {
    encoder.encode(node)
    detach(node)
  } catch (error) {
    // Others have parts of that storage, and no more get any.
    lifetimes.closeShared()
    lifetimes.releaseNode(node)
    node.offset = 0
    throw error
  } finally {
    encoding.isUnderWay = false
  }
}
