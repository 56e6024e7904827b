/**
 * Simplification: dead code goes because only what the outputs need is rebuilt; equal applications become one; what a
 * backend has no kernel for is replaced by its decomposition; casts and reshapes that change nothing vanish.
 */
import {
  Array,
  type Backend,
  decompose,
  type Node,
  paramsKey,
  programOf,
  sameShape,
} from "@lazuli/core/engine"
import { isLeaf, primitiveOf } from "./order"
import { reapply, rebuild } from "./rebuild"

/** Rewrites a graph for a backend; the result's applications are views, or the backend has kernels for them. Null where that fails. */
export function simplify(backend: Backend, outputs: readonly Node[]): Node[] | null {
  const known = new Map<string, readonly Node[]>()
  const ids = new Map<Node, number>()
  const idOf = (node: Node): number => {
    let id = ids.get(node)
    if (id === undefined) ids.set(node, (id = ids.size))
    return id
  }
  const settled = new Set<Node>()
  let possible = true

  const rewrite = (lead: Node, inputs: readonly Node[]): readonly Node[] => {
    const primitive = primitiveOf(lead)
    const key = `${primitive.id}(${inputs.map(idOf).join(",")})${paramsKey(primitive.schema, lead.params)}`
    const equal = known.get(key)
    if (equal) return equal
    const results = build(lead, clamped(lead, inputs) ?? inputs)
    known.set(key, results)
    if (soleOperation(results[0]) === "maximum") maxima.set(results[0].inputs.map(idOf).join(","), results[0])
    for (const node of results) settled.add(node)
    return results
  }
  /**
   * x > c and max(x, c) > c are the same for every x and c, NaN included. Where the maximum is there anyway, as in the derivative of relu,
   * x itself need not be kept.
   */
  const maxima = new Map<string, Node>()
  const clamped = (lead: Node, inputs: readonly Node[]): readonly Node[] | null => {
    const op = soleOperation(lead)
    if (op !== "maximum" && op !== "greater") return null
    const key = inputs.map(idOf).join(",")
    const maximum = maxima.get(key)
    return op === "greater" && maximum && sameShape(maximum.shape, inputs[0].shape)
      ? [maximum, inputs[1]]
      : null
  }
  const build = (lead: Node, inputs: readonly Node[]): readonly Node[] => {
    const primitive = primitiveOf(lead)
    const changesNothing =
      inputs.length === 1 &&
      lead.outputs === null &&
      primitive.rules.view !== undefined &&
      inputs[0].dtype === lead.dtype
    if (changesNothing && sameShape(inputs[0].shape, lead.shape) && keepsOrder(lead)) return [inputs[0]]
    const nodes = reapply(lead, inputs)
    if (primitive.rules.view || backend.supports(nodes[0])) return nodes
    if (!primitive.rules.decompose) {
      possible = false
      return nodes
    }
    const parts = decompose(
      primitive,
      inputs.map((n) => new Array(n)),
      lead.params,
    ).map((a) => a.node)
    // The decomposition's own applications pass through the same rewriting; nodes that went through it already are leaves.
    return rebuild(parts, new Map(), (node) => settled.has(node) || isLeaf(node), rewrite)
  }
  const simplified = rebuild(outputs, new Map(), isLeaf, rewrite)
  return possible ? simplified : null
}

/** The one operation of an elementwise application on its inputs as they are. */
function soleOperation(lead: Node): string | null {
  if (isLeaf(lead) || !primitiveOf(lead).elementwise || lead.outputs !== null) return null
  const { code } = programOf(lead)
  return code.length === 1 && code[0].args.every((a, i) => a === i) ? code[0].op : null
}

/** Views that show every element at its place when the shape stays: not a transpose, not a reversed or shifted slice. */
function keepsOrder({ params }: Node): boolean {
  const { axes, start, strides } = params as Partial<Record<string, readonly number[]>>
  const moved = axes?.some((axis, i) => axis !== i)
  return !moved && !strides?.some((s) => s !== 1) && !start?.some?.((s) => s !== 0)
}
