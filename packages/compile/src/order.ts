/**
 * Graphs in order: every application after those it reads, without recursion.
 */
import {
  type Application,
  applicationOf,
  exchangesOutOfOrder,
  gatheredLate,
  isExchange,
  type Node,
  type Primitive,
} from "@lazuli/core/engine"

/** True if a node is a leaf of a traced graph: one of its inputs. */
export const isLeaf = (node: Node): boolean => node.primitive === null

/** True if an application's result shows its input's memory. */
export const isView = (application: Application): boolean => application.primitive.rules.view !== undefined

/** The applications that the roots need, inputs first, and exchanges in their order. Leaves are not among them. */
export function inOrder(roots: readonly Node[], leaf: (node: Node) => boolean): Application[] {
  const order = asNeeded(roots, leaf)
  const first = exchangesOutOfOrder(order)
  return first === null ? order : after(first, roots, leaf)
}

/** The same, with all exchanges as early as they can be, but for those of gathered memory. */
export const exchangesEarly = (
  order: readonly Application[],
  roots: readonly Node[],
  leaf: (node: Node) => boolean,
): Application[] => after(order.filter(isExchange), roots, leaf)

const after = (
  first: readonly Application[],
  roots: readonly Node[],
  leaf: (node: Node) => boolean,
): Application[] => gatheredLate(asNeeded([...first, ...roots], leaf), ({ inputs }) => inputs, isView)

function asNeeded(roots: readonly Node[], leaf: (node: Node) => boolean): Application[] {
  const seen = new Set<Node>()
  const order: Application[] = []
  const stack: { node: Application; next: number }[] = []
  const push = (node: Node): void => {
    const application = applicationOf(node)
    if (seen.has(application) || leaf(node)) return
    seen.add(application)
    stack.push({ node: application, next: 0 })
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

/** By exchange, the one before it; of applications in order. */
export function exchangesBefore(order: readonly Application[]): ReadonlyMap<Application, Application> {
  const all = order.filter(isExchange)
  return new Map(all.slice(1).map((each, i) => [each, all[i]]))
}

/** The primitive of a node that has one. */
export const primitiveOf = (node: Node): Primitive => node.primitive as Primitive
