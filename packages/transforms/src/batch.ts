/**
 * Batching: rewrites the graph of one example into the graph of a batch. An application is rewritten by its `vmap` rule; if elementwise, by
 * aligning axes; otherwise by its decomposition; or else in a loop over examples.
 */
import { stack, zeros } from "@lazuli/core"
import {
  type Application,
  Array,
  applyNodes,
  asCall,
  decompose,
  inPlaceOf,
  isList,
  Mark,
  moveToFront,
  type Node,
  outputsOf,
  RegistryError,
  reshapeLike,
  type Shape,
  sameShape,
  sliceRange,
  sourceNode,
  type VmapResult,
} from "@lazuli/core/engine"
import { areNodes, isArray, isAxis, isIndex, stored } from "./stored-calls"
import { collect, newEpoch, release, type Subgraph, variesIn, WalkTracking } from "./trace"

/** The batch axis of an array, or null. */
export type Axis = number | null

const loops: Record<string, number> = {}

/**
 * Counts, by primitive, how often `vmap` had to loop over the examples for lack of a rule.
 * @example
 * vmapLoops() // => {}
 */
export function vmapLoops(): Record<string, number> {
  return { ...loops }
}

/** The shape of one example. */
export function exampleShape(shape: Shape, axis: Axis): number[] {
  const out = shape.slice()
  if (axis !== null) out.splice(axis, 1)
  return out
}

/** A placeholder of one example. */
export const placeholder: typeof exampleOf = asCall(
  "@lazuli/transforms/example",
  exampleOf,
  stored("example", (x, axis) => isArray(x) && isAxis(axis, x.ndim), exampleOf),
)

function exampleOf(x: Array, axis: Axis, name: string): Node {
  const node = sourceNode(exampleShape(x.node.shape, axis), x.dtype, null, Mark.Abstract)
  node.params = { name }
  return node
}

const wrap = (nodes: readonly Node[]): Array[] => nodes.map((node) => new Array(node))

/** Elementwise: the batch axis goes first, followed by axes of size 1 for examples with fewer axes. */
function alignElementwise(
  application: Application,
  inputs: readonly Array[],
  axes: readonly Axis[],
): VmapResult {
  const primitive = application.primitive
  const run = (aligned: readonly Array[], axis: number): VmapResult => {
    const outputs = wrap(
      applyNodes(
        primitive,
        aligned.map((x) => x.node),
        application.params,
      ),
    )
    return { outputs, axes: outputs.map(() => axis) }
  }
  const first = axes.findIndex((axis) => axis !== null)
  const same = inputs.every((x, i) =>
    axes[i] === null ? x.ndim === 0 : axes[i] === axes[first] && x.ndim === inputs[first].ndim,
  )
  if (same) return run(inputs, axes[first] as number)
  let rank = 0
  inputs.forEach((x, i) => {
    rank = Math.max(rank, x.ndim - (axes[i] === null ? 0 : 1))
  })
  return run(
    inputs.map((x, i) => {
      const axis = axes[i]
      if (axis === null) return x
      const front = moveToFront(x, axis)
      const [size, ...example] = front.shape
      return reshapeLike(front, [
        size,
        ...new globalThis.Array<number>(rank - example.length).fill(1),
        ...example,
      ])
    }),
    0,
  )
}

/** Rewrites the primitive's decomposition for one example. */
function throughDecomposition(
  application: Application,
  inputs: readonly Array[],
  axes: readonly Axis[],
): VmapResult {
  const epoch = newEpoch()
  const examples = inputs.map((x, i) =>
    axes[i] === null ? x : new Array(placeholder(x, axes[i], "example")),
  )
  const parts = decompose(application.primitive, examples, application.params)
  const batched = examples.map((x) => x.node).filter((_, i) => axes[i] !== null)
  return batch(
    parts.map((part) => part.node),
    batched,
    inputs.filter((_, i) => axes[i] !== null),
    axes.filter((axis) => axis !== null),
    epoch,
  )
}

/** Loops over the examples. */
function loop(
  application: Application,
  inputs: readonly Array[],
  axes: readonly Axis[],
  size: number,
): VmapResult {
  const primitive = application.primitive
  loops[primitive.name] = (loops[primitive.name] ?? 0) + 1
  const fronts = inputs.map((x, i) => (axes[i] === null ? x : moveToFront(x, axes[i])))
  const runs: Array[][] = []
  for (let k = 0; k < size; k++) {
    const example = fronts.map((x, i) => {
      if (axes[i] === null) return x.node
      const start = x.shape.map((_, axis) => (axis === 0 ? k : 0))
      const stop = x.shape.map((n, axis) => (axis === 0 ? k + 1 : n))
      return sliceRange(x, start, stop).squeeze(0).node
    })
    runs.push(wrap(applyNodes(primitive, example, application.params)))
  }
  const outputs = outputsOf(application).map((_, i) => stack(runs.map((run) => run[i])))
  return { outputs, axes: outputs.map(() => 0) }
}

function rewrite(
  application: Application,
  inputs: readonly Array[],
  axes: readonly Axis[],
  size: number,
): VmapResult {
  const { rules, elementwise } = application.primitive
  if (rules.vmap) return rules.vmap({ inputs, axes, params: application.params, size })
  if (elementwise) return alignElementwise(application, inputs, axes)
  if (rules.decompose) return throughDecomposition(application, inputs, axes)
  return loop(application, inputs, axes, size)
}

/** The batch of `targets`, given the batch and batch axis of each of `inputs`. */
export const batch: typeof rewriteForBatch = asCall(
  "@lazuli/transforms/batch",
  rewriteForBatch,
  stored("batch", isBatch, rewriteForBatch),
)

/** True if values are batches of the inputs, all of one size. */
function isBatch(targets: unknown, inputs: unknown, values: unknown, axes: unknown, epoch: unknown): boolean {
  if (!areNodes(targets) || !areNodes(inputs) || !isList(values) || !isList(axes) || !isIndex(epoch))
    return false
  const count = inputs.length
  if (count === 0 || values.length !== count || axes.length !== count) return false
  return inputs.every(({ dtype, shape }, i) => {
    const [value, axis, first, along] = [values[i], axes[i], values[0], axes[0]]
    if (!isArray(value) || !isArray(first) || !isIndex(axis) || !isIndex(along)) return false
    const given = value.node.shape
    const size = first.node.shape[along]
    return value.dtype === dtype && given[axis] === size && sameShape(exampleShape(given, axis), shape)
  })
}

function rewriteForBatch(
  targets: readonly Node[],
  inputs: readonly Node[],
  values: readonly Array[],
  axes: readonly number[],
  epoch: number,
): VmapResult {
  const size = values[0].node.shape[axes[0]]
  const subgraph = collect(targets, inputs, epoch, "vmap")
  try {
    return walk(subgraph, targets, inputs, values, axes, size)
  } finally {
    release(subgraph)
  }
}

function walk(
  subgraph: Subgraph,
  targets: readonly Node[],
  inputs: readonly Node[],
  values: readonly Array[],
  axes: readonly number[],
  size: number,
): VmapResult {
  const known: Array[] = new globalThis.Array(subgraph.nodes.length)
  const axisOf: Axis[] = new globalThis.Array(subgraph.nodes.length).fill(null)
  inputs.forEach(({ position }, i) => {
    known[position] = values[i]
    axisOf[position] = axes[i]
  })
  const tracking = new WalkTracking(subgraph)
  const show = (node: Node): Array => (variesIn(subgraph, node) ? known[node.position] : new Array(node))
  const axisAt = (node: Node): Axis => (variesIn(subgraph, node) ? axisOf[node.position] : null)
  tracking.within(() => {
    for (const application of subgraph.order) {
      const { outputs, axes: outAxes } = tracking.withTracking(application, () =>
        inPlaceOf(application, () =>
          rewriteChecked(application, application.inputs.map(show), application.inputs.map(axisAt), size),
        ),
      )
      outputsOf(application).forEach((output, i) => {
        known[output.position] = tracking.kept(outputs[i])
        axisOf[output.position] = outAxes[i]
      })
    }
  })
  return { outputs: targets.map((node) => new Array(show(node).node)), axes: targets.map(axisAt) }
}

/** An empty batch: applies no rules, which may divide by its size. */
function emptyBatch(examples: readonly Node[]): VmapResult {
  const outputs = examples.map(({ shape, dtype }) => zeros([0, ...shape], dtype))
  return { outputs, axes: outputs.map(() => 0) }
}

/** Rewrites an application. If none of its inputs is batched (a rule may drop the batch axis), it usually is unchanged. */
function rewriteChecked(
  application: Application,
  inputs: readonly Array[],
  axes: readonly Axis[],
  size: number,
): VmapResult {
  const primitive = application.primitive
  if (!primitive.facts.perExample && axes.every((axis) => axis === null)) {
    const nodes = applyNodes(
      primitive,
      inputs.map((x) => x.node),
      application.params,
    )
    return { outputs: wrap(nodes), axes: nodes.map(() => null) }
  }
  if (size === 0) return emptyBatch(outputsOf(application))
  const result = rewrite(application, inputs, axes, size)
  outputsOf(application).forEach((output, i) => {
    const got = result.outputs[i]
    const axis = result.axes[i]
    const expected = output.shape
    const found = got && exampleShape(got.node.shape, axis)
    if (
      !found ||
      found.length !== expected.length ||
      found.some((n, k) => n !== expected[k]) ||
      (axis !== null && got.node.shape[axis] !== size)
    )
      throw new RegistryError(
        primitive.name,
        `its vmap gave ${got ? `shape [${got.shape}] with batch axis ${axis}` : "nothing"} where an example has shape [${expected}]`,
      )
  })
  return result
}
