/**
 * An account of a traced function: which operations were fused, which stay alone and why, and what the plan takes.
 */
import {
  type Application,
  applicationOf,
  type Backend,
  currentStream,
  format,
  type Node,
  type ScalarProgram,
  sameShape,
} from "@lazuli/core/engine"
import { fused, repeatedIn } from "./fuse"
import { dotOf, type Names } from "./graph-picture"
import { isImmediate } from "./identities"
import { inOrder, isLeaf, primitiveOf } from "./order"
import { scheduled } from "./plan"
import type { TracedGraph } from "./traced-graph"

/** One piece of work of a compiled function. */
export interface ExplainedStep {
  /** The operations in it: several where they were fused. */
  readonly operations: readonly string[]
  /** The shape that it works on. */
  readonly shape: readonly number[]
  /** Why it is as it is. */
  readonly reason: string
}

/** The result of {@link Compiled.explain}. Printing it shows a table. */
export interface Explanation {
  /** The number of operations that the function applied; constants are none. */
  readonly applications: number
  /** The number of kernels and copies that a call runs; null where the backend runs the operations one by one. */
  readonly kernels: number | null
  /** Memory for everything between inputs and outputs, laid out ahead, in bytes; null as above. */
  readonly arenaBytes: number | null
  /** The most bytes between inputs and outputs that are needed at one time: no layout takes less; null as above. */
  readonly liveBytes: number | null
  readonly steps: readonly ExplainedStep[]
  /** The graph in Graphviz' DOT language, as the function built it and as it runs; see {@link drawGraph}. */
  readonly dot: { readonly before: string; readonly after: string }
  toString(): string
}

const BY_ROWS = "in blocks of rows together with its neighbours: their intermediates stay in the cache"

const AS_PROLOGUE =
  "piece by piece as the reduction after it reads it, in the reduction's order: never in memory as a whole"
const AS_EPILOGUE = "on each piece of the product before it, while that is in the cache"

/** The reason of what is one kernel with applications of these primitives. */
function oneKernel(others: readonly string[]): string {
  const names = others.map((name) => (name === fused.primitive.name ? "elementwise work" : name))
  return `in one kernel with ${[...new Set(names)].join(", ")}`
}

/** Explains a traced graph, with the names of its inputs and outputs in order, for the device of the current stream. */
export function explanationOf(
  graph: TracedGraph | null,
  inputs: readonly string[],
  outputNames: Names["outputs"],
): Explanation {
  if (graph === null)
    return explained(0, { kernels: 0, arenaBytes: 0, liveBytes: 0 }, [], () => ({
      before: dotOf([]),
      after: dotOf([]),
    }))
  const names = {
    inputs: new Map(graph.inputs.map((node, i) => [node, inputs[i]])),
    outputs: outputNames,
  }
  if (graph.isDivided) {
    const parts = graph.parts().map((part) => explanationOf(part.graph, [], []))
    const sum = (figure: "kernels" | "arenaBytes" | "liveBytes"): number | null =>
      parts.reduce<number | null>(
        (total, { [figure]: n }) => (total === null || n === null ? null : total + n),
        0,
      )
    const [kernels, arenaBytes, liveBytes] = [sum("kernels"), sum("arenaBytes"), sum("liveBytes")]
    return explained(
      parts.reduce((n, { applications }) => n + applications, 0),
      { kernels, arenaBytes, liveBytes },
      parts.flatMap(({ steps }) => steps),
      () => {
        const picture = dotOf(graph.outputs, names)
        return { before: picture, after: picture }
      },
    )
  }
  const stream = graph.stream ?? currentStream()
  const backend = graph.backendOf(stream)
  graph.planFor(stream)
  const stats = graph.statsFor(backend.name)
  const applications = inOrder(graph.outputs, isLeaf).filter(
    (application) => !isImmediate(application),
  ).length
  const outputs = graph.optimized(backend) ?? graph.outputs
  const byRows = graph.byRows(backend.name)
  const fates = graph.fates(backend.name)
  const together = graph.together(backend.name)
  const order = scheduled(backend, graph, outputs)
  const neighbours = elementwiseNeighbours(order)
  const forProducts = readByProducts(order)
  const steps = order.flatMap((node, i): ExplainedStep[] => {
    if (primitiveOf(node).facts.immediate) return []
    const step = explainStep(node, backend, neighbours.has(node), forProducts.has(node))
    if (byRows?.has(i)) return [{ ...step, reason: BY_ROWS }]
    const others = together?.get(i)
    if (others) return [{ ...step, reason: `${oneKernel(others)}${repetition(repeatedIn.get(node))}` }]
    const fate = fates?.get(i)
    if (fate === undefined) return [step]
    if (fate === "prologue") return [{ ...step, reason: `${AS_PROLOGUE}${repetition(repeatedIn.get(node))}` }]
    return [
      {
        ...step,
        reason:
          fate === "epilogue"
            ? `${AS_EPILOGUE}${repetition(repeatedIn.get(node))}`
            : `${step.reason}; ${fate}`,
      },
    ]
  })
  return explained(applications, stats, steps, () => ({
    before: dotOf(graph.outputs, names),
    after: dotOf(outputs, names),
  }))
}

/** Elementwise applications that read, or are read by, elementwise work of their shape. */
function elementwiseNeighbours(order: readonly Application[]): ReadonlySet<Node> {
  const found = new Set<Node>()
  const isWork = (node: Node): boolean => !isLeaf(node) && primitiveOf(node).elementwise && !isImmediate(node)
  for (const node of order.filter(isWork))
    for (const input of node.inputs)
      if (isWork(input) && sameShape(input.shape, node.shape)) found.add(node).add(applicationOf(input))
  return found
}

function explained(
  applications: number,
  figures: Partial<Pick<Explanation, "kernels" | "arenaBytes" | "liveBytes">> | undefined,
  steps: readonly ExplainedStep[],
  draw: () => Explanation["dot"],
): Explanation {
  const { kernels = null, arenaBytes = null, liveBytes = null } = figures ?? {}
  let dot: Explanation["dot"] | undefined
  return {
    applications,
    kernels,
    arenaBytes,
    liveBytes,
    steps,
    // Pictures of a thousand operations take longer than everything else.
    get dot() {
      return (dot ??= draw())
    },
    [Symbol.for("nodejs.util.inspect.custom")](): string {
      return this.toString()
    },
    toString: () => {
      const head =
        kernels === null
          ? `${count(applications, "operation")}; the backend records no plans, and runs these steps one by one`
          : `${count(applications, "operation")}, ${count(kernels, "kernel")} (copies included), ${arenaBytes} bytes between inputs and outputs`
      const lines = steps.map(
        ({ operations, shape, reason }) => `  ${operations.join(" + ")} ${format(shape)}: ${reason}`,
      )
      return [head, ...lines].join("\n")
    },
  }
}

const count = (n: number, what: string): string => `${n} ${what}${n === 1 ? "" : "s"}`

/** Matrices with their last two axes exchanged that products alone read. */
function readByProducts(order: readonly Application[]): ReadonlySet<Node> {
  const read = new Set<Node>()
  const readOtherwise = new Set<Node>()
  for (const application of order)
    for (const [i, input] of application.inputs.entries()) {
      const at = PRODUCTS[application.primitive.name]
      if (at !== undefined && (i === at || i === at + 1) && exchangesLast(input)) read.add(input)
      else readOtherwise.add(input)
    }
  for (const node of readOtherwise) read.delete(node)
  return read
}

/** True if a node is matrices, as they lie in memory, with their last two axes exchanged. */
function exchangesLast(node: Node): boolean {
  if (isLeaf(node) || primitiveOf(node).name !== "transpose") return false
  const axes = node.params.axes as readonly number[]
  const rank = axes.length
  const [matrices] = node.inputs
  return (
    rank >= 2 &&
    axes.every((axis, i) => axis === (i < rank - 2 ? i : 2 * rank - 3 - i)) &&
    (isLeaf(matrices) || !primitiveOf(matrices).rules.view)
  )
}

/** Kernels that take transposed operands, with the position of the first. */
const PRODUCTS: Readonly<Record<string, number>> = { matmul: 0, addmm: 1 }

const repetition = (names: readonly string[] | undefined): string =>
  names ? `; computes ${names.join(", ")} again, which costs less than storing and reading it` : ""

function explainStep(
  node: Node,
  backend: Backend,
  hasNeighbours: boolean,
  readByProduct: boolean,
): ExplainedStep {
  const primitive = primitiveOf(node)
  const { shape } = node
  if (primitive === fused.primitive) {
    const operations = (node.params.program as ScalarProgram).code
      .map(({ op }) => op)
      .filter((op) => op !== "constant")
    return {
      operations,
      shape,
      reason:
        (operations.length > 1 ? "fused into one pass" : "reads its broadcast or constant input in place") +
        repetition(repeatedIn.get(node)),
    }
  }
  const operations = [primitive.name]
  if (readByProduct) return { operations, shape, reason: "read transposed by the product: nothing moves" }
  if (primitive.rules.view)
    return { operations, shape, reason: "a view: nothing moves unless strides cannot express it" }
  if (primitive.elementwise)
    return {
      operations,
      shape,
      reason: hasNeighbours
        ? "elementwise, but its neighbours cannot join it: others need a value first, or the program would grow too large"
        : "elementwise, and alone: none of its neighbours is elementwise work of its shape",
    }
  return {
    operations,
    shape,
    reason:
      backend.queue.lower(node) !== null
        ? `a kernel of its own on ${backend.name}: not elementwise`
        : `${backend.name} has no kernel for it`,
  }
}
