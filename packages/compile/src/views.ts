/**
 * Views in a graph: which keep the elements in order, and how one moves to the other side of elementwise work, so that what is before
 * and after it becomes one pass.
 */
import {
  applicationOf,
  applyNodes,
  contiguousStrides,
  isContiguous,
  type Layout,
  type Node,
  primitiveByName,
  sameShape,
  sizeOf,
} from "@lazuli/core/engine"
import { isImmediate } from "./identities"
import { isLeaf, primitiveOf } from "./order"
import { reapply } from "./rebuild"

/** True if a node shows another's memory, with the same dtype. */
export const isView = (node: Node): boolean =>
  !isLeaf(node) &&
  primitiveOf(node).rules.view !== undefined &&
  node.outputs === null &&
  node.inputs.length === 1 &&
  node.inputs[0].dtype === node.dtype

/** The layout of an array with memory of its own. */
export const ROW_MAJOR: Layout = { offset: 0, strides: null }

/** The layout of a view, given that of its input; null where strides cannot express it, so that it is a copy. */
export function layoutOf(view: Node, { offset, strides }: Layout): Layout | null | undefined {
  const [{ shape, dtype }] = view.inputs
  const source = { shape, dtype, offset, strides: strides ?? contiguousStrides(shape) }
  return primitiveOf(view).rules.view?.(source, view.params, view)
}

/** Views in a row that are looked at: most chains are short. */
const MAX_MERGED = 32

/** A view of views as one: of what they show, where they keep or restore its order. */
export function merged(view: Node): Node {
  const chain = [view]
  let root = view.inputs[0]
  for (; isView(root) && chain.length < MAX_MERGED; root = root.inputs[0]) chain.push(root)
  let layout: Layout | null | undefined = ROW_MAJOR
  let { shape } = root
  for (const each of chain.reverse()) {
    layout = layoutOf(each, layout)
    if (!layout) return view
    shape = each.shape
  }
  if (layout.offset !== 0 || sizeOf(shape) !== sizeOf(root.shape)) return view
  if (layout.strides && !isContiguous(shape, layout.strides)) return view
  // One view of the root stays what it is.
  return chain.length === 1 && !sameShape(root.shape, shape) ? view : reshaped(root, shape)
}

/** True if a view shows all elements in the order in which they are, as a reshape does. */
export function keepsOrder(node: Node): boolean {
  if (sizeOf(node.inputs[0].shape) !== sizeOf(node.shape)) return false
  const layout = layoutOf(node, ROW_MAJOR)
  return !!layout && layout.offset === 0 && (!layout.strides || isContiguous(node.shape, layout.strides))
}

const apply = (name: string, input: Node, shape: readonly number[]): Node =>
  sameShape(input.shape, shape) ? input : applyNodes(primitiveByName(name), [input], { shape })[0]

/** The elements in order with another shape. */
export const reshaped = (input: Node, shape: readonly number[]): Node => apply("reshape", input, shape)

/**
 * A view of elementwise work as the work on views of its inputs; `show` gives the view of an input of the work's shape. Null where an
 * input would have to be copied for it.
 */
export function lifted(view: Node, work: Node, show: (input: Node) => Node): Node | null {
  const inOrder = keepsOrder(view)
  const size = sizeOf(work.shape)
  const inputs: Node[] = []
  for (const input of work.inputs) {
    if (isImmediate(input)) inputs.push(input)
    else if (sizeOf(input.shape) === 1 && size !== 1) inputs.push(reshaped(input, []))
    else if (sameShape(input.shape, work.shape)) inputs.push(show(input))
    else if (inOrder) return null
    else inputs.push(show(apply("broadcastTo", input, work.shape)))
  }
  return reapply(applicationOf(work), inputs)[0]
}
