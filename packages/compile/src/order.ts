/**
 * Graphs in order: every application after those it reads, without recursion.
 */
import { type Application, applicationOf, type Node, type Primitive } from "@lazuli/core/engine"

/** True if a node is a leaf of a traced graph: one of its inputs. */
export const isLeaf = (node: Node): boolean => node.primitive === null

const NOTHING: ReadonlyMap<Application, Application> = new Map()

/** The applications that the roots need, inputs first, and before those what `after` says. Leaves are not among them. */
export function inOrder(
  roots: readonly Node[],
  leaf: (node: Node) => boolean,
  after: ReadonlyMap<Application, Application> = NOTHING,
): Application[] {
  const seen = new Set<Node>()
  const order: Application[] = []
  const stack: { node: Application; next: number }[] = []
  const push = (node: Node): void => {
    const application = applicationOf(node)
    if (seen.has(application) || leaf(node)) return
    seen.add(application)
    stack.push({ node: application, next: after.has(application) ? -1 : 0 })
  }
  for (const root of roots) {
    push(root)
    while (stack.length > 0) {
      const top = stack[stack.length - 1]
      if (top.next < 0) {
        top.next = 0
        push(after.get(top.node) as Application)
      } else if (top.next < top.node.inputs.length) push(top.node.inputs[top.next++])
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
