/**
 * A traced graph: placeholders, what was computed from them, and the values from outside that it reads. It is the parameter of
 * the primitive that a compiled call adds to the graph.
 */
import {
  Array,
  addNodes,
  applicationOf,
  applyNodes,
  type Backend,
  backendFor,
  currentStream,
  type Droppable,
  definePrimitive,
  exchanges,
  format,
  hasExchangingDerivatives,
  inTrace,
  isExchange,
  lifetimes,
  Mark,
  type Meta,
  type Node,
  noteExchange,
  onStream,
  type Plan,
  type Stream,
  type Strides,
  sameShape,
  sourceNode,
  TransformError,
  withoutHandles,
} from "@lazuli/core/engine"
import { inOrder, isLeaf } from "./order"
import { type Part, partsOf, streamsOf } from "./parts"
import { makePlan, optimize, type Planned } from "./plan"
import { reapply, reapplyOn, rebuild } from "./rebuild"

let count = 0

/** Ways in which the inputs may lie that a traced graph has plans for. */
const MAX_LAYOUTS = 16

/**
 * Bytes that the plans of a traced graph count for, with its trees: so much that a thousand dropped ones are looked for, however slowly.
 */
const PLAN_BYTES = 1 << 18

/** A traced graph's plans. */
class GraphPlans implements Droppable {
  /** By backend. */
  readonly ordinary = new Map<string, Planned | null>()
  /** Those for inputs that are not row-major, by backend and how they lie. */
  readonly strided = new Map<string, Planned | null>()

  drop(): void {
    for (const plans of [this.ordinary, this.strided]) {
      for (const planned of plans.values()) planned?.release()
      plans.clear()
    }
  }
}

/** A graph as `compile` traced it. Its plans go with it. */
export class TracedGraph {
  /** Unique: two traces never share one, so it can stand for the graph in cache keys. */
  readonly key = `graph#${++count}`
  private plans: GraphPlans | null = null
  private readonly expansions = new Map<string, readonly Node[]>()
  /** Shapes and dtypes of the outputs; of a single one alone. */
  readonly meta: Meta | readonly Meta[]
  /** Positions of the inputs that every call gives up. */
  donated: ReadonlySet<number> = new Set()
  /** By output: the position of the input that it takes the place of in captured state. */
  successors: ReadonlyMap<number, number> = new Map()
  /** The stream that all of it runs on; null where that is the stream of the call, or there are several. */
  readonly stream: Stream | null = null
  /** True if its operations run on several streams. */
  readonly isDivided: boolean = false
  /** True if calls of it are exchanges with other processes, "derivatives" if only their derivatives may be. */
  readonly exchanges: boolean | "derivatives"
  private divided: readonly (Part & { readonly graph: TracedGraph })[] | null = null
  private device: Node["stream"]["device"] | null = null
  private plan: Plan | null = null

  constructor(
    /** Placeholders, in the order in which a call passes its arrays. */
    readonly inputs: readonly Node[],
    /** Computed from them. */
    readonly outputs: readonly Node[],
    /** True if its operations keep the streams that they were traced on, since some were named, and do not follow that of the call. */
    private readonly namesStreams = false,
  ) {
    if (namesStreams) {
      const [stream = null, ...others] = streamsOf(outputs)
      this.isDivided = others.length > 0
      this.stream = this.isDivided ? null : stream
    }
    const order = inOrder(outputs, isLeaf)
    this.exchanges = order.some(isExchange) || (order.some(hasExchangingDerivatives) && "derivatives")
    const metas = outputs.map(({ shape, dtype }) => ({ shape, dtype }))
    this.meta = metas.length === 1 ? metas[0] : metas
  }

  /**
   * Shapes and dtypes of the outputs for these inputs; of a single one alone.
   * @throws TransformError for inputs of other shapes or dtypes than it was traced with
   */
  metaOf(inputs: readonly Meta[]): Meta | readonly Meta[] {
    for (let i = 0; i < this.inputs.length; i++) {
      const { shape, dtype } = this.inputs[i]
      const given: Meta | undefined = inputs[i]
      if (given?.dtype !== dtype || !sameShape(given.shape, shape))
        throw new TransformError(
          "compile",
          `input ${i} of a traced graph was ${dtype.name} ${format(shape)} when it was traced, received ${given ? `${given.dtype.name} ${format(given.shape)}` : "nothing"}`,
        )
    }
    return this.meta
  }

  /**
   * The graph's operations on other inputs: its semantics, and what transforms walk.
   * @throws TransformError for inputs of other shapes or dtypes than it was traced with
   */
  inline(inputs: readonly Array[]): Array[] {
    this.metaOf(inputs.map(({ node }) => node))
    const leaves = new Map(this.inputs.map((node, i) => [node, inputs[i].node]))
    const rewrite = this.namesStreams ? reapply : reapplyOn(currentStream())
    return rebuild(this.outputs, leaves, isLeaf, rewrite).map((node) => new Array(node))
  }

  /** The plan by which the backend of `stream`'s device runs it with one call; null where it cannot. */
  planFor(stream: Node["stream"]): Plan | null {
    if (this.isDivided) return null
    // Asked twice for every call.
    if (stream.device === this.device) return this.plan
    const backend = backendFor(stream.device)
    if (!backend.plans) return null
    const { ordinary } = this.keptPlans()
    let planned = ordinary.get(backend.name)
    if (planned === undefined) {
      planned = withoutHandles(() => makePlan(backend, this))
      ordinary.set(backend.name, planned)
    }
    this.device = stream.device
    this.plan = planned?.plan ?? null
    return this.plan
  }

  private keptPlans(): GraphPlans {
    if (this.plans === null) {
      this.plans = new GraphPlans()
      lifetimes.dropWith(this, this.plans, PLAN_BYTES)
    }
    return this.plans
  }

  /** A plan for inputs that lie so; null where one lies backwards, which plans cannot say, or where they come in too many ways. */
  planForStrides(stream: Node["stream"], strides: readonly (Strides | null)[]): Plan | null {
    const backend = backendFor(stream.device)
    const key = `${backend.name}|${strides.map((each) => each?.join() ?? "").join("|")}`
    const { strided } = this.keptPlans()
    let planned = strided.get(key)
    const isNew = planned === undefined && strided.size < MAX_LAYOUTS
    if (isNew && strides.every((each) => !each?.some((step) => step < 0))) {
      planned = withoutHandles(() => makePlan(backend, this, strides))
      strided.set(key, planned)
    }
    return planned?.plan ?? null
  }

  /**
   * The work of a call on a backend that records no plans, fused all the same and on the call's stream; or on several streams, part by
   * part.
   */
  expand({ inputs, stream }: Node): Array[] {
    if (this.isDivided) return this.expandParts(inputs)
    const backend = backendFor(stream.device)
    let outputs = this.expansions.get(backend.name)
    if (outputs === undefined) {
      outputs = this.optimized(backend) ?? this.outputs
      this.expansions.set(backend.name, outputs)
    }
    const leaves = new Map(this.inputs.map((node, i) => [node, inputs[i]]))
    return rebuild(outputs, leaves, isLeaf, reapplyOn(stream)).map((node) => new Array(node))
  }

  private expandParts(inputs: readonly Node[]): Array[] {
    const values = new Map(this.inputs.map((node, i) => [node, inputs[i]]))
    for (const part of this.parts()) {
      const given = part.inputs.map((node) => values.get(node) as Node)
      const made = onStream(part.stream, () =>
        applyNodes(tracedCall.primitive, given, { program: part.graph }),
      )
      if (part.graph.exchanges === true) noteExchange(made[0])
      part.outputs.forEach((node, i) => values.set(node, made[i]))
    }
    // A result that no part makes is a constant.
    return this.outputs.map((node) => new Array(values.get(node) ?? reapply(applicationOf(node), [])[0]))
  }

  /** The parts of a graph on several streams, each a graph of its own. */
  parts(): readonly (Part & { readonly graph: TracedGraph })[] {
    this.divided ??= partsOf(this.outputs).map((part) => {
      const inputs = part.inputs.map(({ shape, dtype }) => sourceNode(shape, dtype, null, Mark.Abstract))
      const leaves = new Map(part.inputs.map((node, i) => [node, inputs[i]]))
      return {
        ...part,
        graph: new TracedGraph(inputs, rebuild(part.outputs, leaves, isLeaf, reapplyOn(part.stream)), true),
      }
    })
    return this.divided
  }

  /** The backend of a stream's device. */
  backendOf(stream: Node["stream"]): Backend {
    return backendFor(stream.device)
  }

  /** The applications that a plan for the backend runs: simplified and fused; null where that fails. */
  optimized(backend: Backend): Node[] | null {
    return withoutHandles(() => optimize(backend, this.outputs))
  }

  /** Figures of the plan for a backend, for explanation and tests. */
  statsFor(backend: string): Planned["stats"] | undefined {
    return this.plans?.ordinary.get(backend)?.stats
  }

  /** Positions in the plan's order of what the plan for a backend runs by blocks of rows. */
  byRows(backend: string): ReadonlySet<number> | undefined {
    return this.plans?.ordinary.get(backend)?.byRows
  }

  /** The fate of elementwise work that reads a product, by position in the plan's order. */
  fates(backend: string): Planned["fates"] | undefined {
    return this.plans?.ordinary.get(backend)?.fates
  }

  /** The primitives that are one kernel with an application, by position in the plan's order. */
  together(backend: string): Planned["together"] | undefined {
    return this.plans?.ordinary.get(backend)?.together
  }

  /** Gives the backends' plans back. */
  release(): void {
    this.plans?.drop()
    for (const { graph } of this.divided ?? []) graph.release()
    this.expansions.clear()
    this.device = null
    this.plan = null
  }
}

/** One call of a compiled function: a node with the traced graph's inputs and outputs. */
export const tracedCall = definePrimitive({
  name: "@lazuli/compile/program",
  params: { program: "program" },
  infer: (inputs, { program }) => (program as TracedGraph).metaOf(inputs),
  decompose: (inputs, { program }) => (program as TracedGraph).inline(inputs),
  plan: (node) => (node.params.program as TracedGraph).planFor(node.stream),
  planForStrides: (node, strides) =>
    (node.params.program as TracedGraph).planForStrides(node.stream, strides),
  expand: (node) => (node.params.program as TracedGraph).expand(node),
})

/**
 * A call of a graph that exchanges something, or whose derivatives may. Transforms go through a call's operations once more, and must not
 * repeat exchanges: what they may look at gets the operations in place of the call.
 */
export function exchangingCall(graph: TracedGraph, inputs: readonly Node[]): readonly Node[] {
  if (exchanges.exist && inTrace())
    return graph.inline(inputs.map((node) => new Array(node))).map(({ node }) => node)
  const made = addNodes(tracedCall.primitive, inputs, { program: graph }, graph.meta)
  if (graph.exchanges) noteExchange(made[0], graph.exchanges)
  return made
}
