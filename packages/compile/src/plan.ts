/**
 * Planning: a simplified and fused graph becomes one recorded series of work. Every intermediate gets its memory in one arena ahead
 * of time; bytes are used again as soon as their last reader has run.
 */
import {
  type Application,
  type Backend,
  DeviceError,
  format,
  LazuliError,
  type Node,
  outputsOf,
  type Plan,
  type Plans,
  Storage,
  type Strides,
} from "@lazuli/core/engine"
import { gatherCompanions } from "./companions"
import { Epilogues, type Fate } from "./epilogues"
import { fuse } from "./fuse"
import type { Group } from "./groups"
import { inOrder, isLeaf } from "./order"
import { PlanMemory } from "./plan-memory"
import { planOrder } from "./plan-order"
import { applicationsOf, PlanSteps, type Step } from "./plan-steps"
import { simplify } from "./simplify"

/** A plan with what it takes. */
export interface Planned {
  readonly plan: Plan
  readonly stats: {
    readonly applications: number
    readonly kernels: number
    readonly arenaBytes: number
    readonly liveBytes: number
  }
  /** Positions in the plan's order of applications that run block by block with their neighbours. */
  readonly byRows: ReadonlySet<number>
  /** The fate of elementwise work beside kernels, by position in the plan's order. */
  readonly fates: ReadonlyMap<number, Fate>
  /** By position in the plan's order: the primitives that are one kernel with an application. */
  readonly together: ReadonlyMap<number, readonly string[]>
  release(): void
}

/** Thrown where the backend lacks a kernel after all. */
const NO_KERNEL = new Error("no kernel")

/** A graph to be planned. */
export interface Plannable {
  readonly inputs: readonly Node[]
  readonly outputs: readonly Node[]
  /** Positions of the inputs that callers give up. */
  readonly donated: ReadonlySet<number>
  /** By output: the position of the input that it takes the place of in captured state. */
  readonly successors: ReadonlyMap<number, number>
}

/**
 * Plans a graph for a backend and, unless all inputs are row-major, how they lie; null where the backend lacks a kernel or cannot record.
 */
export function makePlan(
  backend: Backend,
  graph: Plannable,
  strides: readonly (Strides | null)[] | null = null,
): Planned | null {
  if (!backend.plans) return null
  const { inputs, outputs, donated, successors } = graph
  const fusedOutputs = optimize(backend, outputs)
  if (!fusedOutputs) return null
  const steps = new PlanSteps(backend, inputs, fusedOutputs, strides)
  if (!steps.addAll(scheduled(backend, graph, fusedOutputs))) return null
  steps.bindOutputs()
  const companions = gatherCompanions(steps)
  steps.noteUses()
  const joined = new Epilogues(steps, companions, donated)
  joined.find()
  const memory = new PlanMemory(steps, joined.epilogues, donated, successors)
  const { arenaBytes, liveBytes } = memory.allocate()
  const alignments = memory.alignments()
  const recorded = record(steps, joined, arenaBytes)
  if (!recorded) return null
  const plan = {
    ...recorded,
    bytes: arenaBytes,
    donations: memory.donations(),
    ...(alignments.length > 0 && { alignments }),
  }
  const { epilogues, prologues, fates } = joined
  const applications = inOrder(outputs, isLeaf).length
  const kernels = steps.list.length - steps.repeated - epilogues.size - prologues.size
  return {
    plan,
    stats: { applications, kernels, arenaBytes, liveBytes },
    byRows: steps.byRows,
    fates,
    together: steps.together,
    release: releaserOf(backend, plan),
  }
}

/**
 * The order of a graph's optimized work. Where kernels run on whole arrays, states wait until they can be written over; elsewhere an update
 * follows the gradient at once, as its epilogue.
 */
export function scheduled(
  { plans }: Backend,
  { inputs, successors }: Pick<Plannable, "inputs" | "successors">,
  optimized: readonly Node[],
): Application[] {
  if (plans?.whole !== true) return planOrder(optimized)
  return planOrder(
    optimized,
    new Map([...successors].map(([output, input]) => [optimized[output], inputs[input]])),
    plans.isExchange,
  )
}

/** The simplified and fused graph; null where the backend lacks a kernel for it. */
export function optimize(backend: Backend, outputs: readonly Node[]): Node[] | null {
  const simplified = simplify(backend, outputs)
  return simplified && fuse(simplified)
}

/** It keeps nothing of the graph alive. */
const releaserOf =
  ({ plans }: Backend, plan: Plan) =>
  (): void =>
    plans?.release?.(plan)

/** The plan of what the steps encode; null where the backend lacks a kernel after all. */
function record(steps: PlanSteps, { epilogues, prologues }: Epilogues, arenaBytes: number): Plan | null {
  const { inputs, outputs, backend } = steps
  const arenaBinding = inputs.length + outputs.length
  const { memory, queue } = backend
  const plans = backend.plans as Plans
  const allocations = [...new Set([...steps.allBlocks()].flatMap(({ allocation }) => allocation ?? []))]
  const bindings = new Map(
    plans.whole ? allocations.map((allocation, i) => [allocation, arenaBinding + i]) : [],
  )
  const show = (node: Node): void => {
    const block = steps.blockAt(node)
    if (!block) return
    const { binding, allocation, nbytes } = block
    const layout = steps.layoutOf(node)
    const own = allocation === null ? undefined : bindings.get(allocation)
    // While a plan is recorded, a storage's id is the number of a binding; nothing releases it.
    node.storage = new Storage(memory, binding ?? own ?? arenaBinding, nbytes)
    node.offset =
      layout.offset + (own === undefined && allocation !== null ? allocation.offset / node.dtype.size : 0)
    node.strides = layout.strides
  }
  const hide = (node: Node): void => {
    node.storage = null
    node.offset = 0
    node.strides = null
  }
  const encodeAlone = (node: Application): void => {
    // A kernel may want to know where its operands lie, which was not known before.
    const encoder = queue.lower(node)
    if (encoder === null) throw NO_KERNEL
    encoder.encode(node)
  }
  const encodeGroup = ({ members, inner }: Group): void => {
    if (plans.encodeJoined?.(members, inner)) return
    // Inner results have no memory.
    if (inner.size > 0) throw NO_KERNEL
    for (const each of members) if (!each.primitive.rules.view) encodeAlone(each)
  }
  const encodeStep = (step: Step): void => {
    if (step.kind === "copy") {
      queue.encodeCopy(step.from, step.to)
      return
    }
    if (step.kind === "group") encodeGroup(step.group)
    else if (prologues.has(step)) plans.encodePrologue?.(step.node)
    else if (epilogues.has(step)) plans.encodeEpilogue?.(step.node)
    else encodeAlone(step.node)
  }
  const encode = (): void => {
    for (const step of steps.list) {
      const nodes = steps.touched(step)
      nodes.forEach(show)
      try {
        encodeStep(step)
      } finally {
        nodes.forEach(hide)
      }
    }
  }
  try {
    const offsets = allocations.map(({ offset }) => offset)
    return plans.record(inputs.length, outputs.length, arenaBytes, encode, offsets)
  } catch (cause) {
    if (cause === NO_KERNEL) return null
    throw cause instanceof LazuliError ? cause : refused(steps, cause as Error)
  }
}

/** The backend's refusal, under the name of the operation with the largest result, which is what it cannot hold. */
function refused(steps: PlanSteps, cause: Error): DeviceError {
  const made = steps.list.flatMap((step) =>
    step.kind === "copy"
      ? [{ node: step.to, of: step.from }]
      : applicationsOf(step).flatMap((of) => outputsOf(of).map((node) => ({ node, of }))),
  )
  const [largest, ...others] = made
  if (largest === undefined) return new DeviceError("compile", cause.message, { cause })
  const { node, of } = others.reduce((a, b) => (b.node.nbytes > a.node.nbytes ? b : a), largest)
  return new DeviceError(
    of.primitive?.name ?? "compile",
    `the ${steps.backend.name} backend cannot run a compiled function whose result of shape ${format(node.shape)} takes ${node.nbytes} bytes: ${cause.message}`,
    { cause },
  )
}
