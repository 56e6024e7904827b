/**
 * Graphs in order: every application after those it reads, without recursion.
 */
import type { Node, Primitive } from "@lazuli/core/engine"

/** The node that stands for an application of several outputs: its first. */
export const leadOf = (node: Node): Node => (node.outputs ? node.outputs[0] : node)

/** All outputs of an application. */
export const outputsOf = (lead: Node): readonly Node[] => lead.outputs ?? [lead]

/** True if a node is a leaf of a program: one of its inputs. */
export const isLeaf = (node: Node): boolean => node.primitive === null

/** The applications that the roots need, inputs first. Leaves are not among them. */
export function inOrder(roots: readonly Node[], leaf: (node: Node) => boolean): Node[] {
  const seen = new Set<Node>()
  const order: Node[] = []
  const stack: { node: Node; next: number }[] = []
  const push = (node: Node): void => {
    const lead = leadOf(node)
    if (seen.has(lead) || leaf(node)) return
    seen.add(lead)
    stack.push({ node: lead, next: 0 })
  }
  for (const root of roots) {
    push(root)
    while (stack.length > 0) {
      const top = stack[stack.length - 1]
      if (top.next < top.node.inputs.length) push(top.node.inputs[top.next++])
      else {
        order.push(top.node)
        stack.pop()
      }
    }
  }
  return order
}

/** The primitive of a node that has one. */
export const primitiveOf = (node: Node): Primitive => node.primitive as Primitive
