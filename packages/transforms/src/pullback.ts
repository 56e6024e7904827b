/**
 * Vector–Jacobian products: traverses a graph from its outputs back to the traced inputs and accumulates cotangents. An application's
 * cotangents come from its own `vjp`, from its partial derivatives, or from its decomposition, in this order.
 *
 * Complex arrays: the cotangent c of an output o represents the real number Re(Σ conj(c)·o), of which the result is the gradient.
 */
import { add, multiply, zeros } from "@lazuli/core"
import {
  type Application,
  Array,
  applyNodes,
  asCall,
  broadcastTo,
  complex64,
  decompose,
  format,
  forsake,
  type Node,
  type Primitive,
  sameShape,
  scalarArray,
  sumTo,
  TransformError,
  toDtype,
} from "@lazuli/core/engine"
import { areNodes, areSeeds, isIndex, stored } from "./stored-calls"
import { collect, newEpoch, release, type Subgraph, variesIn, WalkTracking } from "./trace"

/** Converts a cotangent to the shape and dtype of its input. */
export function fit(primitive: Primitive, x: Node, g: Array): Array {
  const { shape, dtype } = g.node
  if (shape === x.shape && dtype === x.dtype) return g
  if (sameShape(shape, x.shape)) return toDtype(g, x.dtype)
  if (!primitive.elementwise)
    throw new TransformError(
      primitive.name,
      `its vjp gave a cotangent of shape ${format(shape)} for an input of shape ${format(x.shape)}`,
    )
  return toDtype(sumTo(g, x.shape), x.dtype)
}

/** g · conj(partial). A complex partial of a real output is already the gradient ∂o/∂Re + i·∂o/∂Im. */
function scaled(g: Array, partial: Array | number, output: Array): Array {
  if (partial === 1) return g
  if (partial === -1) return g.negative()
  if (typeof partial === "number") return multiply(g, partial)
  return multiply(
    g,
    partial.dtype === complex64 && output.dtype === complex64 ? partial.conjugate() : partial,
  )
}

/** Handles on nodes. */
export function arraysAt(nodes: readonly Node[]): Array[] {
  const arrays = new globalThis.Array<Array>(nodes.length)
  for (let i = 0; i < nodes.length; i++) arrays[i] = new Array(nodes[i])
  return arrays
}

/** Cotangents of the inputs of an application; null if zero or not needed. */
export function inputCotangents(
  application: Application,
  cotangents: readonly Array[],
  wanted: readonly boolean[],
): readonly (Array | null)[] {
  const primitive = application.primitive
  const { rules } = primitive
  const inputs = arraysAt(application.inputs)
  if (rules.vjp) {
    const outputs = application.outputs === null ? [new Array(application)] : arraysAt(application.outputs)
    return rules.vjp({ inputs, outputs, cotangents, params: application.params, wanted })
  }
  if (rules.partials && application.outputs === null) {
    const output = new Array(application)
    const given = new globalThis.Array<Array | null>(inputs.length)
    for (let i = 0; i < inputs.length; i++) {
      const partial = wanted[i] ? rules.partials(inputs, output, application.params, i) : null
      given[i] = partial ? scaled(cotangents[0], partial, output) : null
    }
    return given
  }
  if (!rules.decompose && !rules.scalar)
    throw new TransformError(primitive.name, "has no derivative: it defines no vjp and no decomposition", {
      hint: "Define one of them, or wrap it in a customFunction with a rule",
    })
  // By its decomposition, on the same inputs.
  const epoch = newEpoch()
  const parts = decompose(primitive, inputs, application.params)
  return pullback(
    application.inputs,
    parts.map((part) => part.node),
    cotangents,
    epoch,
  )
}

/**
 * Cotangents of `inputs` given those of `outputs`; null if zero. For a repeated input, the cotangent is at its first position.
 */
export const pullback: typeof cotangentsAt = asCall(
  "@lazuli/transforms/pullback",
  cotangentsAt,
  stored(
    "pullback",
    (inputs, outputs, cotangents, epoch) =>
      areNodes(inputs) && areNodes(outputs) && areSeeds(cotangents, outputs) && isIndex(epoch),
    cotangentsAt,
  ),
)

function cotangentsAt(
  inputs: readonly Node[],
  outputs: readonly Node[],
  cotangents: readonly (Array | null)[],
  epoch: number,
): (Array | null)[] {
  const subgraph = collect(outputs, inputs, epoch, "vjp")
  try {
    return walkBack(subgraph, inputs, outputs, cotangents)
  } finally {
    release(subgraph)
  }
}

const NONE: Given = []
/** The most consecutive parts that are searched. */
const MAX_PARTS = 64

const isPart = ({ primitive, params }: Node): boolean =>
  primitive?.facts.places === true && params.mode === "set"

/** The arrays that a rule gave and got. */
type Given = readonly (Array | null)[]

/**
 * If g is the cotangent of a slice, with zeros elsewhere: adds it only to that slice of a sum. Otherwise null. The graph lets go of g where
 * it is nobody else's among what the rule gave and got, so that what it reads can be released and written over.
 */
function placed({ node: sum }: Array, { node: part }: Array, given: Given, got: Given): Array | null {
  if (!isPart(part) || !isZero(part.inputs[0])) return null
  // Disjoint slices are written without reading.
  let under = sum
  for (let i = 0; i < MAX_PARTS && isPart(under) && areApart(under, part); i++) under = under.inputs[0]
  const mode = isZero(under) ? "set" : "add"
  const made = applyNodes(part.primitive as Primitive, [sum, part.inputs[1]], { ...part.params, mode })
  const isIt = (each: Array | null): boolean => each?.node === part
  if (given.filter(isIt).length === 1 && !got.some(isIt)) forsake(part)
  return new Array(made[0])
}

/** True if two slices are disjoint along some axis. */
function areApart(x: Node, y: Node): boolean {
  const range = ({ params, inputs: [, update] }: Node, axis: number): [number, number] => {
    const first = (params.start as number[])[axis]
    const last = first + (update.shape[axis] - 1) * (params.strides as number[])[axis]
    return [Math.min(first, last), Math.max(first, last)]
  }
  return x.shape.some((_, axis) => {
    const [a, b] = [range(x, axis), range(y, axis)]
    return a[1] < b[0] || b[1] < a[0]
  })
}

/** True for broadcast zeros. */
function isZero({ primitive, inputs }: Node): boolean {
  if (!primitive?.rules.view) return false
  const [{ primitive: source, params }] = inputs
  return source?.facts.immediate === true && params.value === 0
}

function walkBack(
  subgraph: Subgraph,
  inputs: readonly Node[],
  outputs: readonly Node[],
  seeds: readonly (Array | null)[],
): (Array | null)[] {
  const { order } = subgraph
  const sums: (Array | null)[] = new globalThis.Array(subgraph.nodes.length).fill(null)
  const accumulate = (node: Node, g: Array, given: Given, got: Given): void => {
    const sum = sums[node.position]
    sums[node.position] = sum === null ? g : (placed(sum, g, given, got) ?? add(sum, g))
  }
  const tracking = new WalkTracking(subgraph)
  tracking.within(() => {
    outputs.forEach((node, i) => {
      const seed = seeds[i]
      if (seed !== null && variesIn(subgraph, node)) accumulate(node, tracking.kept(seed), NONE, NONE)
    })
    for (let i = order.length - 1; i >= 0; i--) {
      const application = order[i]
      const cotangents = takeCotangents(sums, application)
      if (cotangents === null) continue
      const { inputs: sources, primitive } = application
      const wanted = new globalThis.Array<boolean>(sources.length)
      for (let k = 0; k < sources.length; k++) wanted[k] = variesIn(subgraph, sources[k])
      const given = tracking.withTracking(application, () => inputCotangents(application, cotangents, wanted))
      for (let k = 0; k < wanted.length; k++) {
        const g = given[k]
        if (!wanted[k] || !g) continue
        const input = sources[k]
        accumulate(input, tracking.kept(fit(primitive, input, g)), given, cotangents)
      }
    }
  })
  const results: (Array | null)[] = []
  for (const { position } of inputs) {
    const sum = sums[position]
    sums[position] = null
    results.push(sum && new Array(sum.node))
  }
  return results
}

/** Removes the cotangents of an application from the sums, with zeros for missing ones; null if all are missing. */
function takeCotangents(sums: (Array | null)[], application: Application): Array[] | null {
  if (application.outputs === null) {
    const g = sums[application.position]
    sums[application.position] = null
    return g && [g]
  }
  if (application.outputs.every((output) => sums[output.position] === null)) return null
  return application.outputs.map((output) => {
    const g = sums[output.position] ?? zeros(output.shape as number[], output.dtype)
    sums[output.position] = null
    return g
  })
}

/** Ones of the shape and dtype of a node: the cotangent of a sum. */
export const onesAs = (node: Node): Array => broadcastTo(scalarArray(1, node.dtype), node.shape)
