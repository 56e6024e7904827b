/**
 * Jacobian–vector products: traverses a graph from the traced inputs to its outputs and propagates tangents. An application's tangents come
 * from its `jvp`, from its partial derivatives, from its decomposition, or else from the transpose of its vjp.
 */
import { add, multiply, zeros } from "@lazuli/core"
import {
  type Application,
  Array,
  asCall,
  broadcastTo,
  complex64,
  decompose,
  format,
  isInexact,
  type Node,
  outputsOf,
  type Primitive,
  sameShape,
  TransformError,
  toDtype,
} from "@lazuli/core/engine"
import { fit as fitCotangent, pullback } from "./pullback"
import { areNodes, areSeeds, isIndex, stored } from "./stored-calls"
import { collect, newEpoch, release, type Subgraph, variesIn, WalkTracking } from "./trace"

type Tangents = readonly (Array | null)[]

/** Checks and converts the tangent of an output. */
function fit(primitive: Primitive, y: Node, t: Array): Array {
  let out = t
  if (!sameShape(t.node.shape, y.shape)) {
    if (!primitive.elementwise)
      throw new TransformError(
        primitive.name,
        `its jvp gave a tangent of shape ${format(t.shape)} for an output of shape ${format(y.shape)}`,
      )
    out = broadcastTo(t, y.shape)
  }
  return toDtype(out, y.dtype)
}

/** t · partial. A complex partial of a real output is the gradient ∂o/∂Re + i·∂o/∂Im. */
function scaled(t: Array, partial: Array | number, output: Array): Array {
  if (typeof partial === "number" || partial.dtype !== complex64 || output.dtype === complex64)
    return multiply(t, partial)
  return multiply(t, partial.conjugate()).real
}

function fromPartials(application: Application, inputs: readonly Array[], tangents: Tangents): Array | null {
  const { rules } = application.primitive
  const output = new Array(application)
  let sum: Array | null = null
  for (let i = 0; i < inputs.length; i++) {
    const t = tangents[i]
    const partial = t && rules.partials?.(inputs, output, application.params, i)
    if (!partial) continue
    const term = partial === 1 ? t : partial === -1 ? t.negative() : scaled(t, partial, output)
    sum = sum === null ? term : add(sum, term)
  }
  return sum
}

/** u ↦ vjp(u) is linear, so its own vjp at any u, applied to the tangents, is the jvp. */
function fromTranspose(application: Application, inputs: readonly Array[], tangents: Tangents): Tangents {
  const { rules } = application.primitive
  const epoch = newEpoch()
  const outputs = outputsOf(application)
  const seeds = outputs.map((y) => zeros(y.shape as number[], y.dtype))
  const given = (rules.vjp as NonNullable<typeof rules.vjp>)({
    inputs,
    outputs: outputs.map((node) => new Array(node)),
    cotangents: seeds,
    params: application.params,
    wanted: tangents.map((t) => t !== null),
  })
  const targets: Node[] = []
  const cotangents: Array[] = []
  tangents.forEach((t, i) => {
    const g = given[i]
    if (!t || !g) return
    targets.push(fitCotangent(application.primitive, application.inputs[i], g).node)
    cotangents.push(t)
  })
  return pullback(
    seeds.map((seed) => seed.node),
    targets,
    cotangents,
    epoch,
  )
}

function outputTangents(application: Application, tangents: Tangents): Tangents {
  const primitive = application.primitive
  const { rules } = primitive
  const inputs = application.inputs.map((node) => new Array(node))
  if (rules.jvp) {
    const outputs = outputsOf(application).map((node) => new Array(node))
    return rules.jvp({ inputs, outputs, tangents, params: application.params })
  }
  if (rules.partials && application.outputs === null) return [fromPartials(application, inputs, tangents)]
  if (rules.decompose || rules.scalar) {
    const epoch = newEpoch()
    const parts = decompose(primitive, inputs, application.params)
    return pushforward(
      application.inputs,
      tangents,
      parts.map((part) => part.node),
      epoch,
    )
  }
  if (rules.vjp) return fromTranspose(application, inputs, tangents)
  throw new TransformError(
    primitive.name,
    "has no derivative: it defines no jvp, no vjp and no decomposition",
    {
      hint: "Define one of them, or wrap it in a customFunction with a rule",
    },
  )
}

/** Tangents of `outputs` given those of `inputs`; null if zero. */
export const pushforward: typeof tangentsAt = asCall(
  "@lazuli/transforms/pushforward",
  tangentsAt,
  stored(
    "pushforward",
    (inputs, tangents, outputs, epoch) =>
      areNodes(inputs) && areSeeds(tangents, inputs) && areNodes(outputs) && isIndex(epoch),
    tangentsAt,
  ),
)

function tangentsAt(
  inputs: readonly Node[],
  tangents: Tangents,
  outputs: readonly Node[],
  epoch: number,
): (Array | null)[] {
  const varying = inputs.filter((_, i) => tangents[i] !== null)
  const subgraph = collect(outputs, varying, epoch, "jvp")
  try {
    return walkForward(subgraph, inputs, tangents, outputs)
  } finally {
    release(subgraph)
  }
}

function walkForward(
  subgraph: Subgraph,
  inputs: readonly Node[],
  seeds: Tangents,
  outputs: readonly Node[],
): (Array | null)[] {
  const known: (Array | null)[] = new globalThis.Array(subgraph.nodes.length).fill(null)
  const tangentOf = (node: Node): Array | null => (variesIn(subgraph, node) ? known[node.position] : null)
  const tracking = new WalkTracking(subgraph)
  inputs.forEach((node, i) => {
    const seed = seeds[i]
    if (seed !== null) known[node.position] = new Array(seed.node)
  })
  tracking.within(() => {
    for (const application of subgraph.order) {
      const tangents = application.inputs.map(tangentOf)
      if (tangents.every((t) => t === null)) continue
      const given = tracking.withTracking(application, () => outputTangents(application, tangents))
      outputsOf(application).forEach((output, i) => {
        const t = given[i]
        if (!t || !isInexact(output.dtype)) return
        known[output.position] = tracking.kept(fit(application.primitive, output, t))
      })
    }
  })
  return outputs.map((node) => {
    const t = tangentOf(node)
    return t && new Array(t.node)
  })
}
