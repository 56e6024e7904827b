/**
 * Building a graph anew on other inputs, application by application: the one loop behind inlining, simplification and fusion.
 */
import {
  type Application,
  applyNodes,
  type Node,
  onStream,
  outputsOf,
  type Stream,
} from "@lazuli/core/engine"
import { inOrder } from "./order"

/** The replacement of an application: its outputs on the new inputs. */
export type Rewrite = (application: Application, inputs: readonly Node[]) => readonly Node[]

/** Applies the same primitive to the new inputs. */
export const reapply: Rewrite = (application, inputs) =>
  applyNodes(application.primitive, inputs, application.params)

/** The same on one stream, whatever the application's own is. */
export const reapplyOn =
  (stream: Stream): Rewrite =>
  (application, inputs) =>
    onStream(stream, () => reapply(application, inputs))

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
  for (const application of inOrder(outputs, (node) => images.has(node) || isLeaf(node))) {
    const inputs = application.inputs.map(imageOf)
    const results = onStream(application.stream, () => rewrite(application, inputs))
    outputsOf(application).forEach((node, i) => images.set(node, results[i]))
  }
  return outputs.map(imageOf)
}
