/**
 * Traces: the inputs that a transform passes to a function, and the part of the lazy graph that depends on them. The graph is the trace, so
 * nothing is recorded while the function runs; afterwards {@link collect} finds the applications between its inputs and outputs in
 * topological order. The traversals are in pullback.ts, pushforward.ts and batch.ts; the rules are defined with each primitive.
 */
import {
  type Application,
  Array,
  applicationOf,
  applyNodes,
  asCall,
  boundTrace,
  currentStream,
  definePrimitive,
  exchangesOutOfOrder,
  handles,
  isInexact,
  lifetimes,
  Mark,
  type Node,
  ofTrees,
  onStream,
  outputsOf,
  type Primitive,
  releaseKept,
  sourceNode,
  tracing,
} from "@lazuli/core/engine"
import { visibleInputs } from "./custom-primitive"
import { areNodes, isArray, isIndex, isLike, stored } from "./stored-calls"

/** The purpose of a traversal, which determines the relevant edges of the graph. */
export type Purpose = "vjp" | "jvp" | "vmap" | "replay"

/** The applications between some inputs and some outputs of a graph. */
export interface Subgraph {
  /** All visited nodes: the inputs, then the outputs of every application. A node's `position` is its index here. */
  readonly nodes: Node[]
  /** By position: true if the node depends on an input. */
  readonly varies: boolean[]
  /** The applications that depend on an input, by their first outputs, in topological order. */
  readonly order: Application[]
  /** True if rules or callbacks of other packages or users may run on it. */
  foreign: boolean
  /** By position: the positions in the enclosing traversal, to be restored. */
  readonly outer: number[]
}

/** The identity, for inputs of traced functions that have a graph. */
export const identity = definePrimitive({
  name: "@lazuli/transforms/identity",
  infer: ([x]) => x,
  view: ({ strides, offset }) => ({ offset, strides }),
  vjp: ({ cotangents: [g] }) => [g],
  jvp: ({ tangents: [t] }) => [t],
  vmap: ({ inputs, axes }) => ({ outputs: inputs, axes }),
}).primitive

/**
 * A new handle with a new node, which identifies an input of a trace: the same memory or, if the array is pending or belongs to an outer
 * trace, an identity of it.
 */
export const traced: typeof twinOf = asCall(
  "@lazuli/transforms/traced",
  twinOf,
  stored("traced", isArray, twinOf),
)

function twinOf(x: Array): Array {
  const { node } = x
  if (node.storage !== null && node.mark === Mark.None && node.storage.failure === null) {
    const twin = sourceNode(node.shape, node.dtype, node.storage, Mark.Traced)
    node.storage.refs++
    twin.offset = node.offset
    twin.strides = node.strides
    const handle = new Array(twin)
    lifetimes.keep(twin)
    return handle
  }
  const [twin] = applyNodes(identity, [node], {})
  twin.mark |= Mark.Traced
  return new Array(twin)
}

/**
 * Runs a trace for the transform `op`, in which evaluation keeps the graphs of marked nodes. `body` receives the number of the trace.
 */
export function trace<T>(op: string, body: (epoch: number) => T): T {
  const floor = boundTrace()
  tracing.depth++
  try {
    return ofTrees(op, () => body(newEpoch()))
  } finally {
    handles.floor = floor
    if (--tracing.depth === 0) releaseKept()
  }
}

/** The current epoch: older nodes do not depend on inputs created from now on. */
export const newEpoch = (): number => ++tracing.begun

const isForeign = ({ source }: Primitive): boolean =>
  source !== "@lazuli/core" && source !== "@lazuli/transforms"

/** True if a primitive is from another package, or calls user functions. */
export const runsForeignCode = (primitive: Primitive): boolean =>
  isForeign(primitive) || primitive.facts.opaque === true

/** True if a node is constant for differentiation. */
function isFlat(node: Node, primitive: Primitive): boolean {
  return primitive.facts.stopsGradient === true || (!isInexact(node.dtype) && node.outputs === null)
}

/**
 * Finds the applications that `targets` depend on and that depend on `inputs`, exchanges in their order. Nodes older than `epoch` count as
 * constants, and so does, for derivatives, what carries none. Every subgraph must be given to {@link release} once its positions were read.
 */
export function collect(
  targets: readonly Node[],
  inputs: readonly Node[],
  epoch: number,
  purpose: Purpose,
): Subgraph {
  const subgraph = search(targets, inputs, epoch, purpose)
  const first = exchangesOutOfOrder(subgraph.order)
  if (first === null) return subgraph
  release(subgraph)
  return search([...first, ...targets], inputs, epoch, purpose)
}

function search(
  targets: readonly Node[],
  inputs: readonly Node[],
  epoch: number,
  purpose: Purpose,
): Subgraph {
  const subgraph: Subgraph = { nodes: [], varies: [], order: [], outer: [], foreign: false }
  const { nodes, varies } = subgraph
  for (const input of inputs) if (nodes[input.position] !== input) register(subgraph, input, true)
  const smooth = purpose === "vjp" || purpose === "jvp"
  const seen = purpose === "replay" ? "vmap" : purpose
  const variesAlone = ({ primitive }: Application): boolean =>
    purpose === "vmap" && primitive.facts.perExample === true
  // The stack: applications, their numbers of inputs, the inputs visited so far, and whether one of these varies.
  const applications: Application[] = []
  const counts: number[] = []
  const cursors: number[] = []
  const varying: boolean[] = []
  for (const target of targets) {
    if (nodes[target.position] === target || !mayVary(target, epoch, smooth)) continue
    let top = 0
    let application = begin(subgraph, target)
    let count = visibleInputs(application, seen)
    let i = 0
    let vary = variesAlone(application)
    for (;;) {
      if (i < count) {
        const input = application.inputs[i]
        if (nodes[input.position] === input) {
          vary ||= varies[input.position]
          i++
        } else if (!mayVary(input, epoch, smooth)) i++
        else {
          // Visits this input again afterwards.
          applications[top] = application
          counts[top] = count
          cursors[top] = i
          varying[top++] = vary
          application = begin(subgraph, input)
          count = visibleInputs(application, seen)
          i = 0
          vary = variesAlone(application)
        }
        continue
      }
      if (vary) append(subgraph, application, smooth)
      if (top-- === 0) break
      application = applications[top]
      count = counts[top]
      i = cursors[top]
      vary = varying[top]
    }
  }
  return subgraph
}

function register({ nodes, varies, outer }: Subgraph, node: Node, vary: boolean): void {
  outer.push(node.position)
  node.position = nodes.length
  nodes.push(node)
  varies.push(vary)
}

function mayVary(node: Node, epoch: number, smooth: boolean): boolean {
  const { primitive } = node
  return primitive !== null && node.epoch >= epoch && !(smooth && isFlat(node, primitive))
}

/** Registers all outputs of a node's application and returns the first. */
function begin(subgraph: Subgraph, node: Node): Application {
  const { outputs } = node
  if (outputs === null) register(subgraph, node, false)
  else for (const output of outputs) register(subgraph, output, false)
  return applicationOf(node)
}

/** Appends an application that varies. */
function append(subgraph: Subgraph, application: Application, smooth: boolean): void {
  subgraph.order.push(application)
  subgraph.foreign ||= runsForeignCode(application.primitive)
  if (application.outputs === null) subgraph.varies[application.position] = true
  else
    for (const output of application.outputs)
      subgraph.varies[output.position] = !smooth || isInexact(output.dtype)
}

/** Restores the positions of an enclosing traversal. */
export function release(subgraph: Subgraph): void {
  const { nodes, outer } = subgraph
  for (let i = nodes.length - 1; i >= 0; i--) nodes[i].position = outer[i]
}

/** True if a node depends on the inputs of the subgraph. */
export function variesIn(subgraph: Subgraph, node: Node): boolean {
  return subgraph.nodes[node.position] === node && subgraph.varies[node.position]
}

/** Runs a rule on the stream of the application it belongs to. */
export function onStreamOf<T>(application: Application, rule: () => T): T {
  return application.stream === currentStream() ? rule() : onStream(application.stream, rule)
}

/**
 * The handles of a traversal. They are only needed for nodes that foreign code may evaluate, which must not be released in the meantime.
 */
export class WalkTracking {
  private readonly before = handles.tracking
  private readonly own: boolean

  constructor(subgraph: Subgraph) {
    this.own = this.before && subgraph.foreign
  }

  /** Runs the traversal. */
  within<T>(walk: () => T): T {
    handles.tracking = this.own
    try {
      return walk()
    } finally {
      handles.tracking = this.before
    }
  }

  /** Runs a rule of a primitive, on the stream of its application. */
  withTracking<T>(application: Application, rule: () => T): T {
    handles.tracking = this.before && runsForeignCode(application.primitive)
    const result = onStreamOf(application, rule)
    handles.tracking = this.own
    return result
  }

  /** An array kept by the traversal, with a handle if needed. */
  kept(array: Array): Array {
    return this.own ? new Array(array.node) : array
  }
}

/** Rebuilds the graph from `inputs` to `targets` with other inputs; independent parts are shared. */
export const replay: typeof applyAgain = asCall(
  "@lazuli/transforms/replay",
  applyAgain,
  stored(
    "replay",
    (targets, inputs, replacements, epoch) =>
      areNodes(targets) &&
      areNodes(inputs) &&
      areNodes(replacements) &&
      replacements.length === inputs.length &&
      replacements.every((node, i) => isLike(node, inputs[i])) &&
      isIndex(epoch),
    applyAgain,
  ),
)

function applyAgain(
  targets: readonly Node[],
  inputs: readonly Node[],
  replacements: readonly Node[],
  epoch: number,
): Node[] {
  const subgraph = collect(targets, inputs, epoch, "replay")
  try {
    const copies: Node[] = []
    inputs.forEach((input, i) => {
      copies[input.position] = replacements[i]
    })
    const copyOf = (node: Node): Node => (variesIn(subgraph, node) ? copies[node.position] : node)
    for (const application of subgraph.order) {
      const made = onStreamOf(application, () =>
        applyNodes(application.primitive, application.inputs.map(copyOf), application.params),
      )
      outputsOf(application).forEach((output, i) => {
        copies[output.position] = made[i]
      })
    }
    return targets.map(copyOf)
  } finally {
    release(subgraph)
  }
}
