/**
 * Building a graph anew on other inputs, application by application: the one loop behind inlining, simplification and fusion.
 */
import { applyNodes, type Node, onStream, type Stream } from "@lazuli/core/engine"
import { inOrder, outputsOf, primitiveOf } from "./order"

/** The replacement of an application: its outputs on the new inputs. */
export type Rewrite = (lead: Node, inputs: readonly Node[]) => readonly Node[]

/** Applies the same primitive to the new inputs. */
export const reapply: Rewrite = (lead, inputs) => applyNodes(primitiveOf(lead), inputs, lead.params)

/** The same on one stream, whatever the application's own is. */
export const reapplyOn =
  (stream: Stream): Rewrite =>
  (lead, inputs) =>
    onStream(stream, () => reapply(lead, inputs))

/**
 * The nodes that stand for `outputs` when the leaves are replaced as `leaves` says and every application is rewritten.
 * Leaves that `leaves` does not mention stay.
 */
export function rebuild(
  outputs: readonly Node[],
  leaves: ReadonlyMap<Node, Node>,
  isLeaf: (node: Node) => boolean,
  rewrite: Rewrite,
): Node[] {
  const images = new Map<Node, Node>(leaves)
  const imageOf = (node: Node): Node => images.get(node) ?? node
  for (const lead of inOrder(outputs, (node) => images.has(node) || isLeaf(node))) {
    const inputs = lead.inputs.map(imageOf)
    const results = onStream(lead.stream, () => rewrite(lead, inputs))
    outputsOf(lead).forEach((node, i) => images.set(node, results[i]))
  }
  return outputs.map(imageOf)
}
