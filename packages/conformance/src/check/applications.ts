/**
 * Applications of primitives as they occur: in the samples' graphs, in the graphs of their derivatives, and in the decompositions of both.
 * A primitive that only a rule uses is met here too.
 */
import * as mx from "@lazuli/core"
import {
  type AnyParams,
  applyNodes,
  decompose,
  describe,
  isInexact,
  type Node,
  type Primitive,
  paramsKey,
} from "@lazuli/core/engine"
import { jvp, vjp } from "@lazuli/transforms"
import type { Sample } from "../samples"

/** A function of arrays made of public calls, and what it was called with. */
export interface PublicCall {
  readonly f: (...xs: mx.Array[]) => mx.Array | mx.Array[]
  readonly inputs: readonly mx.Array[]
}

/** One application of a primitive to arrays that have values. */
export interface Application {
  readonly primitive: Primitive
  readonly params: AnyParams
  readonly inputs: readonly mx.Array[]
  /** The sample it was found in. */
  readonly sample: string
  /** The sample itself, where it is a function. */
  readonly call?: PublicCall
}

/** The number of applications of one primitive that are kept. */
const ENOUGH = 8

/** The graphs of a sample: its value, its gradients and its tangents. */
function graphsOf({ f, inputs }: Sample): mx.Array[] {
  const y = f(...inputs)
  if (!((y as unknown) instanceof mx.Array))
    throw new mx.ArgumentError("opCheck", `a sample's f must give one array, received ${describe(y)}`, {
      hint: "A primitive of several outputs is checked with { inputs, params } in place of f",
    })
  if (!isInexact(y.dtype) || !inputs.some((x) => isInexact(x.dtype))) return [y]
  const smooth = inputs.filter((x) => isInexact(x.dtype))
  const g = (...xs: mx.Array[]): mx.Array => {
    let next = 0
    return f(...inputs.map((x) => (isInexact(x.dtype) ? xs[next++] : x)))
  }
  const seed = y.multiply(0.3).add(0.7)
  const [outputs, grads] = vjp(g, smooth, [seed])
  return [...outputs, ...grads, ...jvp(g, smooth, smooth)[1]]
}

/** Different applications of every primitive that the samples reach, a few of each. */
export function applicationsOf(samples: readonly Sample[]): Application[] {
  const found: Application[] = []
  const known = new Set<string>()
  const counts = new Map<Primitive, number>()
  const take = (node: Node, sample: Sample): void => {
    const primitive = node.primitive as Primitive
    const count = counts.get(primitive) ?? 0
    const kinds = node.inputs.map((x) => `${x.dtype.name}${x.shape.length}`)
    const signature = `${primitive.name} ${kinds} ${primitive.facts.opaque ? "" : paramsKey(primitive.schema, node.params)}`
    if (count >= ENOUGH || known.has(signature)) return
    known.add(signature)
    counts.set(primitive, count + 1)
    const inputs = node.inputs.map((input) => new mx.Array(input))
    found.push({ primitive, params: node.params, inputs, sample: sample.name, call: sample })
  }
  for (const sample of samples) {
    const seen = new Set<Node>()
    const stack = graphsOf(sample).map((y) => y.node)
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      const first = node.outputs?.[0] ?? node
      const { primitive } = first
      if (seen.has(first) || primitive === null) continue
      seen.add(first)
      take(first, sample)
      stack.push(...first.inputs)
      if (!primitive.rules.decompose) continue
      const inputs = first.inputs.map((input) => new mx.Array(input))
      for (const part of decompose(primitive, inputs, first.params)) stack.push(part.node)
    }
  }
  for (const { inputs } of found) mx.eval(inputs)
  return found
}

/** The primitive as a function of its inputs. */
export const functionOf =
  ({ primitive, params }: Application) =>
  (...xs: mx.Array[]): mx.Array[] =>
    applyNodes(
      primitive,
      xs.map((x) => x.node),
      params,
    ).map((node) => new mx.Array(node))
