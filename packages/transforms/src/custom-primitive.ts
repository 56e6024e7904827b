/**
 * The primitive of `customFunction` and `checkpoint`: returns the outputs of a function, and holds the rules of the whole function. Its
 * inputs are the function's arguments, followed by its outputs; without a rule, transforms use the outputs' graph.
 */
import {
  type Array,
  asCall,
  broadcastTo,
  definePrimitive,
  type Node,
  type Shape,
  type VmapResult,
} from "@lazuli/core/engine"

/** The rules of one call of a custom function, on flat lists of arrays. */
export interface CallRules {
  /** Its name in printed graphs and errors. */
  readonly name: string
  vjp?(call: {
    primals: readonly Array[]
    cotangents: readonly Array[]
    outputs: readonly Array[]
    /** The outputs of the function, with their graph. */
    inner: readonly Array[]
  }): readonly (Array | null)[]
  jvp?(call: {
    primals: readonly Array[]
    tangents: readonly (Array | null)[]
    outputs: readonly Array[]
  }): readonly (Array | null)[]
  vmap?(call: {
    primals: readonly Array[]
    axes: readonly (number | null)[]
    size: number
    /** The shapes of the outputs for one example. */
    shapes: readonly Shape[]
  }): VmapResult
  /** The rules of the batched call, if there is no vmap rule. */
  batched(axes: readonly (number | null)[], outAxes: readonly number[]): CallRules
}

type Params = { readonly count: number; readonly call: () => CallRules }

/** `count` arguments, then the outputs. */
export const custom = definePrimitive({
  name: "@lazuli/transforms/custom",
  params: { count: "i64", call: "function" },
  infer: (inputs, { count }) => inputs.slice(count),
  decompose: (inputs, { count }) => inputs.slice(count),
  vjp: ({ inputs, outputs, cotangents, params }) => {
    const { count, rules } = callOf(params as unknown as Params)
    const [primals, inner] = [inputs.slice(0, count), inputs.slice(count)]
    if (!rules.vjp) return [...primals.map(() => null), ...cotangents]
    return [...rules.vjp({ primals, cotangents, outputs, inner }), ...inner.map(() => null)]
  },
  jvp: ({ inputs, outputs, tangents, params }) => {
    const { count, rules } = callOf(params as unknown as Params)
    if (!rules.jvp) return tangents.slice(count)
    return rules.jvp({ primals: inputs.slice(0, count), tangents: tangents.slice(0, count), outputs })
  },
  vmap: ({ inputs, axes, params, size }) => {
    const { count, rules } = callOf(params as unknown as Params)
    const [primals, inAxes] = [inputs.slice(0, count), axes.slice(0, count)]
    if (rules.vmap) {
      const shapes = inputs
        .slice(count)
        .map((y, i) => y.node.shape.filter((_, axis) => axis !== axes[count + i]))
      return rules.vmap({ primals, axes: inAxes, size, shapes })
    }
    // Every output gets a batch axis, which simplifies the rules.
    const outAxes = axes.slice(count).map((axis) => axis ?? 0)
    const inner = inputs
      .slice(count)
      .map((y, i) => (axes[count + i] === null ? broadcastTo(y, [size, ...y.shape]) : y))
    return {
      outputs: customCall([...primals, ...inner], count, rules.batched(inAxes, outAxes)),
      axes: outAxes,
    }
  },
  facts: { opaque: true, exchanges: "derivatives" },
})

const callOf = ({ count, call }: Params) => ({ count, rules: call() })

/** Attaches rules to the outputs of a call, the `inputs` after the first `count`. */
export const customCall: typeof callUnderRules = asCall("@lazuli/transforms/custom", callUnderRules, null)

function callUnderRules(inputs: readonly Array[], count: number, rules: CallRules): Array[] {
  return custom.all(inputs, { count, call: () => rules })
}

/** The number of inputs of an application that a traversal follows: a custom rule hides the graph of its function. */
export function visibleInputs(node: Node, purpose: "vjp" | "jvp" | "vmap"): number {
  if (node.primitive !== custom.primitive) return node.inputs.length
  const { count, rules } = callOf(node.params as unknown as Params)
  return rules[purpose] ? count : node.inputs.length
}
